UPDATE missing_rows.t SET v = 'aa' WHERE id = 1;
DELETE FROM missing_rows.t WHERE id = 2;
UPDATE missing_rows.t SET v = 'dd' WHERE id = 4;
INSERT INTO missing_rows.t VALUES (5, 'e');
