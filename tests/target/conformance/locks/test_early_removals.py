"""Between zones, a row that arrives after its own deletion, which another task has carried, is set aside."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace

import pytest
from tests.crashes import ProcessDied
from tests.target.conformance.breaking import Breaking
from tests.target.conformance.locks.test_rivals import Task
from tests.target.conformance.locks.test_row_locks import Change, content, locks, put
from tests.target.conformance.samples import INT, create, table
from tests.values_target import ValuesTarget

from pidts.apply import Target, TargetSession
from pidts.apply.locks.early_removals import LATER_SECONDS
from pidts.apply.locks.resolve import ResolveWith, resolve
from pidts.model import ColumnType, Kind, Lsn, Op, SourceTablesKey, SourceTransaction, Table, TableName
from pidts.model.zone import ZONE_NOTE

pytestmark = pytest.mark.repeats("values-journaled", "mysql56", "mysql97")
FOLDED = ColumnType(Kind.VARCHAR, length=20, charset="utf8mb4", collation="utf8mb4_general_ci")
ROW, OTHER = (5, "five", 1, "t"), (5, "again", 2, "t")
WHY = "task {} deleted a row with this key before this row arrived: perhaps it deleted this row"


class ZoneTask(Task):
    """A task between zones, as its records show it to other tasks."""

    def __init__(self, target: Target, task: str, zone: str = "b") -> None:
        super().__init__(target, task, zone)
        with closing(target.connect()) as session:
            session.begin()
            session.meta.notes.write(task, SourceTablesKey("s"), ZONE_NOTE, zone)
            session.commit()

    def leave(self) -> None:
        """Removes the task's records: later tests would wait for the task, or compare their rules with the task's rules."""
        with closing(self.target.connect()) as session:
            session.begin()
            session.meta.notes.write(self.task, SourceTablesKey("s"), ZONE_NOTE, "")
            session.commit()


class At:
    """Returns the same time for all changes."""

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds

    def __call__(self, lsns: Sequence[Lsn]) -> list[SourceTransaction]:
        return [SourceTransaction(time=self.seconds)] * len(lsns)


@pytest.fixture
def tasks(target: Target, task: str, structure: Table) -> Iterator[tuple[ZoneTask, ZoneTask]]:
    """Yields two tasks: one carries a zone's rows, the other carries the changes that another zone makes to them."""
    del structure
    pair = ZoneTask(target, f"{task} ac", "a"), ZoneTask(target, f"{task} bc")
    yield pair
    for one in pair:
        one.leave()


def test_a_row_after_its_deletion_is_set_aside(
    session: TargetSession, structure: Table, tasks: tuple[ZoneTask, ZoneTask]
) -> None:
    rows, changes = tasks
    changes.apply(structure, (Op.DELETE, ROW, None), (Op.INSERT, None, (6, "six", 6, "t")))
    assert content(session, structure) == [(6, "six", 6, "t")]
    rows.apply(structure, (Op.INSERT, None, ROW), (Op.INSERT, None, (7, "seven", 7, "t")))
    assert [(one.shown, one.why) for one in locks(session, rows.task, structure)] == [
        ("id=5", WHY.format(changes.task))
    ]
    changes.apply(structure, (Op.INSERT, None, OTHER))
    assert content(session, structure) == [OTHER, (6, "six", 6, "t"), (7, "seven", 7, "t")], "its own goes on"
    assert locks(session, changes.task, structure) == []


def test_a_key_that_is_used_again_much_later_is_free(
    session: TargetSession, structure: Table, tasks: tuple[ZoneTask, ZoneTask]
) -> None:
    rows, changes = tasks
    now = int(time.time())
    changes.rules = replace(changes.rules, find_transactions=At(now + 1000))
    changes.apply(structure, (Op.DELETE, ROW, None))
    for seconds, locked in ((now + 1000 + LATER_SECONDS + 1, 0), (now + 1000 + LATER_SECONDS, 1)):
        put(session, structure, deletes=[(5,)])
        rows.rules = replace(rows.rules, find_transactions=At(seconds))
        rows.apply(structure, (Op.INSERT, None, ROW))
        assert len(locks(session, rows.task, structure)) == locked


def test_a_deletion_by_a_clock_that_is_years_ahead_still_counts(
    session: TargetSession, structure: Table, tasks: tuple[ZoneTask, ZoneTask]
) -> None:
    rows, changes = tasks
    years_later = int(time.time()) + 3 * 366 * 86_400
    changes.rules = replace(changes.rules, find_transactions=At(years_later))
    changes.apply(structure, (Op.DELETE, ROW, None))
    rows.rules = replace(rows.rules, find_transactions=At(years_later + 1))
    rows.apply(structure, (Op.INSERT, None, ROW))
    assert len(locks(session, rows.task, structure)) == 1


def test_a_deletion_counts_for_keys_that_the_target_holds_equal(
    target: Target, session: TargetSession, name: TableName, tasks: tuple[ZoneTask, ZoneTask]
) -> None:
    if isinstance(target, ValuesTarget):
        pytest.skip("it has no collations")
    rows, changes = tasks
    folded = table(TableName(name.schema, f"{name.name}_f"), {"id": FOLDED, "u": INT})
    create(session, folded)
    changes.apply(folded, (Op.DELETE, ("ADA", 1), None))
    rows.apply(folded, (Op.INSERT, None, ("Ada", 1)), (Op.INSERT, None, ("Bob", 2)))
    assert content(session, folded) == [("Bob", 2)]
    assert len(locks(session, rows.task, folded)) == 1


def test_where_no_other_task_writes_only_an_equal_row_is_set_aside(
    target: Target, session: TargetSession, structure: Table, task: str
) -> None:
    alone = ZoneTask(target, task)
    alone.apply(structure, (Op.DELETE, ROW, None), (Op.DELETE, (6, *ROW[1:]), None))
    alone.apply(structure, (Op.INSERT, None, OTHER), (Op.INSERT, None, (6, *ROW[1:])))
    assert content(session, structure) == [OTHER]
    alone.leave()


def test_a_row_that_a_resolved_lock_removes_does_not_come_back_unseen(
    session: TargetSession, structure: Table, tasks: tuple[ZoneTask, ZoneTask]
) -> None:
    rows, changes = tasks
    put(session, structure, OTHER)
    changes.apply(structure, (Op.DELETE, ROW, None))
    (lock,) = locks(session, changes.task, structure)
    resolve(session, changes.task, "s", structure.name, {lock.id}, ResolveWith.SOURCE)
    rows.apply(structure, (Op.INSERT, None, ROW))
    assert content(session, structure) == []
    assert len(locks(session, rows.task, structure)) == 1


def test_a_row_that_is_pending_at_the_same_moment_is_removed(
    target: Target, session: TargetSession, structure: Table, tasks: tuple[ZoneTask, ZoneTask]
) -> None:
    if isinstance(target, ValuesTarget):
        pytest.skip("its sessions do not wait for each other")
    rows, changes = tasks
    reached, goes_on, waits = threading.Event(), threading.Event(), threading.Event()

    def before_commit(point: str) -> None:
        if point == "commit:before":
            reached.set()
            assert goes_on.wait(20)

    def waiting(point: str) -> None:
        if point == "meta.checkpoints.lock_shared:before":
            waits.set()

    slow, fast = Breaking(target), Breaking(target)
    slow.watch, fast.watch = before_commit, waiting
    rows.target, changes.target = slow, fast
    one = threading.Thread(target=rows.apply, args=(structure, (Op.INSERT, None, ROW)))
    two = threading.Thread(target=changes.apply, args=(structure, (Op.DELETE, ROW, None)))
    one.start()
    assert reached.wait(20)
    two.start()
    waits.wait(3)  # Small writes are sent together with COMMIT: until then, the row may not even be locked.
    time.sleep(0.3)
    goes_on.set()
    one.join(30)
    two.join(30)
    assert not one.is_alive()
    assert not two.is_alive()
    assert content(session, structure) == []
    assert locks(session, rows.task, structure) == locks(session, changes.task, structure) == []


def test_a_process_that_dies_anywhere_loses_no_deletion(
    target: Target, session: TargetSession, task: str, structure: Table, tasks: tuple[ZoneTask, ZoneTask]
) -> None:
    rows, changes = tasks
    change: Change = (Op.DELETE, ROW, None)
    whole = Breaking(target)
    changes.target = whole
    changes.apply(structure, change)
    assert any("lock_shared" in point for point in whole.points)
    for broken in range(len(whole.points)):
        key = 100 + broken
        row = (key, *ROW[1:])
        running = ZoneTask(target, f"{task} {broken}")
        running.target = Breaking(target, broken)
        try:
            running.apply(structure, (Op.DELETE, row, None))
        except ProcessDied:
            again = ZoneTask(target, running.task)
            if again.at == 100:
                again.apply(structure, (Op.DELETE, row, None))
        rows.apply(structure, (Op.INSERT, None, row))
        assert content(session, structure) == []
        with closing(target.connect()) as other:
            other.begin()
            other.meta.notes.write(running.task, SourceTablesKey("s"), ZONE_NOTE, "")
            other.commit()
    assert len(locks(session, rows.task, structure)) == len(whole.points)
