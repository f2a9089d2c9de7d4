"""A generated column is created as generated on PostgreSQL only if both servers compute the same for every row."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pymysql
import pytest
from tests.target.conformance.samples import create, write

from pidts.apply import TargetSession
from pidts.model import Table, TableName
from pidts.model.type_map import TypeMap
from pidts.reduce import Counts, NetChange
from pidts.sandbox import Server
from pidts.schema import Dialect, apply, classify
from pidts.schema.statement_time import StatementTime
from pidts.source import SourceConfig, connect, read_structures
from pidts.target import PostgresTarget

RunSql = Callable[..., list[tuple[Any, ...]]]
NAME = TableName("computing", "t")
BASE = """id INT PRIMARY KEY, a INT, b BIGINT, u INT UNSIGNED, c DECIMAL(10, 3), w DECIMAL(30, 10), day DATE,
    at DATETIME(3), v VARCHAR(20), x TEXT, f FLOAT, p DECIMAL(10, 3) UNSIGNED, q DECIMAL(10, 3) UNSIGNED, m MEDIUMTEXT"""
MADE = (
    ("INT", "a + 1"),
    ("TINYINT", "a * 2"),
    ("BIGINT", "a * a"),
    ("SMALLINT UNSIGNED", "a - 3"),
    ("DECIMAL(12, 2)", "u * c"),
    ("DECIMAL(12, 2)", "ROUND(a * c * 1.19, 2)"),
    ("DECIMAL(4, 1)", "c - w"),
    ("INT", "c"),
    ("DECIMAL(30, 10)", "-w"),
    ("TINYINT", "IF(a IS NULL, NULL, 1)"),
    ("INT", "CASE WHEN a > 5 THEN a WHEN c <= 0.5 THEN -1 END"),
    ("DECIMAL(20, 4)", "COALESCE(c, a, 7)"),
    ("BIGINT", "IFNULL(b, 0)"),
    ("INT", "CHAR_LENGTH(v)"),
    ("DATE", "DATE(at)"),
    ("VARCHAR(60)", "CONCAT(v, ' ', v)"),
    ("VARCHAR(5)", "CONCAT(v, '!')"),
    ("VARCHAR(30)", "IF(a > 0, v, 'none')"),
    ("VARCHAR(3)", "LEFT(v, 3)"),
)
WITHOUT_UNREAL_DATES = (
    ("INT", "YEAR(day) * 100 + MONTH(day)"),
    ("TINYINT", "IF(at IS NULL, 1, NULL)"),
    ("TINYINT", "QUARTER(at)"),
    ("TINYINT", "IF(day < '2000-01-01', 0, 1)"),
)
PLAIN = (
    ("VARCHAR(60)", "UPPER(v)"),
    ("DECIMAL(12, 4)", "a / 3"),
    ("BIGINT", "b + 1"),
    ("BIGINT", "u + a"),
    ("DOUBLE", "f * 2"),
    ("INT", "YEAR(day)"),
    ("TINYINT", "IF(at IS NULL, 1, NULL)"),
    ("TINYINT", "v = 'a'"),
    ("VARCHAR(40)", "CONCAT(a, v)"),
    ("TEXT", "CONCAT(x, x)"),
    ("VARCHAR(90)", "CONCAT(v, 'é')"),
    ("CHAR(20)", "v"),
    ("DECIMAL(65, 30)", "w * w * w"),
    ("DECIMAL(12, 2)", "2.5 - u"),
    ("DECIMAL(4, 1) UNSIGNED", "c - w"),
    ("DECIMAL(12, 3)", "p + q"),
    ("DECIMAL(12, 3)", "p"),
    ("INT", "COALESCE(p, 1)"),
    ("LONGTEXT", "CONCAT(m, m)"),
    ("VARCHAR(9)", "LEFT(CONCAT(x, m), 9)"),
)


@pytest.fixture(params=["mariadb", "mysql97"])
def source(request: pytest.FixtureRequest, run_sql: RunSql) -> Iterator[Server]:
    server: Server = request.getfixturevalue(request.param)
    run_sql(server, "DROP DATABASE IF EXISTS computing")
    run_sql(server, "CREATE DATABASE computing CHARACTER SET utf8mb4")
    yield server
    run_sql(server, "DROP DATABASE computing")


@pytest.fixture
def place(postgres: Server, run_sql: RunSql) -> Iterator[Server]:
    run_sql(postgres, "CREATE DATABASE computing")
    yield postgres
    run_sql(postgres, "DROP DATABASE computing WITH (FORCE)")


def opened(postgres: Server, *, refuses_unreal: bool = False) -> TargetSession:
    types = TypeMap(refuses_unreal=refuses_unreal)
    return PostgresTarget(
        postgres.host, postgres.port, postgres.user, postgres.password, "computing", types=types
    ).connect()


def structure(source: Server) -> Table:
    config = SourceConfig(source.host, source.port, source.user, source.password, source_id="s")
    with closing(connect(config)) as session:
        return read_structures(session, NAME.__eq__)[NAME]


def columns(added: tuple[tuple[str, str], ...]) -> str:
    return ", ".join(f"g{number} {kind} AS ({sql}) STORED" for number, (kind, sql) in enumerate(added))


def hostile(seed: int, number: int, *, unreal: bool) -> tuple[Any, ...]:
    pick = random.Random(seed * 1000 + number).choice
    days = [None, "2024-02-29", "1999-12-31", "2000-01-01", "9999-12-31", "1000-01-01"]
    odd = ["0000-00-00", "2020-00-10", "2020-05-00"] if unreal else []
    times = [None, "2024-02-29 23:59:59.999", "1970-01-01 00:00:00", "1000-01-01 00:00:00.001"]
    return (
        number,
        pick([None, 0, 1, -1, 5, 6, 63, 64, -64, -65, 2147483647, -2147483648]),
        pick([None, 0, 9223372036854775807, -9223372036854775808]),
        pick([None, 0, 1, 4294967295]),
        pick([None, "0", "0.5", "-0.5", "1.005", "2.675", "-2.675", "9999999.999", "-9999999.999", "0.001"]),
        pick([None, "0", "0.05", "-0.05", "99999999999999999999.9999999999", "-99999999999999999999.9999999999"]),
        pick(days + odd),
        pick([*times, *(f"{day} 12:00:00" for day in odd)]),
        pick([None, "", " ", "a", "é ", "ab  ", "grün😀", "'\\\"", "x" * 20, "😀" * 20]),
        pick([None, "", "x" * 200]),
        pick([None, 0.1]),
    )


def filled(source: Server, rows: list[tuple[Any, ...]]) -> None:
    """Inserts rows as a session without strict mode does: the server converts values that do not fit."""
    with (
        closing(
            pymysql.connect(
                host=source.host, port=source.port, user=source.user, password=source.password, autocommit=True
            )
        ) as session,
        session.cursor() as cursor,
    ):
        cursor.execute("SET sql_mode = ''")
        for row in rows:
            with suppress(pymysql.err.DataError, pymysql.err.OperationalError):  # A computed sum is out of range.
                cursor.execute(
                    "INSERT INTO computing.t (id, a, b, u, c, w, day, at, v, x, f) "
                    f"VALUES ({', '.join(['%s'] * len(row))})",
                    row,
                )


def read(run_sql: RunSql, server: Server, count: int, database: str | None = None) -> list[tuple[Any, ...]]:
    """Returns rows as texts; zero dates are NULL on PostgreSQL."""
    names = ", ".join(f"g{number}" for number in range(count))
    rows = run_sql(server, f"SELECT {names} FROM computing.t ORDER BY id", database=database)
    return [tuple(_shown(value) for value in row) for row in rows]


def _shown(value: Any) -> str | None:
    if isinstance(value, Decimal):
        return f"{value:f}"
    return None if value is None or str(value)[:4] == "0000" or "-00" in str(value)[4:] else str(value)


@pytest.mark.parametrize("refuses_unreal", [False, True])
def test_both_servers_compute_the_same_for_hostile_rows(
    source: Server, place: Server, run_sql: RunSql, refuses_unreal: bool, request: pytest.FixtureRequest
) -> None:
    added = (*MADE, *(WITHOUT_UNREAL_DATES if refuses_unreal else ()))
    run_sql(source, f"CREATE TABLE computing.t ({BASE}, {columns(added)})")
    table = structure(source)
    seed = random.randrange(1_000_000)
    rows = [hostile(seed, number, unreal=not refuses_unreal) for number in range(300)]
    filled(source, rows)
    with closing(opened(place, refuses_unreal=refuses_unreal)) as target:
        create(target, table)
        found = target.schema.structure(NAME)
        assert found is not None
        plain = [f"g{n} {added[n]}" for n in range(len(added)) if not found.column(f"g{n}").generated]
        assert plain == [], "these are certain"
        assert target.schema.misfits(table) == []
    given = run_sql(source, "SELECT id, a, b, u, c, w, day, at, v, x, f FROM computing.t")
    assert len(given) > 200
    placeholders = ", ".join([f"({', '.join(['%s'] * 11)})"] * len(given))
    real = [value if _shown(value) is not None else None for row in given for value in row]
    run_sql(place, f"INSERT INTO computing.t (id, a, b, u, c, w, day, at, v, x, f) VALUES {placeholders}", *real,
            database="computing")  # fmt: skip
    here, there = read(run_sql, source, len(added)), read(run_sql, place, len(added), "computing")
    for number, (kind, sql) in enumerate(added):
        pairs = [
            (given[at], one[number], other[number]) for at, (one, other) in enumerate(zip(here, there, strict=True))
        ]
        assert [pair for pair in pairs if pair[1] != pair[2]] == [], (kind, sql, seed)
        assert len({pair[1] for pair in pairs}) > 1, f"{sql}: the rows show nothing"


def test_an_uncertain_expression_makes_a_plain_column_and_a_note(
    source: Server, place: Server, run_sql: RunSql
) -> None:
    with closing(opened(place)) as target:
        for kind, sql in PLAIN:
            run_sql(source, "DROP TABLE IF EXISTS computing.t")
            run_sql(source, f"CREATE TABLE computing.t ({BASE}, g {kind} AS ({sql}) STORED)")
            rendered = target.schema.create_statements(structure(source))
            assert not any("GENERATED ALWAYS" in one for one in rendered.statements), (kind, sql)
            assert any(note.startswith("column g: generated on the source, a plain column") for note in rendered.notes)


def test_rows_are_written_without_what_the_target_computes(source: Server, place: Server, run_sql: RunSql) -> None:
    """Rows are written by the copy, by the log with and without a key, and in safe mode with a unique key over the column."""
    run_sql(source, "CREATE TABLE computing.t (id INT PRIMARY KEY, a INT, g BIGINT AS (a + 1) STORED, UNIQUE (g))")
    table = structure(source)
    keyless = Table(TableName("computing", "k"), table.columns)
    schema = table.arrow

    def rows(*values: tuple[int, int, int | None]) -> pa.Table:
        return pa.table([pa.array(each) for each in zip(*values, strict=True)], schema.names).cast(schema)

    none = schema.empty_table()
    with closing(opened(place)) as target:
        for one in (table, keyless):
            create(target, one)
        twice = rows((1, 10, 11), (1, 10, 11), (2, 5, 6))
        target.begin()
        assert target.load(table, rows((1, 10, 11), (2, 20, 21)))
        target.write(NetChange(table, none.select(["id"]), rows((2, 30, 31), (3, 20, 21)), Counts(), safe=True))
        target.write(NetChange(keyless, none, twice, Counts(), times=pa.array([], pa.int64())))
        target.commit()
        write(target, NetChange(keyless, rows((1, 10, 11)), none, Counts(), times=pa.array([1], pa.int64())))
        assert target.schema.misfits(table) == []
    assert run_sql(place, "SELECT * FROM computing.t ORDER BY id", database="computing") == [
        (1, 10, 11),
        (2, 30, 31),
        (3, 20, 21),
    ]
    assert run_sql(place, "SELECT * FROM computing.k ORDER BY id", database="computing") == [(1, 10, 11), (2, 5, 6)]


class Follower:
    """A table whose schema changes on the target follow the source's statements."""

    def __init__(self, source: Server, place: Server, run_sql: RunSql) -> None:
        self._source, self._place, self._run = source, place, run_sql
        self._dialect = Dialect.of(str(run_sql(source, "SELECT VERSION()")[0][0]))
        self.target = opened(place)
        self.known: dict[TableName, Table] = {}

    def follow(self, sql: str) -> list[str]:
        self._run(self._source, sql)
        statement = classify(sql, "computing", dialect=self._dialect)
        changed = apply(statement, self.known, {}, dialect=self._dialect)
        before = {name: self.known.get(name) for name in changed}
        rendered = self.target.schema.ddl_statements(statement, before, changed, StatementTime(1_700_000_000))
        for each in rendered.statements:
            self.target.execute(each)
        self.known = {name: table for name, table in {**self.known, **changed}.items() if table is not None}
        assert self.target.schema.misfits(self.known[NAME]) == []
        return list(rendered.notes)

    def insert(self, columns: str, values: str) -> None:
        for server, database in ((self._source, None), (self._place, "computing")):
            self._run(server, f"INSERT INTO computing.t ({columns}) VALUES {values}", database=database)

    def is_generated(self, name: str) -> bool:
        found = self.target.schema.structure(NAME)
        assert found is not None
        return found.column(name).generated

    def rows(self, names: str) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        sql = f"SELECT {names} FROM computing.t ORDER BY id"
        return self._run(self._source, sql), self._run(self._place, sql, database="computing")


def test_schema_changes_keep_generated_columns_or_make_them_plain(
    source: Server, place: Server, run_sql: RunSql
) -> None:
    one = Follower(source, place, run_sql)
    with closing(one.target):
        one.follow("CREATE TABLE computing.t (id INT PRIMARY KEY, a INT, b INT, g BIGINT AS (a + 1) STORED)")
        one.insert("id, a, b", "(1, 5, 7), (2, NULL, 8)")
        one.follow("ALTER TABLE computing.t ADD h DECIMAL(20, 2) AS (a * b * 0.5) STORED")
        one.follow("ALTER TABLE computing.t MODIFY b BIGINT, ADD c INT")
        assert one.is_generated("g")
        assert not one.is_generated("h"), "a column that it reads has another type"
        one.follow("ALTER TABLE computing.t ADD k INT AS (c * 2) VIRTUAL")
        one.insert("id, a, c", "(3, 9, 4)") if one.is_generated("k") else pytest.fail("k is certain")
        here, there = one.rows("id, a, b, c, g, k")
        assert here == there
        notes = one.follow("ALTER TABLE computing.t MODIFY a BIGINT")
        assert any(note.startswith("column g is not generated any more") for note in notes)
        assert not one.is_generated("g")
        assert one.is_generated("k")
        one.follow("ALTER TABLE computing.t DROP COLUMN k, DROP COLUMN c")
        one.follow(
            "ALTER TABLE computing.t ADD twice BIGINT AS (d * 2) STORED FIRST, ADD d INT NOT NULL DEFAULT 21, "
            "ADD both_of INT AS (d + 1) VIRTUAL"
        )
        assert [name for name in ("twice", "both_of") if not one.is_generated(name)] == [], "both read a new column"
        one.insert("id, a, d", "(4, NULL, 5)")
        here, there = one.rows("id, a, d, twice, both_of")
        assert here == there
        one.follow("ALTER TABLE computing.t DROP COLUMN twice, DROP COLUMN both_of")
        here, there = one.rows("id, a, b, g")
        assert here == there


def test_renamed_columns_and_a_key_over_a_computed_column_make_it_plain(
    source: Server, place: Server, run_sql: RunSql
) -> None:
    one = Follower(source, place, run_sql)
    with closing(one.target):
        one.follow(
            "CREATE TABLE computing.t (a INT, b INT, c INT, g BIGINT AS (a + 1) STORED, h INT AS (b * 2) STORED)"
        )
        one.insert("a, b", "(1, 5), (2, 6)")
        assert one.is_generated("g")
        assert one.is_generated("h")
        one.follow("ALTER TABLE computing.t ADD UNIQUE (g)")
        assert one.is_generated("g"), "it may be NULL, so rows are not found by it"
        if source.kind == "mariadb":  # MySQL cannot rename a column on which a generated column depends.
            one.follow("ALTER TABLE computing.t CHANGE b z INT")
            assert not one.is_generated("h"), "the source writes the expression anew"
        one.follow("ALTER TABLE computing.t MODIFY a BIGINT NOT NULL")
        assert not one.is_generated("g")


def test_a_created_table_like_another_computes_the_same(source: Server, place: Server, run_sql: RunSql) -> None:
    one = Follower(source, place, run_sql)
    with closing(one.target):
        one.follow("CREATE TABLE computing.t (id INT PRIMARY KEY, a INT, g INT AS (a - 2) VIRTUAL COMMENT 'less')")
        one.follow("CREATE TABLE computing.t2 LIKE computing.t")
        found = one.target.schema.structure(TableName("computing", "t2"))
        assert found is not None
        assert found.column("g").generated
