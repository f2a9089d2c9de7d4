ALTER TABLE incompatible_ddl.t ADD COLUMN c INT;
INSERT INTO incompatible_ddl.t VALUES (2, 2, 'two', 2, 2);
ALTER TABLE incompatible_ddl.t DROP COLUMN b;
INSERT INTO incompatible_ddl.t VALUES (3, 3, 3, 3);
ALTER TABLE incompatible_ddl.t MODIFY n INT;
UPDATE incompatible_ddl.t SET n = 11 WHERE id = 1;
ALTER TABLE incompatible_ddl.t ADD COLUMN d INT DEFAULT 4;
