"""Every ordinary schema change, run on a real MariaDB and followed on each target: the rows are equal to the source's.

A case has the statements that create the tables, rows, and the statements that follow one after the other. After each
of these, all tables that the source still has are compared, structure and rows. Then rows are written on the source and
followed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pyarrow as pa
import pymysql
import pytest

from pidts.apply import Target, TargetSession
from pidts.login import Mode, Tls
from pidts.model import Halted, Table, TableName
from pidts.reduce import Counts, NetChange
from pidts.sandbox import Server
from pidts.schema import Dialect, apply, classify
from pidts.schema.statement_time import StatementTime
from pidts.target import MySqlTarget

from .ddl_cases import CASES, Case

pytestmark = pytest.mark.parametrize("kind", ["postgres", "mysql97", "iceberg"])
HALTS_IN_A_WAREHOUSE = {
    "a generated column is new": "only the source computes it",
    "a generated column of a text is new": "only the source computes it",
    "a generated column that cuts values": "only the source computes it",
    "floats and doubles lose digits that are zero": "only the source's own arithmetic certainly gives the same last bit",
    "moments lose fractions": "a session of the source may cut or round them",
    "a moment that is new": "a constant TIMESTAMP depends on the time zone of the source's session",
}
DIALECT = Dialect.of("10.11.6-MariaDB")


class Pair:
    """A source, and a target that gets its changes."""

    def __init__(self, source: Server, target: Target, schema: str) -> None:
        self.schema = schema
        place = (source.host, source.port, source.user, source.password)
        self.source: TargetSession = MySqlTarget(*place, tls=Tls(Mode.DISABLED)).connect()
        self._user = pymysql.connect(
            host=place[0], port=place[1], user=place[2], password=place[3], autocommit=True, ssl_disabled=True
        )
        self.target = target.connect()
        self.known: dict[TableName, Table] = {}
        self.notes: list[str] = []

    def close(self) -> None:
        self._user.close()
        self.source.close()
        self.target.close()

    def on_source(self, *statements: str) -> None:
        for sql in statements:
            with self._user.cursor() as cursor:
                cursor.execute(sql)

    def follow(self, sql: str) -> None:
        """Makes the change as a run does: with the statement, and the structures before and after it."""
        statement = classify(sql, self.schema, dialect=DIALECT)
        changed = apply(statement, self.known, {self.schema: ("utf8mb4", "utf8mb4_general_ci")}, dialect=DIALECT)
        before = {name: self.known.get(name) for name in changed}
        rendered = self.target.schema.ddl_statements(statement, before, changed, StatementTime(1_700_000_000))
        self.notes += rendered.notes
        for each in rendered.statements:
            self.target.execute(each)
        self.known = {name: table for name, table in {**self.known, **changed}.items() if table is not None}

    def copy(self) -> None:
        """Copies all rows of all tables to the target."""
        for table in self.known.values():
            there, here = self.source.read_rows(table), self.target.read_rows(table)
            none = table.arrow.empty_table()
            self.target.begin()
            if table.identity:
                self.target.write(NetChange(table, here.select(list(table.identity)).slice(0, 0), there, Counts()))
            elif not here.num_rows:
                self.target.write(NetChange(table, none, there, Counts(), times=pa.array([], pa.int64())))
            self.target.commit()

    def compare(self) -> None:
        for name, table in self.known.items():
            assert self.target.schema.misfits(table) == [], name
            mine, theirs = (
                sorted(map(repr, session.read_rows(table).to_pylist())) for session in (self.target, self.source)
            )
            assert mine == theirs, name


@pytest.fixture
def pair(target: Target, mariadb: Server, name: TableName) -> Iterator[Pair]:
    schema = re.sub(r"\W+", "_", name.name)[-30:]
    made = Pair(mariadb, target, schema)
    made.on_source(f"CREATE DATABASE {schema} CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci", f"USE {schema}")
    yield made
    made.on_source(f"DROP DATABASE {schema}")
    made.close()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_target_is_what_the_source_is(pair: Pair, case: Case, kind: str) -> None:
    for sql in case.make.split("; "):
        pair.on_source(sql)
        pair.follow(sql)
    pair.on_source(*case.rows.split("; "))
    pair.copy()
    pair.compare()
    halts, last = case.halts.split() if case.where in ("everywhere", kind) else [], case.then[-1]
    if kind == "iceberg":
        halts = case.halts.split() if case.where != "mysql97" else []  # A warehouse is as strict as PostgreSQL.
        if any(CASES[each] is case for each in HALTS_IN_A_WAREHOUSE):
            halts, last = ["ddl-not-translatable"], case.then[0]
    for sql in case.then:
        pair.on_source(sql)
        if halts and sql is last:
            with pytest.raises(Halted) as error:
                pair.follow(sql)
            assert error.value.code in halts
            return
        pair.follow(sql)
        pair.compare()
    if case.later:
        pair.on_source(*case.later.split("; "))
        pair.copy()
        pair.compare()
