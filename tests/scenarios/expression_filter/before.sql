CREATE DATABASE expression_filter;
CREATE TABLE expression_filter.points (id INT PRIMARY KEY, region VARCHAR(10), score INT);
INSERT INTO expression_filter.points VALUES (1, 'eu', 1), (2, 'us', 2), (3, 'eu', 3);
