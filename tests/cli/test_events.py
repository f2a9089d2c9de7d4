"""`pidts events` prints the changes of a log as JSON lines, from a server and from files, exactly and without Spark."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from pidts.binlog.events import HEADER, HEADER_SIZE
from pidts.cli.app import run_command
from pidts.cli.events.command import event_line
from pidts.excerpt.json_value import json_value
from pidts.excerpt.range import LogRange, RangeFilter, missed, parse_point
from pidts.excerpt.table_options import tables_or_database
from pidts.model import (
    DataChange,
    Lsn,
    MySqlGtid,
    Position,
    SchemaEvent,
    TableName,
    Transaction,
    parse_gtid_set,
)
from pidts.rules import AllowList
from pidts.sandbox import Server

RunSql = Callable[..., list[tuple[Any, ...]]]
Output = pytest.CaptureFixture[str]
pytestmark = pytest.mark.repeats("mysql56")
UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def transaction(offset: int, gtid: str = "", time: int = 0) -> Transaction:
    begin = Lsn(0, 1, offset - 50)
    return Transaction(lsn=Lsn(0, 1, offset), prev_lsn=Lsn(0, 1, 4), begin=begin, gtid=gtid, timestamp=time)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, None),
        (2**64 - 1, 2**64 - 1),
        (1.5, 1.5),
        ("tëxt", "tëxt"),
        (Decimal("1E+5"), "100000"),
        (Decimal("-0.00010"), "-0.00010"),
        (date(2024, 1, 2), "2024-01-02"),
        (datetime(2024, 1, 2, 3, 4, 5), "2024-01-02T03:04:05"),
        (datetime(2024, 1, 2, 3, 4, 5, 60), "2024-01-02T03:04:05.000060"),
        (datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC), "2024-01-02T03:04:05Z"),
        (timedelta(hours=838, minutes=59, seconds=59), "838:59:59"),
        (-timedelta(hours=1, microseconds=5), "-01:00:00.000005"),
        (b"\x00\xff", "AP8="),
        ("0000-00-00", "0000-00-00"),
    ],
)
def test_every_value_has_one_form(value: Any, shown: Any) -> None:
    assert json_value(value) == shown


def test_a_change_is_an_object_with_all_of_its_parts() -> None:
    change = DataChange(
        lsn=Lsn(0, 1, 42),
        prev_lsn=Lsn(0, 1, 4),
        source_zone_id=7,
        timestamp=0,
        gtid="0-1-1",
        table=TableName("a", "t"),
        old_data=None,
        new_data={"id": 1},
    )
    assert json.loads(event_line(change, "shop")) == {
        "lsn": "0000.0000000001.000000000042.0000000000",
        "prev_lsn": "0000.0000000001.000000000004.0000000000",
        "zone": 7,
        "source": "shop",
        "database": "a",
        "table": "t",
        "op": "insert",
        "ts": "1970-01-01T00:00:00Z",
        "gtid": "0-1-1",
        "old": None,
        "new": {"id": 1},
        "is_retry": False,
    }


def test_a_statement_is_an_event_of_its_own_kind() -> None:
    event = SchemaEvent(lsn=Lsn(0, 1, 9), prev_lsn=Lsn(0, 1, 4), source_zone_id=1, schema="a", statement="DROP TABLE t")
    shown = json.loads(event_line(event, ""))
    assert (shown["op"], shown["database"], shown["table"], shown["statement"]) == ("ddl", "a", None, "DROP TABLE t")


@pytest.mark.parametrize(
    ("text", "point"),
    [
        ("0000.0000000001.000000000042.0000000003", Lsn(0, 1, 42, 3)),
        ("bin.000042:1337", Position("bin.000042", 1337)),
        ("my.host-bin.000042:4", Position("my.host-bin.000042", 4)),
        ("0-1-42,1-1-2", parse_gtid_set("0-1-42,1-1-2")),
        (f"{UUID}:1-5", parse_gtid_set(f"{UUID}:1-5")),
        (f"{UUID}:tag:7", MySqlGtid(UUID, "tag", 7)),
        ("2024-05-01T08:00:00Z", datetime(2024, 5, 1, 8, tzinfo=UTC)),
        ("2024-05-01 08:00", datetime(2024, 5, 1, 8, tzinfo=UTC)),
        ("2024-05-01T08:00:00+02:00", datetime(2024, 5, 1, 6, tzinfo=UTC)),
        ("2024-05-01", datetime(2024, 5, 1, tzinfo=UTC)),
    ],
)
def test_a_place_in_the_log_has_several_spellings(text: str, point: object) -> None:
    assert parse_point(text) == point


def test_a_time_may_be_relative_to_now() -> None:
    ago = parse_point("-1d2h30m")
    assert isinstance(ago, datetime)
    assert abs(datetime.now(UTC) - ago - timedelta(days=1, hours=2, minutes=30)) < timedelta(minutes=1)


@pytest.mark.parametrize("text", ["yesterday", "-", "-1x", "2024-13-01", "bin.000001:x"])
def test_anything_else_is_no_place(text: str) -> None:
    with pytest.raises(ValueError):
        parse_point(text)


def test_tables_are_chosen_by_name_pattern_or_whole_schema() -> None:
    tables = AllowList.parse("a.t, b.x*,c")
    chosen = [name for name in ("a.t", "a.u", "b.x1", "b.y", "c.any", "d.t") if tables(TableName(*name.split(".")))]
    assert chosen == ["a.t", "b.x1", "c.any"]
    assert AllowList.parse("")(TableName("any", "table"))


def taken(wanted: LogRange, transactions: list[Transaction]) -> list[bool]:
    cut = RangeFilter(wanted)
    return [cut.takes(one) for one in transactions]


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (None, [True, True]),
        (Position("b.000001", 100), [False, True]),
        (Lsn(0, 1, 100), [False, True]),
        (Lsn(0, 1, 99), [True, True]),
        (parse_gtid_set("0-1-1"), [False, True]),
        (datetime.fromtimestamp(1000, UTC), [True, True]),
        (datetime.fromtimestamp(1001, UTC), [False, True]),
    ],
)
def test_a_range_begins_after_its_start(start: Any, expected: list[bool]) -> None:
    both = [transaction(100, "0-1-1", 1000), transaction(200, "0-1-2", 1005)]
    assert taken(LogRange(start), both) == expected


def test_a_single_mysql_gtid_is_a_place_and_a_set_names_executed_transactions() -> None:
    three = [transaction(100, f"{UUID}:1"), transaction(200, f"{UUID}:2"), transaction(300, f"{UUID}:3")]
    one, alone = parse_point(f"{UUID}:2"), parse_gtid_set(f"{UUID}:2")
    assert taken(LogRange(one), three) == [False, False, True]
    assert taken(LogRange(alone), three) == [True, False, True]
    assert taken(LogRange(end=one), three)[:2] == [True, True]
    cut = RangeFilter(LogRange(end=one))
    assert [(cut.takes(item), cut.ended)[1] for item in three[:2]] == [False, True]


@pytest.mark.parametrize(
    "end",
    [
        Position("b.000001", 100),
        Lsn(0, 1, 100),
        Lsn(0, 1, 99, 3),
        parse_gtid_set("0-1-1"),
        datetime.fromtimestamp(1004, UTC),
        datetime.fromtimestamp(1000, UTC),
    ],
)
def test_a_range_ends_with_its_end(end: Any) -> None:
    both = [transaction(100, "0-1-1", 1000), transaction(200, "0-1-2", 1005)]
    cut = RangeFilter(LogRange(end=end))
    assert [cut.takes(one) for one in both] == [True, False]
    assert cut.ended


def test_a_row_may_be_the_start_and_the_end() -> None:
    wanted = LogRange(Lsn(0, 1, 50, 1), Lsn(0, 1, 50, 3))
    assert [row for row in range(6) if wanted.holds(Lsn(0, 1, 50, row))] == [2, 3]


def test_a_set_of_gtids_is_done_with_the_last_of_each_source() -> None:
    goals = frozenset(parse_gtid_set("0-1-5,1-1-2").positions)
    assert missed(goals, "0-1-4") == goals
    assert missed(missed(goals, "0-2-6"), "1-1-2") == frozenset()
    cut = RangeFilter(LogRange(end=parse_gtid_set(f"{UUID}:1-3:7-9")))
    ended = []
    for number in (3, 5, 9):
        cut.takes(transaction(100 * number, f"{UUID}:{number}"))
        ended.append(cut.ended)
    assert ended == [False, False, True]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["absent.000001"], 2, "[unreadable-file] the log file cannot be read"),
        (["mysql://x:y/"], 2, "[bad-source-url]"),
        (["mysql://root:${NOT_SET_AT_ALL}@127.0.0.1/"], 2, "NOT_SET_AT_ALL is not set"),
        (["mysql://a/", "mysql://b/"], 2, "one server"),
        (["absent.000001", "--follow"], 2, "--follow needs a server"),
        (["mysql://a/", "--from", "x"], 2, "--from"),
        (["mysql://127.0.0.1:1/"], 1, "[source-unreachable]"),
    ],
)
def test_unreadable_input_is_reported(arguments: list[str], code: int, said: str, capsys: Output) -> None:
    assert run_command(["events", *arguments]) == code
    assert said in capsys.readouterr().err


def bare_event(kind: int) -> bytes:
    return HEADER.pack(0, kind, 1, HEADER_SIZE, 0, 0)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not a binary log"),
        (b"text", "not a binary log"),
        (b"\xfdbin", "encrypted"),
        # The beginning of MariaDB's files is not encrypted. The events after event 164 are.
        (b"\xfebin" + bare_event(15) + bare_event(164), "encrypted"),
    ],
)
def test_a_file_that_is_no_log_is_reported(content: bytes, said: str, tmp_path: Path, capsys: Output) -> None:
    path = tmp_path / "bin.000001"
    path.write_bytes(content)
    assert run_command(["events", str(path)]) == 2
    assert said in capsys.readouterr().err


def url(server: Server) -> str:
    return f"mysql://{server.user}:{server.password}@{server.host}:{server.port}/"


CREATE = (
    "CREATE TABLE t (id INT PRIMARY KEY, big BIGINT UNSIGNED, d DECIMAL(10,3), name VARCHAR(20), raw VARBINARY(8), "
    "at DATETIME(3), e ENUM('x','y')) CHARSET utf8mb4"
)


@pytest.fixture
def log(mysql_like: Server, database: str, run_sql: RunSql) -> Path:
    """Returns a log of one table, from its creation to its end, and the server's file of this log."""
    for statement in (
        CREATE,
        "INSERT INTO t VALUES (1, 18446744073709551615, 1.5, 'héy', x'00ff', '2024-01-02 03:04:05.678', 'y')",
        "UPDATE t SET name = 'q'",
        "ALTER TABLE t ADD COLUMN n INT",
        "INSERT INTO t (id, n) VALUES (2, 7), (3, 8)",
        "DELETE FROM t WHERE id = 2",
    ):
        run_sql(mysql_like, statement, database=database)
    names = [row[0] for row in run_sql(mysql_like, "SHOW BINARY LOGS")]
    return mysql_like.directory / "binlog" / str(names[-1])


FIRST = {
    "id": 1,
    "big": 2**64 - 1,
    "d": "1.500",
    "name": "héy",
    "raw": "AP8=",
    "at": "2024-01-02T03:04:05.678000",
    "e": "y",
}


def test_a_database_in_the_url_stands_for_its_tables_unless_tables_are_named() -> None:
    assert tables_or_database("", "mysql://u@h:3306/shop%2D1/") == "shop-1.*"
    assert tables_or_database("crm.t", "mysql://u@h/shop") == "crm.t"
    assert tables_or_database("", "mysql://u@h/?server-id=7") == ""
    assert tables_or_database("", "/var/lib/mysql/bin.000001") == ""


@pytest.mark.usefixtures("log")
def test_a_database_in_the_url_limits_the_events(
    mysql_like: Server, database: str, shown: Callable[..., list[dict[str, Any]]]
) -> None:
    assert {event["database"] for event in shown(f"{url(mysql_like).rstrip('/')}/{database}")} == {database}


@pytest.mark.usefixtures("log")
def test_a_servers_log_is_shown_with_the_structure_of_each_moment(
    mysql_like: Server, database: str, shown: Callable[..., list[dict[str, Any]]]
) -> None:
    events = shown(url(mysql_like), "--tables", f"{database}.t", "--zone", "3")
    assert [event["op"] for event in events] == ["ddl", "insert", "update", "ddl", "insert", "insert", "delete"]
    assert events[1]["new"] == FIRST
    assert (events[2]["old"], events[2]["new"]) == (FIRST, {**FIRST, "name": "q"})
    assert [event["new"] and (event["new"]["id"], event["new"]["n"]) for event in events[4:]] == [(2, 7), (3, 8), None]
    assert {(event["zone"], event["database"]) for event in events} == {(3, database)}
    lsns = [event["lsn"] for event in events]
    assert lsns == sorted(set(lsns))
    assert events[5]["prev_lsn"] == events[4]["lsn"]


def test_files_show_the_same_as_their_server(
    log: Path, mysql_like: Server, database: str, shown: Callable[..., list[dict[str, Any]]]
) -> None:
    tables = ["--tables", f"{database}.*"]
    live = shown(url(mysql_like), *tables)
    pattern = str(log.parent / "bin.0*[0-9]")
    stored = shown(pattern, *tables, "--schema-from", url(mysql_like))
    assert [{**event, "source": ""} for event in live] == stored
    alone = shown(str(log), *tables)
    assert [event["lsn"] for event in alone] == [event["lsn"] for event in live]
    assert next(iter(alone[1]["new"].values())) == 1


def test_a_range_cuts_out_its_part(
    log: Path, mysql_like: Server, database: str, shown: Callable[..., list[dict[str, Any]]]
) -> None:
    where = url(mysql_like)
    everything = shown(where, "--tables", f"{database}.*")
    start, end = everything[1]["lsn"], everything[4]["lsn"]
    expected = [event["lsn"] for event in everything[2:5]]
    assert [
        event["lsn"] for event in shown(where, "--tables", f"{database}.*", "--from", start, "--to", end)
    ] == expected
    assert [
        event["lsn"] for event in shown(str(log), "--tables", f"{database}.*", "--from", start, "--to", end)
    ] == expected
    gtid = everything[2]["gtid"]
    if gtid:
        sets = gtid if ":" not in gtid else f"{gtid.rpartition(':')[0]}:1-{gtid.rpartition(':')[2]}"
        after = [event["lsn"] for event in shown(where, "--tables", f"{database}.*", "--from", sets)]
        assert after == [event["lsn"] for event in everything[3:]]
        before = [event["lsn"] for event in shown(where, "--tables", f"{database}.*", "--to", sets)]
        assert before == [event["lsn"] for event in everything[:3]]


def test_following_shows_what_happens_from_now_on_and_ends_with_ctrl_c(
    mariadb: Server, database: str, run_sql: RunSql
) -> None:
    run_sql(mariadb, "CREATE TABLE t (id INT PRIMARY KEY)", database=database)
    # If the tests run in the background, their shell ignores Ctrl-C.
    program = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from pidts.cli.app import main; main()"
    command = [sys.executable, "-c", program, "events", url(mariadb), "--follow", "--tables", f"{database}.*"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            # The command takes a moment to start. It need not print changes that were written before.
            first = ThreadPoolExecutor(1).submit(process.stdout.readline)
            for number in range(600):
                if first.done():
                    break
                run_sql(mariadb, "INSERT INTO t VALUES (%s)", number, database=database)
                time.sleep(0.1)
            assert json.loads(first.result(60))["op"] == "insert"
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
        finally:
            process.kill()


def test_reading_a_log_loads_neither_spark_nor_pandas(mariadb: Server, database: str, run_sql: RunSql) -> None:
    run_sql(mariadb, "CREATE TABLE t (id INT PRIMARY KEY)", database=database)
    run_sql(mariadb, "INSERT INTO t VALUES (1)", database=database)
    program = (
        "import sys; from pidts.cli.app import hide_modules, run_command; hide_modules(); "
        "run_command(sys.argv[1:]); "
        "print(sorted({'pandas', 'pyspark', 'psycopg'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", program, "events", url(mariadb), "--tables", f"{database}.*"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert (len(lines), lines[-1]) == (3, "[]")


def test_a_reader_that_leaves_early_is_no_error(mariadb: Server, database: str, run_sql: RunSql) -> None:
    run_sql(mariadb, "CREATE TABLE t (id INT PRIMARY KEY, pad VARCHAR(200))", database=database)
    rows = ", ".join(f"({number}, REPEAT('x', 200))" for number in range(2000))
    run_sql(mariadb, f"INSERT INTO t VALUES {rows}", database=database)
    program = "from pidts.cli.app import main; main()"
    command = [sys.executable, "-c", program, "events", url(mariadb), "--tables", f"{database}.*"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(30) == 0
