DELETE FROM shard_part_1.t_1 WHERE id = 1;
ALTER TABLE shard_part_1.t_1 ADD COLUMN w INT DEFAULT 4;
UPDATE shard_part_1.t_1 SET id = 7, w = 5 WHERE id = 2;
-- on two
INSERT INTO shard_part_1.t_1 (v) VALUES ('d');
ALTER TABLE shard_part_1.t_1 ADD COLUMN w INT DEFAULT 4;
UPDATE shard_part_1.t_1 SET v = 'e' WHERE id = 1;
-- meanwhile
-- on one
UPDATE shard_part_1.t_2 SET v = 'f' WHERE id = 2;
ALTER TABLE shard_part_1.t_2 ADD COLUMN w INT DEFAULT 4;
INSERT INTO shard_part_1.t_2 VALUES (9, 'g', 9);
