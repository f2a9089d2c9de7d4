CREATE DATABASE charsets CHARACTER SET gbk;
CREATE TABLE charsets.chinese (id INT PRIMARY KEY, v VARCHAR(20), w VARCHAR(20) CHARACTER SET big5);
CREATE TABLE charsets.western (id INT PRIMARY KEY, v VARCHAR(20)) CHARACTER SET latin1;
CREATE TABLE charsets.sorted (v VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PRIMARY KEY, n INT);
INSERT INTO charsets.chinese VALUES (1, '中文測試', '測試'), (2, '丂', NULL);
INSERT INTO charsets.western VALUES (1, 'Ærø €'), (2, 'ÿ');
INSERT INTO charsets.sorted VALUES ('a', 1), ('A', 2), ('ä', 3);
