UPDATE case_Folded.Orders SET v = 'c' WHERE ID = 1;
DELETE FROM case_Folded.Orders WHERE id = 2;
ALTER TABLE case_Folded.Orders ADD COLUMN More INT;
