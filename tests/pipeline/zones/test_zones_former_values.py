"""Zones in memory whose rows get former values again: values alone do not show that changes of two zones have crossed."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.crashes import Crashes
from tests.examples import examples
from tests.pipeline.zones.zones_in_memory import TABLE, Direction, Row, Zone, locked, settle, tasks_between

from pidts.plan import Limits
from pidts.zones import Feed

FIRST, SECOND = ({"id": 5, "value": value} for value in (1, 2))
SHAPES: list[list[Feed]] = [list(itertools.permutations(names, 2)) for names in ("ab", "ab", "abc", "abcd")]
KEYS = 3


def zones_with_a_row(names: str) -> tuple[dict[str, Zone], dict[str, Direction]]:
    """Returns zones that all have the first row, and tasks between all of them."""
    zones = {name: Zone(name, TABLE) for name in names}
    tasks = {task.name: task for task in tasks_between(zones, list(itertools.permutations(names, 2)), Limits())}
    zones["a"].write([], [FIRST], [])
    settle(list(tasks.values()))
    return zones, tasks


def demand_locked_or_equal(zones: dict[str, Zone], tasks: dict[str, Direction]) -> None:
    """Checks that zones have a lock if they differ and no changes are pending."""
    settle(list(tasks.values()))
    rows = [zone.rows() for zone in zones.values()]
    assert any(map(locked, tasks.values())) or all(one == rows[0] for one in rows), rows


@pytest.mark.parametrize("batches", [1, 2])
def test_a_row_that_is_as_before_while_another_zone_changes_it(batches: int) -> None:
    zones, tasks = zones_with_a_row("ab")
    zones["b"].write([], [SECOND], [])
    zones["a"].write([], [SECOND], [])
    if batches > 1:
        settle([tasks["ab"]])
    zones["a"].write([], [FIRST], [])
    demand_locked_or_equal(zones, tasks)


@pytest.mark.parametrize("batches", [1, 2])
def test_a_row_that_is_made_again_while_another_zone_deletes_it(batches: int) -> None:
    zones, tasks = zones_with_a_row("ab")
    zones["b"].write([], [], [FIRST])
    zones["a"].write([], [], [FIRST])
    if batches > 1:
        settle([tasks["ab"]])
    zones["a"].write([], [FIRST], [])
    demand_locked_or_equal(zones, tasks)


@pytest.mark.parametrize("batches", [1, 3])
def test_a_row_that_is_created_anew_and_then_as_before_while_another_zone_deletes_it(batches: int) -> None:
    zones, tasks = zones_with_a_row("ab")
    zones["b"].write([], [], [FIRST])
    zones["a"].write([], [], [FIRST])
    for row in (SECOND, FIRST):
        if batches > 1:
            settle([tasks["ab"]])
        zones["a"].write([], [row], [])
    demand_locked_or_equal(zones, tasks)


def test_a_row_that_another_zone_has_made_as_before() -> None:
    zones, tasks = zones_with_a_row("abc")
    zones["a"].write([], [SECOND], [])
    settle([tasks["ab"]])
    zones["b"].write([], [FIRST], [])
    settle([tasks["bc"]])
    demand_locked_or_equal(zones, tasks)


def test_a_row_that_another_zone_has_made_again() -> None:
    zones, tasks = zones_with_a_row("abc")
    zones["a"].write([], [], [FIRST])
    settle([tasks["ab"]])
    zones["b"].write([], [FIRST], [])
    settle([tasks["bc"]])
    demand_locked_or_equal(zones, tasks)


@pytest.mark.parametrize("names", ["abc", "abcd"])
@pytest.mark.parametrize("row", [SECOND, None], ids=["changed", "deleted"])
def test_a_row_that_a_zone_which_has_both_changes_makes_as_before(row: Row | None, names: str) -> None:
    zones, tasks = zones_with_a_row(names)
    for name in "ab":
        zones[name].write([], [row] if row else [], [] if row else [FIRST])
    settle([tasks["ac"], tasks["bc"]])
    zones["c"].write([], [FIRST], [])
    settle([task for task in tasks.values() if task.source is zones["c"]])
    demand_locked_or_equal(zones, tasks)
    assert {name for name, task in tasks.items() if 5 in locked(task)} >= {"ca", "cb"}


@pytest.mark.parametrize("size", [8, 100])
def test_equal_changes_of_two_of_three_zones_cause_no_lock(size: int) -> None:
    """In each log, the zone's own change comes before the note that the other zone's change was left out."""
    zones, tasks = zones_with_a_row("abc")
    for task in tasks.values():
        task.limits = replace(task.limits, transactions=size)
    for name in "ab":
        zones[name].write([], [SECOND], [])
    settle([tasks["ab"], tasks["ba"]])
    settle(list(tasks.values()))
    assert not any(map(locked, tasks.values()))


def write(chance: random.Random, zone: Zone) -> None:
    """Inserts, changes or deletes a row, or gives it another key. The value of a row is 0 or 1."""
    there = zone.rows()
    key, kind, other = chance.randrange(KEYS), chance.random(), chance.randrange(KEYS)
    if key not in there:
        zone.write([], [{"id": key, "value": chance.randrange(2)}], [])
    elif kind < 0.4:
        zone.write([], [], [there[key]])
    elif kind < 0.55 and other not in there:
        zone.write([], [], [], [(there[key], {"id": other, "value": chance.randrange(2)})])
    else:
        zone.write([], [{"id": key, "value": 1 - there[key]["value"]}], [])


def differing(chance: random.Random, feeds: Sequence[Feed], *, size: int, crashes: bool) -> dict[int, list[Row | None]]:
    """Runs one history. Returns the rows that differ at the end without a lock, as each zone has them."""
    names = sorted({name for feed in feeds for name in feed})
    zones = {name: Zone(name, TABLE) for name in names}
    tasks = tasks_between(zones, feeds, Limits(transactions=2 * (len(names) - 1) + size, idle_entries=10_000))
    slow = chance.sample(tasks, len(tasks) // 3)
    for _ in range(chance.randrange(6, 40)):
        kind = chance.random()
        if kind < 0.4:
            write(chance, zones[chance.choice(names)])
        else:
            task = chance.choice(tasks)
            if task not in slow or chance.random() < 0.1:
                task.step()
        if crashes and kind > 0.8:
            zones[chance.choice(names)].dies = Crashes([chance.randrange(12)])
    for zone in zones.values():
        zone.dies = Crashes([])
    settle(tasks, chance)
    known = {key for task in tasks for key in locked(task)}
    rows = [zone.rows() for zone in zones.values()]
    found = {key: [one.get(key) for one in rows] for key in range(KEYS) if key not in known}
    for zone in zones.values():
        zone.target.forget()
    return {key: one for key, one in found.items() if any(row != one[0] for row in one)}


@settings(max_examples=examples(40), deadline=None)
@given(seed=st.integers(0, 2**32), feeds=st.sampled_from(SHAPES), size=st.integers(1, 6), crashes=st.booleans())
def test_rows_that_differ_are_locked(seed: int, feeds: Sequence[Feed], size: int, *, crashes: bool) -> None:
    assert differing(random.Random(seed), feeds, size=size, crashes=crashes) == {}


def differing_late(
    chance: random.Random, names: str, *, crashes: bool = False, workers: int = 1, reads_notes: bool = True
) -> list[Row | None]:
    """Runs a history of one row in a mesh, in which tasks between two zones are stopped until its end.

    If the row differs and has no lock, returns it as each zone has it.
    """
    zones = {name: Zone(name, TABLE) for name in names}
    limits = Limits(transactions=2 * (len(names) - 1) * workers + chance.randrange(1, 7), idle_entries=10_000)
    tasks = tasks_between(zones, list(itertools.permutations(names, 2)), limits, workers)
    for task in tasks:
        task.classifier = replace(task.classifier, reads_notes=reads_notes)
    zones["a"].write([], [FIRST], [])
    settle(tasks)
    apart = set(chance.sample(sorted(names), 2))
    moving = [task for task in tasks if {task.source.name, task.target.name} != apart]
    writes, new = chance.randrange(3, 6), chance.choice([SECOND, None])
    while writes or chance.random() < 0.8:
        if writes and chance.random() < 0.25:
            # The separated zones often make the same change, and another zone often reverses it.
            writes -= 1
            name = chance.choice(sorted(apart if writes > 1 else names))
            usual = new if name in apart else FIRST
            zone, row = zones[name], chance.choice([usual, usual, usual, FIRST, SECOND, None])
            there = zone.rows().get(5)
            if row != there:
                zone.write([], [row] if row else [], [there] if there and not row else [])
        else:
            chance.choice(moving).step()
        if crashes and chance.random() < 0.2:
            zones[chance.choice(names)].dies = Crashes([chance.randrange(12)])
    for zone in zones.values():
        zone.dies = Crashes([])
    settle(tasks, chance)
    rows = [zone.rows().get(5) for zone in zones.values()]
    has_lock = any(map(locked, tasks))
    for zone in zones.values():
        zone.target.forget()
    return [] if has_lock or all(row == rows[0] for row in rows) else rows


@settings(max_examples=examples(60), deadline=None)
@given(
    seed=st.integers(0, 2**32), names=st.sampled_from(["abc", "abcd"]), crashes=st.booleans(), workers=st.integers(1, 3)
)
def test_rows_that_differ_are_locked_also_if_two_zones_are_apart(
    seed: int, names: str, *, crashes: bool, workers: int
) -> None:
    assert differing_late(random.Random(seed), names, crashes=crashes, workers=workers) == []


def test_these_histories_detect_tasks_that_read_no_notes() -> None:
    chances = map(random.Random, range(400))
    assert any(differing_late(chance, "abc", reads_notes=False) for chance in chances)


def quiet_history(chance: random.Random, feeds: Sequence[Feed], *, crashes: bool) -> dict[str, dict[int, str]]:
    """One zone after the other writes one change or several.

    All zones have the changes of one zone before the next zone writes. Returns the locks.
    """
    names = sorted({name for feed in feeds for name in feed})
    zones = {name: Zone(name, TABLE) for name in names}
    tasks = tasks_between(zones, feeds, Limits(transactions=2 * (len(names) - 1) + 4, idle_entries=10_000))
    for _ in range(chance.randrange(3, 12)):
        writer = zones[chance.choice(names)]
        for _ in range(chance.randrange(1, 6)):
            write(chance, writer)
        for zone in zones.values() if crashes else ():
            zone.dies = Crashes([chance.randrange(12)])
        settle(tasks, chance)
        for zone in zones.values():
            zone.dies = Crashes([])
        rows = [zone.rows() for zone in zones.values()]
        assert all(one == rows[0] for one in rows)
    found = {task.name: locked(task) for task in tasks if locked(task)}
    for zone in zones.values():
        zone.target.forget()
    return found


@settings(max_examples=examples(30), deadline=None)
@given(seed=st.integers(0, 2**32), feeds=st.sampled_from(SHAPES), crashes=st.booleans())
def test_zones_that_write_in_turns_have_no_locks(seed: int, feeds: Sequence[Feed], *, crashes: bool) -> None:
    assert quiet_history(random.Random(seed), feeds, crashes=crashes) == {}


@pytest.mark.parametrize("row", [{"id": 5, "value": 2}, None], ids=["changed", "deleted"])
def test_equal_changes_of_both_zones_cause_no_lock(row: Row | None) -> None:
    zones, tasks = zones_with_a_row("ab")
    for zone in zones.values():
        zone.write([], [row] if row else [], [] if row else [FIRST])
    settle(list(tasks.values()))
    assert not any(map(locked, tasks.values()))


def test_another_row_under_a_key_that_both_zones_have_freed_is_taken() -> None:
    zones, tasks = zones_with_a_row("ab")
    for zone in zones.values():
        zone.write([], [], [FIRST])
    settle(list(tasks.values()))
    zones["b"].write([], [SECOND], [])
    settle(list(tasks.values()))
    assert [zone.rows() for zone in zones.values()] == [{5: SECOND}] * 2
    assert not any(map(locked, tasks.values()))


@pytest.mark.long
def test_many_histories() -> None:
    for seed in range(3_000):
        shape = SHAPES[seed % len(SHAPES)]
        assert differing(random.Random(seed), shape, size=1 + seed // 4 % 6, crashes=seed % 8 > 3) == {}
