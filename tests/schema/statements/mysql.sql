ALTER TABLE only_key DROP abc;
CREATE INDEX i5 ON named (a);
DROP INDEX i5 ON named ALGORITHM=INPLACE LOCK=NONE;
CREATE TABLE two_collations (a varchar(3) binary collate utf8mb4_general_ci, b text ascii binary not null collate
  latin1_german1_ci, c char(3) binary collate latin1_german1_ci);
