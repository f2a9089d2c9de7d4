CREATE DATABASE case_Folded;
CREATE TABLE case_Folded.Orders (Id INT PRIMARY KEY, V VARCHAR(10));
INSERT INTO case_Folded.Orders VALUES (1, 'a'), (2, 'b');
