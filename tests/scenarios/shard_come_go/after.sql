DROP TABLE shard_go_1.t_2;
TRUNCATE TABLE shard_go_1.t_3;
INSERT INTO shard_go_1.t_3 VALUES (32, 'after');
RENAME TABLE shard_go_1.t_1 TO shard_go_2.t_1, shard_go_1.t_3 TO shard_go_1.t_1;
UPDATE shard_go_2.t_1 SET v = 'moved';
INSERT INTO shard_go_1.t_1 VALUES (33, 'third');
CREATE TABLE shard_go_1.t_6 (id INT PRIMARY KEY, v VARCHAR(10));
INSERT INTO shard_go_1.t_6 VALUES (61, 'joins');
ALTER TABLE shard_go_2.t_1 ADD COLUMN w INT DEFAULT 6;
INSERT INTO shard_go_2.t_1 VALUES (12, 'new', 12);
CREATE TABLE shard_go_1.t_7 (id INT PRIMARY KEY, v VARCHAR(10), w INT DEFAULT 6);
INSERT INTO shard_go_1.t_7 VALUES (71, 'ahead', 71);
CREATE TABLE shard_go_1.t_8 (id INT PRIMARY KEY, v VARCHAR(10));
INSERT INTO shard_go_1.t_8 VALUES (81, 'joins old');
ALTER TABLE shard_go_1.u_1 ADD COLUMN w INT;
UPDATE shard_go_1.u_1 SET w = 1;
ALTER TABLE shard_go_1.u_2 ADD COLUMN w INT;
UPDATE shard_go_1.u_2 SET w = 2;
-- on two
CREATE TABLE shard_go_1.t_9 LIKE shard_go_1.t_1;
INSERT INTO shard_go_1.t_9 VALUES (91, 'joins');
-- meanwhile
-- on two
UPDATE shard_go_3.u_1 SET v = 'last';
DROP DATABASE shard_go_3;
ALTER TABLE shard_go_1.t_1 ADD COLUMN w INT DEFAULT 6;
UPDATE shard_go_1.t_1 SET w = 51;
ALTER TABLE shard_go_1.t_9 ADD COLUMN w INT DEFAULT 6;
-- on one
ALTER TABLE shard_go_1.t_1 ADD COLUMN w INT DEFAULT 6;
ALTER TABLE shard_go_2.t_4 ADD COLUMN w INT DEFAULT 6;
ALTER TABLE shard_go_1.t_6 ADD COLUMN w INT DEFAULT 6;
UPDATE shard_go_1.t_8 SET v = 'late';
DROP TABLE shard_go_1.t_8;
CREATE TABLE shard_go_1.t_2 LIKE shard_go_1.t_1;
INSERT INTO shard_go_1.t_2 VALUES (22, 'anew', 22);
UPDATE shard_go_1.t_7 SET v = 'caught up';
