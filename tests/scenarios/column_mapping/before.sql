CREATE DATABASE column_mapping_2;
CREATE TABLE column_mapping_2.t_3 (id BIGINT PRIMARY KEY, v VARCHAR(10), w VARCHAR(10));
INSERT INTO column_mapping_2.t_3 VALUES (5, 'a', 'x');
CREATE TABLE column_mapping_2.t_4 (id BIGINT PRIMARY KEY, v VARCHAR(10), w VARCHAR(10));
INSERT INTO column_mapping_2.t_4 VALUES (5, 'c', 'x');
