"""Schema changes as sources run them, in MariaDB's SQL."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """A schema change that each kind of target makes.

    `halts`: the codes with which the last statement of the change may stop the task, for each kind of target or for
    all.
    """

    make: str
    rows: str
    then: tuple[str, ...]
    later: str = ""
    halts: str = ""
    where: str = "everywhere"


T = "CREATE TABLE t (id INT PRIMARY KEY, a INT, b VARCHAR(20), c DECIMAL(10,2) NOT NULL DEFAULT 1.5)"
ROWS = "INSERT INTO t (id, a, b) VALUES (1, 10, 'x'), (2, NULL, 'yé'), (3, -3, NULL)"
MORE = "INSERT INTO t (id) VALUES (100)"


def on_t(*then: str, later: str = MORE, halts: str = "", make: str = T, rows: str = ROWS) -> Case:
    return Case(make, rows, then, later, halts)


def column(kind: str, rows: str, then: str, *, later: str = "", halts: str = "") -> Case:
    """Returns a case in which one column's type changes."""
    return Case(
        f"CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v {kind})",
        f"INSERT INTO t (v) VALUES {rows}",
        (f"ALTER TABLE t MODIFY v {then}",),
        f"INSERT INTO t (v) VALUES {later or rows}",
        halts,
        "postgres",
    )


def cut(kind: str, value: str, then: str) -> Case:
    """Returns a case in which the source cuts a value, since it is not in strict mode; no target may keep the value."""
    make = f"CREATE TABLE t (id INT PRIMARY KEY, v {kind})"
    rows = f"SET sql_mode = ''; INSERT INTO t VALUES (1, {value})"
    return Case(make, rows, (f"ALTER TABLE t MODIFY v {then}",), halts="ddl-not-translatable target-refused")


CASES: dict[str, Case] = {
    "add columns": on_t(
        "ALTER TABLE t ADD COLUMN d INT NOT NULL DEFAULT 7 FIRST, ADD e VARCHAR(9) NOT NULL AFTER a, ADD (f DATE, g BLOB)",
        "ALTER TABLE t ADD h ENUM('x','y') NOT NULL, ADD i SET('p','q') NOT NULL, ADD j BIT(9) NOT NULL, ADD k TIME NOT NULL",
        "ALTER TABLE t ADD l BINARY(3) NOT NULL, ADD m DOUBLE NOT NULL, ADD n JSON, ADD o YEAR NOT NULL, ADD p TEXT NOT NULL",
        later="INSERT INTO t SELECT d, 100, a, e, b, c, f, g, h, i, j, k, l, m, n, o, p FROM t WHERE id = 1",
    ),
    "add a column if not exists": on_t("ALTER TABLE t ADD COLUMN IF NOT EXISTS a INT, ADD COLUMN IF NOT EXISTS z INT"),
    "drop columns": on_t("ALTER TABLE t DROP COLUMN a, DROP b", "ALTER TABLE t DROP COLUMN IF EXISTS zzz, DROP c"),
    "drop and add the same name": on_t("ALTER TABLE t DROP a, ADD a INT DEFAULT 5"),
    "modify and move": on_t(
        "ALTER TABLE t MODIFY a BIGINT UNSIGNED NULL AFTER c", rows="INSERT INTO t (id,a) VALUES (1,2)"
    ),
    "change names": on_t(
        "ALTER TABLE t CHANGE a aa INT, CHANGE b B VARCHAR(30)", "ALTER TABLE t RENAME COLUMN aa TO a"
    ),
    "swap names": on_t("ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a"),
    "rename and take the name again": on_t("ALTER TABLE t CHANGE a old INT, ADD a VARCHAR(3) DEFAULT 'new'"),
    "rename the key": on_t("ALTER TABLE t CHANGE id number INT", later="INSERT INTO t (number) VALUES (100)"),
    "defaults": on_t(
        "ALTER TABLE t ALTER a SET DEFAULT 9, ALTER c DROP DEFAULT, ALTER COLUMN b SET DEFAULT 'it''s'",
        later="INSERT INTO t (id, c) VALUES (100, 1)",
    ),
    "null and not null": on_t(
        "ALTER TABLE t MODIFY a INT NOT NULL DEFAULT 0, MODIFY c DECIMAL(10,2) NULL",
        rows="INSERT INTO t (id, a) VALUES (1, 1)",
    ),
    "indexes": on_t(
        "ALTER TABLE t ADD INDEX i1 (a), ADD UNIQUE KEY u1 (a, b), ADD KEY (c DESC)",
        "CREATE INDEX i2 ON t (b(5), a)",
        "CREATE UNIQUE INDEX u2 ON t (b)",
        "ALTER TABLE t RENAME INDEX i1 TO i3",
        "DROP INDEX u1 ON t",
        "ALTER TABLE t DROP INDEX i3, DROP KEY u2",
        "CREATE OR REPLACE INDEX i2 ON t (c)",
    ),
    "fulltext and spatial": Case(
        "CREATE TABLE t (id INT PRIMARY KEY, b TEXT, v VARCHAR(5000), g POINT NOT NULL)",
        "INSERT INTO t VALUES (1, REPEAT('x', 9000), REPEAT('y', 5000), POINT(1, 2))",
        ("ALTER TABLE t ADD FULLTEXT KEY f (b, v), ADD SPATIAL INDEX s (g)", "CREATE FULLTEXT INDEX f2 ON t (v)"),
        "INSERT INTO t SELECT 2, SHA2(id, 512), CONCAT(REPEAT(SHA2(id, 512), 30), SHA2(b, 512)), g FROM t",
    ),
    "an index over a part of a long text": Case(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(5000) CHARACTER SET latin1, KEY (v(10)), KEY (id, v(10)))",
        "INSERT INTO t VALUES (1, 'short')",
        ("ALTER TABLE t ADD KEY k (v(20))",),
        "INSERT INTO t WITH RECURSIVE n AS (SELECT 1 x UNION ALL SELECT x + 1 FROM n WHERE x < 39)"
        " SELECT 2, GROUP_CONCAT(SHA2(x, 512) SEPARATOR '') FROM n",
    ),
    "another primary key": on_t(
        "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (id, c)",
        "ALTER TABLE t DROP PRIMARY KEY, ADD UNIQUE KEY (id)",
        "ALTER TABLE t DROP KEY id, ADD PRIMARY KEY (id)",
    ),
    "no primary key any more": on_t("ALTER TABLE t DROP PRIMARY KEY", later=""),
    "a unique key that was the identity": Case(
        "CREATE TABLE t (a INT NOT NULL, b INT NOT NULL, UNIQUE KEY ua (a), UNIQUE KEY ub (b))",
        "INSERT INTO t VALUES (1, 2), (3, 4)",
        ("ALTER TABLE t MODIFY a INT NULL", "ALTER TABLE t DROP KEY ub", "ALTER TABLE t ADD PRIMARY KEY (b)"),
        "INSERT INTO t VALUES (5, 6), (7, 8)",
    ),
    "a column leaves its keys": Case(
        "CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT, UNIQUE u (a, b), KEY k (b, a))",
        "INSERT INTO t VALUES (1, 1, 1), (2, 2, 1)",
        ("ALTER TABLE t DROP KEY u, ADD UNIQUE u2 (a), DROP COLUMN b",),
        "INSERT INTO t VALUES (3, 3)",
    ),
    "a column leaves the primary key": Case(
        "CREATE TABLE t (a INT, b INT, c INT, PRIMARY KEY (a, b))",
        "INSERT INTO t VALUES (1, 1, 1), (2, 2, 1)",
        ("ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (a), DROP COLUMN b",),
        "INSERT INTO t VALUES (3, 3)",
    ),
    "checks": on_t(
        "ALTER TABLE t ADD CONSTRAINT ck CHECK (a < 100)",
        "ALTER TABLE t DROP CONSTRAINT ck",
        later="INSERT INTO t (id, a) VALUES (100, 100)",
    ),
    "foreign keys": Case(
        "CREATE TABLE p (id INT PRIMARY KEY); CREATE TABLE t (id INT PRIMARY KEY, p INT, FOREIGN KEY fk (p) REFERENCES p (id))",
        "INSERT INTO p VALUES (1); INSERT INTO t VALUES (1, 1)",
        ("ALTER TABLE t DROP FOREIGN KEY fk", "ALTER TABLE t ADD CONSTRAINT fk2 FOREIGN KEY (p) REFERENCES p (id)"),
        "INSERT INTO p VALUES (2); INSERT INTO t VALUES (2, 2)",
    ),
    "auto_increment": on_t(
        "ALTER TABLE t MODIFY id INT AUTO_INCREMENT",
        "ALTER TABLE t AUTO_INCREMENT = 1000",
        "ALTER TABLE t MODIFY id INT",
    ),
    "an auto_increment column is new": on_t(
        "ALTER TABLE t ADD n INT AUTO_INCREMENT UNIQUE", halts="ddl-not-translatable"
    ),
    "charsets": on_t(
        "ALTER TABLE t CONVERT TO CHARACTER SET latin1",
        "ALTER TABLE t DEFAULT CHARSET utf8mb4",
        "ALTER TABLE t MODIFY b VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    ),
    "a smaller charset that has all characters": Case(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20), w VARCHAR(20))",
        "INSERT INTO t VALUES (1, 'né €', '表'), (2, NULL, '')",
        ("ALTER TABLE t MODIFY v VARCHAR(20) CHARACTER SET latin1, MODIFY w VARCHAR(20) CHARACTER SET utf8mb3",),
        "INSERT INTO t VALUES (3, 'ü', 'Ж')",
    ),
    "a smaller charset that lacks some": Case(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))",
        "INSERT INTO t VALUES (1, 'é'), (2, 'Ж')",
        ("SET sql_mode = ''", "ALTER TABLE t CONVERT TO CHARACTER SET latin1"),
        halts="ddl-not-translatable target-refused",
    ),
    "comments and engines": on_t(
        "ALTER TABLE t COMMENT = 'it''s', MODIFY a INT COMMENT 'a \\\\ b'",
        "ALTER TABLE t ENGINE=InnoDB ROW_FORMAT=DYNAMIC",
        "ALTER TABLE t FORCE",
    ),
    "online hints": on_t(
        "ALTER ONLINE TABLE t ADD z INT, ALGORITHM=INSTANT, LOCK=NONE", "ALTER TABLE t NOWAIT ORDER BY a"
    ),
    "invisible": on_t(
        "ALTER TABLE t ADD z INT INVISIBLE DEFAULT 4",
        "ALTER TABLE t ALTER INDEX k IGNORED",
        make=T[:-1] + ", KEY k (a))",
    ),
    "several kinds at once": on_t(
        "ALTER TABLE t ADD d INT DEFAULT 1, DROP a, CHANGE b bb VARCHAR(40) NOT NULL DEFAULT '', ADD KEY (bb), COMMENT='x', RENAME TO t2",
        rows="INSERT INTO t (id, b) VALUES (1, 'x')",
        later="INSERT INTO t2 (id) VALUES (100)",
    ),
    "partitions that keep their rows": Case(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10))",
        "INSERT INTO t VALUES (1, 1)",
        (
            "ALTER TABLE t ADD PARTITION (PARTITION p1 VALUES LESS THAN (20))",
            "ALTER TABLE t REORGANIZE PARTITION p1 INTO (PARTITION p2 VALUES LESS THAN (50))",
            "ALTER TABLE t REBUILD PARTITION p0",
            "ALTER TABLE t REMOVE PARTITIONING",
            "ALTER TABLE t PARTITION BY HASH (id) PARTITIONS 4",
            "ALTER TABLE t COALESCE PARTITION 2",
        ),
        "INSERT INTO t VALUES (30, 1)",
    ),
    "tables come and go": on_t(
        "CREATE TABLE u LIKE t",
        "CREATE TABLE IF NOT EXISTS u (x INT)",
        "RENAME TABLE t TO x, u TO t",
        "RENAME TABLE t TO u, x TO t",
        "TRUNCATE u",
        "DROP TABLE IF EXISTS u, nothing",
    ),
    "names are swapped": on_t(
        "CREATE TABLE u (id INT PRIMARY KEY, z INT)",
        "RENAME TABLE t TO x, u TO t, x TO u",
        later="INSERT INTO t VALUES (1, 1)",
    ),
    "a table is rebuilt twice by a tool": on_t(
        "CREATE TABLE _t_new LIKE t",
        "ALTER TABLE _t_new ADD z INT",
        "RENAME TABLE t TO _t_old, _t_new TO t",
        "DROP TABLE _t_old",
        "CREATE TABLE _t_new LIKE t",
        "RENAME TABLE t TO _t_old, _t_new TO t",
        make=T[:-1] + ", KEY k (a), UNIQUE u (b))",
    ),
    "names of keys that meet": Case(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT, KEY a_b (v))",
        "INSERT INTO t VALUES (1, 1)",
        ("CREATE TABLE t_a (id INT PRIMARY KEY, v INT, KEY b (v))", "CREATE TABLE t_a_b (id INT PRIMARY KEY)"),
    ),
    "emptied": on_t("TRUNCATE TABLE t"),
    "replaced": on_t("CREATE OR REPLACE TABLE t (id INT PRIMARY KEY, z INT)"),
    "a temporary table": on_t("CREATE TEMPORARY TABLE tmp (id INT)", "DROP TEMPORARY TABLE IF EXISTS tmp"),
    "what is not carried": on_t(
        "CREATE VIEW w AS SELECT * FROM t",
        "ALTER VIEW w AS SELECT id FROM t",
        "DROP VIEW w",
        "CREATE TRIGGER g BEFORE INSERT ON t FOR EACH ROW SET NEW.a = 5",
        "DROP TRIGGER g",
        "CREATE PROCEDURE pr() SELECT 1",
        "DROP PROCEDURE pr",
        "CREATE EVENT ev ON SCHEDULE EVERY 1 DAY DO SELECT 1",
        "DROP EVENT ev",
        "CREATE SEQUENCE sq",
        "ALTER SEQUENCE sq START 5",
        "DROP SEQUENCE sq",
        "ANALYZE TABLE t",
        "OPTIMIZE TABLE t",
        "REPAIR TABLE t",
        "FLUSH TABLES",
        "GRANT SELECT ON t TO CURRENT_USER",
    ),
    "drop partition": Case(
        "CREATE TABLE t (id INT PRIMARY KEY) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20))",
        "INSERT INTO t VALUES (1), (11)",
        ("ALTER TABLE t DROP PARTITION p0",),
        halts="ddl-moves-rows",
    ),
    "truncate partition": Case(
        "CREATE TABLE t (id INT PRIMARY KEY) PARTITION BY HASH (id) PARTITIONS 2",
        "INSERT INTO t VALUES (1), (11)",
        ("ALTER TABLE t TRUNCATE PARTITION p0",),
        halts="ddl-moves-rows",
    ),
    "exchange partition": Case(
        "CREATE TABLE t (id INT PRIMARY KEY) PARTITION BY HASH (id) PARTITIONS 2; CREATE TABLE u (id INT PRIMARY KEY)",
        "INSERT INTO t VALUES (1), (2); INSERT INTO u VALUES (4)",
        ("ALTER TABLE t EXCHANGE PARTITION p0 WITH TABLE u",),
        halts="ddl-moves-rows",
    ),
    "a generated column is new": on_t(
        "ALTER TABLE t ADD g INT AS (-a * 2 + 1) STORED AFTER a, ADD h DECIMAL(12,1) GENERATED ALWAYS AS ((c - 0.25) * A) "
        "VIRTUAL COMMENT 'it''s'",
        "ALTER TABLE t ADD k BIGINT UNSIGNED AS (COALESCE(`a`, 0) * 0) PERSISTENT UNIQUE",
        "ALTER TABLE t RENAME COLUMN g TO gg, RENAME COLUMN h TO hh",
        rows="INSERT INTO t (id, a, b, c) VALUES (1, 10, 'x', 2.35)",
        later="",
    ),
    "a generated column of a text is new": on_t(
        "ALTER TABLE t ADD g VARCHAR(30) AS (CONCAT(b, ' it''s \\\\', \"q\")) VIRTUAL, ADD i INT NOT NULL DEFAULT 7"
    ),
    "a generated column that servers compute in their own ways": on_t(
        "ALTER TABLE t ADD g DOUBLE AS (a / 3) STORED", halts="ddl-not-translatable"
    ),
    "a generated column that cuts values": Case(
        T,
        "SET sql_mode = ''; INSERT INTO t (id, a) VALUES (1, 100)",
        ("ALTER TABLE t ADD g TINYINT AS (a * 2) STORED",),
        halts="ddl-not-translatable target-refused",
        where="mysql97",  # The statements for PostgreSQL cut the values.
    ),
    "a generated column is computed in another way": Case(
        "CREATE TABLE t (id INT PRIMARY KEY, a INT, g INT AS (a * 2) STORED)",
        "INSERT INTO t (id, a) VALUES (1, 1)",
        ("ALTER TABLE t MODIFY g INT AS (a * 3) STORED",),
        halts="ddl-not-translatable",
    ),
    "a generated column becomes plain": Case(
        "CREATE TABLE t (id INT PRIMARY KEY, a INT, g INT AS (a * 2) STORED)",
        "INSERT INTO t (id, a) VALUES (1, 1)",
        ("ALTER TABLE t MODIFY g INT",),
        "INSERT INTO t VALUES (2, 2, 2)",
    ),
    "integers": column("SMALLINT", "(-5),(NULL),(32767)", "BIGINT"),
    "integers to texts": column("INT", "(-5),(NULL),(32767)", "VARCHAR(20)"),
    "integers with zeros before them to texts": Case(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT(5) ZEROFILL)",
        "INSERT INTO t VALUES (1, 7), (2, 12345), (3, NULL)",
        ("ALTER TABLE t MODIFY v VARCHAR(20)",),
        halts="ddl-not-translatable",
    ),
    "integers that get zeros before them later": Case(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT UNSIGNED)",
        "INSERT INTO t VALUES (1, 7)",
        ("ALTER TABLE t MODIFY v INT(5) ZEROFILL", "ALTER TABLE t MODIFY v VARCHAR(20)"),
        halts="ddl-not-translatable",
    ),
    "decimals with zeros before them to texts": Case(
        "CREATE TABLE t (id INT PRIMARY KEY, v DECIMAL(9,2) ZEROFILL)",
        "INSERT INTO t VALUES (1, 7.5)",
        ("ALTER TABLE t MODIFY v VARCHAR(20)",),
        halts="ddl-not-translatable",
    ),
    "unsigned integers to texts": Case(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT UNSIGNED, w BIGINT(5) ZEROFILL)",
        "INSERT INTO t VALUES (1, 7, 7), (2, 4294967295, 18446744073709551615), (3, NULL, NULL)",
        ("ALTER TABLE t MODIFY v VARCHAR(20)", "ALTER TABLE t MODIFY w BIGINT UNSIGNED", "ALTER TABLE t MODIFY w TEXT"),
    ),
    "negative integers lose their sign": cut("INT", "-5", "INT UNSIGNED"),
    "negative decimals lose their sign": cut("DECIMAL(9,2)", "-3.5", "DECIMAL(9,2) UNSIGNED"),
    "integers too large for a TINYINT": cut("BIGINT", "300", "TINYINT"),
    "integers too large for a MEDIUMINT": cut("INT", "9000000", "MEDIUMINT"),
    "decimals too large for a TINYINT": cut("DECIMAL(9,2)", "127.5", "TINYINT"),
    "bits too large for a TINYINT": cut("BIT(9)", "300", "TINYINT"),
    "years too large for a TINYINT": cut("YEAR", "2001", "TINYINT"),
    "texts too long for a TINYTEXT": cut("VARCHAR(500)", "REPEAT('é', 128)", "TINYTEXT"),
    "bytes too long for a TINYBLOB": cut("VARBINARY(500)", "REPEAT('a', 256)", "TINYBLOB"),
    "bytes too long for a VARBINARY": cut("BLOB", "REPEAT('a', 10)", "VARBINARY(9)"),
    "bytes too long for a BINARY": cut("BINARY(4)", "'abcd'", "BINARY(3)"),
    "values that a smaller type still holds": Case(
        "CREATE TABLE t (id INT PRIMARY KEY, a INT, b DECIMAL(9,2), c VARCHAR(500), d VARBINARY(500), e YEAR)",
        "INSERT INTO t VALUES (1, 127, 126.4, REPEAT('é', 127), REPEAT('a', 255), 2155), (2, NULL, NULL, NULL, NULL, NULL)",
        (
            "ALTER TABLE t MODIFY a TINYINT, MODIFY b TINYINT UNSIGNED, MODIFY c TINYTEXT, MODIFY d TINYBLOB, MODIFY e SMALLINT",
        ),
    ),
    "integers to decimals": column("INT UNSIGNED", "(5),(4294967295)", "DECIMAL(20,3)"),
    "integers to doubles": column("BIGINT", "(5),(9007199254740993)", "DOUBLE"),
    "unsigned big integers": column("BIGINT UNSIGNED", "(5),(18446744073709551615)", "DECIMAL(30,0)"),
    "integers shrink": column("BIGINT", "(5),(-100)", "TINYINT"),
    "decimals to integers": column("DECIMAL(10,2)", "(2.50),(-2.50),(1.49)", "INT"),
    "decimals are rounded": column("DECIMAL(10,3)", "(2.345),(-2.345),(0.5)", "DECIMAL(10,2)"),
    "floats to doubles": column("FLOAT", "(0.1),(-3.25)", "DOUBLE"),
    "floats lose digits": Case(
        "CREATE TABLE t (id INT PRIMARY KEY, v FLOAT(7,4))",
        "INSERT INTO t VALUES (1, 0.12), (2, 0.1234)",
        ("ALTER TABLE t MODIFY v FLOAT(7,2)",),
        halts="ddl-not-translatable",
    ),
    "doubles lose digits": Case(
        "CREATE TABLE t (id INT PRIMARY KEY, v DOUBLE)",
        "INSERT INTO t VALUES (1, -0.5), (2, 1.005)",
        ("ALTER TABLE t MODIFY v DOUBLE(12,2)",),
        halts="ddl-not-translatable",
    ),
    "floats and doubles lose digits that are zero": Case(
        "CREATE TABLE t (id INT PRIMARY KEY, v FLOAT(7,4), w DOUBLE)",
        "INSERT INTO t VALUES (1, 0.12, 0.12), (2, -838.87, -838.87), (3, 999.99, 1e9), (4, NULL, NULL), (5, 0, -7.1)",
        ("ALTER TABLE t MODIFY v FLOAT(7,2)", "ALTER TABLE t MODIFY w DOUBLE(20,2)"),
    ),
    "bits to integers": column("BIT(1)", "(0),(1),(NULL)", "TINYINT(1)"),
    "booleans to bits": column("TINYINT(1)", "(0),(1),(NULL)", "BIT(1)"),
    "bits grow": column("BIT(5)", "(0),(31)", "BIT(12)"),
    "integers to years": column("TINYINT", "(5),(70),(NULL)", "YEAR", later="(2024)", halts="ddl-not-translatable"),
    "years to integers": column("YEAR", "(1901),(2155)", "INT"),
    "varchars grow": column("VARCHAR(5)", "('abc'),('a  '),(NULL)", "VARCHAR(500)"),
    "varchars shrink": column("VARCHAR(50)", "('abc'),(''),(NULL)", "VARCHAR(3)"),
    "varchars to chars": column("VARCHAR(5)", "('abc'),('a  '),('')", "CHAR(5)"),
    "chars to varchars": column("CHAR(5)", "('abc'),('a  '),('')", "VARCHAR(9)"),
    "texts": column("VARCHAR(50)", "('abc'),(''),(NULL)", "LONGTEXT"),
    "texts to varchars": column("TEXT", "('abc'),(''),(NULL)", "VARCHAR(30)"),
    "enums grow": column("ENUM('a','b')", "('a'),('b'),(NULL)", "ENUM('a','b','c')", later="('c')"),
    "enums in another order": column("ENUM('a','b')", "('a'),('b')", "ENUM('b','x','a')", later="('x')"),
    "enums to varchars": column("ENUM('a','b')", "('a'),('b')", "VARCHAR(10)", later="('other')"),
    "varchars to enums": column("VARCHAR(10)", "('a'),('b')", "ENUM('a','b')"),
    "sets grow": column("SET('a','b')", "('a,b'),(''),(NULL)", "SET('a','b','c')", later="('a,c')"),
    "sets in another order": column(
        "SET('a','b','c')", "('a,b'),(''),(NULL),('a,c')", "SET('c','b','a')", later="('a,c')"
    ),
    "sets to texts": column("SET('a','b')", "('a,b'),(''),(NULL)", "VARCHAR(30)"),
    "binaries grow": column("BINARY(2)", "(X'0102'),(X'FF00'),(NULL)", "BINARY(4)"),
    "binaries vary": column("BINARY(4)", "(X'0102'),(X'FF00FF00'),(NULL)", "VARBINARY(9)"),
    "varying binaries get a length": column("VARBINARY(4)", "(X'0102'),(X''),(NULL)", "BINARY(5)"),
    "bits and numbers": column("BIT(9)", "(0),(511)", "INT"),
    "blobs": column("VARBINARY(40)", "(X'0102'),(X''),(NULL)", "LONGBLOB"),
    "dates to moments": column("DATE", "('2024-02-29'),(NULL)", "DATETIME(3)"),
    "moments get fractions": column("DATETIME", "('2024-02-29 12:00:00'),(NULL)", "DATETIME(6)"),
    "moments lose fractions": Case(
        "CREATE TABLE t (id INT PRIMARY KEY, v DATETIME(6))",
        "INSERT INTO t VALUES (1, '2024-02-29 12:00:00.5'), (2, '1999-01-01 00:00:00.5')",
        ("ALTER TABLE t MODIFY v DATETIME",),
        halts="ddl-not-translatable",
        where="mysql97",
    ),
    "moments lose digits that are zero": column(
        "DATETIME(6)", "('2024-02-29 12:00:00.120'),('1999-01-01 00:00:00.5'),(NULL)", "DATETIME(3)"
    ),
    "times lose digits that are zero": column("TIME(6)", "('-01:00:00.120'),('800:00:00.5'),(NULL)", "TIME(3)"),
    "timestamps get fractions": column("TIMESTAMP NULL", "('2024-02-29 12:00:00'),(NULL)", "TIMESTAMP(6) NULL"),
    "times get fractions": column("TIME", "('-838:59:59'),('00:00:01'),(NULL)", "TIME(6)"),
    "texts to numbers": column("VARCHAR(10)", "('12'),('0')", "INT", later="(7)", halts="ddl-not-translatable"),
    "texts to dates": column("VARCHAR(10)", "('2024-02-29')", "DATE", halts="ddl-not-translatable"),
    "texts to bytes": column("VARCHAR(10)", "('é')", "VARBINARY(20)", halts="ddl-not-translatable"),
    "json to text": column("JSON", '(\'{"b": 1, "a": 2}\')', "LONGTEXT"),
    "a moment that is new": on_t(
        "ALTER TABLE t ADD d DATETIME NOT NULL DEFAULT '2020-01-01 00:00:00', ADD e TIMESTAMP NOT NULL DEFAULT '2020-01-02 00:00:00'"
    ),
    "a default that is an expression": on_t(
        "ALTER TABLE t ADD d VARCHAR(40) DEFAULT (UUID())", halts="ddl-not-translatable"
    ),
}
