"""Tables that become one on real targets: keys with extracted columns, structures that differ, images told in part."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from pidts.apply import ApplyRules, TargetSession, keyed
from pidts.apply.shard_keys import keyed_landings
from pidts.model import ChangeBatch, Column, Key, Op, Table, TableName
from pidts.rules import Extract, RouteRule, Routes, Rules

from .made import INT, PRIMARY, TEXT, Change, batch_of, minimal
from .test_on_servers import apply, create, session

__all__ = ["session"]

N, U, D = Op.INSERT, Op.UPDATE, Op.DELETE
_numbers = itertools.count(int(time.time()) % 1_000_000 * 1000)
COLUMNS = (Column("id", INT, nullable=False), Column("a", INT, default="7"), Column("b", TEXT), Column("u", INT))
UNIQUE = Key("by_u", ("u",), unique=True)


class Shards:
    """Two tables of a source, and where they land."""

    def __init__(self, session: TargetSession, *, extracts: bool) -> None:
        self.session, self.place = session, 0
        self.schema = f"merged_{next(_numbers)}"
        extract = Extract("t_(.*)", "shard") if extracts else None
        route = RouteRule("shop", "t_*", self.schema, "t", extract)
        self.rules = Rules(routes=Routes((route,), "s"))
        self.lands = TableName(self.schema, "t")

    def table(self, number: int, *more: Column) -> Table:
        return Table(TableName("shop", f"t_{number}"), (*COLUMNS, *more), (PRIMARY, UNIQUE))

    def create(self, *more: Column) -> None:
        longer = keyed_landings(self.session, self.rules, [self.table(1)], {self.lands})
        create(self.session, replace(self.rules, keyed=longer).landed(self.table(1, *more)))
        self.rules = replace(self.rules, keyed=keyed_landings(self.session, self.rules, [self.table(1)]))

    def batch(self, table: Table, *changes: Change, told: Any = ()) -> ChangeBatch:
        self.place += 100
        found = self.rules.changes(batch_of(table, changes, self.place, told))
        assert found is not None
        return keyed(found)

    def apply(self, *batches: ChangeBatch) -> None:
        rules = ApplyRules(source="s", merged=frozenset({self.lands}), filters=self.rules)
        apply(self.session, list(batches), rules)

    def rows(self, *more: Column) -> list[tuple[Any, ...]]:
        found: pa.Table = self.session.read_rows(self.rules.landed(self.table(1, *more)))
        return sorted(tuple(row.values()) for row in found.to_pylist())


def row(number: int, a: int | None = 7, b: str = "x", u: int | None = None, **more: Any) -> dict[str, Any]:
    return {"id": number, "a": a, "b": b, "u": u, **more}


def test_rows_of_equal_keys_stand_side_by_side_where_extracted_columns_are_in_the_key(session: TargetSession) -> None:
    shards = Shards(session, extracts=True)
    shards.create()
    assert shards.rules.keyed == {shards.lands}
    one, two = shards.table(1), shards.table(2)
    shards.apply(
        shards.batch(one, (N, None, row(1, u=1)), (N, None, row(2, u=2))),
        shards.batch(two, (N, None, row(1, u=1)), (N, None, row(2, u=2))),
    )
    swap: list[Change] = [(U, row(1, u=1), row(1, u=None)), (U, row(2, u=2), row(2, u=1)), (U, row(1), row(1, u=2))]
    moved: Change = (U, row(2, u=2), row(5, u=2))
    shards.apply(
        shards.batch(one, *swap, told=[minimal(one, change) for change in swap]),
        shards.batch(two, (D, row(1, u=1), None), moved, told=[None, minimal(two, moved)]),
    )
    assert shards.rows() == [(1, 7, "x", 2, "1"), (2, 7, "x", 1, "1"), (5, 7, "x", 2, "2")]


def test_a_row_that_moves_between_tables_of_one_key_is_where_it_went(session: TargetSession) -> None:
    shards = Shards(session, extracts=False)
    shards.create()
    assert shards.rules.keyed == frozenset()
    one, two = shards.table(1), shards.table(2)
    shards.apply(shards.batch(one, (N, None, row(1)), (N, None, row(2))))
    shards.apply(shards.batch(two, (N, None, row(1, b="moved"))), shards.batch(one, (D, row(1), None)))
    assert shards.rows() == [(1, 7, "moved", None), (2, 7, "x", None)]


@pytest.mark.parametrize("extracts", [False, True])
def test_a_column_that_one_table_has_before_the_other(session: TargetSession, *, extracts: bool) -> None:
    shards = Shards(session, extracts=extracts)
    state, at = Column("state", INT, nullable=False, default="3"), Column("at", INT)
    shards.create(state, at)
    one, two = shards.table(1, state, at), shards.table(2)
    shards.apply(shards.batch(two, (N, None, row(10)), (N, None, row(11))))  # alone: the target fills its columns
    changed: Change = (U, row(10), row(10, b="y"))
    shards.apply(
        shards.batch(one, (N, None, row(1, state=4, at=5))),
        shards.batch(two, changed, (N, None, row(12)), told=[minimal(two, changed), None]),
    )
    assert [found[:6] for found in shards.rows(state, at)] == [
        (1, 7, "x", None, 4, 5),
        (10, 7, "y", None, 3, None),
        (11, 7, "x", None, 3, None),
        (12, 7, "x", None, 3, None),
    ]
