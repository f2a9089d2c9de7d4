"""Source servers to target servers with the real command: ordinary types, full copy, changes, schema changes.

The comparison at the end of the demo shows that both sides are equal: every row and every column, exactly.
"""

from __future__ import annotations

import pytest
from tests.running import Progress

from pidts.model import Halt
from pidts.task.compare.wiring import compare_task
from pidts.task.config.task_file import load_task

ZOO = """
CREATE TABLE {0}.zoo (
  id BIGINT UNSIGNED NOT NULL, tiny TINYINT, utiny TINYINT UNSIGNED, small SMALLINT, medium MEDIUMINT UNSIGNED, i INT, ui INT UNSIGNED,
  big BIGINT, dec1 DECIMAL(10,2), dec2 DECIMAL(38,10), f FLOAT, d DOUBLE, c CHAR(10), v VARCHAR(100), t TEXT, mt MEDIUMTEXT,
  l VARCHAR(50) CHARACTER SET latin1, bin BINARY(6), vb VARBINARY(20), b BLOB, dt DATE, tm TIME(3), dtm DATETIME, dtm6 DATETIME(6),
  ts TIMESTAMP(3) NULL, y YEAR, PRIMARY KEY (id)
) DEFAULT CHARSET=utf8mb4
"""
ROWS = [
    (
        "(1, -128, 255, -32768, 16777215, -2147483648, 4294967295, -9223372036854775808, -99999999.99, 1234567890123456789012345678.0123456789,"
        " -1.5, 2.2250738585072014e-308, 'a', 'Grüße', 'text', 'medium', 'café', x'000102', x'00ff00', x'0027225c', '1000-01-01',"
        " '-838:59:59', '9999-12-31 23:59:59', '2024-02-29 12:34:56.789012', '2038-01-19 03:14:07.999', 1901)"
    ),
    (
        "(18446744073709551615, 127, 0, 32767, 0, 2147483647, 0, 9223372036854775807, 99999999.99, -0.0000000001, 3.4e38, -1.7e308,"
        " '', '', '', '', '', x'', x'', x'', '9999-12-31', '838:59:59', '1000-01-01 00:00:00', '1970-01-01 00:00:00.000001', '1970-01-02 00:00:01', 2155)"
    ),
    "(3" + ", NULL" * 25 + ")",
    (
        "(4, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0.1, 0.1, 'x''\"\\\\', '💾\\n\\t\\\\N', 'NULL', '\\\\.', 'x', 'abc', 'a,b', 'x\\r\\n', '2024-01-01',"
        " '00:00:00.5', '2024-01-01', '2024-01-01', '2024-01-01 10:00:00', 2024)"
    ),
]
COMPOSITE = "CREATE TABLE {0}.pair (a INT, b VARCHAR(20), n INT, u INT, PRIMARY KEY (a, b), UNIQUE KEY u (u))"
HOSTILE = 'CREATE TABLE {0}.`or"der``s` (`sel"ect` INT PRIMARY KEY, `ünï cödé` TEXT, `a\'b` INT)'

CHANGES = """
INSERT INTO {0}.pair VALUES (1, 'x', 1, 10), (2, 'x', 2, 20), (3, 'é', 3, NULL), (4, 'z', 4, NULL)
UPDATE {0}.pair SET u = CASE u WHEN 10 THEN NULL ELSE 10 END WHERE u IS NOT NULL AND a = 1
UPDATE {0}.pair SET u = 30 WHERE a = 2
UPDATE {0}.pair SET u = 20 WHERE a = 1
UPDATE {0}.pair SET a = a + 10, b = CONCAT(b, '!') WHERE a > 2
DELETE FROM {0}.pair WHERE a = 13
UPDATE {0}.zoo SET v = 'changed', b = NULL, d = d / 3 WHERE id <> 3
DELETE FROM {0}.zoo WHERE id = 4
ALTER TABLE {0}.pair ADD COLUMN note VARCHAR(20) NOT NULL DEFAULT 'none', ADD COLUMN more DECIMAL(5,2) NULL AFTER n
UPDATE {0}.pair SET note = 'seen' WHERE a = 1
INSERT INTO {0}.pair (a, b, n, u, more) VALUES (50, 'new', 5, 50, 1.25)
ALTER TABLE {0}.pair DROP COLUMN more
UPDATE {0}.pair SET n = 100 WHERE a = 50
ALTER TABLE {0}.pair ADD COLUMN made DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP
CREATE TABLE {0}.fresh (id INT AUTO_INCREMENT PRIMARY KEY, s VARCHAR(10) COLLATE utf8mb4_bin, KEY s (s))
INSERT INTO {0}.fresh (s) VALUES ('a'), ('A'), ('b')
CREATE TABLE {0}.gone (id INT PRIMARY KEY)
INSERT INTO {0}.gone VALUES (1)
DROP TABLE {0}.gone
CREATE TABLE {0}.emptied (id INT PRIMARY KEY)
INSERT INTO {0}.emptied VALUES (1), (2)
TRUNCATE TABLE {0}.emptied
INSERT INTO {0}.emptied VALUES (3)
RENAME TABLE {0}.fresh TO {0}.renamed
INSERT INTO {0}.renamed (s) VALUES ('c')
UPDATE {0}.`or"der``s` SET `a'b` = 7, `ünï cödé` = 'x' WHERE `sel"ect` = 1
"""

CREATE_SELECT = [
    "CREATE TABLE {0}.chosen (PRIMARY KEY (a)) SELECT a, n * 2 AS twice FROM {0}.pair WHERE a < 50",
    "INSERT INTO {0}.chosen VALUES (70, 10)",
]
"""These statements run only on MariaDB. MySQL with GTIDs refuses CREATE TABLE … SELECT, or logs its rows separately."""


@pytest.mark.spark
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("source_kind", "target_kind", "workers"),
    [
        ("mariadb", "postgres", 1),
        pytest.param("mysql97", "postgres", 2, marks=pytest.mark.long),
        ("mysql56", "mariadb", 1),
        pytest.param("mariadb", "mysql97", 2, marks=pytest.mark.long),
    ],
)
def test_all_that_happens_on_the_source_happens_on_the_target(
    source_kind, target_kind, workers, request, make_task, target_server, open_session, database
):
    source = request.getfixturevalue(source_kind)
    session = open_session(source)
    cursor = session.cursor()
    cursor.execute(f"CREATE DATABASE IF NOT EXISTS {database}")
    cursor.execute("SET time_zone = '+00:00'")
    for statement in (ZOO, COMPOSITE, HOSTILE):
        cursor.execute(statement.format(database))
    for row in ROWS:
        cursor.execute(f"INSERT INTO {database}.zoo VALUES {row}")
    cursor.execute(f"INSERT INTO {database}.`or\"der``s` VALUES (1, 'a', 1), (2, NULL, NULL)")
    target = target_server(target_kind)
    task = make_task(source, target, [database], pidts={"chunk-rows": 3}, workers=workers)
    run, progress = task.start("--json"), Progress(open_session(target))
    run.wait_until(progress.is_copied, "all is copied")
    assert compare_task(load_task(task.path)).differences == 0

    changes = [*CHANGES.strip().splitlines(), *(CREATE_SELECT if source_kind == "mariadb" else [])]
    with progress.held_back():
        for statement in changes:
            cursor.execute(statement.format(database))
    run.wait_until(progress.has(session), "all changes are there")
    rows = run.summary()["rows"]
    assert rows["copied"] == len(ROWS) + 2
    assert rows["inserted"] >= 12
    report = compare_task(load_task(task.path))
    assert report.differences == 0, report.examples
    assert {table.table.name for table in report.tables} == {
        "zoo", "pair", 'or"der`s', "renamed", "emptied", *(["chosen"] if source_kind == "mariadb" else []),
    }  # fmt: skip
    cursor.execute(f"DROP DATABASE {database}")


@pytest.mark.spark
@pytest.mark.timeout(200)
def test_a_default_of_another_clock_halts_its_table(mariadb, database, make_task, target_server, open_session):
    """The value of existing rows depends on the time zone of the session that ran the ALTER, so it is not guessed."""
    cursor = open_session(mariadb).cursor()
    for table in ("a", "b"):
        cursor.execute(f"CREATE TABLE {database}.{table} (id INT PRIMARY KEY)")
        cursor.execute(f"INSERT INTO {database}.{table} VALUES (1), (2)")
    session = open_session(target := target_server("postgres"))
    run = make_task(mariadb, target, [database]).start()
    run.wait_until(Progress(session).is_copied, "all is copied")
    cursor.execute("SET time_zone = '+05:00'")
    cursor.execute(f"ALTER TABLE {database}.a ADD COLUMN made DATETIME DEFAULT CURRENT_TIMESTAMP")
    cursor.execute(f"INSERT INTO {database}.a VALUES (3, NULL)")
    cursor.execute(f"INSERT INTO {database}.b VALUES (3)")

    def rows(table: str) -> list[tuple]:
        return session.execute(f"SELECT * FROM {database}.{table} ORDER BY id").fetchall()

    def halts() -> list[Halt]:
        return [Halt.loads(about) for (about,) in session.execute("SELECT about FROM pidts_meta.halt").fetchall()]

    run.wait_until(lambda: rows("b") == [(1,), (2,), (3,)], "the other table goes on")
    run.wait_until(halts, "the change has failed")  # Other tables may wait for the change, but only for a short time.
    assert rows("a") == [(1,), (2,)]
    (halt,) = halts()
    assert (halt.code, [str(name) for name in halt.tables]) == ("ddl-not-translatable", [f"{database}.a"])
    run.stop()
