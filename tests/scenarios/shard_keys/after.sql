UPDATE shard_keys_a.t_1 SET id = 30 WHERE id = 3;
UPDATE shard_keys_a.t_2 SET v = 'mine' WHERE id = 1;
DELETE FROM shard_keys_b.t_1 WHERE id = 1;
BEGIN;
UPDATE shard_keys_a.t_1 SET id = 3 WHERE id = 2;
UPDATE shard_keys_a.t_1 SET id = 2 WHERE id = 1;
INSERT INTO shard_keys_a.t_2 VALUES (30, 'a2');
DELETE FROM shard_keys_a.t_2 WHERE id = 2;
COMMIT;
ALTER TABLE shard_keys_a.t_1 MODIFY v VARCHAR(40) NOT NULL, ADD COLUMN w INT NOT NULL DEFAULT 1 AFTER id;
UPDATE shard_keys_a.t_1 SET v = REPEAT('long', 9) WHERE id = 30;
ALTER TABLE shard_keys_b.t_1 MODIFY v VARCHAR(40) NOT NULL, ADD COLUMN w INT NOT NULL DEFAULT 1 AFTER id;
-- on two
UPDATE shard_keys_a.t_1 SET v = CONCAT(v, id);
ALTER TABLE shard_keys_a.t_1 MODIFY v VARCHAR(40) NOT NULL, ADD COLUMN w INT NOT NULL DEFAULT 1 AFTER id;
DELETE FROM shard_keys_a.t_1 WHERE id = 1;
-- meanwhile
-- on one
INSERT INTO shard_keys_a.t_2 VALUES (2, 'again');
ALTER TABLE shard_keys_a.t_2 ADD COLUMN w INT NOT NULL DEFAULT 1 AFTER id, MODIFY v VARCHAR(40) NOT NULL;
UPDATE shard_keys_a.t_2 SET w = 2;
-- on two
UPDATE shard_keys_a.t_1 SET w = 22, v = REPEAT('two ', 8);
