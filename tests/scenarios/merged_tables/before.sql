CREATE DATABASE merged_tables_1;
CREATE DATABASE merged_tables_2;
CREATE TABLE merged_tables_1.t_1 (id INT PRIMARY KEY, v VARCHAR(10));
CREATE TABLE merged_tables_1.t_2 (id INT PRIMARY KEY, v VARCHAR(10));
CREATE TABLE merged_tables_2.t_1 (id INT PRIMARY KEY, v VARCHAR(10));
INSERT INTO merged_tables_1.t_1 VALUES (11, 'a'), (12, 'b');
INSERT INTO merged_tables_1.t_2 VALUES (21, 'c'), (22, 'd');
INSERT INTO merged_tables_2.t_1 VALUES (31, 'e'), (32, 'f');
