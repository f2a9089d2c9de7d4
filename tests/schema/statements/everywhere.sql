CREATE TABLE numbers (a tinyint, b tinyint(1), c bool, d int1 unsigned, e smallint(3), f int2, g mediumint unsigned, h
  middleint, i int3, j int(10) unsigned zerofill, k integer, l int4, m bigint unsigned, n int8 signed, o dec, p
  numeric(5), q fixed(6,2) unsigned, r decimal(65,30), s float, t float(24), u float(25), v float(7,4) unsigned, w
  double, x double precision(10,2), y real, z float8, aa float4, bb bit, cc bit(64), dd boolean not null default true,
  ee int(5) zerofill default 1, ff int default -3);
CREATE TABLE words (a char, b char(3), c character(4), d varchar(20), e character varying(5), f char varying(6), g
  national char(3), h nchar(2), i nvarchar(5), j nchar varying(4), k national varchar(7), l long varchar, m long, n long
  varbinary, o tinytext, p text, q mediumtext, r longtext, s binary, t binary(16), u varbinary(255), v tinyblob, w blob,
  x mediumblob, y longblob, z char byte, aa text(100), bb text(20000), cc blob(100), dd blob(70000), ee varchar(5)
  ascii, ff varchar(5) unicode, gg text character set binary, hh enum('a','b ', 'it''s', 'c\\d\n'), ii set('x','y')
  character set latin1, jj varchar(7) binary, kk varchar(7) character set latin1 binary, ll char(4) character set 'utf8'
  collate utf8_bin, mm text collate latin1_general_cs, nn text(0), oo enum('q') binary);
CREATE TABLE times (a date, b time, c time(3), d datetime, e datetime(6) default current_timestamp(6) on update
  now(6), f timestamp null, g timestamp(2) not null default localtimestamp(2), h year, i year(4), j timestamp, k
  timestamp(4));
CREATE TABLE shapes (a point, b geometry not null, c linestring, d polygon, e geometrycollection, spatial key (b))
  engine=MyISAM;
CREATE TABLE inherits (a varchar(9), b text(100), c char(2) character set utf8mb4) default charset latin1;
CREATE TABLE collates (a varchar(9), b varchar(9) collate latin1_bin, c varchar(9) charset latin2) COLLATE =
  latin1_german1_ci;
CREATE TABLE bytes (b mediumtext, a int, d blob) charset binary;
CREATE TABLE named (Abc int, b int, c text, key (ABC), key (abc, b), unique (aBC), index z using btree (b desc),
  unique key (c(10)), constraint sym unique (b), key full (c(5), b)) row_format=dynamic comment='it''s \\ here',
  engine=innodb;
CREATE TABLE serials (a serial, b int primary key, c int unique key, d varchar(9) unique, unique u (d(9), c));
CREATE TABLE quoted (`a``b` int, `select` int, `c d` int comment 'x, ) y', key `k``k` (`a``b`));
CREATE TABLE late_primary (a int, b varchar(5), primary key using btree (b, a), fulltext key words (b)) engine=MyISAM;
CREATE TABLE only_key (a int auto_increment key, b int default null check (b > 0)) auto_increment = 7, checksum 1;
CREATE TABLE IF NOT EXISTS only_key (z int);
CREATE TABLE copy_of LIKE named;
CREATE TABLE copy_two (LIKE serials);
CREATE TABLE parents (id int primary key, a int, unique (a));
CREATE TABLE children (id int primary key, x int, y int, z int, w int, foreign key (x) references parents(id) on
  delete set null on update cascade, constraint q foreign key ignored_name (y) references parents(id), constraint q2
  foreign key (y) references parents (id), foreign key named (z) references parents(a) match simple, w2 int references
  parents(id), unique zz (z, w));
ALTER TABLE children ADD CONSTRAINT FOREIGN KEY (w) REFERENCES parents (id), ADD FOREIGN KEY (x) REFERENCES parents
  (a);
ALTER TABLE children DROP FOREIGN KEY q, DROP FOREIGN KEY q2, DROP KEY q2;
ALTER TABLE only_key ADD c int, ADD COLUMN d varchar(10) NOT NULL DEFAULT 'x' FIRST, ADD e text AFTER a, ADD f int
  AFTER e;
ALTER TABLE only_key ADD (g int, h int unique, key hh (h, g));
ALTER TABLE only_key MODIFY c bigint unsigned NOT NULL FIRST, MODIFY b char(3) AFTER g, DROP COLUMN f;
ALTER TABLE only_key CHANGE c cc int AFTER e, CHANGE COLUMN g gg int(4), ADD KEY (gg), ADD UNIQUE (e(20));
ALTER TABLE only_key CHANGE gg h int, CHANGE h gg int;
ALTER TABLE only_key ADD k1 varchar(9), ADD k2 int, ADD KEY kk (k1, k2);
ALTER TABLE only_key DROP k1, DROP k2, ADD k1 varchar(9);
ALTER TABLE only_key ALTER cc SET DEFAULT 5, ALTER COLUMN d DROP DEFAULT, COMMENT 'x' ENGINE=InnoDB, ALGORITHM=COPY,
  LOCK=SHARED;
ALTER TABLE only_key DROP KEY hh, DROP INDEX gg, ADD UNIQUE INDEX u2 (cc, d), ADD INDEX (cc);
ALTER TABLE only_key MODIFY a int, DROP PRIMARY KEY, ADD PRIMARY KEY (d);
CREATE UNIQUE INDEX u3 USING BTREE ON only_key (d, a) COMMENT 'c' ALGORITHM=INPLACE LOCK=DEFAULT;
CREATE INDEX i4 ON only_key (a);
DROP INDEX i4 ON only_key;
ALTER TABLE only_key FORCE, ORDER BY a, d desc;
ALTER TABLE words DEFAULT CHARACTER SET latin1, ADD zz varchar(5);
ALTER TABLE words ADD zy varchar(5), COLLATE utf8mb4_unicode_ci;
ALTER TABLE words CONVERT TO CHARACTER SET utf8mb4;
ALTER TABLE words CONVERT TO CHARACTER SET latin1 COLLATE latin1_bin;
ALTER TABLE inherits CONVERT TO CHARACTER SET utf8;
ALTER TABLE inherits ADD d text charset latin1, CONVERT TO CHARSET binary;
ALTER DATABASE CHARACTER SET latin1;
CREATE TABLE under_latin1 (a varchar(5), b text(100));
RENAME TABLE only_key TO tmp, named TO only_key, tmp TO named;
ALTER TABLE named RENAME TO renamed, ADD n1 int;
ALTER TABLE renamed RENAME AS named;
CREATE TABLE parts (a int not null, b date, primary key (a)) PARTITION BY RANGE (a) (PARTITION p0 VALUES LESS THAN
  (10) COMMENT = 'x', PARTITION p1 VALUES LESS THAN MAXVALUE);
ALTER TABLE parts REORGANIZE PARTITION p1 INTO (PARTITION p1 VALUES LESS THAN (20), PARTITION p2 VALUES LESS THAN
  MAXVALUE);
ALTER TABLE parts ADD c int REMOVE PARTITIONING;
CREATE /* plain */ TABLE code (a int /*!50001 unsigned */, b int /*!99999 unsigned */ # x
, c int -- , d int
, e int -- 1
);
ALTER TABLE code /*!40000 DISABLE KEYS */;
TRUNCATE code;
OPTIMIZE TABLE code;
DROP TABLE IF EXISTS `code`, nothing_there /* generated by server */;
CREATE TABLE attributes (a varchar(4) ascii, b varchar(4) unicode not null, c varchar(4) binary, d char byte, e text
  ascii binary, f varchar(4) binary ascii not null, g varchar(4) unicode binary, h text byte) charset utf8mb4;
ALTER TABLE attributes ADD i varchar(4) ascii, ADD j varchar(4) unicode, ADD k char(2) binary after a, MODIFY c text byte,
  CHANGE d dd varchar(4) ascii default 'x';
ALTER TABLE attributes ADD l nchar varchar(3), ADD m national character varying(3), ADD n nchar, ADD o national
  varchar(3) binary, ADD p long character set latin1, ADD q long char set latin2 binary, ADD r long char varying unicode;
