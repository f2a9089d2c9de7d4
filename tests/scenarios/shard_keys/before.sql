CREATE DATABASE shard_keys_a;
CREATE DATABASE shard_keys_b;
CREATE TABLE shard_keys_a.t_1 (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(10) NOT NULL);
CREATE TABLE shard_keys_a.t_2 LIKE shard_keys_a.t_1;
CREATE TABLE shard_keys_b.t_1 LIKE shard_keys_a.t_1;
INSERT INTO shard_keys_a.t_1 (v) VALUES ('a1'), ('a1'), ('a1');
INSERT INTO shard_keys_a.t_2 (v) VALUES ('a2'), ('a2');
INSERT INTO shard_keys_b.t_1 (v) VALUES ('b1'), ('b1');
-- on two
CREATE DATABASE shard_keys_a;
CREATE TABLE shard_keys_a.t_1 (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(10) NOT NULL);
INSERT INTO shard_keys_a.t_1 (v) VALUES ('two'), ('two');
