CREATE DATABASE computed CHARACTER SET utf8mb4;
CREATE TABLE computed.lines (id INT PRIMARY KEY, qty INT UNSIGNED, price DECIMAL(10, 2), first VARCHAR(20), last VARCHAR(20), gone DATETIME, total DECIMAL(12, 2) AS (qty * price) STORED, whole VARCHAR(41) AS (CONCAT(first, ' ', last)) VIRTUAL, shout VARCHAR(20) AS (UPPER(first)) STORED, day DATE AS (DATE(gone)) VIRTUAL, UNIQUE KEY (total));
INSERT INTO computed.lines (id, qty, price, first, last, gone) VALUES (1, 2, 1.25, 'Ada', 'Lovelace', '2024-02-29 23:59:59'), (2, 3, -7.00, 'Zoë', NULL, NULL), (3, 1, 9.99, 'a', 'b', NULL);
CREATE TABLE computed.bare (a INT, b BIGINT AS (a * 2) STORED);
INSERT INTO computed.bare (a) VALUES (1), (1), (NULL);
