"""Zones in memory whose programs give one unique value to several rows: the rows are set aside, and no task halts."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.crashes import Crashes
from tests.examples import examples, run_histories
from tests.pipeline.zones.zones_in_memory import (
    INT,
    KEY,
    NAME,
    SHAPES,
    TABLE,
    Row,
    Zone,
    end_quietly,
    locked,
    settle,
    tasks_between,
)

from pidts.apply import ApplyRules
from pidts.apply.locks.resolve import ResolveWith, resolve
from pidts.model import Column, Halted, Key
from pidts.plan import Limits
from pidts.zones import Feed

UNIQUE = replace(TABLE, keys=(*KEY, Key("value", ("value",), unique=True)))
STAMPED = replace(UNIQUE, columns=(*UNIQUE.columns, Column("stamp", INT)))
"""With the column `stamp`, no two writes leave equal rows.

Without it, nobody could distinguish equal rows of two zones.
"""
stamps = itertools.count()
KEYS, VALUES = 10, 8
ONE_WAY = [SHAPES[name] for name in ("pair", "ring", "star", "line")]
"""Shapes in which all changes of a row arrive by one path. In a mesh, a DELETE may arrive before another zone's INSERT.
"""


def test_both_rows_are_set_aside_and_a_person_makes_the_zones_equal() -> None:
    zones = {name: Zone(name, UNIQUE) for name in "ab"}
    tasks = tasks_between(zones, SHAPES["pair"], Limits())
    zones["a"].write([], [{"id": 7, "value": 5}], [])
    zones["b"].write([], [{"id": 3, "value": 5}, {"id": 4, "value": 6}], [])
    settle(tasks)
    assert zones["a"].rows() == {7: {"id": 7, "value": 5}, 4: {"id": 4, "value": 6}}
    assert zones["b"].rows() == {3: {"id": 3, "value": 5}, 4: {"id": 4, "value": 6}}
    assert [locked(task) for task in tasks] == [
        {7: "it needs the unique value value=5, which row id=3 of the target has"},
        {3: "it needs the unique value value=5, which row id=7 of the target has"},
    ]
    zones["a"].write([], [{"id": 7, "value": 8}], [])
    settle(tasks)
    assert zones["b"].rows()[3]["value"] == 5, "the change is held behind the lock"
    for task in tasks:
        task.target.meta, task.target.writer = [], task.source.name
        with closing(task.target.target.connect()) as session:
            ids = {one.id for one in session.meta.row_locks.read(task.name, "s", NAME)}
            assert len(resolve(session, task.name, "s", NAME, ids, ResolveWith.SOURCE)) == 1
    settle(tasks)
    assert (
        zones["a"].rows()
        == zones["b"].rows()
        == {
            3: {"id": 3, "value": 5},
            4: {"id": 4, "value": 6},
            7: {"id": 7, "value": 8},
        }
    )


def write(chance: random.Random, zone: Zone) -> None:
    """Inserts, changes or deletes one or two rows; no two rows of a zone have the same value."""
    there = zone.rows()
    rows: dict[int, Row] = {}
    removed: list[Row] = []
    for key in chance.sample(range(KEYS), chance.randrange(1, 3)):
        after = {**there, **rows}
        if key in there and chance.random() < 0.3:
            removed.append(there[key])
            continue
        taken = {row["value"] for other, row in after.items() if other != key}
        free = [value for value in (*range(VALUES), None) if value not in taken or value is None]
        rows[key] = {"id": key, "value": chance.choice(free), "stamp": next(stamps)}
    # A server checks each row at once, so a row cannot get the value that another row of the statement gives up.
    zone.write([], list(rows.values()), removed)


def history(chance: random.Random, feeds: Sequence[Feed], *, size: int, crashes: bool, longest: int = 30) -> int:
    """Runs one history and checks it. Returns the number of keys that were locked for a unique value."""
    names = sorted({name for feed in feeds for name in feed})
    zones = {name: Zone(name, STAMPED) for name in names}
    tasks = tasks_between(zones, feeds, Limits(transactions=2 * (len(names) - 1) + size, idle_entries=10_000))
    for _ in range(chance.randrange(6, longest)):
        kind = chance.random()
        if kind < 0.5:
            write(chance, zones[chance.choice(names)])
        else:
            chance.choice(tasks).step()
        if crashes and kind > 0.8:
            zones[chance.choice(names)].dies = Crashes([chance.randrange(12)])
    end_quietly(zones, tasks, chance)
    found = [locked(task) for task in tasks]
    rows = [zone.rows() for zone in zones.values()]
    for key in range(KEYS):
        if not any(key in one for one in found):
            assert all(one.get(key) == rows[0].get(key) for one in rows), f"row {key} differs, and nobody is informed"
    for zone in zones.values():
        zone.target.forget()
    return sum("unique value value=" in why for one in found for why in one.values())


@settings(max_examples=examples(25), deadline=None)
@given(
    seed=st.integers(0, 2**32),
    feeds=st.sampled_from(ONE_WAY),
    size=st.integers(1, 6),
    crashes=st.booleans(),
)
def test_values_that_several_zones_take_halt_nothing(
    seed: int, feeds: Sequence[Feed], size: int, crashes: bool
) -> None:
    history(random.Random(seed), feeds, size=size, crashes=crashes)


def test_without_the_look_at_other_rows_the_table_halts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sum(history(random.Random(seed), SHAPES["pair"], size=3, crashes=False) for seed in range(20)) > 5
    monkeypatch.setattr(ApplyRules, "after_refusal", lambda *_: None)
    with pytest.raises(Halted, match="target-refused"):
        sum(history(random.Random(seed), SHAPES["pair"], size=3, crashes=False) for seed in range(20))


def test_many_histories() -> None:
    run_histories(
        500,
        0,
        lambda chance: history(
            chance, chance.choice(ONE_WAY), size=chance.randint(1, 6), crashes=chance.random() < 0.7, longest=16
        ),
    )
