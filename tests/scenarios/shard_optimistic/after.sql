ALTER TABLE shard_opt.t_1 ADD COLUMN c INT NOT NULL DEFAULT 7;
INSERT INTO shard_opt.t_1 VALUES (12, 'b', 1, 1, 12);
INSERT INTO shard_opt.t_2 VALUES (22, 'b', 1, 1);
ALTER TABLE shard_opt.t_1 DROP COLUMN old;
BEGIN;
INSERT INTO shard_opt.t_1 VALUES (13, 'c', 1, 13);
UPDATE shard_opt.t_2 SET old = 2 WHERE id = 21;
UPDATE shard_opt.t_1 SET n = 2 WHERE id = 11;
COMMIT;
ALTER TABLE shard_opt.t_2 ADD COLUMN e INT;
UPDATE shard_opt.t_2 SET e = id;
DELETE FROM shard_opt.t_1 WHERE id = 12;
ALTER TABLE shard_opt.u_1 CHANGE v w VARCHAR(10);
UPDATE shard_opt.u_1 SET w = 'held';
-- on two
ALTER TABLE shard_opt.t_1 MODIFY v VARCHAR(50), MODIFY n BIGINT;
UPDATE shard_opt.t_1 SET v = REPEAT('long', 5), n = 5000000000;
UPDATE shard_opt.u_1 SET v = 'flows';
-- meanwhile
-- on two
ALTER TABLE shard_opt.t_1 ADD COLUMN e INT, ADD COLUMN c INT NOT NULL DEFAULT 7;
INSERT INTO shard_opt.t_1 VALUES (32, 'two', 2, 2, 32, 332);
ALTER TABLE shard_opt.u_1 CHANGE v w VARCHAR(10);
-- on one
ALTER TABLE shard_opt.t_2 ADD COLUMN c INT NOT NULL DEFAULT 7, MODIFY v VARCHAR(50), MODIFY n BIGINT, DROP COLUMN old;
UPDATE shard_opt.t_2 SET c = 22 WHERE id = 22;
ALTER TABLE shard_opt.t_1 ADD COLUMN e INT, MODIFY v VARCHAR(50), MODIFY n BIGINT;
UPDATE shard_opt.t_1 SET e = 1 WHERE id = 13;
-- on two
ALTER TABLE shard_opt.t_1 DROP COLUMN old;
UPDATE shard_opt.t_1 SET e = 31 WHERE id = 31;
