CREATE DATABASE basic;
CREATE TABLE basic.orders (id INT AUTO_INCREMENT PRIMARY KEY, customer VARCHAR(40), amount DECIMAL(10,2), state VARCHAR(10));
CREATE TABLE basic.pairs (a INT, b VARCHAR(20), c INT, PRIMARY KEY (a, b), UNIQUE KEY by_c (c));
CREATE TABLE basic.log_lines (line VARCHAR(100), level INT);
INSERT INTO basic.orders (customer, amount, state) VALUES ('ann', 1.5, 'new'), ('ben', 20, 'new'), ('cid', 300.25, 'new');
INSERT INTO basic.pairs VALUES (1, 'x', 10), (1, 'y', 11), (2, 'x', 12);
INSERT INTO basic.log_lines VALUES ('same', 1), ('same', 1), ('other', 2);
