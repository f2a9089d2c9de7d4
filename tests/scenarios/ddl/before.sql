CREATE DATABASE ddl;
CREATE TABLE ddl.changing (id INT PRIMARY KEY, a INT, b VARCHAR(10));
CREATE TABLE ddl.renamed_later (id INT PRIMARY KEY, a INT);
CREATE TABLE ddl.gone_later (id INT PRIMARY KEY);
CREATE TABLE ddl.emptied (id INT PRIMARY KEY);
INSERT INTO ddl.changing VALUES (1, 1, 'one'), (2, 2, 'two');
INSERT INTO ddl.renamed_later VALUES (1, 1);
INSERT INTO ddl.gone_later VALUES (1);
INSERT INTO ddl.emptied VALUES (1), (2);
