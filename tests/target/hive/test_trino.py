"""Trino reads published tables and change tables through the metastore, and the warehouse through its catalog."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyiceberg")

from tests.forked_programs import loaded_programs
from tests.target.hive.conftest import SECONDS, HiveTask, RunSql
from tests.target.hive.test_publications import SALES_CHANGES, change_sales
from tests.target.hive.trino_server import Trino, trino_server
from tests.target.iceberg.test_published_task import PublishedTask

from pidts.sandbox import Server

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(1500)]

KINDS = """\
CREATE TABLE kinds (id INT PRIMARY KEY, t TIME(3), d DATETIME(6), z TIMESTAMP(6) NULL, y DATE, b BIT(5), wide BIT(64),
  u BIGINT UNSIGNED, m INT UNSIGNED, p DECIMAL(12,3), q DECIMAL(38,10), big DECIMAL(65,2), j JSON, e ENUM('a','b'),
  s SET('x','y'), yr YEAR, c CHAR(5), txt TEXT, bin VARBINARY(4), f FLOAT, g DOUBLE)"""
ONE = """\
INSERT INTO kinds VALUES (1, '-12:30:00.5', '1969-12-31 23:59:59.5', '2026-01-02 03:04:05.000006', '2026-02-03', b'101',
  0xFFFFFFFFFFFFFFFF, 18446744073709551615, 4294967295, 123456789.125, -1234567890123456789012345678.0123456789,
  123456789012345678901234567890123456789012345678901234567890.12, '{"a": 1}', 'b', 'x,y', 2026, 'ab', 'ü😀', x'00ff',
  1.5, 0.1)"""
ODD = """\
INSERT INTO kinds (id, d, z, y) VALUES (2, '0000-00-00', '0000-00-00', '2026-00-00'),
  (3, '0001-01-01 00:00:00.000001', '1970-01-01 00:00:01', '0001-01-01'), (4, '1582-10-04', NULL, '1582-10-04'),
  (5, '1883-11-18 12:00:00', NULL, '1883-11-18'), (6, '9999-12-31 23:59:59.999999', NULL, '9999-12-31')"""
AS_TEXT = {
    "d": "CAST(d AS {text})",
    "z": "CAST(CAST(z AS {moment}) AS {text})",
    "y": "CAST(y AS {text})",
    "u": "CAST(u AS {text})",
}
AS_TEXT |= {name: f"CAST({name} AS {{text}})" for name in ("p", "q", "big")}
AS_TEXT |= {"bin": "{hex}(bin)", "wide": "CAST(wide{number} AS {text})", "b": "b{number}"}
PLAIN = ("id", "m", "j", "e", "s", "yr", "c", "txt", "f", "g")


@pytest.fixture
def task(mariadb: Server, tmp_path: Path, run_sql: RunSql, metastore: str) -> Iterator[HiveTask]:
    made = HiveTask(mariadb, tmp_path, run_sql, metastore=metastore)
    yield made
    made.sql(f"DROP DATABASE {made.database}", database=None)


def catalogs(task: HiveTask) -> dict[str, dict[str, str]]:
    """Returns the catalogs of `docs/start/`, and one catalog with Trino's defaults."""
    files = {"fs.hadoop.enabled": "true"}
    plain = {"connector.name": "hive", "hive.metastore.uri": task.metastore, **files}
    lake = {
        "connector.name": "iceberg",
        "iceberg.catalog.type": "jdbc",
        "iceberg.jdbc-catalog.catalog-name": "lake",
        "iceberg.jdbc-catalog.driver-class": "org.sqlite.JDBC",
        "iceberg.jdbc-catalog.connection-url": f"jdbc:sqlite:{task.warehouse}/catalog.db",
        "iceberg.jdbc-catalog.schema-version": "V1",
        "iceberg.jdbc-catalog.default-warehouse-dir": f"file://{task.warehouse}",
        **files,
    }
    hive = {**plain, "hive.parquet.time-zone": "UTC", "hive.timestamp-precision": "MICROSECONDS"}
    return {"hive": hive, "lake": lake, "plain": plain}


def of_kinds(where: str, **forms: str) -> str:
    columns = [*PLAIN, *(text.format(**forms) for text in AS_TEXT.values())]
    return f"SELECT {', '.join(columns)} FROM {where} ORDER BY id"


def of_source(task: HiveTask) -> list[list[Any]]:
    """Returns the rows of `kinds` as Trino shows them: zero and partial dates are NULL, and times have six fractional
    digits.
    """
    found = task.sql(of_kinds("kinds", text="CHAR", moment="DATETIME(6)", hex="HEX", number="+0"))
    return [[None if str(value).startswith(("0000-00", "2026-00")) else value for value in row] for row in found]


def look_at_kinds(task: HiveTask, trino: Trino) -> None:
    for catalog in ("hive", "lake"):
        where = f"{catalog}.{task.database}.kinds"
        assert trino.rows(of_kinds(where, text="VARCHAR", moment="TIMESTAMP(6)", hex="to_hex", number="")) == of_source(
            task
        )


def test_trino_reads_what_the_source_has(task: HiveTask) -> None:
    task.sql("CREATE TABLE orders (id INT AUTO_INCREMENT PRIMARY KEY, Buyer VARCHAR(40), price DECIMAL(12,2), n INT)")
    task.sql("INSERT INTO orders (Buyer, price, n) VALUES ('Ann', 1.25, 1), ('Bob', 2.5, 2), ('Cy', NULL, 3)")
    task.sql("CREATE TABLE keyless (id INT, v VARCHAR(10))")
    task.sql("INSERT INTO keyless VALUES (1, 'a'), (1, 'a'), (2, NULL)")
    task.sql("CREATE TABLE gone (id INT PRIMARY KEY)")
    task.sql("CREATE TABLE sales (id INT PRIMARY KEY, buyer VARCHAR(40), price DECIMAL(12,2))")
    task.sql("INSERT INTO sales VALUES (1, 'Ann', 1.25), (2, 'Bob', 2.5)")
    task.sql(KINDS)
    task.sql(ONE)
    task.run()
    with trino_server(task.folder / "trino", catalogs(task)) as trino:
        hive = f"hive.{task.database}"
        look_at_kinds(task, trino)
        orders = [[1, "Ann", "1.25", 1], [2, "Bob", "2.50", 2], [3, "Cy", None, 3]]
        for catalog in ("hive", "lake"):
            assert trino.rows(f"SELECT * FROM {catalog}.{task.database}.orders ORDER BY id") == orders
        change_sales(task)
        task.sql("SET STATEMENT sql_mode='' FOR " + ODD)
        task.sql("UPDATE orders SET price = 9 WHERE id = 1")
        task.sql("DELETE FROM orders WHERE id = 2")
        task.sql("ALTER TABLE orders ADD COLUMN note VARCHAR(20) NOT NULL DEFAULT 'none' AFTER id")
        task.sql("ALTER TABLE orders RENAME COLUMN Buyer TO customer, DROP COLUMN n")
        task.sql("INSERT INTO orders (customer, price, note) VALUES ('Dan', 7, 'new')")
        task.sql("DELETE FROM keyless WHERE id = 1 LIMIT 1")
        task.sql("DROP TABLE gone")
        task.run()
        look_at_kinds(task, trino)
        orders = [[1, "none", "Ann", "9.00"], [3, "none", "Cy", None], [4, "new", "Dan", "7.00"]]
        for catalog in ("hive", "lake"):
            at = f"{catalog}.{task.database}"
            assert trino.rows(f"SELECT * FROM {at}.orders ORDER BY id") == orders
            assert trino.rows(f"SELECT * FROM {at}.keyless ORDER BY id") == [[1, "a"], [2, None]]
            assert trino.rows(f"SELECT id, CAST(price AS VARCHAR), note FROM {at}.sales") == [[10, "7.50", "last"]]
            assert trino.rows(f"SELECT COUNT(*) FROM {at}.kinds WHERE d < TIMESTAMP '1583-01-01 00:00:00'") == [[2]]
        changes = trino.rows(
            "SELECT pidts_op, id, buyer, CAST(price AS VARCHAR), CAST(price__decimal_14_2 AS VARCHAR), note "
            f"FROM {hive}.sales_changes ORDER BY pidts_lsn, pidts_op"
        )
        assert changes == SALES_CHANGES
        days = trino.rows(
            f"SELECT CAST(pidts_ts AS VARCHAR), id FROM {hive}.sales_changes WHERE pidts_day = '2030-03-17'"
        )
        assert days == [["2030-03-17 17:46:40.000000", 9]]
        names = {row[0] for row in trino.rows(f"SHOW TABLES FROM {hive}")}
        assert names == {"orders", "keyless", "kinds", "sales", "orders_changes", "keyless_changes", "kinds_changes", "sales_changes"}  # fmt: skip
        # By default, Trino shifts timestamps by its own time zone and cuts them to milliseconds.
        shifted = trino.rows(
            f"SELECT CAST(d AS VARCHAR), CAST(z AS VARCHAR) FROM plain.{task.database}.kinds WHERE id = 1"
        )
        assert shifted == [["1970-01-01 08:59:59.500", "2026-01-02 12:04:05.000"]]


def test_trino_reads_tables_that_are_published_to_a_server(
    mariadb: Server, postgres: Server, database: str, metastore: str, tmp_path: Path, run_sql: RunSql
) -> None:
    """Two tasks have the same source: one publishes to PostgreSQL, and one to the metastore."""
    pytest.importorskip("thrift")
    for name in ("sql", "hive"):
        (tmp_path / name).mkdir()
    first = PublishedTask(mariadb, postgres, database, tmp_path / "sql", run_sql)
    text = first.file.read_text()
    begin = text.index("publish-to: {")
    to_hive = f"publish-to: {{type: hive, metastore: '{metastore}'}}"
    (tmp_path / "hive" / "task.yaml").write_text(
        text.replace(text[begin : text.index("}", begin) + 1], to_hive).replace("to-the-lake", "to-hive")
    )
    (tmp_path / "hive" / "password").write_text(mariadb.password)
    (tmp_path / "hive" / "password").chmod(0o600)

    def run() -> None:
        for folder in ("sql", "hive"):
            with (tmp_path / folder / "log").open("ab") as log:
                words = ["run", str(tmp_path / folder / "task.yaml"), "--until-synced"]
                done = loaded_programs().start(words, log, log).wait(SECONDS)
            assert done == 0, (tmp_path / folder / "log").read_text()[-3000:]

    files = {"connector.name": "iceberg", "fs.hadoop.enabled": "true"}
    jdbc = "iceberg.jdbc-catalog."
    sql = {
        "iceberg.catalog.type": "jdbc",
        f"{jdbc}catalog-name": "lake",
        f"{jdbc}driver-class": "org.postgresql.Driver",
        f"{jdbc}connection-url": f"jdbc:postgresql://{postgres.host}:{postgres.port}/{database}",
        f"{jdbc}connection-user": postgres.user,
        f"{jdbc}connection-password": postgres.password,
        f"{jdbc}schema-version": "V1",
        f"{jdbc}default-warehouse-dir": f"file://{tmp_path}/sql/warehouse",
    }
    hive = {"iceberg.catalog.type": "hive_metastore", "hive.metastore.uri": metastore}
    first.sql("CREATE TABLE orders (id INT PRIMARY KEY, buyer VARCHAR(40), price DECIMAL(12,2), at TIMESTAMP(6))")
    first.sql("INSERT INTO orders VALUES (1, 'Ann', 1.25, '2026-01-02 03:04:05.000006'), (2, 'Bob', NULL, NOW(6))")
    first.sql("CREATE TABLE gone (id INT PRIMARY KEY)")
    run()
    with trino_server(tmp_path / "trino", {"sql": {**files, **sql}, "hive": {**files, **hive}}) as trino:
        for catalog in ("sql", "hive"):
            at = f"{catalog}.{first.database}"
            assert [row[:3] for row in trino.rows(f"SELECT * FROM {at}.orders ORDER BY id")] == [
                [1, "Ann", "1.25"],
                [2, "Bob", None],
            ]
        first.sql("UPDATE orders SET price = 9 WHERE id = 2")
        first.sql("ALTER TABLE orders ADD COLUMN note VARCHAR(20) NOT NULL DEFAULT 'none' AFTER id")
        first.sql("ALTER TABLE orders RENAME COLUMN buyer TO customer")
        first.sql("DELETE FROM orders WHERE id = 1")
        first.sql("INSERT INTO orders VALUES (3, 'new', 'Dan', 7, '2026-01-02 03:04:05.000006')")
        first.sql("DROP TABLE gone")
        run()
        for catalog in ("sql", "hive"):
            at = f"{catalog}.{first.database}"
            rows = trino.rows(f"SELECT id, note, customer, CAST(price AS VARCHAR) FROM {at}.orders ORDER BY id")
            assert rows == [[2, "none", "Bob", "9.00"], [3, "new", "Dan", "7.00"]]
            moment = trino.rows(f"SELECT CAST(CAST(at AS TIMESTAMP(6)) AS VARCHAR) FROM {at}.orders WHERE id = 3")
            assert moment == [["2026-01-02 03:04:05.000006"]]
            assert trino.rows(f"SHOW TABLES FROM {at}") == [["orders"]]
    first.sql(f"DROP DATABASE {first.database}", database=None)
