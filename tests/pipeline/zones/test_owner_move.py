"""A range of rows moves to another zone while programs write in all zones. The command that moves it dies at any point."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pytest
from tests.crashes import ProcessDied
from tests.pipeline.zones.test_zones_owners import KEYS, TABLE, _locked, owners_of
from tests.pipeline.zones.zones_in_memory import NAME, SHAPES, Direction, Row, Zone

from pidts.apply import ApplyRules, Retry
from pidts.model import OnDivergence, PidtsError, PrecheckFailed, RangeOwner
from pidts.plan import Limits
from pidts.rules import Owners
from pidts.task.zones.owner_move import OwnerMove, ZoneRecords
from pidts.zones import Feed, carried

PART = 1
"""The rows that move: at the beginning, the second zone owns them."""


class OwnedZones:
    """Zones whose rows have owners, and the tasks between them."""

    def __init__(self, feeds: Sequence[Feed], seed: int = 0) -> None:
        self.chance = random.Random(seed)
        self.names = sorted({name for feed in feeds for name in feed})
        self.zones = {name: Zone(name, TABLE) for name in self.names}
        self.owners = owners_of(self.names)
        limits = Limits(transactions=20, idle_entries=10_000)
        self.tasks = []
        for (name, other), forwards in carried(feeds).items():
            rules = ApplyRules(
                task=f"{name}{other}", source="s", zone=name, owners=self.owners, on_divergence=OnDivergence.LOCK
            )
            self.tasks.append(Direction(self.zones[name], self.zones[other], 1, limits, forwards - {name}, rules=rules))
        for task in self.tasks:
            task.step()  # The first step claims the task.
        self.value = 0
        self.dead = False
        self.points = 0
        self.dies_at = -1

    def write(self, zone: str, part: int, key: int) -> None:
        """Inserts or changes a row as a program of a zone does, if the zone's row with this key is in this part."""
        there = self.zones[zone].rows().get(key)
        if there is None or there["part"] == part:
            self.value += 1
            row: Row = {"id": key, "part": part, "value": self.value}
            self.zones[zone].write([], [row], [])

    def settle(self) -> None:
        for _ in range(600):
            moved = [task.step() for task in self.chance.sample(self.tasks, len(self.tasks))]
            if not any(moved):
                return
        pytest.fail("the zones do not come to rest")

    def owner_by(self, zone: str) -> str:
        """Returns the owner of the range, as the tasks into this zone read it."""
        found = self.owners.moved(self.zones[zone].target.store.range_owners.values())
        return next(one.zone for one in found.ranges if one.where == f"part = {PART}")

    def records(self) -> list[ZoneRecords]:
        def connector(zone: Zone) -> Callable[[], object]:
            def connect() -> object:
                self.at("connect")
                session = zone.target.connect()
                zone.meta, zone.writer = ["checkpoint"], ""
                return session

            return connect

        return [
            ZoneRecords(name, connector(zone), tuple((task.name, "s") for task in self.tasks if task.target is zone))
            for name, zone in self.zones.items()
        ]

    def at(self, point: str) -> None:
        """Lets the command die at a chosen point; then it does nothing more."""
        owners = {self.owner_by(name) for name in self.names} - {""}
        assert len(owners) <= 1, f"at {point} the zones {owners} own the range"
        if self.dead:
            raise ProcessDied(point)
        self.points += 1
        if self.points - 1 == self.dies_at:
            self.dead = True
            raise ProcessDied(point)

    def move(self, to: str, *, drain: Callable[[str], None] | None = None, undo: bool = False) -> None:
        """Runs the command in a process of its own."""
        self.dead, self.points = False, 0
        for zone in self.zones.values():
            zone.dies = self._hook  # type: ignore[assignment]
        wanted = RangeOwner(
            schema=NAME.schema,
            table=NAME.name,
            where=f"part = {PART}",
            zone=self.names[1],
            origin=self.names[1],
            to=to,
            settled=False,
            number=0,
            ranges=self.owners.text(),
        )

        @contextmanager
        def hold(zone: str) -> Iterator[None]:
            self.at(f"hold {zone}")
            yield
            if not self.dead:
                self.at(f"let go {zone}")

        def drained(zone: str) -> None:
            self.at(f"drain {zone}")
            self.busy = True
            self.settle()
            self.busy = False
            self.at("drained")

        command = OwnerMove(self.records(), wanted, hold, drain or drained, retry=Retry(attempts=1))
        try:
            (command.undo if undo else command.run)()
        finally:
            for zone in self.zones.values():
                zone.dies = lambda _: None  # type: ignore[assignment]

    busy = False

    def _hook(self, point: str) -> None:
        if not self.busy:
            self.at(point)

    def demand_sound(self, *, writers: set[str]) -> None:
        """Checks that no zone has taken a row of the range from a zone outside `writers`, and that rows which differ
        are locked.
        """
        self.settle()
        locked = {key for task in self.tasks for key in _locked(task)}
        rows = [zone.rows() for zone in self.zones.values()]
        for key in range(KEYS):
            if key not in locked:
                assert all(one.get(key) == rows[0].get(key) for one in rows), (
                    f"row {key} differs, and nobody is informed"
                )
        for zone in self.zones.values():
            for origin, *sides in zone.changed:
                for row in filter(None, sides):
                    if row["part"] == PART:
                        assert origin in writers, f"zone {zone.name} let {origin} write {row}"

    def close(self) -> None:
        for zone in self.zones.values():
            zone.target.forget()


@pytest.mark.parametrize("shape", ["pair", "mesh", "ring", "star", "line"])
def test_the_new_owner_writes_and_the_old_one_is_set_aside(shape: str) -> None:
    zones = OwnedZones(SHAPES[shape])
    old, new = zones.names[1], zones.names[0]
    zones.write(old, PART, 0)
    zones.write(old, PART, 1)
    zones.move(new)
    assert {zones.owner_by(name) for name in zones.names} == {new}
    zones.write(new, PART, 0)
    zones.settle()
    assert len({str(zone.rows()) for zone in zones.zones.values()}) == 1, "the zones are equal"
    assert all(not _locked(task) for task in zones.tasks)
    zones.write(old, PART, 1)
    zones.settle()
    assert any(_locked(task) == {1} for task in zones.tasks if task.source.name == old)
    assert not any(_locked(task) for task in zones.tasks if task.source.name == new)
    zones.move(old)
    assert {zones.owner_by(name) for name in zones.names} == {old}
    zones.close()


@pytest.mark.parametrize(
    "shape", ["pair", pytest.param("mesh", marks=pytest.mark.long), pytest.param("ring", marks=pytest.mark.long)]
)
@pytest.mark.parametrize("after", ["run", "undo", "another zone"])
def test_a_move_that_dies_anywhere_ends_on_one_owner(shape: str, after: str) -> None:
    whole = OwnedZones(SHAPES[shape])
    old, new = whole.names[1], whole.names[0]
    whole.move(new)
    points = whole.points
    whole.close()
    assert points > 20
    ends = set()
    for place in range(points):
        zones = OwnedZones(SHAPES[shape], seed=place)
        for key in range(3):
            zones.write(old, PART, key)
        zones.dies_at = place
        with pytest.raises(ProcessDied):
            zones.move(new)
        zones.dies_at = -1
        between = {zones.owner_by(name) for name in zones.names} - {""}
        assert len(between) <= 1
        # All zones continue meanwhile, and programs of both zones write.
        for key in (0, 4):
            zones.write(old, PART, key)
        zones.write(new, PART, 5)
        zones.settle()
        if after == "run":
            zones.move(new)
        elif after == "undo":
            zones.move(new, undo=True)
        else:
            zones.move(old)
        owners = {zones.owner_by(name) for name in zones.names}
        assert len(owners) == 1, owners
        (owner,) = owners
        ends.add(owner)
        if after != "undo":
            assert owner == (new if after == "run" else old)
        zones.demand_sound(writers={old, new})
        zones.close()
    assert ends == ({old, new} if after == "undo" else {new} if after == "run" else {old})


def test_the_check_finds_a_move_without_a_moment_in_which_no_zone_owns_the_range(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write = OwnerMove._write
    monkeypatch.setattr(
        OwnerMove, "_write", lambda move, zone, record, demand=None: record.zone and write(move, zone, record, demand)
    )
    zones = OwnedZones(SHAPES["pair"])
    with pytest.raises(AssertionError, match="own the range"):
        zones.move(zones.names[0])


def test_a_zone_that_does_not_catch_up_keeps_its_owner() -> None:
    zones = OwnedZones(SHAPES["mesh"])
    old, new = zones.names[1], zones.names[0]

    def never(zone: str) -> None:
        raise PrecheckFailed("zone-not-moved", f"zone {zone} does not catch up")

    with pytest.raises(PidtsError, match="does not catch up"):
        zones.move(new, drain=never)
    assert {zones.owner_by(name) for name in zones.names} == {old}
    zones.write(old, PART, 0)
    zones.demand_sound(writers={old})
    assert not any(_locked(task) for task in zones.tasks)
    zones.close()


def test_the_later_of_two_simultaneous_moves_counts() -> None:
    zones = OwnedZones(SHAPES["mesh"])
    old, new, third = zones.names[1], zones.names[0], zones.names[2]

    def meanwhile(zone: str) -> None:
        assert zone == old
        zones.move(third)

    with pytest.raises(PrecheckFailed, match="zone-move-superseded"):
        zones.move(new, drain=meanwhile)
    assert {zones.owner_by(name) for name in zones.names} == {third}
    zones.close()


def test_files_that_say_otherwise_than_the_last_move_are_refused() -> None:
    zones = OwnedZones(SHAPES["pair"])
    old, new = zones.names[1], zones.names[0]
    zones.move(new)
    records = list(zones.zones[new].target.store.range_owners.values())
    others = Owners((*zones.owners.ranges, replace(zones.owners.ranges[0], where="part = 9")))
    with pytest.raises(PidtsError, match="owners-differ"):
        others.moved(records)
    followed = Owners(tuple(replace(one, zone=new) if one.zone == old else one for one in others.ranges))
    assert followed.moved(records) == followed
    zones.close()
