"""Changes from a zone are marked in the log of the server that gets them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest

from pidts.login.privileges import grant_statements
from pidts.model import Column, ColumnType, Halted, Key, Kind, Table, TableName
from pidts.model.zone import mark_table, statement_origin
from pidts.reduce import Counts, NetChange
from pidts.sandbox import Server
from pidts.schema import classify
from pidts.target.mysql import MySqlSession, MySqlTarget
from pidts.target.mysql.privileges import missing, needed

RunSql = Callable[..., list[tuple[Any, ...]]]
INT = ColumnType(Kind.INT)


@pytest.fixture
def session(mysql_like: Server) -> Iterator[MySqlSession]:
    server = mysql_like
    target = MySqlTarget(
        server.host, server.port, server.user, server.password, zone="a", meta_schema="marks_meta", forwards=("c",)
    )
    with closing(target.connect()) as session:
        session.meta.prepare()
        session.run("FLUSH LOGS", ())  # Statements of other tests may have bytes that are not text.
        yield session


def events(session: MySqlSession, since: str) -> list[tuple[str, str]]:
    """Returns type and text of each event of the log after the last one whose text has `since`.

    MariaDB writes its checkpoints into the log at any time: they are left out.
    """
    file = session.rows("SHOW BINARY LOGS")[-1][0]
    shown = [(str(row[2]), str(row[5])) for row in session.rows(f"SHOW BINLOG EVENTS IN '{file}'")]
    at = max(place for place, (_, text) in enumerate(shown) if since in text)
    return [(kind, text) for kind, text in shown[at + 1 :] if kind != "Binlog_checkpoint"]


def statements(shown: list[tuple[str, str]]) -> list[str]:
    texts = [text for kind, text in shown if kind == "Query"]
    texts = [re.sub("^(use `[^`]*`; |set foreign_key_checks=0; )+", "", text) for text in texts]
    return [text.split(" /* xid=")[0] for text in texts if text not in {"BEGIN", "COMMIT"}]


def table(database: str) -> Table:
    columns = (Column("id", INT, nullable=False), Column("n", INT))
    return Table(TableName(database, "t"), columns, (Key("PRIMARY", ("id",), unique=True, primary=True),))


def test_a_transaction_with_rows_changes_the_zone_s_table(session: MySqlSession, database: str) -> None:
    name = table(database).name
    session.run(f"CREATE TABLE {database}.t (id INT PRIMARY KEY, n INT)", ())
    rows = pa.Table.from_pylist([{"id": 1, "n": 1}], schema=table(database).arrow)
    other = pa.Table.from_pylist([{"id": 1, "n": 2}], schema=table(database).arrow)
    none = rows.slice(0, 0)

    def write(deletes: pa.Table, upserts: pa.Table) -> None:
        session.write(NetChange(table(database), deletes, upserts, Counts()))

    ways: dict[str, Callable[[], object]] = {
        "loads": lambda: session.load(table(database), rows),
        "writes": lambda: write(none, other),
        "clears": lambda: session.clear(name),
        "loads_after": lambda: session.load(table(database), rows),
        "fails_to_load": lambda: (session.load(table(database), rows), write(rows, none)),
    }
    for way, work in ways.items():
        session.run(f"CREATE TABLE {database}.{way} (id INT)", ())
        session.begin()
        work()
        session.commit()
        mapped = [text for kind, text in events(session, f".{way} ") if kind == "Table_map"]
        assert f"(marks_meta.{mark_table('a')})" in mapped[0], way
        assert f"({database}.t)" in mapped[-1], way


@pytest.mark.parametrize("origin", ["", "c"])
def test_a_transaction_shows_the_zone_from_which_its_rows_come(
    session: MySqlSession, database: str, origin: str
) -> None:
    session.run(f"CREATE TABLE {database}.t (id INT PRIMARY KEY, n INT)", ())
    for number, found in enumerate((origin, "c", "")):
        session.run(f"CREATE TABLE {database}.step_{number} (id INT)", ())
        session.begin(found)
        session.load(table(database), pa.Table.from_pylist([{"id": number, "n": 1}], schema=table(database).arrow))
        session.commit()
        mapped = [text for kind, text in events(session, f".step_{number} ") if kind == "Table_map"]
        assert f"(marks_meta.{mark_table(found or 'a')})" in mapped[0]
        assert sum("pidts_from_zone" in text for text in mapped) == 1


def test_a_transaction_without_rows_leaves_the_zone_s_table(session: MySqlSession, database: str) -> None:
    session.run(f"CREATE TABLE {database}.before_it (id INT)", ())
    session.begin()
    session.run("DELETE FROM pidts_meta.note WHERE task = %s", ("nobody",))
    session.commit()
    assert events(session, "before_it") == []


@pytest.mark.parametrize("origin", ["a", "c"])
@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE {d}.made (id INT) ENGINE=InnoDB",
        "CREATE TABLE {d}.made LIKE {d}.t",
        "ALTER TABLE {d}.t ADD COLUMN c VARCHAR(9) DEFAULT 'x'",
        "ALTER TABLE {d}.t ADD COLUMN c INT COMMENT 'it''s -- new'",
        "ALTER TABLE {d}.t AUTO_INCREMENT = 100;",
        "CREATE INDEX i ON {d}.t (n)",
        "ALTER TABLE {d}.t PARTITION BY HASH (id) PARTITIONS 2",
        "RENAME TABLE {d}.t TO {d}.other",
        "TRUNCATE TABLE {d}.t",
        "DROP TABLE {d}.t",
        "DROP TABLE IF EXISTS {d}.t, {d}.absent",
        "DROP TABLE IF EXISTS {d}.absent",
        "ALTER DATABASE {d} DEFAULT CHARACTER SET latin1",
        "CREATE DATABASE {d}_more",
        "DROP DATABASE {d}_more",
    ],
)
def test_a_statement_shows_its_zone(session: MySqlSession, database: str, statement: str, origin: str) -> None:
    session.run(f"DROP DATABASE IF EXISTS {database}_more", ())
    if statement.startswith("DROP DATABASE"):
        session.run(f"CREATE DATABASE {database}_more", ())
    session.run(f"CREATE TABLE {database}.t (id INT PRIMARY KEY AUTO_INCREMENT, n INT)", ())
    session.run(f"CREATE TABLE {database}.start (id INT)", ())
    try:
        session.execute(statement.format(d=database), "" if origin == "a" else origin)
        found = statements(events(session, ".start "))
        dialect = session.server.dialect
        mine = [text for text in found if "CREATE TABLE IF NOT EXISTS `marks_meta`" not in text]
        assert mine, found
        for text in mine:
            parsed = classify(text, database, dialect=dialect)
            assert statement_origin("marks_meta", text, parsed.tables) == origin, text
    finally:
        session.run(f"DROP DATABASE IF EXISTS {database}_more", ())


def test_a_tasks_grants_are_enough_for_its_marks(
    session: MySqlSession, mysql_like: Server, database: str, run_sql: RunSql
) -> None:
    """`session` has created the meta tables; the account does not need the privilege to create them."""
    name = f"z_{database}"[-16:].strip("_")  # In MySQL 5.6, names have at most 16 characters.
    if mysql_like.kind == "mysql56":
        run_sql(mysql_like, "DELETE FROM mysql.user WHERE User = ''")
        run_sql(mysql_like, "FLUSH PRIVILEGES")
    run_sql(mysql_like, f"CREATE USER '{name}'@'%' IDENTIFIED BY 'of the task'")
    try:
        for sql in grant_statements(list(needed([database], "marks_meta", is_zone=True)), f"'{name}'@'%'"):
            run_sql(mysql_like, sql)
        target = MySqlTarget(
            mysql_like.host, mysql_like.port, name, "of the task", zone="a", meta_schema="marks_meta", forwards=("c",)
        )
        with closing(target.connect()) as own:
            own.meta.prepare()
            assert missing(own, [table(database).name]) == []
            own.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY, n INT) ENGINE=InnoDB", "c")
            own.begin()
            own.load(table(database), pa.Table.from_pylist([{"id": 1, "n": 1}], schema=table(database).arrow))
            own.commit()
            own.execute(f"ALTER TABLE {database}.t ADD COLUMN c INT")
            own.execute(f"DROP TABLE {database}.t")
    finally:
        run_sql(mysql_like, f"DROP USER '{name}'@'%'")
    assert session.rows("SELECT 1 FROM information_schema.tables WHERE table_schema = %s", (database,)) == []


def test_a_statement_that_changes_rows_shows_its_zone(session: MySqlSession, database: str) -> None:
    session.run(f"CREATE TABLE {database}.t (id INT PRIMARY KEY, n INT)", ())
    session.execute(f"INSERT INTO {database}.t VALUES (1, 1)")
    mapped = [text for kind, text in events(session, "CREATE TABLE") if kind == "Table_map"]
    assert mark_table("a") in mapped[0]
    assert f"({database}.t)" in mapped[1]


@pytest.mark.parametrize("statement", ["DROP TABLE {d}.t /* x */", "ALTER TABLE {d}.t WIBBLE c"])
def test_a_statement_that_would_not_show_its_zone_is_not_run(
    session: MySqlSession, database: str, statement: str
) -> None:
    session.run(f"CREATE TABLE {database}.t (id INT PRIMARY KEY)", ())
    with pytest.raises(Halted, match="origin-not-shown"):
        session.execute(statement.format(d=database))
    assert session.rows("SELECT 1 FROM information_schema.tables WHERE table_schema = %s", (database,)) == [(1,)]
