"""A column's times become other values on MySQL or MariaDB only if all rows get the values of the source's session."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest

from pidts.model import Halted, RenderedChange
from pidts.sandbox import Server
from pidts.schema import AlterTable, Dialect, apply, classify
from pidts.target.mysql import MySqlSession, MySqlTarget

SOURCES = {"mariadb": ("10.11.6-MariaDB", 1 << 34), "mysql97": ("8.4.0", 1 << 32)}
"""The version of a source, and the bit of the mode with which its session does the opposite of the server."""
CHARSET = ("utf8mb4", "utf8mb4_bin")


@pytest.mark.parametrize("opposite", [False, True])
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("kind", SOURCES)
def test_a_table_halts_if_its_server_rounds_what_the_source_s_session_cuts(
    mariadb: Server, mysql97: Server, database: str, kind: str, source: str, *, opposite: bool
) -> None:
    """Or the other way round. The kinds of the two servers alone do not decide."""
    server = {one.kind: one for one in (mariadb, mysql97)}[kind]
    version, bit = SOURCES[source]
    dialect = Dialect.of(version).under(bit if opposite else 0)
    with closing(MySqlTarget(server.host, server.port, server.user, server.password).connect()) as session:
        if (kind == source) is opposite:
            with pytest.raises(Halted, match="fewer digits of a second"):
                followed(session, database, dialect, "DATETIME(6)", "'2024-02-29 12:00:00.5'", "DATETIME")
        else:
            assert followed(session, database, dialect, "DATETIME(6)", "'2024-02-29 12:00:00.5'", "DATETIME").statements


def followed(
    session: MySqlSession, database: str, dialect: Dialect, old: str, value: str, new: str, *, merged: bool = False
) -> RenderedChange:
    """Returns the target's statements for a column with this value that gets another type."""
    make, charsets = f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, v {old} NULL)", {database: CHARSET}
    session.execute(make)
    session.execute(f"INSERT INTO `{database}`.t VALUES (1, {value}), (2, NULL)")
    before = apply(classify(make, database, dialect=dialect), {}, charsets, dialect=dialect)
    statement = classify(f"ALTER TABLE t MODIFY v {new} NULL", database, dialect=dialect)
    assert isinstance(statement, AlterTable)
    if merged:
        statement = replace(statement, cuts_fractions=None, is_in_utc=None)
    tables = {name: table for name, table in before.items() if table is not None}
    after = apply(statement, tables, charsets, dialect=dialect)
    return session.schema.ddl_statements(statement, before, after)


@pytest.mark.parametrize(
    ("old", "value", "new", "halts"),
    [
        ("DATETIME(6)", "'2024-02-29 23:59:59.5'", "DATE", True),
        ("DATETIME(6)", "'2024-02-29 23:59:58.9'", "DATE", False),
        ("DATETIME(6)", "'2024-02-29 23:59:59.4'", "DATE", False),
        ("DATETIME(6)", "'2024-02-29 12:00:00.5'", "BIGINT", True),
        ("DATETIME(6)", "'2024-02-29 12:00:00.4'", "BIGINT", False),
        ("DATETIME(6)", "'2024-02-29 12:00:00.5'", "VARCHAR(30)", False),
        ("DATETIME(6)", "'2024-02-29 12:00:00.5'", "DECIMAL(20,0)", False),
        ("TIME(6)", "'-10:10:10.6'", "INT", True),
        ("VARCHAR(40)", "'2024-02-29 12:00:00.55'", "DATETIME(1)", True),
        ("VARCHAR(40)", "'2024-02-29 12:00:00.54'", "DATETIME(1)", False),
        ("VARBINARY(40)", "'-10:10:10.1234567'", "TIME(6)", True),
        ("TEXT CHARACTER SET utf16", "'10:10:10.6'", "TIME", True),
        ("TEXT", "'2024-02-29 23:59:59.5'", "DATE", True),
        ("ENUM('10:10:10.6', '10:10:10')", "1", "TIME", True),
        ("DECIMAL(20,6)", "-101010.6", "TIME", True),
        ("DECIMAL(26,6)", "20240229121212.123456", "DATETIME(6)", False),
        ("DOUBLE", "20240229121212.96", "DATETIME(1)", True),
        ("BIGINT", "20240229121212", "DATETIME", False),
    ],
)
def test_digits_of_a_second_are_also_lost_if_the_type_is_another_kind(
    mariadb: Server, mysql97: Server, database: str, old: str, value: str, new: str, *, halts: bool
) -> None:
    """The servers themselves show which values differ."""
    found = set()
    for server in (mariadb, mysql97):
        with closing(MySqlTarget(server.host, server.port, server.user, server.password).connect()) as session:
            session.execute(f"CREATE TABLE `{database}`.u (v {old} NULL)")
            session.execute(f"INSERT INTO `{database}`.u VALUES ({value})")
            session.execute(f"ALTER TABLE `{database}`.u MODIFY v {new} NULL")
            found.add(session.rows(f"SELECT CAST(v AS CHAR) FROM `{database}`.u")[0][0])
            source = next(one for one in SOURCES if one != server.kind)
            dialect = Dialect.of(SOURCES[source][0]).under(0)
            if halts:
                with pytest.raises(Halted, match="digits of a second"):
                    followed(session, database, dialect, old, value, new)
            else:
                assert followed(session, database, dialect, old, value, new).statements
    assert len(found) == 1 + halts


@pytest.mark.parametrize(
    ("old", "value", "new"),
    [
        ("TIMESTAMP", "'2024-02-29 12:00:00'", "DATETIME"),
        ("DATETIME", "'2024-02-29 12:00:00'", "TIMESTAMP"),
        ("TIMESTAMP", "'2024-02-29 12:00:00'", "VARCHAR(30)"),
        ("VARCHAR(30)", "'2024-02-29 12:00:00'", "TIMESTAMP"),
        ("TIMESTAMP", "'2024-02-29 12:00:00'", "BIGINT"),
        ("TIMESTAMP", "'2024-02-29 12:00:00'", "DATE"),
        ("TIMESTAMP", "NULL", "DATETIME"),
    ],
)
@pytest.mark.parametrize("zone", ["", "+00:00", "+02:00", "Europe/Berlin"])
def test_a_timestamp_becomes_a_local_time_only_in_utc(
    mariadb: Server, database: str, old: str, value: str, new: str, zone: str
) -> None:
    """The source converts it in the time zone of its session, and a session of PiDTS is in UTC."""
    dialect = Dialect.of("10.11.6-MariaDB").under(0, zone)
    with closing(MySqlTarget(mariadb.host, mariadb.port, mariadb.user, mariadb.password).connect()) as session:
        if value == "NULL" or zone in {"", "+00:00"}:
            assert followed(session, database, dialect, old, value, new).statements
        else:
            with pytest.raises(Halted, match="time zone"):
                followed(session, database, dialect, old, value, new)


def test_the_sessions_of_other_shards_are_not_known(mariadb: Server, database: str) -> None:
    dialect, value = Dialect.of("10.11.6-MariaDB").under(0, "+00:00"), "'2024-02-29 12:00:00'"
    with (
        closing(MySqlTarget(mariadb.host, mariadb.port, mariadb.user, mariadb.password).connect()) as session,
        pytest.raises(Halted, match="time zone"),
    ):
        followed(session, database, dialect, "TIMESTAMP", value, "DATETIME", merged=True)


@pytest.mark.parametrize("new", ["DATETIME", "DATE", "TIMESTAMP"])
def test_a_time_gets_the_day_on_which_the_statement_runs(mariadb: Server, database: str, new: str) -> None:
    dialect = Dialect.of("10.11.6-MariaDB").under(0, "+00:00")
    with (
        closing(MySqlTarget(mariadb.host, mariadb.port, mariadb.user, mariadb.password).connect()) as session,
        pytest.raises(Halted, match="the day"),
    ):
        followed(session, database, dialect, "TIME", "'12:00:00'", new)


def test_a_default_gets_the_digits_of_the_source_s_session(mysql97: Server, database: str) -> None:
    """The server rounds or cuts a default when it adds the column."""
    charsets = {database: CHARSET}
    add = "ALTER TABLE t ADD d DATETIME NOT NULL DEFAULT '2000-01-01 00:00:00.6'"
    with closing(MySqlTarget(mysql97.host, mysql97.port, mysql97.user, mysql97.password).connect()) as session:
        make = f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY)"
        session.execute(make)
        session.execute(f"INSERT INTO `{database}`.t VALUES (1)")
        for bit in (0, 1 << 32):
            dialect = Dialect.of("8.4.0").under(bit)
            before = apply(classify(make, database, dialect=dialect), {}, charsets, dialect=dialect)
            statement = classify(add, database, dialect=dialect)
            tables = {name: table for name, table in before.items() if table is not None}
            after = apply(statement, tables, charsets, dialect=dialect)
            if bit:
                with pytest.raises(Halted, match="column d has values in existing rows that the source computed"):
                    session.schema.ddl_statements(statement, before, after)
            else:
                assert session.schema.ddl_statements(statement, before, after).statements
