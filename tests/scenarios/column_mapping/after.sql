INSERT INTO column_mapping_2.t_3 VALUES (6, 'b', 'y');
UPDATE column_mapping_2.t_3 SET w = 'z' WHERE id = 5;
UPDATE column_mapping_2.t_4 SET w = 'q' WHERE id = 5;
