CREATE SCHEMA other_structure;
CREATE TABLE other_structure.more_columns (first_of_all INT DEFAULT 7, id BIGINT PRIMARY KEY, v VARCHAR(100), note VARCHAR(20));
CREATE TABLE other_structure.more_keys (id INT PRIMARY KEY, name VARCHAR(20) NOT NULL, v INT, UNIQUE (name));
