"""A column with `ON UPDATE CURRENT_TIMESTAMP` gets the time on the target exactly where the source gives it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime
from typing import Any

import psycopg
import pytest
from tests.running import connect

from pidts.apply import TargetSession
from pidts.model import OnUpdate, TableName
from pidts.sandbox import Server
from pidts.target import MySqlTarget, PostgresTarget
from pidts.target.postgres import PostgresSession
from pidts.target.postgres.cutover.on_update import has_other_triggers
from pidts.task.cutover.target_side import drop, lacks, statements
from pidts.task.tables.constraints import fitting_on_update

RunSql = Callable[..., list[tuple[Any, ...]]]

OLD = "2001-02-03 04:05:06"
# Each UPDATE, with the columns that get the time: `seen` has whole seconds, `exact` microseconds.
UPDATES = (
    ("SET a = 2", {"seen", "exact"}),
    ("SET a = 1", set()),
    ("SET a = a", set()),
    ("SET seen = seen", set()),
    ("SET a = 2, seen = seen", {"exact"}),
    (f"SET a = 2, seen = '{OLD}'", {"exact"}),
    ("SET seen = seen, exact = exact, a = 2", set()),
    ("SET a = 1, exact = exact", set()),
    ("SET name = 'X'", {"seen", "exact"}),
    ("SET name = 'x'", set()),
    ("SET name = NULL", {"seen", "exact"}),
    ("SET twice = twice, a = 3 WHERE a = 7", set()),
    ("SET id = 5", {"seen", "exact"}),
)


def changed(before: tuple[Any, ...], after: tuple[Any, ...]) -> set[str]:
    return {name for name, old, new in zip(("seen", "exact"), before, after, strict=True) if old != new}


def asked(server: Server, database: str) -> list[set[str]]:
    """Runs each UPDATE on a new row, and returns the columns whose values changed."""
    found = []
    place = f"{database}.t"
    session = connect(server, database)
    try:
        with closing(session.cursor()) as cursor:
            for update, _ in UPDATES:
                cursor.execute(f"DELETE FROM {place}")
                cursor.execute(
                    f"INSERT INTO {place} (id, a, name, twice, seen, exact) VALUES (1, 1, 'x', 1, '{OLD}', '{OLD}')"
                )
                cursor.execute(f"UPDATE {place} {update}")
                cursor.execute(f"SELECT seen, exact FROM {place}")
                found.append(changed((datetime.fromisoformat(OLD),) * 2, tuple(map(naive, cursor.fetchone()))))
            session.commit()
    finally:
        session.close()
    return found


def naive(value: datetime) -> datetime:
    return value.replace(tzinfo=None)


WANTED = [wanted for _, wanted in UPDATES]


@pytest.fixture
def on_postgres(postgres: Server, database: str, run_sql: RunSql) -> Iterator[TargetSession]:
    run_sql(postgres, f"CREATE SCHEMA IF NOT EXISTS {database}", database=database)
    run_sql(
        postgres,
        f"CREATE TABLE {database}.t (id int PRIMARY KEY, a int, name text, twice int, "
        "half int GENERATED ALWAYS AS (a * 2) STORED, seen timestamptz(0), exact timestamp(6))",
        database=database,
    )
    target = PostgresTarget(postgres.host, postgres.port, postgres.user, postgres.password, database)
    with closing(target.connect()) as session:
        yield session


def both(database: str) -> tuple[OnUpdate, OnUpdate]:
    table = TableName(database, "t")
    return OnUpdate("seen", table, 0, 6, ("half",)), OnUpdate("exact", table, 6, 7, ("half",))


def test_postgresql_gives_the_time_where_mysql_and_mariadb_do(
    on_postgres: TargetSession, mariadb: Server, mysql97: Server, postgres: Server, database: str, run_sql: RunSql
) -> None:
    for server in (mariadb, mysql97):
        run_sql(
            server,
            f"CREATE TABLE {database}.t (id INT PRIMARY KEY, a INT, name VARCHAR(9) COLLATE utf8mb4_bin, twice INT, "
            "half INT AS (a * 2), seen TIMESTAMP NULL ON UPDATE CURRENT_TIMESTAMP, "
            "exact DATETIME(6) ON UPDATE CURRENT_TIMESTAMP(6))",
        )
        assert asked(server, database) == WANTED
    assert asked(postgres, database) == [set()] * len(UPDATES)
    for wanted in both(database):
        assert lacks(on_postgres, wanted)
        for sql in statements(on_postgres, wanted):
            on_postgres.execute(sql)
        assert statements(on_postgres, wanted) == []
    assert not has_other_triggers(on_postgres, TableName(database, "t"))
    assert asked(postgres, database) == WANTED

    # The triggers are tried with a statement of many rows, with an upsert, and with a statement late in a longer
    # transaction.
    session = connect(postgres, database)
    with closing(session), closing(session.cursor()) as cursor:
        cursor.execute("BEGIN")
        cursor.execute(f"INSERT INTO {database}.t (id, a, seen) VALUES (8, 1, '{OLD}'), (9, 9, '{OLD}')")
        cursor.execute(f"UPDATE {database}.t SET a = 9 WHERE id > 7")
        cursor.execute(f"SELECT id FROM {database}.t WHERE seen > '{OLD}' AND id > 7")
        assert cursor.fetchall() == [(8,)]
        cursor.execute("SELECT pg_sleep(1.1)")
        cursor.execute(f"INSERT INTO {database}.t (id, a) VALUES (9, 1) ON CONFLICT (id) DO UPDATE SET a = excluded.a")
        cursor.execute(f"SELECT seen > now(), seen = date_trunc('second', seen) FROM {database}.t WHERE id = 9")
        assert cursor.fetchone() == (True, True)
        cursor.execute("ROLLBACK")

    for wanted in both(database):
        drop(on_postgres, wanted.kind, wanted.table, wanted.name)
        drop(on_postgres, wanted.kind, wanted.table, wanted.name)
        assert lacks(on_postgres, wanted)
    assert asked(postgres, database) == [set()] * len(UPDATES)
    rest = f"SELECT count(*) FROM pg_proc p JOIN pg_namespace n ON n.oid = pronamespace WHERE nspname = '{database}'"
    assert run_sql(postgres, rest, database=database) == [(0,)]


@pytest.mark.parametrize("digits", [1, 3, 5])
def test_the_time_is_cut_and_not_rounded(
    on_postgres: TargetSession, postgres: Server, database: str, run_sql: RunSql, digits: int
) -> None:
    run_sql(postgres, f"ALTER TABLE {database}.t ALTER seen TYPE timestamptz({digits})", database=database)
    (wanted, _) = both(database)
    on_postgres.execute(statements(on_postgres, OnUpdate("seen", wanted.table, digits, 6, ("half",)))[0])
    run_sql(postgres, f"INSERT INTO {database}.t (id, a) VALUES (1, 0)", database=database)
    unit = 10 ** (6 - digits)
    for _ in range(20):
        place = (postgres.host, postgres.port, postgres.user, postgres.password)
        with psycopg.connect(
            host=place[0], port=place[1], user=place[2], password=place[3], dbname=database
        ) as session:
            sql = (
                f"UPDATE {database}.t SET a = a + 1 RETURNING "
                "EXTRACT(microseconds FROM seen)::bigint, EXTRACT(microseconds FROM statement_timestamp())::bigint"
            )
            ((seen, now),) = session.execute(sql).fetchall()  # type: ignore[arg-type]
            assert seen == now // unit * unit


@pytest.mark.parametrize("name", ["own", "touch_on_update", "t_seen_on_update"])
def test_a_trigger_of_others_is_seen(
    on_postgres: TargetSession, postgres: Server, database: str, run_sql: RunSql, name: str
) -> None:
    """This holds even if a trigger's function has our function's name: then the automatic timestamp is only listed."""
    table = TableName(database, "t")
    assert isinstance(on_postgres, PostgresSession)
    seen, exact = both(database)
    on_postgres.execute(statements(on_postgres, exact)[0])
    assert not has_other_triggers(on_postgres, table)
    assert fitting_on_update(seen, on_postgres, (), ()) == seen
    function = f"{database}.{name}"
    run_sql(
        postgres,
        f"CREATE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
        database=database,
    )
    fits = None if name == "t_seen_on_update" else seen
    assert fitting_on_update(seen, on_postgres, (), ()) == fits, "the name is taken"
    run_sql(
        postgres,
        f"CREATE TRIGGER own BEFORE UPDATE ON {database}.t FOR EACH ROW EXECUTE PROCEDURE {function}()",
        database=database,
    )
    assert has_other_triggers(on_postgres, table)
    assert fitting_on_update(seen, on_postgres, (), ()) is None
    assert lacks(on_postgres, seen)
    drop(on_postgres, seen.kind, table, seen.name)
    drop(on_postgres, exact.kind, table, exact.name)
    assert lacks(on_postgres, exact)
    assert on_postgres.rows("SELECT tgname FROM pg_trigger WHERE tgrelid = %s::regclass", (f"{database}.t",)) == [
        ("own",)
    ], "a user's trigger stays"


@pytest.mark.parametrize("kind", ["mariadb", "mysql97", "mysql56"])
def test_mysql_and_mariadb_get_the_attribute_and_lose_it_again(
    kind: str, run_sql: RunSql, request: pytest.FixtureRequest
) -> None:
    server: Server = request.getfixturevalue(kind)
    database = f"on_update_{kind}"
    run_sql(server, f"CREATE DATABASE {database}")
    try:
        run_sql(
            server,
            f"CREATE TABLE {database}.t (id INT PRIMARY KEY, a INT, name VARCHAR(9) COLLATE utf8mb4_bin, twice INT, "
            "seen TIMESTAMP NULL DEFAULT NULL COMMENT 'it''s, ON UPDATE current_timestamp', "
            "exact DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)) DEFAULT CHARSET utf8mb4",
        )
        shown = run_sql(server, f"SHOW CREATE TABLE {database}.t")
        target = MySqlTarget(server.host, server.port, server.user, server.password)
        with closing(target.connect()) as session:
            for wanted in both(database):
                assert lacks(session, wanted)
                for sql in statements(session, wanted):
                    session.execute(sql)
                assert statements(session, wanted) == []
            assert asked(server, database) == WANTED
            for wanted in both(database):
                drop(session, wanted.kind, wanted.table, wanted.name)
                assert lacks(session, wanted)
        assert run_sql(server, f"SHOW CREATE TABLE {database}.t") == shown
    finally:
        run_sql(server, f"DROP DATABASE {database}")
