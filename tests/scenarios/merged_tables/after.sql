UPDATE merged_tables_1.t_1 SET v = 'aa' WHERE id = 11;
BEGIN;
DELETE FROM merged_tables_1.t_1 WHERE id = 12;
INSERT INTO merged_tables_2.t_1 VALUES (12, 'moved');
UPDATE merged_tables_1.t_2 SET id = 23 WHERE id = 22;
COMMIT;
INSERT INTO merged_tables_1.t_2 VALUES (24, 'new'), (25, 'new');
DELETE FROM merged_tables_1.t_2 WHERE id = 24;
