"""`pidts events` names the columns that a table had at each place of the log, or says that their names are unknown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pidts.cli.app import run_command
from pidts.cli.events.outside_structures import ScriptStructures
from pidts.excerpt.table_options import server_of
from pidts.model import ConfigError, TableName
from pidts.sandbox import Server
from pidts.schema import MYSQL

RunSql = Callable[..., list[tuple[Any, ...]]]
Shown = Callable[..., list[dict[str, Any]]]


def url(server: Server) -> str:
    return f"mysql://{server.user}:{server.password}@{server.host}:{server.port}/"


def rows(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event["new"] for event in events if event["op"] == "insert"]


@pytest.fixture
def files(mariadb: Server, database: str, run_sql: RunSql) -> list[Path]:
    """Returns three log files of a server on which a table's columns change their names, but not their types."""

    def run(*statements: str) -> Path:
        run_sql(mariadb, "FLUSH BINARY LOGS")
        for statement in statements:
            run_sql(mariadb, statement, database=database)
        return mariadb.directory / "binlog" / str(run_sql(mariadb, "SHOW BINARY LOGS")[-1][0])

    first = run("CREATE TABLE t (a INT, b INT)", "CREATE TABLE still (id INT)")
    second = run("INSERT INTO t VALUES (1, 2)", "INSERT INTO still VALUES (1)")
    third = run("ALTER TABLE t CHANGE a c INT", "INSERT INTO t VALUES (3, 4)")
    run("ALTER TABLE t CHANGE b d INT", "INSERT INTO t VALUES (5, 6)")
    return [first, second, third]


def test_schema_changes_in_the_log_are_followed(
    files: list[Path], mariadb: Server, database: str, shown: Shown
) -> None:
    expected = [{"a": 1, "b": 2}, {"c": 3, "b": 4}, {"c": 5, "d": 6}]
    events = shown(url(mariadb), "--tables", f"{database}.t", "--from", f"{files[0].name}:4")
    assert (rows(events), shown.notes) == (expected, "")
    # Without a catalog, the charset of the database is unknown, but these columns do not need it.
    events = shown(*map(str, files), "--tables", f"{database}.t")
    assert (rows(events), shown.notes) == (expected[:2], "")


def test_text_of_a_charset_that_the_log_does_not_show_is_shown_as_bytes_and_the_rest_as_it_is(
    mariadb: Server, database: str, run_sql: RunSql, shown: Shown
) -> None:
    run_sql(mariadb, "FLUSH BINARY LOGS")
    run_sql(mariadb, "CREATE TABLE t (a INT UNSIGNED, c CHAR(9), s TEXT(100), at DATETIME(3))", database=database)
    run_sql(mariadb, "INSERT INTO t VALUES (4294967295, 'ab', 'x', '2001-02-03 04:05:06.789')", database=database)
    path = mariadb.directory / "binlog" / str(run_sql(mariadb, "SHOW BINARY LOGS")[-1][0])
    expected = {"a": 4294967295, "c": "YWI=", "s": "eA==", "at": "2001-02-03T04:05:06.789000"}
    events = shown(str(path), "--tables", f"{database}.t")
    assert rows(events) == [expected]
    assert "text in column c, s is shown as bytes" in shown.notes
    # The catalog has the charset, although it is read after the file was written.
    events = shown(str(path), "--tables", f"{database}.t", "--schema-from", url(mariadb))
    assert rows(events) == [expected | {"c": "ab", "s": "x"}]


def test_a_catalog_is_not_used_for_rows_before_its_last_change(
    files: list[Path], mariadb: Server, database: str, shown: Shown
) -> None:
    tables = ["--tables", f"{database}.*"]
    # Two dumps with the same server id would end each other.
    live = shown(f"{url(mariadb)}?server-id=4242", *tables, "--from", f"{files[1].name}:4")
    assert rows(live) == [{"@1": 1, "@2": 2}, {"id": 1}, {"@1": 3, "@2": 4}, {"c": 5, "d": 6}]
    assert "ALTER TABLE t CHANGE a c INT" in shown.notes
    assert shown.notes.count("its structure is not known") == 1
    # The server's log continues after the files, and its catalog has the tables that exist by then.
    stored = shown(str(files[1]), str(files[2]), *tables, "--schema-from", url(mariadb))
    assert rows(stored) == rows(live)[:3]
    assert rows(shown(str(files[1]), *tables)) == [{"@1": 1, "@2": 2}, {"@1": 1}]


def test_a_file_of_statements_shows_how_it_began(
    files: list[Path], mariadb: Server, database: str, shown: Shown, tmp_path: Path
) -> None:
    script = tmp_path / "before.sql"
    script.write_text(f"-- a dump\nUSE `{database}`;\n/*!40101 SET NAMES utf8 */;\nCREATE TABLE t (a INT, b INT);\n")
    events = shown(str(files[1]), str(files[2]), "--tables", f"{database}.t", "--schema-from", str(script))
    assert (rows(events), shown.notes) == ([{"a": 1, "b": 2}, {"c": 3, "b": 4}], "")
    script.write_text(f"CREATE TABLE `{database}`.t (a INT, b VARCHAR(9) CHARACTER SET latin1)")
    events = shown(str(files[1]), "--tables", f"{database}.t", "--schema-from", str(script))
    assert rows(events) == [{"@1": 1, "@2": 2}]
    assert "does not fit" in shown.notes


def test_rows_after_an_unknown_change_are_shown_without_names(
    mariadb: Server, database: str, run_sql: RunSql, shown: Shown
) -> None:
    run_sql(mariadb, "CREATE TABLE t (id INT)", database=database)
    run_sql(mariadb, "INSERT INTO t VALUES (1)", database=database)
    run_sql(mariadb, "ALTER TABLE t ADD SYSTEM VERSIONING", database=database)
    run_sql(mariadb, "INSERT INTO t (id) VALUES (2)", database=database)
    first, second = rows(shown(url(mariadb), "--tables", f"{database}.t"))
    assert first == {"id": 1}
    # The catalog does not help: for a table with system versioning, it has fewer or more columns than the row events.
    # Nothing is guessed.
    assert second["@1"] == 2 or second["id"] == 2


def test_the_log_itself_may_show(mysql97: Server, database: str, run_sql: RunSql, shown: Shown, tmp_path: Path) -> None:
    run_sql(mysql97, "CREATE TABLE t (id INT, u BINARY(16))", database=database)
    run_sql(mysql97, "SET GLOBAL binlog_row_metadata = 'FULL'")
    try:
        run_sql(mysql97, "FLUSH BINARY LOGS")
        run_sql(mysql97, "INSERT INTO t VALUES (1, 'x')", database=database)
    finally:
        run_sql(mysql97, "SET GLOBAL binlog_row_metadata = 'MINIMAL'")
    path = mysql97.directory / "binlog" / str(run_sql(mysql97, "SHOW BINARY LOGS")[-1][0])
    events = shown(str(path), "--tables", f"{database}.t")
    assert [list(row) for row in rows(events)] == [["id", "u"]]
    assert shown.notes == ""


@pytest.mark.parametrize(
    ("script", "columns"),
    [
        ("USE a; CREATE TABLE t (x INT)", ["x"]),
        ("CREATE TABLE IF NOT EXISTS a.t (x INT); CREATE TABLE a.t2 (y INT)", ["x"]),
        ("CREATE DATABASE /*!32312 IF NOT EXISTS*/ a CHARACTER SET gbk; USE a; CREATE TABLE t (x VARCHAR(9))", ["x"]),
        ("USE a;\nDELIMITER ;;\nCREATE PROCEDURE p() BEGIN CREATE TABLE t (y INT); END ;;\nDELIMITER ;\n", None),
        ("USE a; DROP TABLE IF EXISTS t; CREATE TABLE t (x INT); INSERT INTO t VALUES (';')", ["x"]),
    ],
)
def test_a_script_makes_tables(script: str, columns: list[str] | None, tmp_path: Path) -> None:
    path = tmp_path / "s.sql"
    path.write_text(script)
    table = ScriptStructures(path).begin(MYSQL).table(TableName("a", "t"))
    assert (table and [column.name for column in table.columns]) == columns


def test_structures_that_a_script_lacks_are_not_guessed(tmp_path: Path) -> None:
    path = tmp_path / "s.sql"
    path.write_text("CREATE DATABASE a; USE a; CREATE TABLE t (x VARCHAR(9))")
    table = ScriptStructures(path).begin(MYSQL).table(TableName("a", "t"))
    assert table is not None
    assert table.has_unknown_charset
    path.write_text("CREATE TABLE t (x INT)")
    with pytest.raises(ConfigError, match="USE"):
        ScriptStructures(path).begin(MYSQL)
    with pytest.raises(ConfigError, match="unreadable-file"):
        ScriptStructures(tmp_path / "absent.sql").begin(MYSQL)


def test_a_script_without_an_end_is_not_read_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pidts.cli.events.outside_structures._LONGEST_SCRIPT", 1 << 20)
    with pytest.raises(ConfigError, match="more than 1 MiB") as error:
        ScriptStructures(Path("/dev/zero")).begin(MYSQL)
    assert "--no-data" in error.value.todo


def test_a_password_s_file_without_an_end_is_not_read_for_ever() -> None:
    with pytest.raises(ConfigError, match="more than 16 MiB"):
        server_of("mysql://a/", {}, password_file="/dev/zero")


def test_a_server_cannot_show_what_is_read_only_once() -> None:
    assert run_command(["events", "-", "--schema-from", "mysql://a/"]) == 2
    assert run_command(["events", "mysql://a/", "--schema-from", "mysql://b/"]) == 2
