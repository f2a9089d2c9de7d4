CREATE DATABASE incompatible_ddl;
CREATE TABLE incompatible_ddl.t (id INT PRIMARY KEY, a INT, b VARCHAR(20), n BIGINT);
INSERT INTO incompatible_ddl.t VALUES (1, 1, 'one', 1);
