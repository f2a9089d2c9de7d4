UPDATE shard_seq_1.t_1 SET n = n + 1;
ALTER TABLE shard_seq_1.t_1 ADD COLUMN c INT;
INSERT INTO shard_seq_1.t_1 (id, n, c) VALUES (12, 1, 12);
ALTER TABLE shard_seq_1.t_1 ADD COLUMN d VARCHAR(10) NOT NULL DEFAULT 'dd';
UPDATE shard_seq_1.t_1 SET d = 'changed' WHERE id = 11;
ALTER TABLE shard_seq_1.t_1 ADD INDEX by_c (c);
INSERT INTO shard_seq_1.t_1 (id, n, c, d) VALUES (13, 1, 13, 'new');
UPDATE shard_seq_1.t_2 SET name = 'still old';
BEGIN;
INSERT INTO shard_seq_1.t_1 (id, n, c) VALUES (14, 1, 14);
INSERT INTO shard_seq_1.t_2 (id, n) VALUES (24, 1);
COMMIT;
ALTER TABLE shard_seq_2.t_3 ADD c INT DEFAULT NULL AFTER at;
-- on two
ALTER TABLE shard_seq_1.t_1 ADD COLUMN (c INT(11));
UPDATE shard_seq_1.t_1 SET c = 41;
UPDATE shard_seq_1.t_5 SET n = 5;
-- meanwhile
-- on two
ALTER TABLE shard_seq_1.t_5 ADD COLUMN c INT;
UPDATE shard_seq_1.t_5 SET c = 51;
ALTER TABLE shard_seq_1.t_5 ADD COLUMN d VARCHAR(10) NOT NULL DEFAULT 'dd';
ALTER TABLE shard_seq_1.t_1 ADD COLUMN d VARCHAR(10) NOT NULL DEFAULT 'dd';
CREATE INDEX by_c ON shard_seq_1.t_1 (c);
-- on one
ALTER TABLE shard_seq_1.t_2 ADD COLUMN c INT;
UPDATE shard_seq_1.t_2 SET c = 20 + n;
ALTER TABLE shard_seq_1.t_2 ADD COLUMN d VARCHAR(10) NOT NULL DEFAULT 'dd';
UPDATE shard_seq_2.t_3 SET c = 31;
ALTER TABLE shard_seq_2.t_3 ADD COLUMN d VARCHAR(10) NOT NULL DEFAULT 'dd';
ALTER TABLE shard_seq_2.t_3 ADD INDEX by_c (c);
ALTER TABLE shard_seq_1.t_2 ADD INDEX by_c (c);
ALTER TABLE shard_seq_1.t_2 ADD COLUMN e INT, ADD INDEX by_e (e);
UPDATE shard_seq_1.t_2 SET e = id;
ALTER TABLE shard_seq_1.t_1 ADD COLUMN e INT, ADD INDEX by_e (e);
ALTER TABLE shard_seq_2.t_3 ADD COLUMN e INT, ADD INDEX by_e (e);
DELETE FROM shard_seq_1.t_1 WHERE id = 12;
-- on two
CREATE INDEX by_c ON shard_seq_1.t_5 (c);
ALTER TABLE shard_seq_1.t_5 ADD COLUMN e INT, ADD INDEX by_e (e);
UPDATE shard_seq_1.t_5 SET e = 500;
ALTER TABLE shard_seq_1.t_1 ADD COLUMN e INT, ADD INDEX by_e (e);
