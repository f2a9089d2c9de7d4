CREATE DATABASE case_sensitive;
CREATE TABLE case_sensitive.T (id INT PRIMARY KEY, v VARCHAR(10));
CREATE TABLE case_sensitive.t (id INT PRIMARY KEY, v VARCHAR(10));
CREATE TABLE case_sensitive.Kept (id INT PRIMARY KEY);
INSERT INTO case_sensitive.T VALUES (1, 'upper');
INSERT INTO case_sensitive.t VALUES (1, 'lower');
INSERT INTO case_sensitive.Kept VALUES (1);
