UPDATE computed.lines SET qty = CASE id WHEN 1 THEN 4 ELSE 10 END, price = CASE id WHEN 1 THEN 2.50 ELSE 0.25 END WHERE id IN (1, 3);
INSERT INTO computed.lines (id, qty, price, first, last) VALUES (4, 100, 3.33, 'é', 'ö');
DELETE FROM computed.lines WHERE id = 2;
DELETE FROM computed.bare WHERE a = 1 LIMIT 1;
INSERT INTO computed.bare (a) VALUES (21);
ALTER TABLE computed.lines ADD COLUMN twice INT AS (id * 2) STORED;
INSERT INTO computed.lines (id, qty, price, first) VALUES (5, 1, 1.01, 'x');
ALTER TABLE computed.lines MODIFY price DECIMAL(12, 2);
UPDATE computed.lines SET price = 123456789.12 WHERE id = 5;
CREATE TABLE computed.later (id INT PRIMARY KEY, v INT, w INT AS (IF(v > 3, v, NULL)) VIRTUAL);
INSERT INTO computed.later (id, v) VALUES (1, 3), (2, 4)
