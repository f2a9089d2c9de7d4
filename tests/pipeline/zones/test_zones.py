"""Zones in memory with programs that write to each zone, and tasks that die at any point: no change returns or is lost."""

from __future__ import annotations

import itertools
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
    PAIR,
    SHAPES,
    Direction,
    Row,
    Zone,
    end_quietly,
    usual_shape,
)

from pidts.plan import Limits
from pidts.zones import Feed, carried


def histories(
    chance: random.Random,
    *,
    feeds: Sequence[Feed] = PAIR,
    workers: int,
    size: int,
    idle: int,
    crashes: bool,
    leaves_out: bool = True,
    marks: bool = True,
    forgets: frozenset[str] = frozenset(),
    longest: int = 40,
) -> None:
    """Runs one history and checks it: each zone writes rows of its own, and at the end all zones have all rows."""
    names = sorted({name for feed in feeds for name in feed})
    zones = {name: Zone(name) for name in names}
    # A batch without rows writes one transaction for each worker to the target's log, which other tasks read. Each batch
    # has to read more transactions than it causes. Otherwise no task would come to the end of its log.
    limits = Limits(transactions=2 * workers * (len(names) - 1) + size, idle_entries=idle * (len(names) - 1))
    tasks = [
        Direction(
            zones[name], zones[other], workers, limits, forwards - {name} - forgets, leaves_out=leaves_out, marks=marks
        )
        for (name, other), forwards in carried(feeds).items()
    ]
    wanted: dict[int, Row] = {}
    values = itertools.count(1)
    origin: dict[int, str] = {}
    for _ in range(chance.randrange(10, longest)):
        kind = chance.random()
        if kind < 0.5:
            name = chance.choice(names)
            meta = chance.choice([[], [], [], ["checkpoint"]])
            keys = {len(names) * chance.randrange(4) + names.index(name) for _ in range(chance.randrange(1, 3))}
            gone = [wanted.pop(key) for key in sorted(keys) if key in wanted and chance.random() < 0.3]
            rows = [{"id": key, "value": next(values)} for key in sorted(keys - {row["id"] for row in gone})]
            wanted |= {row["id"]: row for row in rows}
            origin |= {row["value"]: name for row in rows}
            zones[name].write(meta, rows, gone)
        else:
            chance.choice(tasks).step()
        if crashes and kind > 0.8:
            zones[chance.choice(names)].dies = Crashes([chance.randrange(12)])
    end_quietly(zones, tasks, chance)
    for name, zone in zones.items():
        assert zone.rows() == wanted, name
        applied = [one for one in zone.applied if one[2] is not None]
        assert all(origin[value] == by for by, _, value in applied), f"zone {name} got what was not written there"
        assert all(count == 1 for count in Counter(applied).values()), f"zone {name} got a change twice"
        zone.target.forget()


@settings(max_examples=examples(60), deadline=None)
@given(
    seed=st.integers(0, 2**32),
    feeds=st.sampled_from(list(SHAPES.values())),
    workers=st.integers(1, 3),
    size=st.integers(1, 6),
    idle=st.sampled_from([20, 10_000]),
    crashes=st.booleans(),
)
def test_each_change_reaches_each_other_zone_once_and_none_comes_back(
    seed: int, feeds: Sequence[Feed], workers: int, size: int, idle: int, crashes: bool
) -> None:
    histories(random.Random(seed), feeds=feeds, workers=workers, size=size, idle=idle, crashes=crashes)


@pytest.mark.parametrize("part", range(5))
def test_many_histories(part: int) -> None:
    run_histories(
        720,
        part,
        lambda chance: histories(
            chance,
            feeds=usual_shape(chance),
            workers=chance.choice(FEW_WORKERS),
            size=chance.randint(1, 6),
            idle=chance.choice([20, 10_000]),
            crashes=chance.random() < 0.7,
            longest=20,
        ),
    )


@pytest.mark.parametrize(
    "broken",
    [
        {"leaves_out": False},
        {"marks": False},
        {"feeds": SHAPES["ring"], "forgets": frozenset("c")},
        {"feeds": SHAPES["star"], "forgets": frozenset("b")},
    ],
)
def test_the_check_finds_what_comes_back_or_does_not_arrive(broken: dict[str, Any]) -> None:
    """A value that comes back unchanged does no harm, so some histories of a broken task do not fail."""
    found = 0
    for seed in range(40):
        with suppress(AssertionError, pytest.fail.Exception, ValueError):
            histories(random.Random(seed), workers=1, size=3, idle=10_000, crashes=False, longest=20, **broken)
            continue
        found += 1
    assert found >= 10, found
