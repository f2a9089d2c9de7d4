UPDATE routes_1.orders_07 SET v = 'bb' WHERE id = 2;
DELETE FROM routes_1.orders_07 WHERE id = 1;
INSERT INTO routes_1.orders_07 VALUES (3, 'c');
ALTER TABLE routes_1.orders_07 ADD COLUMN w INT DEFAULT 5;
INSERT INTO routes_1.orders_07 VALUES (4, 'd', 6);
INSERT INTO routes_1.untouched VALUES (2, 'b');
CREATE TABLE routes_1.later (id INT PRIMARY KEY);
INSERT INTO routes_1.later VALUES (1);
UPDATE routes_plain.t SET v = 'z';
