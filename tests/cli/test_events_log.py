"""From a real log, `pidts events` prints the changes that were committed, begins at the given place, and refuses what
it cannot show.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pidts.cli.app import run_command
from pidts.cli.events import group
from pidts.sandbox import Server

RunSql = Callable[..., list[tuple[Any, ...]]]
Shown = Callable[..., list[dict[str, Any]]]
InOneSession = Callable[..., None]
pytestmark = pytest.mark.repeats("mysql56")


def url(server: Server) -> str:
    return f"mysql://{server.user}:{server.password}@{server.host}:{server.port}/"


def ids(events: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return [(event["op"], (event["new"] or event["old"])["id"]) for event in events if event["op"] != "ddl"]


def end_of_log(server: Server, run_sql: RunSql) -> str:
    for statement in ("SHOW BINARY LOG STATUS", "SHOW MASTER STATUS"):
        try:
            row = run_sql(server, statement)[0]
        except Exception:  # noqa: BLE001 - each server knows one of them
            continue
        return f"{row[0]}:{row[1]}"
    raise AssertionError(server.kind)


def test_rows_of_a_prepared_transaction_appear_when_it_is_committed(
    mysql_like: Server, database: str, run_sql: RunSql, in_one_session: InOneSession, shown: Shown
) -> None:
    if mysql_like.kind == "mysql56":
        pytest.skip("MySQL logs prepared transactions since 5.7")
    run_sql(mysql_like, "CREATE TABLE t (id INT PRIMARY KEY)", database=database)
    for number, xid in ((1, "'kept'"), (2, "'dropped'")):
        in_one_session(
            mysql_like,
            database,
            f"XA START {xid}",
            f"INSERT INTO t VALUES ({number})",
            f"XA END {xid}",
            f"XA PREPARE {xid}",
        )
    run_sql(mysql_like, "INSERT INTO t VALUES (3)", database=database)
    before = end_of_log(mysql_like, run_sql)
    run_sql(mysql_like, "XA ROLLBACK 'dropped'")
    run_sql(mysql_like, "XA COMMIT 'kept'")
    run_sql(mysql_like, "INSERT INTO t VALUES (4)", database=database)
    events = shown(url(mysql_like), "--tables", f"{database}.t")
    assert ids(events) == [("insert", 3), ("insert", 1), ("insert", 4)]
    lsns = [event["lsn"] for event in events]
    assert lsns == sorted(set(lsns))
    # If the log begins after the PREPARE, the contents of the COMMIT are unknown.
    assert run_command(["events", url(mysql_like), "--from", before]) == 5


def test_changes_rolled_back_to_a_savepoint_are_not_printed(
    mysql_like: Server,
    database: str,
    run_sql: RunSql,
    in_one_session: InOneSession,
    shown: Shown,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run_sql(mysql_like, "CREATE TABLE t (id INT PRIMARY KEY, pad VARCHAR(2000)) ENGINE = InnoDB", database=database)
    # If MyISAM tables are changed, some servers log what was rolled back, followed by the ROLLBACK TO.
    run_sql(mysql_like, "CREATE TABLE m (id INT PRIMARY KEY) ENGINE = MyISAM", database=database)

    def add(*numbers: int) -> str:
        return "INSERT INTO t VALUES " + ", ".join(f"({number}, REPEAT('x', 2000))" for number in numbers)

    in_one_session(
        mysql_like,
        database,
        "BEGIN",
        add(*range(1, 20)),
        "SAVEPOINT a",
        add(*range(20, 40)),
        "SAVEPOINT b",
        add(40, 41),
        "INSERT INTO m VALUES (1)" if mysql_like.kind == "mariadb" else "DO 0",
        "ROLLBACK TO b",
        "ROLLBACK TO a",
        add(*range(60, 80)),
        "COMMIT",
    )
    whole = shown(url(mysql_like), "--tables", f"{database}.t")
    assert ids(whole) == [("insert", number) for number in (*range(1, 20), *range(60, 80))]
    # The output is the same if changes are kept on disk, and written in pieces of a few rows.
    monkeypatch.setattr(group, "_CHUNK", 5000)
    monkeypatch.setattr(group, "_IN_MEMORY", 1000)
    assert shown(url(mysql_like), "--tables", f"{database}.t") == whole


def test_a_large_transaction_of_several_tables_keeps_its_order_in_pieces(
    mysql_like: Server,
    database: str,
    run_sql: RunSql,
    in_one_session: InOneSession,
    shown: Shown,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in "ab":
        run_sql(mysql_like, f"CREATE TABLE {name} (id INT PRIMARY KEY, pad VARCHAR(5000))", database=database)
    rows = ", ".join(f"({number}, REPEAT('x', 5000))" for number in range(50))
    change = "UPDATE a JOIN b USING (id) SET a.pad = '', b.pad = ''"
    in_one_session(
        mysql_like, database, "BEGIN", f"INSERT INTO a VALUES {rows}", f"INSERT INTO b VALUES {rows}", change, "COMMIT"
    )
    whole = shown(url(mysql_like), "--tables", f"{database}.*")
    assert len(whole) == 2 + 200
    lsns = [event["lsn"] for event in whole]
    assert lsns == sorted(set(lsns))
    monkeypatch.setattr(group, "_CHUNK", 20_000)
    assert shown(url(mysql_like), "--tables", f"{database}.*") == whole
    few = whole[100:]
    assert shown(url(mysql_like), "--tables", f"{database}.*", "--from", whole[99]["lsn"], "--limit", "9") == few[:9]


def test_a_change_logged_as_a_statement_is_an_error_that_says_what_to_set(
    mysql_like: Server,
    database: str,
    run_sql: RunSql,
    in_one_session: InOneSession,
    shown: Shown,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run_sql(mysql_like, "CREATE TABLE t (id INT PRIMARY KEY)", database=database)
    in_one_session(mysql_like, database, "SET SESSION binlog_format = 'STATEMENT'", "INSERT INTO t VALUES (1)")
    assert run_command(["events", url(mysql_like), "--tables", f"{database}.t"]) == 5
    said = capsys.readouterr().err
    assert "[statement-format]" in said
    assert "binlog_format = 'ROW'" in said
    assert len(shown(url(mysql_like), "--tables", f"{database}.other")) == 0


def test_by_gtid_the_first_entry_has_the_right_predecessor(
    mysql_like: Server, database: str, run_sql: RunSql, shown: Shown
) -> None:
    run_sql(mysql_like, "CREATE TABLE t (id INT PRIMARY KEY)", database=database)
    for number in (1, 2, 3):
        run_sql(mysql_like, "INSERT INTO t VALUES (%s)", number, database=database)
        run_sql(mysql_like, "FLUSH BINARY LOGS")
    everything = shown(url(mysql_like), "--tables", f"{database}.*")
    after = shown(url(mysql_like), "--tables", f"{database}.*", "--from", everything[1]["gtid"])
    assert after == everything[2:]
    other = "9-9-9" if mysql_like.kind != "mariadb" else f"{'0' * 8}-0000-0000-0000-{'0' * 12}:1"
    assert run_command(["events", url(mysql_like), "--from", other]) == 2


def test_a_time_is_a_place_in_the_log(mariadb: Server, database: str, run_sql: RunSql, shown: Shown) -> None:
    run_sql(mariadb, "CREATE TABLE t (id INT PRIMARY KEY)", database=database)
    before = end_of_log(mariadb, run_sql)
    run_sql(mariadb, "INSERT INTO t VALUES (1)", database=database)
    run_sql(mariadb, "FLUSH BINARY LOGS")
    time.sleep(1.1)
    run_sql(mariadb, "INSERT INTO t VALUES (2)", database=database)
    tables = ["--tables", f"{database}.t"]
    _, first, last = shown(url(mariadb), *tables)
    assert first["ts"] < last["ts"]
    assert shown(url(mariadb), *tables, "--from", last["ts"]) == [last]
    # Times in a log go back if a clock was set or a statement waited. The first time after `before` ends the output.
    assert shown(url(mariadb), *tables, "--from", before, "--to", first["ts"]) == [first]
    assert shown(url(mariadb), *tables, "--from", "-10m")[-2:] == [first, last]
    assert shown(url(mariadb), *tables, "--to", "-10m") == []


def test_rows_of_the_servers_own_tables_are_not_shown(
    mysql_like: Server, database: str, run_sql: RunSql, shown: Shown
) -> None:
    """The log has changes of the server's own tables, and no task carries them."""
    run_sql(mysql_like, "CREATE TABLE t (id INT PRIMARY KEY)", database=database)
    before = end_of_log(mysql_like, run_sql)
    run_sql(mysql_like, "INSERT INTO mysql.time_zone_leap_second VALUES (78796800, 1)")
    run_sql(mysql_like, "INSERT INTO t VALUES (1)", database=database)
    run_sql(mysql_like, "DELETE FROM mysql.time_zone_leap_second")
    run_sql(mysql_like, "INSERT INTO t VALUES (2)", database=database)
    assert (
        log_file(mysql_like, run_sql).read_bytes()[int(before.partition(":")[2]) :].count(b"time_zone_leap_second") >= 2
    )
    events = shown(url(mysql_like), "--from", before)
    assert [(event["database"], event["table"]) for event in events] == [(database, "t")] * 2
    assert ids(events) == [("insert", 1), ("insert", 2)]


def test_columns_that_an_image_lacks_are_not_printed(
    mysql_like: Server,
    database: str,
    run_sql: RunSql,
    in_one_session: InOneSession,
    shown: Shown,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run_sql(mysql_like, "CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT)", database=database)
    run_sql(mysql_like, "INSERT INTO t VALUES (1, 2, NULL)", database=database)
    in_one_session(
        mysql_like, database, "SET SESSION binlog_row_image = 'MINIMAL'", "UPDATE t SET b = 3", "DELETE FROM t"
    )
    *_, changed, gone = shown(url(mysql_like), "--tables", f"{database}.t")
    assert (changed["old"], changed["new"]) == ({"id": 1}, {"b": 3})
    assert (gone["old"], gone["new"]) == ({"id": 1}, None)
    assert run_command(["events", url(mysql_like), "--tables", f"{database}.t", "--format", "text"]) == 0
    text = capsys.readouterr().out
    assert "b (not in the log) → 3" in text
    assert "not in the log: a" in text


def program(*arguments: str) -> list[str]:
    return [sys.executable, "-c", "from pidts.cli.app import main; main()", "events", *arguments]


def log_file(server: Server, run_sql: RunSql) -> Path:
    return server.directory / "binlog" / str(run_sql(server, "SHOW BINARY LOGS")[-1][0])


def test_packed_files_and_standard_input_are_logs_too(
    mariadb: Server, database: str, run_sql: RunSql, shown: Shown, tmp_path: Path
) -> None:
    import gzip

    import zstandard

    run_sql(mariadb, "FLUSH BINARY LOGS")
    run_sql(mariadb, "CREATE TABLE t (id INT PRIMARY KEY, pad LONGTEXT) CHARSET utf8mb4", database=database)
    run_sql(mariadb, "INSERT INTO t VALUES (1, REPEAT('x', 3000000)), (2, 'y')", database=database)
    first = log_file(mariadb, run_sql)
    run_sql(mariadb, "FLUSH BINARY LOGS")
    run_sql(mariadb, "INSERT INTO t VALUES (3, 'z')", database=database)
    second = log_file(mariadb, run_sql)
    run_sql(mariadb, "FLUSH BINARY LOGS")
    tables = ["--tables", f"{database}.t"]
    plain = shown(str(first), str(second), *tables)
    assert ids(plain) == [("insert", 1), ("insert", 2), ("insert", 3)]
    # Each file has the other's suffix: the contents decide, and not the names.
    (tmp_path / f"{first.name}.zst").write_bytes(gzip.compress(first.read_bytes(), 1))
    (tmp_path / f"{second.name}.gz").write_bytes(zstandard.ZstdCompressor().compress(second.read_bytes()))
    assert shown(f"{tmp_path}/bin.*", *tables) == plain
    done = subprocess.run(
        program("-", *tables), input=first.read_bytes() + second.read_bytes(), capture_output=True, check=True
    )
    assert done.stdout.count(b'"op": "insert"') == 3
    assert b"0000.0000000002." in done.stdout
    cut = tmp_path / "cut" / first.name
    cut.parent.mkdir()
    cut.write_bytes(first.read_bytes()[:-3])
    assert run_command(["events", str(cut), *tables]) == 5
    cut.write_bytes(gzip.compress(first.read_bytes())[:-100])
    assert run_command(["events", str(cut), *tables]) == 5


def test_a_log_that_ends_inside_a_transaction_says_so(
    mariadb: Server, database: str, run_sql: RunSql, in_one_session: InOneSession, shown: Shown, tmp_path: Path
) -> None:
    run_sql(mariadb, "FLUSH BINARY LOGS")
    run_sql(mariadb, "CREATE TABLE t (id INT PRIMARY KEY)", database=database)
    run_sql(mariadb, "INSERT INTO t VALUES (1)", database=database)
    run_sql(mariadb, "INSERT INTO t VALUES (2)", database=database)
    content = log_file(mariadb, run_sql).read_bytes()
    path = tmp_path / "bin.000001"
    # The last event is an XID: 19 bytes of header, 8 bytes of number, 4 bytes of checksum.
    path.write_bytes(content[:-31])
    assert ids(shown(str(path), "--tables", f"{database}.t")) == [("insert", 1)]
    assert "the log ends inside a transaction" in shown.notes
    # While a server writes the file, its last event may be incomplete.
    path.write_bytes(content[:-5])
    assert ids(shown(str(path), "--tables", f"{database}.t")) == [("insert", 1)]
    assert "the last event is incomplete" in shown.notes


def test_an_unknown_output_format_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["events", "mysql://a/", "--format", "xml"]) == 2
    assert "Known: json, text" in capsys.readouterr().err


def test_the_state_of_a_sequence_is_no_row_of_a_table(
    mariadb: Server, database: str, run_sql: RunSql, shown: Shown, capsys: pytest.CaptureFixture[str]
) -> None:
    run_sql(mariadb, "CREATE TABLE t (id INT PRIMARY KEY)", database=database)
    run_sql(mariadb, "CREATE SEQUENCE s", database=database)
    run_sql(mariadb, "SELECT NEXTVAL(s)", database=database)
    run_sql(mariadb, "CREATE TABLE copied AS SELECT * FROM s", database=database)
    run_sql(mariadb, "RENAME TABLE s TO renamed", database=database)
    run_sql(mariadb, "SELECT NEXTVAL(renamed)", database=database)
    run_sql(mariadb, "INSERT INTO t VALUES (1)", database=database)
    rows = [event for event in shown(url(mariadb), "--tables", f"{database}.*") if event["op"] != "ddl"]
    assert [event["table"] for event in rows] == ["copied", "t"]
    assert capsys.readouterr().err == ""
