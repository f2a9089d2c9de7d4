CREATE DATABASE shard_part_1;
CREATE TABLE shard_part_1.t_1 (id BIGINT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(10));
CREATE TABLE shard_part_1.t_2 LIKE shard_part_1.t_1;
INSERT INTO shard_part_1.t_1 (v) VALUES ('a'), ('a');
INSERT INTO shard_part_1.t_2 (v) VALUES ('b'), ('b');
-- on two
CREATE DATABASE shard_part_1;
CREATE TABLE shard_part_1.t_1 (id BIGINT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(10));
INSERT INTO shard_part_1.t_1 (v) VALUES ('c'), ('c');
