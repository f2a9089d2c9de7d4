"""Zones in memory in which sessions log parts of rows: crossing changes of these rows cannot be detected."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.crashes import Crashes
from tests.examples import examples
from tests.pipeline.zones.zones_in_memory import (
    INT,
    KEY,
    NAME,
    Direction,
    Row,
    Zone,
    end_quietly,
    locked,
    settle,
    tasks_between,
)

from pidts.apply.locks import check
from pidts.model import Column, Table
from pidts.plan import Limits
from pidts.zones import Feed

TABLE = Table(NAME, (Column("id", INT, nullable=False), Column("value", INT), Column("other", INT)), KEY)
MESHES: list[list[Feed]] = [list(itertools.permutations(names, 2)) for names in ("ab", "ab", "abc")]
FIRST: Row = {"id": 5, "value": 1, "other": 1}
KEYS = 3


def pair() -> tuple[Zone, Zone, dict[str, Direction]]:
    """Returns two zones that have the first row, and tasks between them."""
    zones = {name: Zone(name, TABLE) for name in "ab"}
    tasks = {task.name: task for task in tasks_between(zones, list(itertools.permutations("ab", 2)), Limits())}
    zones["a"].write([], [FIRST], [])
    settle(list(tasks.values()))
    return zones["a"], zones["b"], tasks


@pytest.mark.parametrize("columns", [("value", "value"), ("value", "other")])
def test_rows_that_cross_in_part_are_not_exchanged(columns: tuple[str, str]) -> None:
    a, b, tasks = pair()
    for zone, name, value in zip((a, b), columns, (5, 6), strict=True):
        zone.write([], [{**FIRST, name: value}], [], in_part=True)
    settle(list(tasks.values()))
    assert [zone.rows()[5] for zone in (a, b)] == [{**FIRST, columns[0]: 5}, {**FIRST, columns[1]: 6}]
    assert {name: list(locked(task)) for name, task in tasks.items()} == {"ab": [5], "ba": [5]}
    assert "binlog_row_image=FULL" in locked(tasks["ab"])[5]


def test_a_row_that_is_as_before_when_another_zones_change_comes() -> None:
    a, b, tasks = pair()
    for value in (5, 1):
        a.write([], [{**FIRST, "value": value}], [], in_part=True)
    b.write([], [{**FIRST, "value": 7}], [])
    settle(list(tasks.values()))
    assert a.rows() == b.rows() or any(map(locked, tasks.values()))


@pytest.mark.parametrize("in_part", [False, True])
def test_an_inserted_row_is_known_as_a_whole(*, in_part: bool) -> None:
    a, b, tasks = pair()
    a.write([], [{"id": 6, "value": 1, "other": None}], [], in_part=in_part)
    settle(list(tasks.values()))
    assert b.rows() == a.rows()
    assert not any(map(locked, tasks.values()))


def test_a_row_that_gets_another_key_in_part_is_held_at_both() -> None:
    a, b, tasks = pair()
    b.write([], [{**FIRST, "other": 9}], [])
    a.write([], [], [], [(FIRST, {**FIRST, "id": 6})], in_part=True)
    settle(list(tasks.values()))
    assert b.rows() == {5: {**FIRST, "other": 9}}, "row 6 must not have what b has made of row 5"
    assert sorted(locked(tasks["ab"])) == [5, 6]


def write(chance: random.Random, zone: Zone, values: int) -> None:
    """Inserts, changes or deletes a row, or gives it another key, in a session that may log parts of rows."""
    there, key, kind = zone.rows(), chance.randrange(KEYS), chance.random()
    in_part, other = chance.random() < 0.8, chance.randrange(KEYS)
    if key not in there:
        row = {"id": key, "value": chance.randrange(values), "other": chance.randrange(values)}
        zone.write([], [row], [], in_part=in_part)
    elif kind < 0.1:
        zone.write([], [], [there[key]], in_part=in_part)
    elif kind < 0.2 and other not in there:
        zone.write([], [], [], [(there[key], {**there[key], "id": other})], in_part=in_part)
    else:
        name = chance.choice(["value", "other"])
        zone.write([], [{**there[key], name: chance.randrange(values)}], [], in_part=in_part)


def differing(chance: random.Random, feeds: Sequence[Feed], *, size: int, crashes: bool) -> dict[int, list[Row | None]]:
    """Runs one history. Returns the rows that differ at the end without a lock, as each zone has them."""
    names = sorted({name for feed in feeds for name in feed})
    zones = {name: Zone(name, TABLE) for name in names}
    tasks = tasks_between(zones, feeds, Limits(transactions=2 * (len(names) - 1) + size, idle_entries=10_000))
    slow = chance.sample(tasks, len(tasks) // 3)
    values = 3 if len(names) == 2 else 10**9  # docs/operate/zones.md describes three zones and former values.
    for _ in range(chance.randrange(6, 30)):
        kind = chance.random()
        if kind < 0.4:
            write(chance, zones[chance.choice(names)], values)
        else:
            task = chance.choice(tasks)
            if task not in slow or chance.random() < 0.1:
                task.step()
        if crashes and kind > 0.8:
            zones[chance.choice(names)].dies = Crashes([chance.randrange(12)])
    end_quietly(zones, tasks, chance)
    known = {key for task in tasks for key in locked(task)}
    rows = [zone.rows() for zone in zones.values()]
    found = {key: [one.get(key) for one in rows] for key in range(KEYS) if key not in known}
    for zone in zones.values():
        zone.target.forget()
    return {key: one for key, one in found.items() if any(row != one[0] for row in one)}


@settings(max_examples=examples(25), deadline=None)
@given(seed=st.integers(0, 2**32), feeds=st.sampled_from(MESHES), size=st.integers(1, 6), crashes=st.booleans())
def test_rows_that_differ_are_locked(seed: int, feeds: Sequence[Feed], size: int, *, crashes: bool) -> None:
    assert differing(random.Random(seed), feeds, size=size, crashes=crashes) == {}


def test_the_check_finds_rows_that_are_exchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> Mapping[int, str]:
        return {}

    monkeypatch.setattr(check, "partial_events", none)
    monkeypatch.setattr(check, "with_partial", lambda _, known: known)
    found = (seed for seed in range(60) if differing(random.Random(seed), MESHES[0], size=3, crashes=False))
    assert len(list(itertools.islice(found, 2))) == 2
