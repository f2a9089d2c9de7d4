CREATE DATABASE missing_rows;
CREATE TABLE missing_rows.t (id INT PRIMARY KEY, v VARCHAR(10));
INSERT INTO missing_rows.t VALUES (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd');
