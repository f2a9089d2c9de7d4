"""A source without strict mode stores a zero date in place of February 31; a session of PiDTS keeps such a day."""

from __future__ import annotations

from contextlib import closing

import pytest
from tests.target.test_mysql_fractions import CHARSET, SOURCES, followed

from pidts.model import Halted
from pidts.sandbox import Server
from pidts.schema import Dialect, apply, classify
from pidts.target.mysql import MySqlTarget

STRICT, KEEPS = 1 << 21, 1 << 25


@pytest.fixture(params=["mariadb", "mysql97"])
def server(request: pytest.FixtureRequest) -> Server:
    found: Server = request.getfixturevalue(request.param)
    return found


@pytest.mark.parametrize(
    ("old", "value", "new"),
    [
        ("VARCHAR(30)", "'2023-02-31'", "DATE"),
        ("TEXT", "'2023-4-31 10:00'", "DATETIME"),
        ("BIGINT", "20230231", "DATE"),
        ("DATE", "'2023-02-31'", "DATETIME"),
        ("DATETIME", "'2023-02-31 10:00:00'", "DATETIME(6)"),
    ],
)
@pytest.mark.parametrize("mode", [0, STRICT, KEEPS])
def test_a_table_halts_if_the_source_stored_zero_dates(
    server: Server, database: str, old: str, value: str, new: str, mode: int
) -> None:
    """A strict session would have refused the statement, so its tables have no such days.

    MariaDB stores zero dates for texts even with ALLOW_INVALID_DATES.
    """
    dialect = Dialect.of(SOURCES[server.kind][0]).under(mode)
    with closing(MySqlTarget(server.host, server.port, server.user, server.password).connect()) as session:
        if mode == STRICT or (mode == KEEPS and server.kind != "mariadb"):
            assert followed(session, database, dialect, old, value, new).statements
        else:
            with pytest.raises(Halted, match="only the source knows which values"):
                followed(session, database, dialect, old, value, new)


@pytest.mark.parametrize(
    ("old", "value", "new"),
    [
        ("VARCHAR(30)", "'2024-02-29'", "DATE"),
        ("VARCHAR(30)", "'0000-00-00'", "DATE"),
        ("DATE", "'2023-02-28'", "DATETIME"),
        ("VARCHAR(30)", "'2023-02-31'", "VARCHAR(40)"),
        ("DATE", "'2023-02-31'", "DATE NULL, ADD w INT"),
    ],
)
def test_other_days_and_types_do_not_halt(server: Server, database: str, old: str, value: str, new: str) -> None:
    dialect = Dialect.of(SOURCES[server.kind][0]).under(0)
    with closing(MySqlTarget(server.host, server.port, server.user, server.password).connect()) as session:
        assert followed(session, database, dialect, old, value, new).statements


def test_alter_ignore_stores_zero_dates_in_strict_mode_too(mariadb: Server, database: str) -> None:
    dialect = Dialect.of(SOURCES["mariadb"][0]).under(STRICT)
    with closing(MySqlTarget(mariadb.host, mariadb.port, mariadb.user, mariadb.password).connect()) as session:
        make = f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, v VARCHAR(30))"
        session.execute(make)
        session.execute(f"INSERT INTO `{database}`.t VALUES (1, '2023-02-31')")
        before = apply(classify(make, database, dialect=dialect), {}, {database: CHARSET}, dialect=dialect)
        statement = classify("ALTER IGNORE TABLE t MODIFY v DATE", database, dialect=dialect)
        tables = {name: table for name, table in before.items() if table is not None}
        after = apply(statement, tables, {database: CHARSET}, dialect=dialect)
        with pytest.raises(Halted, match="only the source knows which values"):
            session.schema.ddl_statements(statement, before, after)
