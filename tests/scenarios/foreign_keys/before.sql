CREATE DATABASE foreign_keys;
CREATE TABLE foreign_keys.parent (id INT PRIMARY KEY, v INT) ENGINE=InnoDB;
CREATE TABLE foreign_keys.child (id INT PRIMARY KEY, parent INT, FOREIGN KEY (parent) REFERENCES foreign_keys.parent (id)) ENGINE=InnoDB;
INSERT INTO foreign_keys.parent VALUES (1, 1), (2, 2);
INSERT INTO foreign_keys.child VALUES (1, 1), (2, 2), (3, NULL);
