INSERT INTO types.numbers SELECT id + 10, a, b, c, d, e, f, g, h, i, j, k FROM types.numbers;
UPDATE types.numbers SET a = 127, b = 0, c = 8388607, d = 0, e = 9223372036854775808, f = 0.0000000001, g = -0.25, h = 5e-324, i = 0, j = 2155, k = FALSE WHERE id = 1;
INSERT INTO types.moments SELECT id + 10, a, b, c, d, e FROM types.moments;
UPDATE types.moments SET a = '2024-02-29', b = '838:59:59.999', c = '2000-01-01 00:00:00.000001', d = '1970-01-01 00:00:01.00', e = NULL WHERE id = 1;
INSERT INTO types.texts SELECT id + 10, a, b, c, d, e, f, g, h, i, j FROM types.texts;
UPDATE types.texts SET a = '', b = 'it''s "q" \\ 	tab', c = REPEAT('x', 60000), d = X'00000000', e = X'DEADBEEF', f = REPEAT(X'80', 1000), g = 'z', h = '', i = '[]', j = NULL WHERE id = 1;
INSERT INTO types.generated (id, a) VALUES (2, 5);
UPDATE types.generated SET a = 100 WHERE id = 1;
