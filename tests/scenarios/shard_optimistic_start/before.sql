CREATE DATABASE shard_begin;
CREATE TABLE shard_begin.t_1 (id INT PRIMARY KEY, v VARCHAR(10));
CREATE TABLE shard_begin.t_2 (id INT PRIMARY KEY, v VARCHAR(20), extra INT);
INSERT INTO shard_begin.t_1 VALUES (11, 'a');
INSERT INTO shard_begin.t_2 VALUES (21, 'longer than ten', 2);
-- on two
CREATE DATABASE shard_begin;
CREATE TABLE shard_begin.t_1 (id INT PRIMARY KEY, w INT NOT NULL DEFAULT 3, v VARCHAR(10));
INSERT INTO shard_begin.t_1 VALUES (31, 4, 'a');
