UPDATE shard_begin.t_1 SET v = 'b';
INSERT INTO shard_begin.t_1 VALUES (12, 'c');
INSERT INTO shard_begin.t_2 VALUES (22, 'c', 22);
-- on two
INSERT INTO shard_begin.t_1 VALUES (32, 5, 'c');
-- meanwhile
-- on one
ALTER TABLE shard_begin.t_1 ADD COLUMN extra INT;
UPDATE shard_begin.t_1 SET extra = 12 WHERE id = 12;
ALTER TABLE shard_begin.t_2 ADD COLUMN w INT NOT NULL DEFAULT 3;
UPDATE shard_begin.t_2 SET w = 2;
