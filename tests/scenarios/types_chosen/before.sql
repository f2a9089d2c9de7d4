CREATE DATABASE chosen;
CREATE TABLE chosen.flags (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, active TINYINT(1) NOT NULL DEFAULT 1, amount TINYINT, colours SET('red', 'green', 'blue') NOT NULL DEFAULT 'red', name VARCHAR(20), taken TIME(3));
INSERT INTO chosen.flags VALUES (1, 1, 5, 'red,blue', 'a', '10:11:12.5'), (2, 0, -3, '', 'b', NULL), (9223372036854775807, 1, NULL, 'green', NULL, '23:59:59.999');
CREATE TABLE chosen.days (id INT PRIMARY KEY, made DATE NOT NULL, moment DATETIME(3) NOT NULL, gone DATE);
INSERT INTO chosen.days VALUES (1, '2024-02-29', '2024-02-29 10:00:00.125', NULL);
