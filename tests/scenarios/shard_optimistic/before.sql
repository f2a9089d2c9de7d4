CREATE DATABASE shard_opt;
CREATE TABLE shard_opt.t_1 (id INT PRIMARY KEY, v VARCHAR(10), n INT, old INT);
CREATE TABLE shard_opt.t_2 LIKE shard_opt.t_1;
INSERT INTO shard_opt.t_1 VALUES (11, 'a', 1, 1);
INSERT INTO shard_opt.t_2 VALUES (21, 'a', 1, 1);
CREATE TABLE shard_opt.u_1 (id INT PRIMARY KEY, v VARCHAR(10));
INSERT INTO shard_opt.u_1 VALUES (1, 'a');
-- on two
CREATE DATABASE shard_opt;
CREATE TABLE shard_opt.t_1 (id INT PRIMARY KEY, v VARCHAR(10), n INT, old INT);
INSERT INTO shard_opt.t_1 VALUES (31, 'a', 1, 1);
CREATE TABLE shard_opt.u_1 (id INT PRIMARY KEY, v VARCHAR(10));
INSERT INTO shard_opt.u_1 VALUES (2, 'a');
