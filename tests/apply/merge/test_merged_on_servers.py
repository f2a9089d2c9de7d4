"""Real targets have the right rows in merged tables: with extracted columns in the key, with different structures, with
partial row images.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from tests.apply.table_history import INT, PRIMARY, TEXT, Change, batch_of, minimal
from tests.apply.test_on_servers import apply, create, session, target_on

from pidts.apply import ApplyRules, Committer, Outcome, Retry, Target, TargetSession, prepared
from pidts.apply.merge.discriminating_keys import keyed_targets
from pidts.model import ChangeBatch, Checkpoint, Column, Key, Lsn, Op, Table, TableName, Transient
from pidts.reduce import with_whole_keys
from pidts.rules import Extract, RouteRule, Routes, Rules

__all__ = ["session"]

N, U, D = Op.INSERT, Op.UPDATE, Op.DELETE
_numbers = itertools.count(int(time.time()) % 1_000_000 * 1000)
COLUMNS = (Column("id", INT, nullable=False), Column("a", INT, default="7"), Column("b", TEXT), Column("u", INT))
UNIQUE = Key("by_u", ("u",), unique=True)


class Shards:
    """Two tables of a source, and the merged table on the target."""

    def __init__(self, session: TargetSession, *, extracts: bool) -> None:
        self.session, self.place = session, 0
        self.schema = f"merged_{next(_numbers)}"
        extract = Extract("t_(.*)", "shard") if extracts else None
        route = RouteRule("shop", "t_*", self.schema, "t", extract)
        self.rules = Rules(routes=Routes((route,), "s"))
        self.target_table = TableName(self.schema, "t")

    def table(self, number: int, *more: Column) -> Table:
        return Table(TableName("shop", f"t_{number}"), (*COLUMNS, *more), (PRIMARY, UNIQUE))

    def create(self, *more: Column) -> None:
        longer = keyed_targets(self.session, self.rules, [self.table(1)], {self.target_table})
        create(self.session, replace(self.rules, keyed=longer).target_table(self.table(1, *more)))
        self.rules = replace(self.rules, keyed=keyed_targets(self.session, self.rules, [self.table(1)]))

    def batch(self, table: Table, *changes: Change, presence: Any = ()) -> ChangeBatch:
        self.place += 100
        found = self.rules.changes(batch_of(table, changes, self.place, presence))
        assert found is not None
        return with_whole_keys(found)

    def apply(self, *batches: ChangeBatch) -> None:
        rules = ApplyRules(source="s", merged=frozenset({self.target_table}), filters=self.rules)
        apply(self.session, list(batches), rules)

    def rows(self, *more: Column) -> list[tuple[Any, ...]]:
        found: pa.Table = self.session.read_rows(self.rules.target_table(self.table(1, *more)))
        return sorted(tuple(row.values()) for row in found.to_pylist())


def row(number: int, a: int | None = 7, b: str = "x", u: int | None = None, **more: Any) -> dict[str, Any]:
    return {"id": number, "a": a, "b": b, "u": u, **more}


def test_rows_with_equal_keys_are_separate_if_extracted_columns_are_in_the_key(session: TargetSession) -> None:
    shards = Shards(session, extracts=True)
    shards.create()
    assert shards.rules.keyed == {shards.target_table}
    one, two = shards.table(1), shards.table(2)
    shards.apply(
        shards.batch(one, (N, None, row(1, u=1)), (N, None, row(2, u=2))),
        shards.batch(two, (N, None, row(1, u=1)), (N, None, row(2, u=2))),
    )
    swap: list[Change] = [(U, row(1, u=1), row(1, u=None)), (U, row(2, u=2), row(2, u=1)), (U, row(1), row(1, u=2))]
    moved: Change = (U, row(2, u=2), row(5, u=2))
    shards.apply(
        shards.batch(one, *swap, presence=[minimal(one, change) for change in swap]),
        shards.batch(two, (D, row(1, u=1), None), moved, presence=[None, minimal(two, moved)]),
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
    # This batch has only rows of table two, so the target fills the columns that table two lacks.
    shards.apply(shards.batch(two, (N, None, row(10)), (N, None, row(11))))
    changed: Change = (U, row(10), row(10, b="y"))
    shards.apply(
        shards.batch(one, (N, None, row(1, state=4, at=5))),
        shards.batch(two, changed, (N, None, row(12)), presence=[minimal(two, changed), None]),
    )
    assert [found[:6] for found in shards.rows(state, at)] == [
        (1, 7, "x", None, 4, 5),
        (10, 7, "y", None, 3, None),
        (11, 7, "x", None, 3, None),
        (12, 7, "x", None, 3, None),
    ]


STATE, AT = Column("state", INT, nullable=False, default="3"), Column("at", INT)
ITS: Change = (N, None, row(1, b="moved"))
GONE: Change = (D, row(1), None)


class Dying:
    """A target session whose process dies just before a COMMIT, or just after it."""

    def __init__(self, session: TargetSession, *, behind: bool) -> None:
        self.session, self.behind = session, behind

    def __getattr__(self, name: str) -> Any:
        return getattr(self.session, name)

    def commit(self) -> None:
        if self.behind:
            self.session.commit()
        raise Transient("gone", "gone")


class DyingTarget:
    """A target whose first sessions die at a COMMIT."""

    def __init__(self, target: Target, *deaths: bool) -> None:
        self.target, self.deaths = target, list(deaths)
        self.piece_rows, self.buffers_rows = target.piece_rows, target.buffers_rows

    def connect(self) -> Any:
        session = self.target.connect()
        return Dying(session, behind=self.deaths.pop(0)) if self.deaths else session


@pytest.mark.parametrize("server", ["mariadb", "postgres", "mysql97"])
@pytest.mark.parametrize("moved", [[ITS], [ITS, GONE], [GONE, ITS]], ids=["waits", "insert first", "delete first"])
def test_a_row_that_comes_to_a_table_with_fewer_columns_has_their_defaults(
    request: pytest.FixtureRequest, server: str, moved: Sequence[Change]
) -> None:
    """In the end the row has the defaults, wherever the process dies, and even if the row is written once more in safe
    mode.

    Other rows of the table keep their values.
    """
    target = target_on(request.getfixturevalue(server))
    with closing(target.connect()) as session:
        session.meta.prepare()
        shards = Shards(session, extracts=False)
        shards.create(STATE, AT)
        shards.apply(shards.batch(shards.table(1, STATE, AT), *((N, None, row(n, state=4, at=5)) for n in (1, 2))))
        epoch = session.meta.checkpoints.claim(
            shards.schema, "s", 1, Checkpoint(task=shards.schema, source="s", worker=0, lsn=Lsn(0, 1, 0))
        )[0].epoch
        # Both tables lack the columns now; a third table still has them.
        one, two = shards.table(1), shards.table(2)
        parts = [shards.batch(two if change is ITS else one, change) for change in moved]
        parts.append(shards.batch(two, (U, row(2), row(2, b="y"))))
        for safe, first in ((False, 0), (True, 1)):
            rules = ApplyRules(source="s", merged=frozenset({shards.target_table}), filters=shards.rules, safe=safe)
            dying = DyingTarget(target, False, True)
            with Committer(
                dying, shards.schema, "s", epoch, retry=Retry(attempts=5), sleep=lambda _: None
            ) as committer:
                new = Checkpoint(task=shards.schema, source="s", worker=0, lsn=Lsn(0, 1, first + 1), batch=first)
                outcome = committer.commit(
                    0, Lsn(0, 1, first), new, lambda session, rules=rules: prepared(session, parts, rules)
                )
            assert outcome is Outcome.APPLIED
            assert dying.deaths == []
            found = shards.rows(STATE, AT)
            assert found[0] == (1, 7, "moved", None, 3, None)
            if not safe:
                assert found[1] == (2, 7, "y", None, 4, 5)
