"""With a version column, a row that moves between merged tables ends in the right table, and old events change nothing."""

from __future__ import annotations

import itertools
import random
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.apply.table_history import INT, PRIMARY, Change, batch_of
from tests.examples import examples
from tests.target.conformance.samples import create
from tests.values_target import ValuesTarget

from pidts.apply import ApplyRules, prepared
from pidts.model import ChangeBatch, Column, Halted, Op, Table, TableName

N, U, D = Op.INSERT, Op.UPDATE, Op.DELETE
LANDS = TableName("shop", "t")
TABLE = Table(LANDS, (Column("id", INT, nullable=False), Column("v", INT), Column("shard", INT)), (PRIMARY,))
RULES = ApplyRules(source="s", version_column="v", merged=frozenset({LANDS}))
_numbers = itertools.count()


def row(number: int, version: int, shard: int) -> dict[str, Any]:
    return {"id": number, "v": version, "shard": shard}


class Target:
    def __init__(self) -> None:
        self.target = ValuesTarget(f"one log {next(_numbers)}")
        self.session = self.target.connect()
        create(self.session, TABLE)

    def apply(self, changes: list[tuple[int, Change]], start: int) -> None:
        """Applies changes in one transaction. Each change comes with the number of its table, and in a batch of its
        own.
        """
        logs: list[ChangeBatch] = []
        for place, (shard, change) in enumerate(changes):
            one = replace(batch_of(TABLE, [change], start + place), upstream=TableName("shop", f"t_{shard}"))
            logs.append(one)
        logs.sort(key=lambda batch: str(batch.upstream))
        self.session.begin()
        for change in prepared(self.session, logs, RULES):
            self.session.write(change)
        self.session.commit()

    def rows(self) -> list[dict[str, Any]]:
        return self.session.read_rows(TABLE).to_pylist()

    def close(self) -> None:
        self.session.close()
        self.target.forget()


def transactions(chance: random.Random, count: int) -> tuple[list[list[tuple[int, Change]]], list[dict[str, Any]]]:
    """Returns transactions that change three rows of two tables, and the rows that exist after them."""
    there: dict[int, dict[str, Any]] = {}
    versions, log = itertools.count(1), []
    for _ in range(count):
        number, shard = chance.randrange(3), chance.randrange(2)
        old = there.get(number)
        if old is None:
            there[number] = row(number, next(versions), shard)
            log.append([(shard, (N, None, there[number]))])
            continue
        here, there_ = old["shard"], 1 - old["shard"]
        match chance.randrange(4):
            case 0:
                del there[number]
                log.append([(here, (D, old, None))])
            case 1:
                there[number] = row(number, next(versions), here)
                log.append([(here, (U, old, there[number]))])
            case _:
                there[number] = row(number, old["v"], there_)
                moves: list[tuple[int, Change]] = [(there_, (N, None, there[number])), (here, (D, old, None))]
                later = row(number, next(versions), there_)
                if chance.random() < 0.3:
                    moves.insert(chance.randrange(1, 3), (there_, (U, there[number], later)))
                    there[number] = later
                elif chance.random() < 0.5:
                    moves.reverse()
                log.append(moves)
    return log, [there[number] for number in sorted(there)]


@settings(max_examples=examples(30), deadline=None)
@given(seed=st.integers(0, 1 << 32), count=st.integers(1, 25))
def test_any_history_of_moves_ends_with_each_row_where_it_went(seed: int, count: int) -> None:
    chance = random.Random(seed)
    log, expected = transactions(chance, count)
    with closing(Target()) as target:
        place, batches = 0, []
        while log:
            size = chance.randrange(1, 6)
            batch = [change for transaction in log[:size] for change in transaction]
            log = log[size:]
            batches.append((batch, place))
            target.apply(batch, place)
            place += len(batch)
        assert target.rows() == expected
        for batch, start in batches:
            target.apply(batch, start)
        assert target.rows() == expected, "what comes once more is older than what is there"


def test_a_row_that_gets_the_key_of_another_tables_row_halts() -> None:
    with closing(Target()) as target:
        target.apply([(0, (N, None, row(1, 1, 0))), (1, (N, None, row(2, 2, 1)))], 0)
        with pytest.raises(Halted) as raised:
            target.apply([(0, (D, row(1, 1, 0), None)), (1, (U, row(2, 2, 1), row(1, 3, 1)))], 10)
        assert raised.value.code == "version-of-merged"
