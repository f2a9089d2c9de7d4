CREATE DATABASE shard_seq_1;
CREATE DATABASE shard_seq_2;
CREATE TABLE shard_seq_1.t_1 (id BIGINT PRIMARY KEY, name VARCHAR(20) NOT NULL DEFAULT 'x', n INT, at TIMESTAMP NOT NULL DEFAULT '2020-01-01 00:00:00', UNIQUE (name, id));
CREATE TABLE shard_seq_1.t_2 LIKE shard_seq_1.t_1;
CREATE TABLE shard_seq_2.t_3 LIKE shard_seq_1.t_1;
INSERT INTO shard_seq_1.t_1 (id, n) VALUES (11, 1);
INSERT INTO shard_seq_1.t_2 (id, n) VALUES (21, 1);
INSERT INTO shard_seq_2.t_3 (id, n) VALUES (31, 1);
-- on two
CREATE DATABASE shard_seq_1;
CREATE TABLE shard_seq_1.t_1 (id BIGINT PRIMARY KEY, name VARCHAR(20) NOT NULL DEFAULT 'x', n INT, at TIMESTAMP NOT NULL DEFAULT '2020-01-01 00:00:00', UNIQUE (name, id));
CREATE TABLE shard_seq_1.t_5 LIKE shard_seq_1.t_1;
INSERT INTO shard_seq_1.t_1 (id, n) VALUES (41, 1);
INSERT INTO shard_seq_1.t_5 (id, n) VALUES (51, 1);
