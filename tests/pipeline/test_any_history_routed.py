"""Any history of a table with another name on the target, mapped values and extracted columns ends like a replay."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from pidts.model import ChangeBatch, TableName
from pidts.rules import ColumnMapping, Extract, RouteRule, Routes, Rules

from .any_history import NAME, TABLES, History, Row, Run, known_to_task, wishes

SOURCE = TableName("shop_3", "cart_7")
EXTRACTED = {"of_table": "7", "of_schema": "3", "of_source": "one"}
PREFIX = "north-"
RULES = Rules(
    mappings=(ColumnMapping("shop_*", "cart_*", "u", "add prefix", (PREFIX,)),),
    routes=Routes(
        (
            RouteRule("shop_*", "cart_*", NAME.schema, NAME.name, *(Extract("_(.*)", name) for name in EXTRACTED)),
            RouteRule("shop_*", "", "elsewhere"),
        ),
        "source_one",
    ),
)


class Routed(History):
    """A source whose rows pass the rules as soon as they are decoded."""

    def decoded(self, first: int, last: int, slices: int) -> Iterator[list[ChangeBatch]]:
        for batches in super().decoded(first, last, slices):
            found = [RULES.changes(replace(batch, table=batch.table.renamed(SOURCE))) for batch in batches]
            yield [batch for batch in found if batch is not None]


class RoutedRun(Run):
    def rows(self) -> list[Row]:
        """Returns the rows in the source's form."""
        found = []
        for row in super().rows():
            assert {name: row.pop(name) for name in EXTRACTED} == EXTRACTED
            assert row["u"] is None or row["u"].startswith(PREFIX)
            found.append({**row, "u": row["u"] and row["u"].removeprefix(PREFIX)})
        return found


@pytest.mark.parametrize("kind", ["composite key, two unique keys", "text key, unique key", "no key"])
@settings(max_examples=examples(15), deadline=None)
@given(
    transactions=st.integers(0, 20),
    workers=st.integers(1, 3),
    keeps_keys=st.booleans(),
    minimal=st.booleans(),
    split=st.sampled_from([None, 1, 3]),
    crashes=st.lists(st.integers(0, 40), max_size=2),
    seed=st.integers(0, 2**32),
)
def test_the_target_ends_as_a_replay_row_by_row(
    kind: str,
    transactions: int,
    workers: int,
    keeps_keys: bool,
    minimal: bool,
    split: int | None,
    crashes: list[int],
    seed: int,
) -> None:
    chance = random.Random(seed)
    table = TABLES[kind]
    history = Routed(table, 1, known_to_task(table, keeps_keys), minimal)
    history.play(wishes(chance, transactions))
    history.table = RULES.target_table(table.renamed(SOURCE))
    run = RoutedRun(history, workers, chance, folds=False, is_long=split is not None, split=split)
    run.to_the_end(crashes)
