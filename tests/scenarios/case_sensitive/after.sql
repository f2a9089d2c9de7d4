UPDATE case_sensitive.T SET v = 'changed';
UPDATE case_sensitive.t SET v = 'changed';
INSERT INTO case_sensitive.Kept VALUES (2);
