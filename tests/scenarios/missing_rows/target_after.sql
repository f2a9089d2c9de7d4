DELETE FROM missing_rows.t WHERE id IN (1, 2);
UPDATE missing_rows.t SET v = 'strange' WHERE id = 4;
INSERT INTO missing_rows.t VALUES (5, 'strange');
