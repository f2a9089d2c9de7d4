"""TiDB gets other statements than MySQL for the same effect. The tests with a server need TIDB_SERVER."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from tests.target.conformance.samples import INT, change, create, table, write

from pidts import sandbox
from pidts.login import Mode, Tls
from pidts.model import ColumnType, Halted, Kind, Table, TableName
from pidts.sandbox import Server
from pidts.schema import Dialect, apply, classify
from pidts.schema.statement_time import UNKNOWN_TIME
from pidts.target import MySqlTarget
from pidts.target.mysql.dialect import column_types, render
from pidts.target.mysql.server import TargetServer
from pidts.target.mysql.session import MySqlSession

RunSql = Callable[..., list[tuple[Any, ...]]]

NAME = TableName("shop", "orders")
MYSQL = Dialect(False, (8, 0, 11))
TIDB = TargetServer(MYSQL, True, frozenset({"utf8mb4_bin"}), 1 << 26, explicit_timestamp=True)
needs_tidb = pytest.mark.skipif(sandbox.installed()["tidb"] is None, reason="TIDB_SERVER names no tidb-server")


def altered(text: str, *, tidb: bool) -> tuple[str, ...]:
    """Returns the statements for an ALTER TABLE of a table with the columns id and v."""
    before = {NAME: table(NAME, {"id": INT, "v": INT})}
    statement = classify(text, "shop", dialect=MYSQL)
    after = apply(statement, before, {}, dialect=MYSQL)
    return render(statement, before, after, replace(TIDB, tidb=tidb), UNKNOWN_TIME).statements


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("ALTER TABLE orders ADD COLUMN z int, ADD KEY iz (z)", ["ADD COLUMN `z`", "ADD KEY `iz`"]),
        ("ALTER TABLE orders ADD KEY iz (id, Z), ADD COLUMN z int", ["ADD COLUMN `z`", "ADD KEY `iz`"]),
        ("ALTER TABLE orders CHANGE v w bigint, ADD UNIQUE uw (w)", ["CHANGE COLUMN `v` `w`", "ADD UNIQUE KEY `uw`"]),
        ("ALTER TABLE orders ADD COLUMN z int, ADD KEY iv (v)", ["ADD COLUMN `z`"]),
    ],
)
def test_a_key_over_a_column_of_the_same_statement_is_added_by_another(text: str, parts: list[str]) -> None:
    found = altered(text, tidb=True)
    assert [part in sql for part, sql in zip(parts, found, strict=True)] == [True] * len(parts)
    assert len(altered(text, tidb=False)) == 1


def test_the_key_is_added_to_the_table_under_its_new_name() -> None:
    first, second = altered("ALTER TABLE orders ADD COLUMN z int, RENAME TO bills, ADD KEY iz (z)", tidb=True)
    assert "RENAME TO" in first
    assert "`bills`" in second.partition("ADD")[0]


def test_geometries_are_kept_as_bytes() -> None:
    shapes = table(NAME, {"id": INT, "g": ColumnType(Kind.GEOMETRY)})
    assert column_types(shapes, TIDB) == ("int", "longblob")
    assert column_types(shapes, replace(TIDB, tidb=False)) == ("int", "geometry")


@pytest.mark.parametrize(("width", "misread"), [(56, False), (57, True), (64, True)])
def test_wide_bits_are_not_taken_from_values(width: int, *, misread: bool) -> None:
    kind = ColumnType(Kind.BIT, length=width)
    assert TIDB.misreads(kind) == misread
    assert not replace(TIDB, tidb=False).misreads(kind)


@pytest.fixture
def session(tidb: Server) -> Iterator[MySqlSession]:
    target = MySqlTarget(tidb.host, tidb.port, tidb.user, tidb.password, tls=Tls(Mode.DISABLED))
    with closing(target.connect()) as made:
        yield made


def bits(session: MySqlSession, structure: Table) -> list[tuple[int, int]]:
    rows = session.read_rows(structure).to_pylist()
    return sorted((row["id"], row["b"]) for row in rows)


@needs_tidb
@pytest.mark.parametrize("width", [1, 8, 9, 56, 57, 63, 64])
def test_a_bit_is_overwritten_with_its_value(session: MySqlSession, request: pytest.FixtureRequest, width: int) -> None:
    structure = table(TableName("bits", f"w{width}"), {"id": INT, "b": ColumnType(Kind.BIT, length=width)})
    create(session, structure)
    largest = 2**width - 1
    write(session, change(structure, upserts=[(1, 0), (2, 0), (3, largest)]))
    write(session, change(structure, upserts=[(1, 1), (2, largest)]))
    assert bits(session, structure) == [(1, 1), (2, largest), (3, largest)]


@needs_tidb
def test_a_refused_row_leaves_the_overwritten_one(session: MySqlSession) -> None:
    columns = {"id": INT, "u": INT, "b": ColumnType(Kind.BIT, length=64)}
    structure = table(TableName("bits", "refused"), columns, unique=["u"])
    create(session, structure)
    write(session, change(structure, upserts=[(1, 1, 5), (2, 2, 6)]))
    with pytest.raises(Exception, match="Duplicate entry"):
        write(session, change(structure, upserts=[(1, 2, 7)]))
    assert bits(session, structure) == [(1, 5), (2, 6)]


@needs_tidb
def test_a_row_is_not_written_anew_if_the_target_has_a_column_of_its_own(session: MySqlSession) -> None:
    structure = table(TableName("bits", "own"), {"id": INT, "b": ColumnType(Kind.BIT, length=64)})
    create(session, structure)
    session.execute("ALTER TABLE bits.own ADD COLUMN note int")
    write(session, change(structure, upserts=[(1, 5)]))
    session.execute("UPDATE bits.own SET note = 77")
    with pytest.raises(Halted, match="column note of its own"):
        write(session, change(structure, upserts=[(1, 6)]))
    assert session.rows("SELECT id, b + 0, note FROM bits.own") == [(1, 5, 77)]
