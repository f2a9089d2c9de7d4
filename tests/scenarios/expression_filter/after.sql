INSERT INTO expression_filter.points VALUES (4, 'us', 4), (5, 'eu', 50), (6, 'eu', NULL), (7, 'eu', 7);
UPDATE expression_filter.points SET score = 101 WHERE id = 1;
UPDATE expression_filter.points SET score = 99 WHERE id = 3;
DELETE FROM expression_filter.points WHERE id IN (5, 7);
UPDATE expression_filter.points SET score = 5 WHERE id = 4;
UPDATE expression_filter.points SET id = 60 WHERE id = 6;
UPDATE expression_filter.points SET region = 'eu' WHERE id = 4;
