INSERT INTO chosen.flags VALUES (7, 0, 9, 'green,blue', 'c', '00:00:00');
UPDATE chosen.flags SET active = 1 - active, name = CONCAT(name, 'x') WHERE id < 3;
DELETE FROM chosen.flags WHERE id = 2;
ALTER TABLE chosen.flags ADD COLUMN seen TINYINT(1) NOT NULL, ADD COLUMN level SET('a', 'b') NOT NULL DEFAULT 'a,b';
UPDATE chosen.flags SET seen = 1, level = 'b' WHERE id = 7;
ALTER TABLE chosen.flags MODIFY active INT NOT NULL;
UPDATE chosen.flags SET active = 5 WHERE id = 7;
INSERT INTO chosen.days VALUES (2, '2025-01-01', '2025-01-01', '2025-01-02');
ALTER TABLE chosen.days ADD COLUMN more DATE NULL;
