"""Zones in memory in which rows have owners: the write of another zone is set aside in each zone that gets it."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.crashes import Crashes
from tests.examples import examples, run_histories
from tests.pipeline.zones.zones_in_memory import (
    FEW_WORKERS,
    INT,
    KEY,
    NAME,
    SHAPES,
    Direction,
    Row,
    Zone,
    end_quietly,
    usual_shape,
)

from pidts.apply import ApplyRules
from pidts.apply.locks import check
from pidts.apply.locks.key_events import KeyEvents
from pidts.apply.locks.presence import KnownColumns
from pidts.apply.uncopied_keys import unpacked
from pidts.model import Column, ColumnType, Kind, OnDivergence, Table
from pidts.plan import Limits
from pidts.rules import OwnedRange, Owners
from pidts.zones import Feed, carried

TABLE = Table(
    NAME,
    (Column("id", INT, nullable=False), Column("part", ColumnType(Kind.INT)), Column("value", INT)),
    KEY,
)
KEYS = 6


def owners_of(names: Sequence[str]) -> Owners:
    """Returns owners: the second zone owns the rows with `part` 1, and so on. The first zone owns all others,
    even those with NULL.
    """
    first, *others = names
    ranges = [
        OwnedRange(schema=NAME.schema, table=NAME.name, zone=zone, where=f"part = {place}")
        for place, zone in enumerate(others, 1)
    ]
    return Owners((*ranges, OwnedRange(schema=NAME.schema, table=NAME.name, zone=first)))


class Programs:
    """What the programs of all zones write: mostly rows of their own zone, and sometimes rows of another zone."""

    def __init__(self, chance: random.Random, names: Sequence[str], foreign: float) -> None:
        self._chance, self._names, self._foreign = chance, names, foreign
        self._values = 0
        self.writers: dict[int, set[str]] = {}
        """The zones that have written a key."""
        self.foreign: set[tuple[str, int]] = set()
        """The zones that have written a key although they did not own the row before or after the write."""

    def write(self, zone: Zone) -> None:
        """Inserts, changes or deletes one or two rows, or gives them another key."""
        there, chance = zone.rows(), self._chance
        rows: list[Row] = []
        removed: list[Row] = []
        moves: list[tuple[Row, Row]] = []
        free = [key for key in range(KEYS) if key not in there]
        for key in chance.sample(range(KEYS), chance.randrange(1, 3)):
            row = there.get(key)
            if row is not None and self.owner(row) != zone.name and chance.random() > self._foreign:
                continue
            kind = chance.random()
            if row is not None and kind < 0.25:
                removed.append(row)
                self._note(zone, key, row, None)
            elif row is not None and kind < 0.4 and free:
                new = self._row(zone, free.pop())
                moves.append((row, new))
                self._note(zone, key, row, None)
                self._note(zone, new["id"], None, new)
            elif row is not None or key in free:
                free = [one for one in free if one != key]
                rows.append(self._row(zone, key))
                self._note(zone, key, row, rows[-1])
        zone.write([], rows, removed, moves)

    def owner(self, row: Row) -> str:
        """Returns the zone that owns a row."""
        return self._names[row["part"] or 0]

    def _row(self, zone: Zone, key: int) -> Row:
        self._values += 1
        part = self._names.index(zone.name)
        if self._chance.random() < self._foreign:
            part = self._chance.randrange(len(self._names))
        return {"id": key, "part": part or self._chance.choice([0, None]), "value": self._values}

    def _note(self, zone: Zone, key: int, before: Row | None, after: Row | None) -> None:
        self.writers.setdefault(key, set()).add(zone.name)
        if any(self.owner(row) != zone.name for row in (before, after) if row is not None):
            self.foreign.add((zone.name, key))


def histories(
    chance: random.Random,
    feeds: Sequence[Feed],
    *,
    workers: int = 1,
    size: int = 3,
    crashes: bool = False,
    foreign: float = 0.1,
    longest: int = 30,
) -> int:
    """Runs one history and checks it. Returns the number of locked keys."""
    names = sorted({name for feed in feeds for name in feed})
    zones = {name: Zone(name, TABLE) for name in names}
    owners = owners_of(names)
    limits = Limits(transactions=2 * workers * (len(names) - 1) + size, idle_entries=10_000)
    tasks = []
    for (name, other), forwards in carried(feeds).items():
        rules = ApplyRules(task=f"{name}{other}", source="s", zone=name, owners=owners, on_divergence=OnDivergence.LOCK)
        tasks.append(Direction(zones[name], zones[other], workers, limits, forwards - {name}, rules=rules))
    programs = Programs(chance, names, foreign)
    for _ in range(chance.randrange(6, longest)):
        kind = chance.random()
        if kind < 0.5:
            programs.write(zones[chance.choice(names)])
        else:
            chance.choice(tasks).step()
        if crashes and kind > 0.8:
            zones[chance.choice(names)].dies = Crashes([chance.randrange(12)])
    end_quietly(zones, tasks, chance)
    locked = {task.name: _locked(task) for task in tasks}
    all_locked = {key for found in locked.values() for key in found}
    rows = [zone.rows() for zone in zones.values()]
    for key in range(KEYS):
        if key not in all_locked:
            assert all(one.get(key) == rows[0].get(key) for one in rows), f"row {key} differs, and nobody is informed"
        elif len(programs.writers[key]) == 1:
            assert any(one == key for _, one in programs.foreign), f"row {key} is locked, and its owner has written it"
    for zone in zones.values():
        zone.target.forget()
        for origin, *sides in zone.changed:
            for row in filter(None, sides):
                assert programs.owner(row) == origin, f"zone {zone.name} let {origin} write {row}"
    for name, key in programs.foreign:
        for task in tasks:
            assert task.source.name != name or key in locked[task.name], f"{task.name} has not set {key} aside"
    return len(all_locked)


def _locked(task: Direction) -> set[int]:
    """Returns the keys that a task has locked."""
    session = task.target.target.connect()
    locks = session.meta.row_locks.read(task.name, "s", NAME)
    session.close()
    return {unpacked(one.key)["id"][0].as_py() for one in locks}


@settings(max_examples=examples(25), deadline=None)
@given(
    seed=st.integers(0, 2**32),
    feeds=st.sampled_from(list(SHAPES.values())),
    workers=st.integers(1, 3),
    size=st.integers(1, 6),
    crashes=st.booleans(),
    foreign=st.sampled_from([0.0, 0.1, 0.5]),
)
def test_a_row_changes_by_its_owner_alone_and_every_other_write_is_set_aside(
    seed: int, feeds: Sequence[Feed], workers: int, size: int, crashes: bool, foreign: float
) -> None:
    histories(random.Random(seed), feeds, workers=workers, size=size, crashes=crashes, foreign=foreign)


@pytest.mark.parametrize("part", range(5))
def test_many_histories(part: int) -> None:
    run_histories(
        440,
        part,
        lambda chance: histories(
            chance,
            usual_shape(chance),
            workers=chance.choice(FEW_WORKERS),
            size=chance.randint(1, 6),
            crashes=chance.random() < 0.7,
            foreign=chance.choice([0.0, 0.05, 0.2, 0.5]),
            longest=12,
        ),
    )


@pytest.mark.parametrize("broken", ["nothing", "the row before", "the row behind"])
def test_the_check_finds_writes_of_zones_that_do_not_own_the_row(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check is broken: it examines none of the two images of a change, or only one."""
    judged = check.foreign_events

    def partly(events: KeyEvents, owners: Owners, writer: str, known: KnownColumns | None) -> Mapping[int, str]:
        every = np.ones(len(events.key), np.bool_)
        if broken == "the row before":
            return judged(replace(events, leaves=every), owners, writer, known)
        return judged(replace(events, arrives=every), owners, writer, known) if broken == "the row behind" else {}

    monkeypatch.setattr(check, "foreign_events", partly)
    found = 0
    for seed in range(20):
        with suppress(AssertionError, pytest.fail.Exception):
            histories(random.Random(seed), SHAPES["mesh"], foreign=0.2, longest=12)
            continue
        found += 1
    assert found >= 3, found
