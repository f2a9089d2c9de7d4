CREATE DATABASE routes_1;
CREATE DATABASE routes_plain;
CREATE TABLE routes_1.orders_07 (id INT PRIMARY KEY, v VARCHAR(10));
CREATE TABLE routes_1.untouched (id INT PRIMARY KEY, v VARCHAR(10));
CREATE TABLE routes_plain.t (id INT PRIMARY KEY, v VARCHAR(10));
INSERT INTO routes_1.orders_07 VALUES (1, 'a'), (2, 'b');
INSERT INTO routes_1.untouched VALUES (1, 'a');
INSERT INTO routes_plain.t VALUES (1, 'a');
