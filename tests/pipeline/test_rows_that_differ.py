"""Rows of the target that are not what the source says they were are found, and none else.

The model goes event by event: it holds the target's rows by key, and knows nothing of batches, Arrow or net changes.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pidts.apply import ApplyRules
from pidts.model import Halted, OnDivergence, Table

from .any_history import EXAMPLES, NAME, POOL, TABLES, Change, History, Row, Run, told_by, wishes


class Watching(Run):
    """A task that halts at a row that differs."""

    def writing(self) -> ApplyRules:
        return replace(super().writing(), on_divergence=OnDivergence.HALT)


class Hostile(Watching):
    """Somebody else writes to its target, which then need not equal the source."""

    def look(self, end: int) -> None:
        del end


@pytest.mark.parametrize("kind", TABLES)
@settings(max_examples=EXAMPLES or 20, deadline=None)
@given(
    transactions=st.integers(0, 25),
    workers=st.integers(1, 3),
    folds=st.booleans(),
    told=st.booleans(),
    minimal=st.booleans(),
    is_long=st.booleans(),
    split=st.sampled_from([None, 1, 3]),
    crashes=st.lists(st.integers(0, 40), max_size=3),
    shards=st.integers(1, 2),
    seed=st.integers(0, 2**32),
)
def test_where_nobody_else_writes_no_row_differs(
    kind: str,
    transactions: int,
    workers: int,
    folds: bool,
    told: bool,
    minimal: bool,
    is_long: bool,
    split: int | None,
    crashes: list[int],
    shards: int,
    seed: int,
) -> None:
    """Whatever the history, wherever it is cut, and however often the process dies."""
    chance = random.Random(seed)
    history = History(TABLES[kind], shards, told_by(TABLES[kind], told), minimal)
    history.play(wishes(chance, transactions))
    run = Watching(history, workers, chance, folds=folds, is_long=is_long, split=split if shards == 1 else None)
    run.to_the_end(crashes)


Key = tuple[Any, ...]


def key_of(history: History, row: Row) -> Key:
    return tuple(row[name] for name in history.table.identity)


def events(history: History, changes: list[Change]) -> list[tuple[Key, Row | None, Row | None]]:
    """Each change as what it does to one key, or to two."""
    found: list[tuple[Key, Row | None, Row | None]] = []
    for _, _, before, after in changes:
        old = key_of(history, before) if before is not None else None
        new = key_of(history, after) if after is not None else None
        if old is not None and new is not None and old != new:
            found += [(old, before, None), (new, None, after)]
        else:
            key = new if old is None else old
            assert key is not None
            found.append((key, before, after))
    return found


class Model:
    """The target, row by row."""

    def __init__(self) -> None:
        self.rows: dict[Key, Row] = {}
        self.diverged: list[Key] = []

    def take(self, key: Key, before: Row | None, after: Row | None) -> None:
        """Applies an event, or finds that its row differs."""
        if self.rows.get(key) not in (before, after):
            self.diverged.append(key)
        elif after is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = after


def written_by_somebody_else(run: Run, chance: random.Random, model: Model, table: Table) -> None:
    """A row comes, changes or goes, as no unique key forbids."""
    stored = run.target.store.tables[NAME]
    row = {c.name: chance.choice(POOL[c.type][: 3 + c.nullable]) for c in table.columns}
    key = key_of(run.history, row)
    if chance.random() < 0.3:
        model.rows.pop(key, None)
        stored.rows.pop(key, None)
    else:
        model.rows[key] = row
        stored.rows[key] = tuple(row.values())


@pytest.mark.parametrize("kind", ["composite key", "text key"])
@settings(max_examples=EXAMPLES or 60, deadline=None)
@given(transactions=st.integers(1, 25), writes=st.integers(0, 4), seed=st.integers(0, 2**32))
def test_a_table_halts_where_a_row_differs_and_not_before(kind: str, transactions: int, writes: int, seed: int) -> None:
    chance = random.Random(seed)
    table = TABLES[kind]
    history = History(table, 1, table)
    history.play(wishes(chance, transactions))
    whole, begun = history.transactions, chance.randrange(len(history.transactions) + 1)
    history.transactions = whole[:begun]
    run = Hostile(history, 1, chance, folds=False, is_long=False, split=None)
    run.attempt()
    model = Model()
    model.rows = {key_of(history, row): row for row in run.rows()}
    for _ in range(writes):
        written_by_somebody_else(run, chance, model, table)
    history.transactions = whole
    for changes in whole[begun:]:
        for event in events(history, changes):
            model.take(*event)
    if model.diverged:
        with pytest.raises(Halted) as halted:
            run.attempt()
        assert (halted.value.code, halted.value.where.table) == ("row-diverged", str(NAME))
    else:
        run.attempt()
        assert {key_of(history, row): row for row in run.rows()} == model.rows
    run.target.forget()
