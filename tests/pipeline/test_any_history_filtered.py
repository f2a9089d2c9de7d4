"""If a filter drops some changes of a table, any history ends as on a server that never got these changes.

The oracle uses only keys: an INSERT makes a row, an UPDATE changes a row or nothing, a DELETE removes a row.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from pidts.apply import ApplyRules
from pidts.model import ChangeBatch, Op
from pidts.rules import EventFilter, ExpressionFilter, ExpressionRule, FilterRule, Rules

from .any_history import NAME, TABLES, History, Row, Run, wishes

TABLE = TABLES["composite key"]
EVENTS = EventFilter((FilterRule(NAME.schema, NAME.name, ("insert",), (), "Ignore"),))
WHAT = ("all inserts", "some inserts", "some updates", "some deletes")


def dropped(what: str, column: str, op: Op, before: Row | None, after: Row | None) -> bool:
    """Returns whether the filter drops a change, as the oracle computes it."""
    row = after if op is Op.INSERT else before
    assert row is not None
    return op.name.lower() in what and (what == "all inserts" or row[column] == 1)


def rules_of(filters: list[str], column: str) -> Rules:
    sides = {"some inserts": "insert", "some updates": "update_old", "some deletes": "delete"}
    texts = [{sides[what]: f"{column} = 1"} for what in filters if what in sides]
    expressions = tuple(ExpressionRule(schema=NAME.schema, table=NAME.name, **text) for text in texts)
    return Rules(
        events=EVENTS if "all inserts" in filters else EventFilter(), expressions=ExpressionFilter(expressions)
    )


@dataclass
class Filtered(History):
    """A history with a filter. It computes the rows that the target must have."""

    filters: list[str] = field(default_factory=list)
    column: str = "v"
    """The column on which the filter decides; if images are logged in part, a column that all images have."""
    rules: Rules = field(default_factory=Rules)

    def expect(self) -> None:
        rows: dict[Any, Row] = {}
        for number, transaction in enumerate(self.transactions):
            for _, op, before, after in transaction:
                if not any(dropped(what, self.column, op, before, after) for what in self.filters):
                    self.change(rows, op, before, after)
            self.states[number + 1] = list(rows.values())

    def change(self, rows: dict[Any, Row], op: Op, before: Row | None, after: Row | None) -> None:
        old, new = (row and tuple(row[name] for name in self.table.identity) for row in (before, after))
        found = rows.pop(old, None) if old else None
        if after is not None and (op is Op.INSERT or found is not None):
            rows[new] = after

    def decoded(self, first: int, last: int, slices: int) -> Iterator[list[ChangeBatch]]:
        for batches in super().decoded(first, last, slices):
            found = [self.rules.changes(batch) for batch in batches]
            yield [batch for batch in found if batch is not None]


class FilteredRun(Run):
    history: Filtered

    def writing(self) -> ApplyRules:
        return replace(super().writing(), filters=self.history.rules)


@pytest.mark.parametrize("workers", [1, 3])
@settings(max_examples=examples(30), deadline=None)
@given(
    transactions=st.integers(0, 20),
    filters=st.lists(st.sampled_from(WHAT), min_size=1, max_size=3, unique=True),
    minimal=st.booleans(),
    split=st.sampled_from([None, 1, 3]),
    crashes=st.lists(st.integers(0, 40), max_size=2),
    seed=st.integers(0, 2**32),
)
def test_the_target_ends_as_a_replay_of_what_passes(
    workers: int, transactions: int, filters: list[str], minimal: bool, split: int | None, crashes: list[int], seed: int
) -> None:
    chance = random.Random(seed)
    # A partial image is added to the row on the target. So the result is known only if that row is the source's row.
    minimal = minimal and workers == 1 and "some deletes" not in filters
    column = "a" if minimal else "v"
    # An update that moves a row from one worker to another writes the row in any case. With several workers, such
    # updates are left out below.
    if workers > 1:
        filters = sorted({*filters, "some inserts"})
    history = Filtered(TABLE, 1, TABLE, minimal, filters=filters, column=column, rules=rules_of(filters, column))
    history.play(wishes(chance, transactions))
    if workers > 1:
        for changes in history.transactions:
            changes[:] = [change for change in changes if not moves(change)]
        history.transactions = [changes for changes in history.transactions if changes]
        history.states = [[] for _ in range(len(history.transactions) + 1)]
    history.expect()
    run = FilteredRun(history, workers, chance, folds=False, is_long=split is not None, split=split)
    run.to_the_end(crashes)


def moves(change: tuple[int, Op, Row | None, Row | None]) -> bool:
    _, op, before, after = change
    return op is Op.UPDATE and any(before[name] != after[name] for name in TABLE.identity)  # type: ignore[index]
