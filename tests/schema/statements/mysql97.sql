CREATE TABLE n1 (a int, j json not null, v1 int as (a + 1) stored, v2 int generated always as (a*2) virtual not null,
  t text default ('x'), f date default (curdate()), g varchar(36) default (uuid()), i int invisible default 3, vec
  vector(3), ve2 vector, p point srid 4326, check (i > 1) not enforced, key ((a + 1)), key ((a * 2), i), unique fx ((a +
  3)), unique (a), key inv (i) invisible);
ALTER TABLE n1 DROP COLUMN v1, DROP COLUMN v2, DROP KEY functional_index, DROP KEY functional_index_2, DROP KEY fx,
  DROP CHECK n1_chk_1;
ALTER TABLE n1 RENAME COLUMN a TO i, RENAME COLUMN i TO a, RENAME KEY inv TO seen;
ALTER TABLE n1 ALTER INDEX seen VISIBLE, ALTER COLUMN a SET VISIBLE, ALTER COLUMN g SET DEFAULT (upper('x'));
ALTER TABLE n1 ADD CONSTRAINT uu UNIQUE (a, i), ADD CONSTRAINT ck CHECK (a > 5);
ALTER TABLE n1 DROP CONSTRAINT uu, DROP CONSTRAINT ck, DROP COLUMN p;
ALTER TABLE n1 ADD x1 int first, ALGORITHM=INSTANT;
ALTER TABLE n1 ADD COLUMN s1 varchar(3) COLLATE utf8mb4_0900_as_cs, ADD s2 varchar(3) CHARSET utf8mb4;
CREATE TABLE encrypted (a int primary key) ENCRYPTION='N' STATS_PERSISTENT=1 TABLESPACE=innodb_file_per_table;
CREATE TABLE ctas AS SELECT * FROM inherits;
