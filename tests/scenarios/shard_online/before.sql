CREATE DATABASE shard_online;
CREATE TABLE shard_online.t_1 (id INT PRIMARY KEY, v VARCHAR(10), n INT);
CREATE TABLE shard_online.t_2 LIKE shard_online.t_1;
CREATE TABLE shard_online.t_3 LIKE shard_online.t_1;
INSERT INTO shard_online.t_1 VALUES (11, 'a', 1);
INSERT INTO shard_online.t_2 VALUES (21, 'a', 1);
INSERT INTO shard_online.t_3 VALUES (31, 'a', 1);
-- on two
CREATE DATABASE shard_online;
CREATE TABLE shard_online.t_1 (id INT PRIMARY KEY, v VARCHAR(10), n INT);
INSERT INTO shard_online.t_1 VALUES (41, 'a', 1);
