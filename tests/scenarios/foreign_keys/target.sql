CREATE SCHEMA foreign_keys;
CREATE TABLE foreign_keys.parent (id INT PRIMARY KEY, v INT);
CREATE TABLE foreign_keys.child (id INT PRIMARY KEY, parent INT, FOREIGN KEY (parent) REFERENCES foreign_keys.parent (id));
