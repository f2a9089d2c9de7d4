"""The argument of `pidts.apply.rows.convergence` as a model: in many small histories, all zones become equal.

A zone is its rows, its tombstones and its log. `tests/pipeline/zones/test_zones_converge.py` runs fewer histories, with
the product itself.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import pytest

from pidts.zones import Feed, carried, unreached

State = tuple[int, int, str]
"""Version, whether it is a tombstone, text."""
Change = tuple[int, State]
KEYS = range(2)
SHAPES: dict[str, list[Feed]] = {
    "pair": list(itertools.permutations("ab", 2)),
    "mesh": list(itertools.permutations("abc", 2)),
    "mesh of four": list(itertools.permutations("abcd", 2)),
    "ring": [("a", "b"), ("b", "c"), ("c", "a")],
    "ring of four": [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")],
    "star": [*itertools.product("a", "bcd"), *itertools.product("bcd", "a")],
    "line": [("a", "b"), ("b", "a"), ("b", "c"), ("c", "b")],
    "line of four": [("a", "b"), ("b", "a"), ("b", "c"), ("c", "b"), ("c", "d"), ("d", "c")],
}


@dataclass
class Zone:
    """A zone, as the model of convergence sees it.

    The log has transactions, each with the zone from which it came (empty: this zone) and the states of its rows.
    """

    rows: dict[int, State] = field(default_factory=dict)
    tombs: dict[int, State] = field(default_factory=dict)
    log: list[tuple[str, list[Change]]] = field(default_factory=list)
    highest: dict[int, int] = field(default_factory=dict)
    """The highest version of each key that a program here may have seen."""

    def write(self, key: int, step: int, text: str, *, deletes: bool) -> Change | None:
        row = self.rows.get(key)
        if deletes and row is None:
            return None
        state = (row[0], 1, "") if deletes and row is not None else (self.highest.get(key, 0) + step, 0, text)
        self._put(key, state)
        self.log.append(("", [(key, state)]))
        return key, state

    def apply(self, origin: str, changes: Sequence[Change], returned: Sequence[Change], bugs: Collection[str]) -> None:
        """Applies one transaction; `returned` are removals that return to this zone."""
        states: list[Change] = []
        for key in KEYS:
            coming = [state for of, state in changes if of == key]
            back = [state for of, state in returned if of == key]
            if not coming and not back:
                continue
            latest, row = max([*coming, *back]), self.rows.get(key)
            there = row or self.tombs.get(key, (-1, 0, ""))
            if "a tie is taken" in bugs and not latest[1]:
                there = (*there[:2], "")
            if latest <= there:
                continue
            if latest[1]:
                if "no tombstones" not in bugs:
                    self.tombs[key] = latest
                is_shown = latest in coming and (row is None or row[0] != latest[0]) and "not shown" not in bugs
                if is_shown:
                    states.append((key, (latest[0], 0, "shown")))
                if row is not None or is_shown:
                    states.append((key, (latest[0] if is_shown or row is None else row[0], 1, "")))
            else:
                states.append((key, latest))
            self._put(key, latest)
        if states:
            self.log.append((origin, states))

    def _put(self, key: int, state: State) -> None:
        self.highest[key] = max(self.highest.get(key, 0), state[0])
        if state[1]:
            self.rows.pop(key, None)
        else:
            self.rows[key] = state


@dataclass
class Task:
    source: Zone
    target: Zone
    names: Feed
    forwards: Collection[str]
    place: int = 0

    def step(self, most: int, bugs: Collection[str]) -> bool:
        """Applies a batch: changes of one zone, and removals that return to the target's zone."""
        if self.place == len(self.source.log):
            return False
        origin: str | None = None
        changes: list[Change] = []
        returned: list[Change] = []
        for mark, states in self.source.log[self.place : self.place + most]:
            if mark == self.names[1]:
                last = dict(states)
                if "nothing returns" not in bugs:
                    returned += [(key, state) for key, state in last.items() if state[1]]
            elif not mark or mark in self.forwards:
                if origin not in {None, mark}:
                    break
                origin = mark
                changes += states
            self.place += 1
        self.target.apply(origin or self.names[0], changes, returned, bugs)
        return True


def history(chance: random.Random, feeds: Sequence[Feed], bugs: Collection[str] = ()) -> str:
    """Returns what is wrong with one history; an empty text if nothing is."""
    zones = {name: Zone() for name in sorted({name for feed in feeds for name in feed})}
    tasks = [
        Task(zones[one], zones[other], (one, other), zones_of - {one})
        for (one, other), zones_of in carried(feeds).items()
    ]
    latest: dict[int, State] = {}
    apart: Collection[Feed] = ()
    for number in range(chance.randrange(4, 24)):
        kind = chance.random()
        if kind < 0.45:
            zone = zones[chance.choice(list(zones))]
            change = zone.write(
                chance.choice(KEYS), chance.randrange(1, 3), f"={number}", deletes=chance.random() < 0.35
            )
            if change is not None:
                latest[change[0]] = max(change[1], latest.get(change[0], change[1]))
        elif kind < 0.95:
            task = chance.choice(tasks)
            if task.names not in apart:
                task.step(chance.randrange(1, 5), bugs)
        else:
            apart = [task.names for task in chance.sample(tasks, chance.randrange(len(tasks)))]
    for _ in range(1000):
        chance.shuffle(tasks)
        moved = [task.step(chance.randrange(1, 5), bugs) for task in tasks]
        if not any(moved):
            break
    else:
        return "the zones do not come to rest"
    wanted = {key: state for key, state in latest.items() if not state[1]}
    wrong = [f"zone {name} has {zone.rows}, not {wanted}" for name, zone in zones.items() if zone.rows != wanted]
    return "; ".join(wrong)


def test_all_zones_end_with_the_latest_write() -> None:
    for seed in range(20_000):
        chance = random.Random(seed)
        shape = chance.choice(list(SHAPES))
        assert history(chance, SHAPES[shape]) == "", (seed, shape)


def test_so_do_zones_that_feed_each_other_in_any_way() -> None:
    """The argument of `pidts.apply.rows.convergence` does not include these shapes."""
    for seed in range(15_000):
        chance = random.Random(seed)
        names = "abcde"[: chance.randrange(3, 6)]
        feeds = [feed for feed in itertools.permutations(names, 2) if chance.random() < 0.5]
        if not unreached(feeds, names):
            assert history(chance, feeds) == "", (seed, feeds)


@pytest.mark.parametrize("bug", ["nothing returns", "no tombstones", "not shown", "a tie is taken"])
def test_the_model_finds_what_does_not_converge(bug: str) -> None:
    found = 0
    for seed in range(4_000):
        chance = random.Random(seed)
        shape = chance.choice(list(SHAPES))
        found += history(chance, SHAPES[shape], {bug}) != ""
    assert found >= 5, found
