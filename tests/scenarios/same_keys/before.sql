CREATE DATABASE same_keys;
CREATE TABLE same_keys.t (id INT PRIMARY KEY, a INT UNIQUE, b VARCHAR(10) UNIQUE, n INT);
INSERT INTO same_keys.t VALUES (1, 1, 'x', 0), (2, 2, 'y', 0), (3, 3, 'z', 0);
