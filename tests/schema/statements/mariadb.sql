CREATE OR REPLACE TABLE m1 (a int, j json, k json not null, u uuid, v inet6, w inet4, y year(2), v1 int as (a + 1)
  persistent, v2 int generated always as (a*2) virtual comment 'c', t text default 'x', f date default curdate(), g
  varchar(36) default uuid(), z varchar(100) compressed, i int invisible default 3, check (a > 1), constraint c1 check
  (a < 100));
CREATE OR REPLACE TABLE m1 (a int, b int, j json, key (a) /*M!100000 , key mm (b) */ /*!50701 , key nope (b) */);
ALTER TABLE m1 ADD COLUMN IF NOT EXISTS b text, ADD COLUMN IF NOT EXISTS c text, DROP COLUMN IF EXISTS zz, MODIFY
  COLUMN IF EXISTS yy int;
ALTER TABLE IF EXISTS m1 ADD KEY IF NOT EXISTS mm (b), ADD UNIQUE KEY IF NOT EXISTS nn (b), DROP KEY IF EXISTS oo,
  CHANGE IF EXISTS a aa bigint;
ALTER TABLE m1 RENAME COLUMN aa TO b, RENAME COLUMN b TO aa, RENAME INDEX mm TO m2;
ALTER ONLINE TABLE m1 ADD x1 int, ALGORITHM=INSTANT;
CREATE OR REPLACE INDEX m2 ON m1 (c(20));
ALTER TABLE m1 ADD CONSTRAINT long_unique UNIQUE (c), ADD CONSTRAINT short_unique UNIQUE (x1);
ALTER TABLE m1 DROP KEY long_unique, DROP CONSTRAINT short_unique;
ALTER TABLE m1 CONVERT TO CHARACTER SET latin1;
DROP TABLE IF EXISTS m1 WAIT 3;
RENAME TABLE IF EXISTS nothing TO anything, numbers WAIT 1 TO numbers2;
CREATE TABLE uca (a varchar(3) collate uca1400_ai_ci, b varchar(3)) charset utf8mb4 collate uca1400_as_cs;
CREATE TABLE pages (a int primary key, b varchar(200)) ENGINE=InnoDB `PAGE_COMPRESSED`=1 PAGE_CHECKSUM=1 ENCRYPTED=NO;
CREATE TABLE ctas AS SELECT * FROM inherits;
