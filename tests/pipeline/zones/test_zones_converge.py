"""Zones in memory whose programs write the same rows before the zones have each other's changes: all end with the
latest write.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

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

from pidts.apply import ApplyRules, prepare
from pidts.apply.rows.version_guard import VersionGuard
from pidts.model import Column, ColumnType, Kind, Table
from pidts.plan import Limits
from pidts.zones import Feed, carried

TABLE = Table(
    NAME,
    (
        Column("id", INT, nullable=False),
        Column("version", ColumnType(Kind.INT), nullable=False),
        Column("value", INT),
    ),
    KEY,
)
RULES = ApplyRules(source="s", version_column="version", converges=True)
State = tuple[int, int, str]
"""Version, whether the row was deleted, and its values, in the order of `pidts.apply.rows.convergence`."""


class Programs:
    """What the programs of all zones write, and the latest write of each row."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.latest: dict[int, State] = {}
        self._seen: dict[tuple[str, int], int] = {}
        self._values = 0

    def write(self, zone: Zone, meta: list[str]) -> None:
        """Inserts, changes or deletes one or two rows, or gives them another key.

        Each write has a higher version than all before.
        """
        there = zone.rows()
        for key, row in there.items():
            self._saw(zone, key, row["version"])
        for tomb in zone.target.store.tombstones.values():
            self._saw(zone, int(tomb.key.rstrip("|")), int(tomb.version or 0))
        rows: list[Row] = []
        removed: list[Row] = []
        moves: list[tuple[Row, Row]] = []
        free = [key for key in range(4) if key not in there]
        for key in self.chance.sample(range(4), self.chance.randrange(1, 3)):
            kind = self.chance.random()
            if key in there and kind < 0.35:
                removed.append(there[key])
                self.note(key, (there[key]["version"], 1, ""))
            elif key in there and kind < 0.5 and free:
                moves.append((there[key], self._row(zone, free.pop(), there[key]["version"])))
                self.note(key, (there[key]["version"], 1, ""))
            elif key in there or key in free:
                free = [one for one in free if one != key]
                rows.append(self._row(zone, key, 0))
        zone.write(meta, rows, removed, moves)

    def _row(self, zone: Zone, key: int, least: int) -> Row:
        """Returns values of many and of few digits, which have different orders as numbers and as texts."""
        self._values += 1
        version = max(least, self._seen.get((zone.name, key), 0)) + self.chance.randrange(1, 3)
        self._saw(zone, key, version)
        row = {"id": key, "version": version, "value": self._values}
        self.note(key, (version, 0, f"={self._values}"))
        return row

    def _saw(self, zone: Zone, key: int, version: int) -> None:
        self._seen[zone.name, key] = max(version, self._seen.get((zone.name, key), 0))

    def note(self, key: int, state: State) -> None:
        self.latest[key] = max(state, self.latest.get(key, state))


def histories(
    chance: random.Random,
    feeds: Sequence[Feed],
    *,
    workers: int,
    size: int,
    crashes: bool,
    longest: int = 30,
    **broken: Any,
) -> None:
    """Runs one history and checks it."""
    names = sorted({name for feed in feeds for name in feed})
    zones = {name: Zone(name, TABLE) for name in names}
    limits = Limits(transactions=2 * workers * (len(names) - 1) + size, idle_entries=10_000)
    tasks = [
        Direction(zones[name], zones[other], workers, limits, forwards - {name}, rules=RULES, **broken)
        for (name, other), forwards in carried(feeds).items()
    ]
    programs = Programs(chance)
    apart: set[str] = set()
    for _ in range(chance.randrange(6, longest)):
        kind = chance.random()
        if kind < 0.5:
            programs.write(zones[chance.choice(names)], chance.choice([[], [], ["checkpoint"]]))
        elif kind < 0.95:
            task = chance.choice(tasks)
            if task.name not in apart:
                task.step()
        else:
            apart = {task.name for task in chance.sample(tasks, chance.randrange(len(tasks)))}
        if crashes and kind > 0.8:
            zones[chance.choice(names)].dies = Crashes([chance.randrange(12)])
    end_quietly(zones, tasks, chance)
    wanted = {key: state for key, state in programs.latest.items() if not state[1]}
    for name, zone in zones.items():
        found = {key: (row["version"], 0, f"={row['value']}") for key, row in zone.rows().items()}
        assert found == wanted, name
        applied = [one for one in zone.applied if one[2] is not None]
        assert all(count == 1 for count in Counter(applied).values()), f"zone {name} got a change twice"
        zone.target.forget()


@settings(max_examples=examples(40), deadline=None)
@given(
    seed=st.integers(0, 2**32),
    feeds=st.sampled_from(list(SHAPES.values())),
    workers=st.integers(1, 3),
    size=st.integers(1, 6),
    crashes=st.booleans(),
)
def test_all_zones_end_with_the_latest_write_of_each_row(
    seed: int, feeds: Sequence[Feed], workers: int, size: int, crashes: bool
) -> None:
    histories(random.Random(seed), feeds, workers=workers, size=size, crashes=crashes)


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
            longest=12,
        ),
    )


@pytest.mark.parametrize("broken", ["nothing returns", "the plain guard decides", "a tie is kept", "a tie is taken"])
def test_the_check_finds_zones_that_do_not_converge(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    returns = broken != "nothing returns"
    if broken == "the plain guard decides":
        monkeypatch.setattr(prepare, "Convergence", VersionGuard)
    if broken.startswith("a tie"):
        taken = broken == "a tie is taken"
        monkeypatch.setattr(
            prepare.Convergence, "_one_by_one_from", lambda _, events, *__: [taken] * len(events), raising=True
        )
    found = 0
    for seed in range(40):
        with suppress(AssertionError, pytest.fail.Exception):
            histories(
                random.Random(seed), SHAPES["mesh"], workers=1, size=3, crashes=False, longest=12, returns=returns
            )
            continue
        found += 1
        if found == 2:
            return
    pytest.fail(f"{found} of 40 histories")
