"""`format("binlog")` reads a server's log as a data frame, in batches and streams, untyped or with a table's own types.

Tests that need no JVM call the data source as Spark does: they plan, and then read each task's part from a pickled
copy. `test_binlog_queries.py` does the same through Spark.
"""

from __future__ import annotations

import gzip
import json
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import zstandard
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pidts.binlog.row_values import python_values
from pidts.excerpt.json_columns import value_text
from pidts.excerpt.json_value import json_value
from pidts.model import ColumnType, ConfigError, Halted, Kind
from pidts.sandbox import Server
from pidts.spark.format.options import BinlogOptions
from pidts.spark.format.source import BinlogSource

RunSql = Callable[..., list[tuple[Any, ...]]]
Rows = list[dict[str, Any]]

COMMON = """
  id BIGINT UNSIGNED NOT NULL PRIMARY KEY, tiny TINYINT, yes TINYINT(1), utiny TINYINT UNSIGNED, small SMALLINT, usmall SMALLINT UNSIGNED,
  medium MEDIUMINT UNSIGNED, i INT, ui INT UNSIGNED, big BIGINT, dec1 DECIMAL(10,2), dec2 DECIMAL(65,30), f FLOAT, d DOUBLE, bit1 BIT(1),
  bit9 BIT(9), y YEAR, dt DATE, zero DATE, tm TIME(3), dtm DATETIME(6), ts TIMESTAMP(3) NULL, c CHAR(10), v VARCHAR(100), t TEXT,
  l VARCHAR(50) CHARACTER SET latin1, bin BINARY(4), b BLOB, e ENUM('a','b'), s SET('x','y','z'), g GEOMETRY
"""
VALUES = (
    "18446744073709551615, -128, 1, 255, -32768, 65535, 16777215, -2147483648, 4294967295, -9223372036854775808, -99999999.99, 1.5, 0.5, 0.1, b'1',"
    " b'100000001', 2155, '2024-02-29', '0000-00-00', '-838:59:59', '2024-02-29 12:34:56.789012', '2038-01-19 03:14:07.999', 'a', 'Grüße \"x\"', 'text', 'café',"
    " x'0001', x'00ff', 'b', 'x,z', ST_GeomFromText('POINT(1 2)')"
)
TYPES = {
    "id": "decimal(20,0)",
    "tiny": "tinyint",
    "yes": "tinyint",
    "utiny": "smallint",
    "small": "smallint",
    "usmall": "int",
    "medium": "int",
    "i": "int",
    "ui": "bigint",
    "big": "bigint",
    "dec1": "decimal(10,2)",
    "dec2": "string",
    "f": "float",
    "d": "double",
    "bit1": "boolean",
    "bit9": "binary",
    "y": "int",
    "dt": "date",
    "zero": "date",
    "tm": "string",
    "dtm": "timestamp_ntz",
    "ts": "timestamp",
    "c": "string",
    "v": "string",
    "t": "string",
    "l": "string",
    "bin": "binary",
    "b": "binary",
    "e": "string",
    "s": "string",
    "g": "binary",
}
POINT = bytes.fromhex("000000000101000000000000000000f03f0000000000000040")
TYPED = {
    "id": Decimal(2**64 - 1),
    "tiny": -128,
    "yes": 1,
    "utiny": 255,
    "small": -32768,
    "usmall": 65535,
    "medium": 16777215,
    "i": -(2**31),
    "ui": 2**32 - 1,
    "big": -(2**63),
    "dec1": Decimal("-99999999.99"),
    "dec2": "1.500000000000000000000000000000",
    "f": 0.5,
    "d": 0.1,
    "bit1": True,
    "bit9": b"\x01\x01",
    "y": 2155,
    "dt": date(2024, 2, 29),
    "zero": None,
    "tm": "-838:59:59",
    "dtm": datetime(2024, 2, 29, 12, 34, 56, 789012),
    "ts": datetime(2038, 1, 19, 3, 14, 7, 999000, UTC),
    "c": "a",
    "v": 'Grüße "x"',
    "t": "text",
    "l": "café",
    "bin": b"\0\1\0\0",
    "b": b"\0\xff",
    "e": "b",
    "s": "x,z",
    "g": POINT,
}


def url(server: Server, more: str = "") -> str:
    return f"mysql://{server.user}:{server.password}@{server.host}:{server.port}/{more}"


def records(reader: Any, tasks: Sequence[Any]) -> Rows:
    """Reads as Spark does: each task gets its part as a pickle."""
    worker = pickle.loads(pickle.dumps(reader))
    batches = [batch for task in tasks for batch in worker.read(pickle.loads(pickle.dumps(task)))]
    return pa.Table.from_batches(batches).to_pylist() if batches else []


def reader(**options: str) -> Any:
    source = BinlogSource({name.replace("_", "-"): value for name, value in options.items()})
    return source.reader(source.schema())


def batch(**options: str) -> Rows:
    planner = reader(**options)
    return records(planner, planner.partitions())


class Stream:
    """One run of a streaming query, with Spark's record of it."""

    def __init__(self, options: dict[str, str], at: dict[str, Any] | None = None) -> None:
        source = BinlogSource(options)
        self.reader = source.streamReader(source.schema())
        self.at = at if at is not None else plain(self.reader.initialOffset())

    def next(self, limit: Any = None) -> Rows:
        end = plain(self.reader.latestOffset(self.at, limit or self.reader.getDefaultReadLimit()))
        rows = records(self.reader, self.reader.partitions(self.at, end)) if end != self.at else []
        self.at = end
        return rows

    def until(self, count: int) -> Rows:
        rows: Rows = []
        for _ in range(100):
            if len(rows) >= count:
                break
            rows += self.next()
        assert len(rows) == count, rows
        return rows


def plain(offset: Any) -> Any:
    return json.loads(json.dumps(offset))


@contextmanager
def streaming(at: dict[str, Any] | None = None, **options: str) -> Iterator[Stream]:
    stream = Stream({name.replace("_", "-"): value for name, value in options.items()}, at)
    try:
        yield stream
    finally:
        stream.reader.stop()


def brief(rows: Rows) -> list[tuple[str, Any, Any]]:
    return [(row["op"], row["old"] and json.loads(row["old"]), row["new"] and json.loads(row["new"])) for row in rows]


def fill(server: Server, database: str, run_sql: RunSql, count: int, first: int = 1) -> None:
    for number in range(first, first + count):
        run_sql(server, f"INSERT INTO {database}.orders VALUES ({number}, 'n{number}'), ({-number}, NULL)")


@pytest.fixture
def orders(mariadb: Server, database: str, run_sql: RunSql) -> dict[str, str]:
    """Creates a table with two transactions of two rows."""
    run_sql(mariadb, f"CREATE TABLE {database}.orders (id INT PRIMARY KEY, name VARCHAR(20))")
    fill(mariadb, database, run_sql, 2)
    return {"url": url(mariadb), "tables": f"{database}.orders"}


def log_files(server: Server, run_sql: RunSql) -> list[Path]:
    base = Path(run_sql(server, "SELECT @@log_bin_basename")[0][0])
    return sorted(path for path in base.parent.glob(f"{base.name}.0*"))


def test_a_servers_log_is_what_events_prints(mysql_like: Server, database: str, run_sql: RunSql) -> None:
    run_sql(mysql_like, "SET GLOBAL sql_mode = 'ALLOW_INVALID_DATES'")
    run_sql(mysql_like, f"CREATE TABLE {database}.zoo ({COMMON})")
    run_sql(mysql_like, f"INSERT INTO {database}.zoo VALUES ({VALUES})")
    run_sql(mysql_like, f"INSERT INTO {database}.zoo (id) VALUES (1), (2)")
    run_sql(mysql_like, f"UPDATE {database}.zoo SET v = 'a\\n\\\\', b = NULL, zero = '2023-02-31' WHERE id > 1")
    run_sql(mysql_like, f"ALTER TABLE {database}.zoo ADD COLUMN more INT FIRST, DROP COLUMN y")
    run_sql(mysql_like, f"CREATE TABLE {database}.other (id INT)")
    run_sql(mysql_like, f"INSERT INTO {database}.other VALUES (1)")
    run_sql(mysql_like, f"DELETE FROM {database}.zoo")
    found = batch(url=url(mysql_like), tables=f"{database}.*", zone="7")
    printed = subprocess.run(
        [sys.executable, "-m", "pidts", "events", url(mysql_like), "--tables", f"{database}.*", "--format", "json"],
        capture_output=True,
        check=True,
        timeout=60,
    )
    expected = [json.loads(line) for line in printed.stdout.splitlines()]
    assert [row["op"] for row in found] == [row["op"] for row in expected]
    assert len(found) == 12
    for row, event in zip(found, expected, strict=True):
        for name in ("lsn", "op", "gtid", "is_retry"):
            assert row[name] == event[name]
        assert row["database"] == database
        assert row["zone"] == 7
        assert row["ts"] == datetime.fromisoformat(event["ts"])
        if row["op"] == "ddl":
            assert row["new"] == event["statement"]
        else:
            assert (row["old"] and json.loads(row["old"]), row["new"] and json.loads(row["new"])) == (
                event["old"],
                event["new"],
            )
            assert row["xid"] > 0
    assert [row["lsn"] for row in found] == sorted(row["lsn"] for row in found)
    assert all(row["prev_lsn"] < row["lsn"] for row in found)


@pytest.mark.parametrize("kind", ["mariadb", "mysql97", pytest.param("mysql56", marks=pytest.mark.long)])
def test_a_typed_row_has_the_tables_own_types(
    kind: str, request: pytest.FixtureRequest, database: str, run_sql: RunSql
) -> None:
    server = request.getfixturevalue(kind)
    run_sql(server, f"CREATE DATABASE IF NOT EXISTS {database}")
    run_sql(server, "SET GLOBAL sql_mode = 'ALLOW_INVALID_DATES'")
    more, values, types, expected = "", "", dict(TYPES), dict(TYPED)
    if kind != "mysql56":
        more, values = ", j JSON", ", '{\"a\": 1}'"
        types["j"], expected["j"] = "string", '{"a": 1}'
    if kind == "mysql97":
        more, values = f"{more}, vec VECTOR(2)", f"{values}, STRING_TO_VECTOR('[1.5, -2]')"
        types["vec"], expected["vec"] = "array<float>", [1.5, -2.0]
    run_sql(server, f"CREATE TABLE {database}.zoo ({COMMON}{more})")
    run_sql(server, f"INSERT INTO {database}.zoo VALUES ({VALUES}{values})")
    run_sql(server, f"UPDATE {database}.zoo SET {', '.join(f'{name} = NULL' for name in types if name != 'id')}")
    planner = reader(url=url(server), tables=f"{database}.zoo", typed="true")
    image = planner._schema["new"].dataType
    assert {field.name: field.dataType.simpleString() for field in image} == types
    inserted, updated = records(planner, planner.partitions())
    assert (inserted["op"], inserted["old"], inserted["new"]) == ("insert", None, expected)
    assert (updated["op"], updated["old"]) == ("update", expected)
    assert updated["new"] == dict.fromkeys(types) | {"id": expected["id"]}
    run_sql(server, f"DROP DATABASE {database}")


def test_many_tasks_read_what_one_reads(
    orders: dict[str, str], mariadb: Server, database: str, run_sql: RunSql
) -> None:
    fill(mariadb, database, run_sql, 20, 3)
    run_sql(mariadb, "FLUSH BINARY LOGS")
    fill(mariadb, database, run_sql, 5, 30)
    planner = reader(**orders, partitionBytes="1k")
    tasks = planner.partitions()
    assert len(tasks) > 5
    rows = records(planner, tasks)
    assert rows == batch(**orders)
    assert [row["op"] for row in rows] == ["ddl", *["insert"] * 54]


def test_log_files_are_read_plain_and_packed(
    orders: dict[str, str], mariadb: Server, run_sql: RunSql, tmp_path: Path
) -> None:
    run_sql(mariadb, "FLUSH BINARY LOGS")
    expected = [{**row, "source": ""} for row in batch(**orders)]
    plain_files = log_files(mariadb, run_sql)[:-1]
    for number, path in enumerate(plain_files):
        data = path.read_bytes()
        if number % 2:
            (tmp_path / f"{path.name}.gz").write_bytes(gzip.compress(data))
        else:
            (tmp_path / f"{path.name}.zst").write_bytes(zstandard.compress(data))
    tables = orders["tables"]
    assert batch(path=",".join(map(str, plain_files)), tables=tables) == expected
    assert batch(path=f"{tmp_path}/*", tables=tables, partitionBytes="1k") == expected
    typed = batch(path=f"{tmp_path}/*", tables=tables, typed="true")
    assert [row["new"] for row in typed] == [json.loads(row["new"]) for row in expected if row["op"] != "ddl"]


def test_a_range_is_cut_where_it_says(orders: dict[str, str]) -> None:
    rows = batch(**orders)
    first, *_, last = (row["lsn"] for row in rows)
    assert batch(**orders, startingPosition=first) == rows[1:]
    assert batch(**orders, startingPosition=rows[1]["lsn"], endingPosition=rows[3]["lsn"]) == rows[2:4]
    begun = batch(**orders, startingPosition=rows[2]["gtid"])
    assert begun == rows[3:]
    assert batch(**orders, **{"from": last}) == []


def test_a_range_is_cut_by_time(
    orders: dict[str, str], mariadb: Server, database: str, run_sql: RunSql, tmp_path: Path
) -> None:
    time.sleep(1.1)
    fill(mariadb, database, run_sql, 1, 40)
    rows = batch(**orders)
    second = rows[-1]["ts"].isoformat()
    before = (rows[-1]["ts"] - timedelta(seconds=1)).isoformat()
    assert batch(**orders, startingPosition=second) == rows[-2:]
    assert batch(**orders, endingPosition=before) == rows[:-2]
    assert batch(**orders, startingPosition="-1h") == rows
    relay = {"relay": str(tmp_path), "source-id": "timed"}
    with streaming(**orders, **relay, startingPosition=second) as stream:
        assert [row["new"] for row in stream.until(2)] == [row["new"] for row in rows[-2:]]
    everything = {**orders, **relay, "relay": str(tmp_path / "all")}
    with streaming(**everything, startingPosition="earliest") as stream:
        stream.until(len(rows))
    alone = {**everything}
    del alone["url"]
    assert [row["lsn"] for row in batch(**alone, startingPosition=second)] == [row["lsn"] for row in rows[-2:]]
    assert [row["lsn"] for row in batch(**alone, endingPosition=before)] == [row["lsn"] for row in rows[:-2]]


def test_a_stream_gives_what_comes_and_continues_from_its_offset(
    orders: dict[str, str], mariadb: Server, database: str, run_sql: RunSql
) -> None:
    everything = {**orders, "startingPosition": "earliest"}
    with streaming(**everything) as stream:
        first = stream.until(5)
        before = stream.at
        run_sql(mariadb, f"UPDATE {database}.orders SET name = 'x' WHERE id = 1")
        second = stream.until(1)
        after = stream.at
        stream.reader.commit(after)
        lag = stream.reader.reportLatestOffset()
        assert lag["behindBytes"] == 0
        assert lag["received"] >= after["lsn"]
    with streaming(before, **everything) as again:
        assert records(again.reader, again.reader.partitions(before, after)) == second
        again.at = after
        run_sql(mariadb, f"DELETE FROM {database}.orders WHERE id = 1")
        third = again.until(1)
    assert first + second + third == batch(**orders)
    assert brief(second) == [("update", {"id": 1, "name": "n1"}, {"id": 1, "name": "x"})]


def test_a_first_batch_is_replayed_from_where_it_began(
    orders: dict[str, str], mariadb: Server, database: str, run_sql: RunSql
) -> None:
    with streaming(**orders) as stream:
        initial = stream.at
        assert stream.next() == []
        fill(mariadb, database, run_sql, 1, 50)
        rows = stream.until(2)
        end = stream.at
    with streaming(**orders) as again:
        # Spark has no record of the first batch's start. It asks again, and the latest offset is another place by now.
        assert again.at["lsn"] > initial["lsn"]
        assert records(again.reader, again.reader.partitions(again.at, end)) == rows


def test_structures_of_the_offset_outlive_a_change_that_came_while_no_query_ran(
    orders: dict[str, str], mariadb: Server, database: str, run_sql: RunSql
) -> None:
    with streaming(**orders, startingPosition="earliest") as stream:
        stream.until(5)
        at = stream.at
    fill(mariadb, database, run_sql, 1, 60)
    run_sql(mariadb, f"ALTER TABLE {database}.orders CHANGE name label VARCHAR(30), ADD COLUMN n INT FIRST")
    run_sql(mariadb, f"INSERT INTO {database}.orders VALUES (7, 61, 'z')")
    with streaming(at, **orders) as again:
        rows = again.until(4)
    assert [row["new"] if row["op"] == "ddl" else json.loads(row["new"]) for row in rows] == [
        {"id": 60, "name": "n60"},
        {"id": -60, "name": None},
        f"ALTER TABLE {database}.orders CHANGE name label VARCHAR(30), ADD COLUMN n INT FIRST",
        {"n": 7, "id": 61, "label": "z"},
    ]


def test_a_batch_of_a_stream_is_as_large_as_it_may_be(
    orders: dict[str, str], mariadb: Server, database: str, run_sql: RunSql
) -> None:
    fill(mariadb, database, run_sql, 7, 3)
    sizes = []
    with streaming(**orders, startingPosition="earliest", maxRowsPerTrigger="5") as stream:
        while rows := stream.next():
            sizes.append(sum(row["op"] != "ddl" for row in rows))
    # A transaction has two rows, and is never divided.
    assert sizes == [4, 4, 4, 4, 2]
    with streaming(**orders, startingPosition="earliest", maxRowsPerTrigger="1") as stream:
        stream.next()
        assert len(stream.next()) == 2
        assert len(stream.next(ReadAllAvailable())) == 16
    with streaming(**orders, startingPosition="earliest", maxBytesPerTrigger="700") as stream:
        assert 2 <= len(stream.next()) <= 6


def test_available_now_ends_where_the_log_ended(
    orders: dict[str, str], mariadb: Server, database: str, run_sql: RunSql
) -> None:
    with streaming(**orders, startingPosition="earliest", maxRowsPerTrigger="2") as stream:
        stream.reader.prepareForTriggerAvailableNow()
        fill(mariadb, database, run_sql, 3, 70)
        rows: Rows = []
        before = None
        while stream.at != before:
            before = stream.at
            rows += stream.next()
    assert [row["op"] for row in rows] == ["ddl", *["insert"] * 4]


def test_a_typed_stream_stops_at_a_change_of_the_table_and_continues_anew(
    orders: dict[str, str], mariadb: Server, database: str, run_sql: RunSql
) -> None:
    with streaming(**orders, typed="true", startingPosition="earliest") as stream:
        assert len(stream.until(4)) == 4
        run_sql(mariadb, f"CREATE INDEX i ON {database}.orders (name)")
        fill(mariadb, database, run_sql, 1, 80)
        run_sql(mariadb, f"ALTER TABLE {database}.orders ADD COLUMN n INT")
        run_sql(mariadb, f"INSERT INTO {database}.orders VALUES (81, 'z', 5)")
        assert [row["new"]["id"] for row in stream.until(2)] == [80, -80]
        with pytest.raises(Halted, match=r"typed-structure-changed.*ADD COLUMN n.*load\(\)"):
            stream.until(1)
        at = stream.at
    with streaming(at, **orders, typed="true") as again:
        assert [row["new"] for row in again.until(1)] == [{"id": 81, "name": "z", "n": 5}]
    # Earlier rows have the earlier columns: a new column is NULL in them, and a dropped one is an error.
    assert batch(**orders, typed="true")[0]["new"] == {"id": 1, "name": "n1", "n": None}
    run_sql(mariadb, f"ALTER TABLE {database}.orders DROP COLUMN name")
    with pytest.raises(Halted, match=r"typed-structure-differs.*column name"):
        batch(**orders, typed="true")


@pytest.mark.parametrize("kind", ["mariadb", "mysql97"])
def test_xa_rows_are_at_their_commit(kind: str, request: pytest.FixtureRequest, database: str, run_sql: RunSql) -> None:
    server = request.getfixturevalue(kind)
    run_sql(server, f"CREATE DATABASE IF NOT EXISTS {database}")
    run_sql(server, f"CREATE TABLE {database}.orders (id INT PRIMARY KEY)")
    options = {"url": url(server), "tables": f"{database}.orders"}
    with streaming(**options) as stream:
        stream.next()
        xa(server, database)
        rows = stream.until(3)
        assert [json.loads(row["new"])["id"] for row in rows] == [2, 1, 11]
    inserts = [row for row in batch(**options) if row["op"] == "insert"]
    assert inserts == rows
    run_sql(server, f"DROP DATABASE {database}")


def test_the_state_of_a_sequence_is_no_row_of_a_table(mariadb: Server, database: str, run_sql: RunSql) -> None:
    """A copy of a sequence is a table with the same columns."""
    run_sql(mariadb, f"CREATE DATABASE IF NOT EXISTS {database}")
    run_sql(mariadb, f"CREATE TABLE {database}.t (id INT PRIMARY KEY)")
    options = {"url": url(mariadb), "tables": f"{database}.*"}
    with streaming(**options) as stream:
        stream.next()
        run_sql(mariadb, f"CREATE SEQUENCE {database}.s")
        run_sql(mariadb, f"SELECT NEXTVAL({database}.s)")
        run_sql(mariadb, f"CREATE TABLE {database}.copied AS SELECT * FROM {database}.s")
        run_sql(mariadb, f"RENAME TABLE {database}.s TO {database}.renamed")
        run_sql(mariadb, f"SELECT NEXTVAL({database}.renamed)")
        run_sql(mariadb, f"INSERT INTO {database}.t VALUES (1)")
        streamed = [row for row in stream.until(4) if row["op"] == "insert"]
    for rows in (streamed, [row for row in batch(**options) if row["op"] == "insert"]):
        assert [row["table"] for row in rows] == ["copied", "t"]
    run_sql(mariadb, f"DROP DATABASE {database}")


def xa(server: Server, database: str) -> None:
    import pymysql

    def session() -> Any:
        return pymysql.connect(
            host=server.host, port=server.port, user=server.user, password=server.password, autocommit=True
        )

    first, second, third = session(), session(), session()
    first.query("XA START 'one'")
    first.query(f"INSERT INTO {database}.orders VALUES (1), (11)")
    first.query("XA END 'one'")
    first.query("XA PREPARE 'one'")
    first.close()
    third.query("XA START 'gone'")
    third.query(f"INSERT INTO {database}.orders VALUES (3)")
    third.query("XA END 'gone'")
    third.query("XA PREPARE 'gone'")
    third.query("XA ROLLBACK 'gone'")
    second.query(f"INSERT INTO {database}.orders VALUES (2)")
    for _ in range(100):
        try:
            second.query("XA COMMIT 'one'")
            break
        except pymysql.err.MySQLError:
            continue
    second.close()
    third.close()


def test_a_relay_is_read_without_its_server(
    orders: dict[str, str], mariadb: Server, database: str, run_sql: RunSql, tmp_path: Path
) -> None:
    given = {**orders, "relay": str(tmp_path), "source-id": "one"}
    with streaming(**given, startingPosition="earliest") as stream:
        first = stream.until(5)
        alone = {"relay": str(tmp_path), "source-id": "one", "tables": orders["tables"]}
        assert batch(**alone) == first
        with streaming(**alone) as reading:
            assert reading.next() == []
            fill(mariadb, database, run_sql, 1, 90)
            assert len(reading.until(2)) == 2
    assert [row["new"]["id"] for row in batch(**alone, typed="true")] == [1, -1, 2, -2, 90, -90]


def test_rows_that_are_not_in_the_log_are_not_passed_over(
    orders: dict[str, str], mariadb: Server, database: str
) -> None:
    import pymysql

    with pymysql.connect(host=mariadb.host, port=mariadb.port, user=mariadb.user, password=mariadb.password) as session:
        session.query("SET SESSION binlog_format = STATEMENT")
        session.query(f"INSERT INTO {database}.orders VALUES (100, 'lost')")
        session.commit()
    for typed in ("true", "false"):
        with pytest.raises(Halted, match="statement-format"):
            batch(**orders, typed=typed)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"url": "mysql://x/", "tabels": "a.b"}, "no option 'tabels'.*Did you mean 'tables'"),
        ({"url": "mysql://x/", "maxRowsPerTriger": "1"}, "Did you mean 'maxRowsPerTrigger'"),
        ({"url": "mysql://x/", "nonsense": "1"}, "Known: url"),
        ({}, "no option says where the log is"),
        ({"url": "mysql://x/", "path": "y"}, "both url and path"),
        ({"relay": "/x"}, "needs source-id"),
        ({"url": "mysql://x/", "typed": "true", "tables": "a.*"}, "typed needs one table"),
        ({"url": "mysql://x/", "typed": "yes"}, "typed is true or false"),
        ({"url": "mysql://x/", "from": "yesterday"}, "from: .*Write earliest, latest"),
        ({"url": "mysql://x/", "from": "latest", "startingPosition": "latest"}, "one option"),
        ({"url": "mysql://x/", "maxRowsPerTrigger": "0"}, "a number from 1"),
        ({"url": "mysql://x/", "maxBytesPerTrigger": "many"}, "a size such as 64m"),
        ({"url": "mysql://u:${NO_SUCH}@x/"}, "NO_SUCH is not set.*before the Spark session"),
        ({"path": "/no/such/file"}, "no log file has this name"),
        ({"url": "postgres://x/"}, "not a URL of a MySQL"),
        ({"url": "mysql://x/", "tables": "mysql.user"}, "tables: the tables of mysql are never shown"),
    ],
)
def test_options_are_explained(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        BinlogOptions.parse(options, {})


def test_a_password_comes_from_the_environment_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("from file\n")
    given = {"url": "mysql://u@x/"}
    by_file = BinlogOptions.parse({**given, "password-file": str(file)}, {"MYSQL_PWD": "no"})
    named = BinlogOptions.parse({"url": "mysql://u:${MINE}@x/"}, {"MINE": "p@ss"})
    assert [
        options.server.password for options in (by_file, named, BinlogOptions.parse(given, {"MYSQL_PWD": "env"}))
    ] == [
        "from file",
        "p@ss",
        "env",
    ]
    assert "from file" not in repr(by_file)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (ColumnType(Kind.DECIMAL, precision=20, scale=10), [Decimal("-0.0000000001"), None]),
        (ColumnType(Kind.FLOAT), [0.1, -0.0, None, 3.4e38]),
        (ColumnType(Kind.DOUBLE), [1.0, 1e22, 5e-324]),
        (ColumnType(Kind.TIME), [-3_020_399_000_000, -1, 0, None]),
        (ColumnType(Kind.DATE), [-(2**25), -(2**25) + (2023 * 16 + 2) * 32 + 31, 0, None]),
        (ColumnType(Kind.DATETIME), [-(2**25) * 86_400_000_000 + 5, 0, 1, 10**15, None]),
        (ColumnType(Kind.TIMESTAMP), [0, 1, 10**15, None]),
        (ColumnType(Kind.TEXT), ['a"b\\c\n\t\x01\x00\x1f\x7f💾é', "", "\b\f\r", None]),
        (ColumnType(Kind.BLOB), [b"\0\1\xff", b"", None]),
        (ColumnType(Kind.VECTOR), [b"\0\0\xc0\x3f\0\0\0\xc0", None, b"\xcd\xcc\xcc\x3d"]),
    ],
    ids=lambda value: str(value.kind) if isinstance(value, ColumnType) else "",
)
def test_kernels_write_json_as_one_value_at_a_time_would(kind: ColumnType, values: list[Any]) -> None:
    array = (
        pa.array(values, {Kind.DATE: pa.int32()}.get(kind.kind, pa.int64()))
        if kind.arrow in _NUMBERED
        else pa.array(values)
    )
    array = array.cast(kind.arrow)
    expected = [json_value(value, kind) for value in python_values(array, kind.kind)]
    texts = value_text(array, kind).to_pylist()
    assert texts == [None if value is None else json.dumps(value, ensure_ascii=False) for value in expected]


_NUMBERED = {ColumnType(kind).arrow for kind in (Kind.TIME, Kind.DATE, Kind.DATETIME, Kind.TIMESTAMP)}
