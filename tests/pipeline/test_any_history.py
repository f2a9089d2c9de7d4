"""Any history, in any batches, with any number of workers, and interrupted anywhere, ends like a replay row by row.

The tests also vary the source's tables (one table, or two merged tables between which rows move), the row images (FULL
or MINIMAL), the target (whether it ignores case, and whether it has more unique keys than the source), how a batch is
written (at once, slice by slice, or with a checkpoint every few rows, which may be between the two changes of a row that
moves), and the order of the workers and of the rows in each statement.

PIDTS_EXAMPLES=2000 tries more histories.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from .any_history import COMPOSITE, TABLES, History, Row, Run, bag, known_to_task, wishes


def test_the_oracle_is_a_replay_of_the_log() -> None:
    history = History(COMPOSITE, 2, COMPOSITE)
    history.play(wishes(random.Random(1), 300))
    rows: list[Row] = []
    for transaction, state in zip(history.transactions, history.states[1:], strict=True):
        for _, _, before, after in transaction:
            if before is not None:
                rows.remove(before)
            if after is not None:
                rows.append(after)
        assert bag(rows) == bag(state)
    assert len(history.transactions) > 100


@pytest.mark.parametrize("kind", TABLES)
@settings(max_examples=examples(20), deadline=None)
@given(
    transactions=st.integers(0, 25),
    shards=st.integers(1, 2),
    workers=st.integers(1, 3),
    folds=st.booleans(),
    keeps_keys=st.booleans(),
    minimal=st.booleans(),
    is_long=st.booleans(),
    split=st.sampled_from([None, 1, 3]),
    crashes=st.lists(st.integers(0, 40), max_size=3),
    seed=st.integers(0, 2**32),
)
def test_the_target_ends_as_a_replay_row_by_row(
    kind: str,
    transactions: int,
    shards: int,
    workers: int,
    folds: bool,
    keeps_keys: bool,
    minimal: bool,
    is_long: bool,
    split: int | None,
    crashes: list[int],
    seed: int,
) -> None:
    chance = random.Random(seed)
    table = TABLES[kind]
    is_cut = is_long and split is not None and shards > 1
    history = History(table, shards, known_to_task(table, keeps_keys), minimal, is_cut)
    history.play(wishes(chance, transactions))
    run = Run(history, workers, chance, folds=folds, is_long=is_long, split=split)
    run.to_the_end(crashes)
