"""One command gives all zones the row of one zone; it dies at any point."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, suppress
from typing import Any

import pyarrow as pa
import pytest
from tests.crashes import ProcessDied
from tests.examples import run_histories
from tests.pipeline.zones.zones_in_memory import NAME, Direction, Row, Zone, locked, settle, tasks_between
from tests.values_target.meta import ValuesRowLocks

from pidts.apply import TargetSession
from pidts.apply.locks.held_changes import lock_ids
from pidts.apply.locks.resolve import ResolveWith, UnfinishedResolves, Values, resolve
from pidts.apply.uncopied_keys import unpacked
from pidts.model import PidtsError, PrecheckFailed, RowLock, TableName
from pidts.plan import Limits
from pidts.task.zones.resolve_in_all import ResolveInAll, TaskIntoZone, begun_here, feeds_all

pytestmark = pytest.mark.slow

FIRST = {"id": 1, "value": 1}
numbers = itertools.count(100)


class ConnectedZones:
    """Zones, each of which gets the changes of all others."""

    def __init__(self, names: str) -> None:
        self.zones = {name: Zone(name) for name in names}
        self.tasks = tasks_between(self.zones, list(itertools.permutations(names, 2)), Limits())
        self.left: int | None = None
        """The number of points of the command after which it dies."""
        self.points = 0

    def settle(self) -> None:
        settle(self.tasks)

    def write(self, zone: str, row: Row | None) -> None:
        there = self.zones[zone].rows().get(1)
        self.zones[zone].write([], [row] if row else [], [there] if there and not row else [])

    def rows(self) -> list[Row | None]:
        return [zone.rows().get(1) for zone in self.zones.values()]

    def locked(self) -> set[str]:
        return {task.name for task in self.tasks if locked(task)}

    def command(self, named: str, winner: str) -> ResolveInAll:
        tasks = {task.name: self._task(task) for task in self.tasks}
        for task in self.tasks:
            session = task.target.target.connect()
            found = session.meta.row_locks.read(task.name, "s", NAME)
            ids = {one.id for one in found}
            assert all(lock_ids(unpacked(one.key)) == [one.id] for one in found)
            session.close()
            if task.name == named:
                return ResolveInAll(list(tasks.values()), tasks[named], NAME, ids, winner)
        raise AssertionError(named)

    def run(self, command: ResolveInAll, dies: int | None = None) -> bool:
        """Runs the command; returns whether it has ended normally."""
        self.left, self.points = dies, 0
        for zone in self.zones.values():
            zone.dies = self._at  # type: ignore[assignment]
        try:
            command.run()
        except ProcessDied:
            return False
        finally:
            for zone in self.zones.values():
                zone.dies = lambda _: None  # type: ignore[assignment]
        return True

    def close(self) -> None:
        for zone in self.zones.values():
            zone.target.forget()

    def _at(self, point: str) -> None:
        self.points += 1
        if self.left is not None and self.points > self.left:
            raise ProcessDied(point)

    def _task(self, task: Direction) -> TaskIntoZone:
        def connect() -> object:
            task.target.meta, task.target.writer, task.target.marks = [], task.source.name, True
            return task.target.target.connect()

        def await_all(_: object) -> None:
            dies = {zone: zone.dies for zone in self.zones.values()}
            for zone in dies:
                zone.dies = lambda _: None  # type: ignore[assignment]
            settle([task])
            for zone, hook in dies.items():
                zone.dies = hook  # type: ignore[method-assign]

        return TaskIntoZone(task.source.name, task.target.name, task.name, "s", connect, await_all)  # type: ignore[arg-type]


def in_conflict(names: str, rows: dict[str, Row | None], chance: random.Random | None = None) -> ConnectedZones:
    """Returns zones of which some have written the row before they got each other's changes."""
    zones, chance = ConnectedZones(names), chance or random.Random(0)
    zones.write(names[0], FIRST)
    zones.settle()
    for zone, row in rows.items():
        zones.write(zone, row)
    settle(zones.tasks, chance)
    return zones


KINDS: list[Row | None] = [{"id": 1, "value": 2}, {"id": 1, "value": 3}, None]


@pytest.mark.parametrize("winner", "ab")
@pytest.mark.parametrize(("mine", "other"), [(one, two) for one in KINDS for two in KINDS if one != two])
def test_one_command_ends_both_locks(mine: Row | None, other: Row | None, winner: str) -> None:
    for named in ("ab", "ba"):
        zones = in_conflict("ab", {"a": mine, "b": other})
        assert zones.locked() == {"ab", "ba"}
        zones.run(zones.command(named, winner))
        zones.settle()
        assert zones.locked() == set()
        assert zones.rows() == [mine if winner == "a" else other] * 2
        for zone in "ba":
            zones.write(zone, {"id": 1, "value": next(numbers)})
            zones.settle()
            assert zones.rows()[0] == zones.rows()[1], "both go on"


def test_each_of_many_locks_is_read_separately(monkeypatch: pytest.MonkeyPatch) -> None:
    zones, keys = ConnectedZones("ab"), range(1, 6)
    zones.zones["a"].write([], [{"id": key, "value": 1} for key in keys], [])
    zones.settle()
    for zone, value in (("a", 2), ("b", 3)):
        zones.zones[zone].write([], [{"id": key, "value": value} for key in keys], [])
    zones.settle()
    command, asked, some = zones.command("ab", "a"), [], ValuesRowLocks.some

    def noted(self: ValuesRowLocks, task: str, source: str, table: TableName, ids: Collection[str]) -> list[RowLock]:
        asked.append(len(ids))
        return some(self, task, source, table, ids)

    monkeypatch.setattr(ValuesRowLocks, "some", noted)
    assert zones.run(command)
    zones.settle()
    assert zones.locked() == set()
    assert [row["value"] for zone in zones.zones.values() for row in zone.rows().values()] == [2] * 10
    assert [number for number in asked if number > 1] == [5, 5], "once for each task"


def test_pending_changes_arrive_first() -> None:
    """Zone a deletes a row. Zone b deletes it and inserts it again, and this change has not reached zone a yet."""
    zones = ConnectedZones("ab")
    zones.write("a", FIRST)
    zones.settle()
    zones.write("a", None)
    zones.write("b", None)
    zones.write("b", {"id": 1, "value": 653})
    settle([task for task in zones.tasks if task.name == "ab"])
    assert zones.locked() == {"ab"}
    zones.run(zones.command("ab", "a"))
    zones.settle()
    assert zones.rows()[0] == zones.rows()[1] or zones.locked()


def test_no_zone_is_left_that_differs_without_a_lock() -> None:
    """Zones a and b have deleted a row, and b has inserted it anew. Zone c waits with this row, and zone a has no lock."""
    zones = ConnectedZones("abc")
    zones.write("a", FIRST)
    zones.settle()
    for zone, name in (("b", "bc"), ("a", "ac")):
        zones.write(zone, None)
        settle([task for task in zones.tasks if task.name == name])
    zones.write("b", {"id": 1, "value": 101})
    zones.write("b", {"id": 1, "value": 102})
    zones.settle()
    rows, locked_by = zones.rows(), zones.locked()
    assert rows[2] is None
    assert "bc" in locked_by
    with pytest.raises(PrecheckFailed, match="zone-has-another-row"):
        zones.run(zones.command("bc", "c"))
    assert (zones.rows(), zones.locked()) == (rows, locked_by)
    zones.run(zones.command("bc", "b"))
    zones.settle()
    assert (zones.rows(), zones.locked()) == ([{"id": 1, "value": 102}] * 3, set())


def test_a_lock_ends_where_the_zone_has_the_row_already() -> None:
    """Only zone b has taken the row of a. The lock in zone a is about a change that b has given up."""
    zones = in_conflict("ab", {"a": KINDS[0], "b": KINDS[1]})
    alone(zones, "ab", list(zones.command("ab", "a").ids), ResolveWith.SOURCE)
    assert zones.rows() == [KINDS[0]] * 2
    assert zones.locked() == {"ba"}
    zones.run(zones.command("ba", "b"))
    assert (zones.rows(), zones.locked()) == ([KINDS[0]] * 2, set())
    for zone in "ba":
        zones.write(zone, {"id": 1, "value": next(numbers)})
        zones.settle()
        assert zones.rows()[0] == zones.rows()[1]


def test_a_row_that_the_winner_writes_meanwhile_is_lost_nowhere() -> None:
    for place in range(len_of(lambda: in_conflict("ab", {"a": KINDS[0], "b": KINDS[1]}), "ab", "a")):
        zones = in_conflict("ab", {"a": KINDS[0], "b": KINDS[1]})
        zones.write("b", KINDS[0])  # An operator has made the rows equal, and both locks still exist.
        zones.settle()
        written: list[str] = []

        def meanwhile(
            point: str, zones: ConnectedZones = zones, written: list[str] = written, place: int = place
        ) -> None:
            zones.points += 1
            if zones.points > place and point == "connect" and not written:
                written.append(point)
                kept = {zone: (zone.meta, zone.writer, zone.marks) for zone in zones.zones.values()}
                zones.write("a", {"id": 1, "value": 9})
                settle([task for task in zones.tasks if task.name == "ab"])
                for zone, (meta, writer, marks) in kept.items():
                    zone.meta, zone.writer, zone.marks = meta, writer, marks

        zones.points = 0
        for zone in zones.zones.values():
            zone.dies = meanwhile  # type: ignore[assignment]
        with suppress(PidtsError):
            zones.command("ab", "a").run()
        for zone in zones.zones.values():
            zone.dies = lambda _: None  # type: ignore[assignment]
        zones.settle()
        assert zones.locked() or zones.rows()[0] == zones.rows()[1], place


def history(chance: random.Random, names: str) -> None:
    """Zones write while tasks run and while they do not.

    Commands resolve locks, or die. Rows that differ at the end are locked.
    """
    zones = ConnectedZones(names)
    zones.write(names[0], FIRST)
    zones.settle()

    def go_on(steps: int, writes: float) -> None:
        for _ in range(steps):
            zone = chance.choice(names)
            row = None if chance.random() < 0.25 else {"id": 1, "value": next(numbers)}
            if chance.random() >= writes:
                chance.choice(zones.tasks).step()
            elif row or 1 in zones.zones[zone].rows():
                zones.write(zone, row)

    go_on(chance.choice([6, 12, 20]), 0.3)
    for _ in range(3):
        if zones.locked():
            named = chance.choice(sorted(zones.locked()))
            with suppress(PidtsError):
                zones.run(zones.command(named, chance.choice(named)), chance.choice([None, chance.randrange(50)]))
        go_on(chance.randrange(6), 0.2)
    zones.settle()
    rows, locked_by = zones.rows(), zones.locked()
    assert locked_by or all(row == rows[0] for row in rows), f"{rows} without a lock"
    zones.close()


@pytest.mark.parametrize("names", ["ab", "abc"])
def test_rows_that_differ_are_reported_whatever_commands_have_done(names: str) -> None:
    run_histories(36, len(names), lambda chance: history(chance, names))


@pytest.mark.parametrize("take", [ResolveWith.SOURCE, ResolveWith.KEEP])
def test_the_check_finds_a_command_that_does_the_same_in_all_zones(
    monkeypatch: pytest.MonkeyPatch, take: ResolveWith
) -> None:
    def takes(command: ResolveInAll, session: TargetSession, zone: str, lock: RowLock, _winning: object) -> Any:
        tasks = [(task, command._locks(session, task, [lock.id])) for task in command._into(zone)]
        return [(task, one, take) for task, locks in tasks for one in locks]

    def histories() -> None:
        for seed in range(200):
            history(random.Random(seed), "ab")

    monkeypatch.setattr(ResolveInAll, "_takes", takes)
    with pytest.raises(AssertionError, match="without a lock"):
        histories()


def one_row_for_all(chance: random.Random) -> None:
    """Two or three zones write a row at the same time, and a command gives all zones the row of one of them."""
    writing = chance.sample("abc", chance.choice([2, 3]))
    zones = in_conflict("abc", {zone: {"id": 1, "value": next(numbers)} for zone in writing}, chance)
    before = dict(zip("abc", zones.rows(), strict=True))
    named = chance.choice(sorted(zones.locked()))
    winner = chance.choice(named)
    zones.run(zones.command(named, winner))
    zones.settle()
    assert zones.rows() == [before[winner]] * 3
    assert zones.locked() == set()
    zones.close()


def test_all_zones_of_a_mesh_get_the_row_of_one() -> None:
    run_histories(12, 0, one_row_for_all)


@pytest.mark.parametrize("again", ["the same", "the other zone", "the other lock"])
def test_a_command_that_dies_anywhere_swaps_nothing(again: str) -> None:
    points = len_of(lambda: in_conflict("ab", {"a": KINDS[0], "b": KINDS[1]}), "ab", "a")
    assert points > 10
    seen = set()
    for dies in range(points):
        zones = in_conflict("ab", {"a": KINDS[0], "b": KINDS[1]})
        assert not zones.run(zones.command("ab", "a"), dies)
        zones.settle()
        named, winner = {"the same": ("ab", "a"), "the other zone": ("ab", "b"), "the other lock": ("ba", "b")}[again]
        try:
            zones.run(zones.command(named, winner))
        except PrecheckFailed as refused:
            seen.add((refused.code, refused.what))
            zones.run(zones.command("ab", "a"))
        zones.settle()
        if zones.locked():  # The first command had done everything but its last step.
            assert zones.run(zones.command("ab", "a"))
        zones.settle()
        assert zones.locked() == set()
        assert zones.rows()[0] == zones.rows()[1], f"died at {dies}"
    assert again == "the same" or "give all zones the row of zone a" in str(seen)


def test_two_winners_at_once_leave_both_locks_or_one_winner() -> None:
    points = len_of(lambda: in_conflict("ab", {"a": KINDS[0], "b": KINDS[1]}), "ab", "a")
    for place in range(points):
        zones = in_conflict("ab", {"a": KINDS[0], "b": KINDS[1]})
        first, second = zones.command("ab", "a"), zones.command("ba", "b")
        zones.left, zones.points, ran = None, 0, []

        def meanwhile(
            _: str, zones: ConnectedZones = zones, second: ResolveInAll = second, ran: list[str] = ran
        ) -> None:
            zones.points += 1
            if zones.points - 1 != place or ran:  # noqa: B023
                return
            ran.append("begun")
            kept = {zone: (zone.meta, zone.writer) for zone in zones.zones.values()}
            try:
                second.run()
            except PidtsError as error:
                ran.append(error.code)
            for zone, (meta, writer) in kept.items():
                zone.meta, zone.writer = meta, writer

        for zone in zones.zones.values():
            zone.dies = meanwhile  # type: ignore[assignment]
        try:
            first.run()
        except PidtsError as error:
            ran.append(error.code)
        for zone in zones.zones.values():
            zone.dies = lambda _: None  # type: ignore[assignment]
        zones.settle()
        if zones.locked():
            assert zones.rows() == KINDS[:2], place
            assert zones.locked() == {"ab", "ba"}, place
        else:
            assert zones.rows()[0] == zones.rows()[1], place


def len_of(make: Callable[[], ConnectedZones], named: str, winner: str) -> int:
    """Returns the number of points of a command."""
    zones = make()
    assert zones.run(zones.command(named, winner))
    return zones.points


def test_zones_that_do_not_all_feed_each_other() -> None:
    assert feeds_all({("a", "b"): False, ("b", "a"): False})
    assert not feeds_all({("a", "b"): False, ("b", "c"): False, ("c", "a"): False})
    assert not feeds_all({("a", "b"): True, ("b", "a"): False})


def alone(
    zones: ConnectedZones,
    name: str,
    ids: Sequence[str],
    take: ResolveWith,
    begun: UnfinishedResolves | None = None,
    dies: int | None = None,
) -> bool:
    """Resolves locks of one task only, as a command that ignores other zones does; returns whether the command has
    ended normally.
    """
    task = next(one for one in zones.tasks if one.name == name)
    task.target.meta, task.target.writer, task.target.marks = [], task.source.name, True
    zones.left, zones.points = dies, 0
    task.target.dies = zones._at  # type: ignore[assignment]
    try:
        with closing(task.target.target.connect()) as session:
            resolve(session, name, "s", NAME, ids, take, begun=begun)
    except ProcessDied:
        return False
    finally:
        task.target.dies = lambda _: None  # type: ignore[assignment]
    return True


def killed(names: str = "ab") -> Iterator[tuple[ConnectedZones, list[str]]]:
    """Yields zones in which a command has died after each of its points.

    The command was to give all zones the row of zone a. It has recorded this winner, and the lock of task ab still
    exists.
    """
    for dies in itertools.count():
        rows: dict[str, Row | None] = dict(zip(names[:2], KINDS, strict=False))
        zones = in_conflict(names, rows)
        command = zones.command("ab", "a")
        if zones.run(command, dies):
            return
        if zones.locked() >= {"ab"} and recorded(zones) == ["a"]:
            yield zones, list(command.ids)


def recorded(zones: ConnectedZones) -> list[str]:
    """Returns the recorded winners of locks."""
    found = []
    for task in zones.tasks:
        with closing(task.target.target.connect()) as session:
            found += [one.winner for one in session.meta.row_locks.read(task.name, "s", NAME)]
    return [one for one in found if one]


@pytest.mark.parametrize("take", [ResolveWith.SOURCE, ResolveWith.KEEP, ResolveWith.TARGET])
def test_a_lock_ends_alone_where_the_command_that_was_killed_cannot_be_repeated(take: ResolveWith) -> None:
    """The second command dies, too, each time after another of its points."""
    died = 0
    for case, (zones, ids) in enumerate(killed()):
        with pytest.raises(PrecheckFailed, match="lock-being-resolved") as refused:
            alone(zones, "ab", ids, take)
        assert "--only-here" in refused.value.todo
        rows = zones.rows()
        begun = begun_here((), "a", "b", take)
        if not alone(zones, "ab", ids, take, begun, case % 12):
            assert zones.rows() == rows or "ab" not in zones.locked()
            alone(zones, "ab", ids, take, begun)
            died += 1
        assert "ab" not in zones.locked()
        assert recorded(zones) == []
        assert zones.rows()[1] == (rows[1] if take is ResolveWith.KEEP else rows[0])
    assert died > 5


@pytest.mark.parametrize("names", ["ab", pytest.param("abc", marks=pytest.mark.long)])
def test_a_lock_ends_alone_by_the_choice_of_the_command_that_was_killed(names: str) -> None:
    cases = 0
    for zones, ids in killed(names):
        for take, sets in ((ResolveWith.KEEP, False), (ResolveWith.TARGET, False), (ResolveWith.SOURCE, True)):
            with pytest.raises(PrecheckFailed, match="lock-being-resolved"):
                alone(zones, "ab", ids, take, begun_here(names, "a", "b", take, sets=sets))
        assert alone(zones, "ab", ids, ResolveWith.SOURCE, begun_here(names, "a", "b", ResolveWith.SOURCE))
        assert "ab" not in zones.locked()
        assert recorded(zones) == []
        zones.settle()
        assert zones.locked() or all(row == zones.rows()[0] for row in zones.rows())
        cases += 1
    assert cases


def test_a_command_with_another_choice_does_not_end_a_killed_command() -> None:
    refused = 0
    for dies in itertools.count():
        zones = in_conflict("ab", {"a": KINDS[0], "b": KINDS[1]})
        command = zones.command("ab", "a")
        if zones.run(command, dies):
            break
        if zones.locked() == {"ab"}:
            with pytest.raises(PrecheckFailed, match="lock-being-resolved"):
                alone(zones, "ab", list(command.ids), ResolveWith.KEEP)
            refused += 1
    assert refused


def test_a_lock_that_was_removed_meanwhile_is_left_out() -> None:
    zones = ConnectedZones("ab")
    zones.zones["a"].write([], [{"id": key, "value": 1} for key in (1, 2)], [])
    zones.settle()
    zones.zones["a"].write([], [{"id": key, "value": 2} for key in (1, 2)], [])
    zones.zones["b"].write([], [{"id": 2, "value": 3}], [{"id": 1, "value": 1}])
    zones.settle()
    command = zones.command("ab", "a")
    (first,) = lock_ids(pa.table({"id": pa.array([1], pa.int32())}))
    alone(zones, "ab", [first], ResolveWith.KEEP)
    zones.run(command)
    zones.settle()
    assert [zone.rows().get(2) for zone in zones.zones.values()] == [{"id": 2, "value": 2}] * 2
    assert zones.locked() == {"ba"}, "the other key still differs"


def test_later_writes_of_the_winner_are_not_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    zones = in_conflict("ab", {"a": KINDS[0], "b": KINDS[1]})
    zones.write("b", KINDS[0])  # A program makes the rows equal.
    zones.settle()
    command = zones.command("ab", "a")
    plain, ran = ResolveInAll._row, []

    def row(self: ResolveInAll, zone: str, lock: RowLock) -> Values | None:
        found = plain(self, zone, lock)
        if not ran:
            ran.append(zone)
            zones.write("a", {"id": 1, "value": 9})
            zones.settle()
        return found

    monkeypatch.setattr(ResolveInAll, "_row", row)
    command.run()
    zones.settle()
    assert zones.locked() or zones.rows()[0] == zones.rows()[1]
