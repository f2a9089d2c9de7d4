CREATE TABLE shard_online._t_1_ghc (id BIGINT PRIMARY KEY, hint VARCHAR(64));
INSERT INTO shard_online._t_1_ghc VALUES (1, 'state');
CREATE TABLE shard_online._t_1_gho LIKE shard_online.t_1;
ALTER TABLE shard_online._t_1_gho ADD COLUMN w INT NOT NULL DEFAULT 3, MODIFY n BIGINT;
INSERT INTO shard_online._t_1_gho (id, v, n) SELECT id, v, n FROM shard_online.t_1;
UPDATE shard_online.t_1 SET v = 'b';
REPLACE INTO shard_online._t_1_gho (id, v, n) SELECT id, v, n FROM shard_online.t_1;
RENAME TABLE shard_online.t_1 TO shard_online._t_1_del, shard_online._t_1_gho TO shard_online.t_1;
DROP TABLE shard_online._t_1_ghc;
DROP TABLE shard_online._t_1_del;
INSERT INTO shard_online.t_1 VALUES (12, 'new', 5000000000, 12);
CREATE TABLE shard_online._t_2_new LIKE shard_online.t_2;
ALTER TABLE shard_online._t_2_new ADD COLUMN w INT NOT NULL DEFAULT 3, MODIFY n BIGINT;
INSERT INTO shard_online._t_2_new (id, v, n) SELECT id, v, n FROM shard_online.t_2;
UPDATE shard_online.t_2 SET v = 'still here';
-- on two
CREATE TABLE shard_online._t_1_gho LIKE shard_online.t_1;
ALTER TABLE shard_online._t_1_gho ADD COLUMN w INT NOT NULL DEFAULT 3;
ALTER TABLE shard_online._t_1_gho MODIFY n BIGINT;
-- meanwhile
-- on one
REPLACE INTO shard_online._t_2_new (id, v, n) SELECT id, v, n FROM shard_online.t_2;
RENAME TABLE shard_online.t_2 TO shard_online._t_2_old, shard_online._t_2_new TO shard_online.t_2;
DROP TABLE IF EXISTS shard_online._t_2_old;
UPDATE shard_online.t_2 SET w = 22;
ALTER TABLE shard_online.t_3 ADD COLUMN w INT NOT NULL DEFAULT 3, MODIFY n BIGINT;
-- on two
INSERT INTO shard_online._t_1_gho (id, v, n) SELECT id, v, n FROM shard_online.t_1;
RENAME TABLE shard_online.t_1 TO shard_online._t_1_del, shard_online._t_1_gho TO shard_online.t_1;
UPDATE shard_online.t_1 SET w = 44;
DROP TABLE shard_online._t_1_del;
