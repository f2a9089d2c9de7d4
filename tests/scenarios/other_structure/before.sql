CREATE DATABASE other_structure;
CREATE TABLE other_structure.more_columns (id INT PRIMARY KEY, v VARCHAR(10));
CREATE TABLE other_structure.more_keys (id INT PRIMARY KEY, name VARCHAR(20) NOT NULL, v INT);
INSERT INTO other_structure.more_columns VALUES (1, 'a'), (2, 'b');
INSERT INTO other_structure.more_keys VALUES (1, 'ann', 1), (2, 'ben', 2);
