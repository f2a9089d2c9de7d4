"""Between zones, a change after one that was made already is set aside: its program may not have seen that change."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.crashes import ProcessDied
from tests.target.conformance.breaking import Breaking
from tests.target.conformance.locks.test_early_removals import FOLDED, At, ZoneTask
from tests.target.conformance.locks.test_row_locks import Change, content, locks, put
from tests.target.conformance.samples import EXTREMES, INT, create, every_type, lsn, table
from tests.values_target import ValuesTarget

from pidts.apply import Target, TargetSession
from pidts.apply.locks.early_removals import LATER_SECONDS
from pidts.apply.locks.resolve import ResolveWith, resolve
from pidts.model import ColumnType, Kind, Op, Table, TableName

pytestmark = pytest.mark.repeats("values-journaled", "mysql56", "mysql97")
ONE, TWO, THREE = (5, "one", 1, None), (5, "two", 1, None), (5, "three", None, "t")
SPELLED = {Kind.JSON, Kind.FLOAT, Kind.DOUBLE, Kind.YEAR}
SET: Change = (Op.UPDATE, ONE, TWO)
BACK: Change = (Op.UPDATE, TWO, ONE)
WHY = (
    "the row's previous change, which task {} has applied, was made in two zones: the program that made "
    "this change may not have known the other zone's change"
)


@pytest.fixture
def alone(target: Target, task: str, structure: Table) -> Iterator[ZoneTask]:
    """Returns the only task into a zone."""
    del structure
    made = ZoneTask(target, task, "a")
    yield made
    made.leave()


@pytest.fixture
def other(target: Target, task: str, structure: Table) -> Iterator[ZoneTask]:
    """Returns a task from a third zone."""
    del structure
    made = ZoneTask(target, f"{task} other", "c")
    yield made
    made.leave()


def test_a_change_after_one_that_was_made_already_is_set_aside(
    session: TargetSession, structure: Table, alone: ZoneTask
) -> None:
    put(session, structure, TWO, (6, "six", 6, "t"))
    alone.apply(structure, SET)
    assert locks(session, alone.task, structure) == [], "both zones have the same row"
    alone.apply(structure, BACK, (Op.UPDATE, (6, "six", 6, "t"), (6, "sechs", 6, "t")))
    assert content(session, structure) == [TWO, (6, "sechs", 6, "t")]
    assert [(one.shown, one.why) for one in locks(session, alone.task, structure)] == [("id=5", WHY.format(alone.task))]


def test_a_following_change_is_set_aside_in_the_same_batch(
    session: TargetSession, structure: Table, alone: ZoneTask
) -> None:
    put(session, structure, TWO)
    alone.apply(structure, SET, BACK)
    assert content(session, structure) == [TWO]
    assert len(locks(session, alone.task, structure)) == 1


def test_a_row_that_finds_an_equal_one_counts_too(session: TargetSession, structure: Table, alone: ZoneTask) -> None:
    put(session, structure, ONE)
    alone.apply(structure, (Op.INSERT, None, ONE))
    assert locks(session, alone.task, structure) == []
    alone.apply(structure, (Op.DELETE, ONE, None))
    assert content(session, structure) == [ONE]
    assert len(locks(session, alone.task, structure)) == 1


@pytest.mark.parametrize("batches", [1, 2])
def test_a_deleted_row_that_is_made_again_is_set_aside_and_another_one_is_not(
    session: TargetSession, structure: Table, alone: ZoneTask, batches: int
) -> None:
    changes: list[Change] = [(Op.DELETE, ONE, None), (Op.DELETE, (6, *ONE[1:]), None)]
    again: list[Change] = [(Op.INSERT, None, ONE), (Op.INSERT, None, (6, *THREE[1:]))]
    if batches == 1:
        alone.apply(structure, *changes, *again)
    else:
        alone.apply(structure, *changes)
        alone.apply(structure, *again)
    assert content(session, structure) == [(6, *THREE[1:])]
    assert [one.shown for one in locks(session, alone.task, structure)] == ["id=5"]


def test_a_row_of_every_type_is_known_again(session: TargetSession, name: TableName, alone: ZoneTask) -> None:
    typed = every_type(TableName(name.schema, f"{name.name}_t"))
    typed = replace(typed, columns=tuple(one for one in typed.columns if one.type.kind not in SPELLED))
    create(session, typed)
    low, high = ([EXTREMES[one.name][side] for one in typed.columns[1:]] for side in (0, 1))
    stored = [(1, *low), (2, *high), (3, *[None] * len(low))]
    others = [(11, *high), (12, *[None] * len(low)), (13, *low)]
    alone.apply(typed, *((Op.DELETE, row, None) for row in stored), *((Op.DELETE, row, None) for row in others))
    swapped = [(key, *row[1:]) for (key, *_), row in zip(others, (others[2], others[0], others[1]), strict=True)]
    alone.apply(typed, *((Op.INSERT, None, row) for row in [*stored, *swapped]))
    assert {one.shown for one in locks(session, alone.task, typed)} == {"id=1", "id=2", "id=3"}


def test_any_row_counts_where_other_words_are_an_equal_row(
    session: TargetSession, name: TableName, alone: ZoneTask
) -> None:
    inexact = table(TableName(name.schema, f"{name.name}_d"), {"id": INT, "d": ColumnType(Kind.DOUBLE)})
    create(session, inexact)
    alone.apply(inexact, (Op.DELETE, (1, 0.0), None), (Op.DELETE, (2, 0.0), None))
    alone.apply(inexact, (Op.INSERT, None, (1, -0.0)))
    assert content(session, inexact) == []
    assert [one.shown for one in locks(session, alone.task, inexact)] == ["id=1"]


def test_old_records_are_not_looked_at(session: TargetSession, structure: Table, alone: ZoneTask) -> None:
    record, now = session.meta.early_removals, int(time.time())
    assert not record.any_since(structure.name, 0)
    session.begin()
    record.add(alone.task, "s", structure.name, {"one": now})
    session.commit()
    assert record.any_since(structure.name, now - 10)
    assert not record.any_since(structure.name, now + 100)
    session.begin()
    record.add(alone.task, "s", structure.name, {"two": 0})
    session.commit()
    assert record.any_since(structure.name, now + 100)


def test_among_many_records_all_are_looked_at(
    target: Target, session: TargetSession, structure: Table, alone: ZoneTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    if isinstance(target, ValuesTarget):
        pytest.skip("it looks at all of them")
    monkeypatch.setattr("pidts.target.early_removals._MOST_LOOKED_THROUGH", 2)
    record, now = session.meta.early_removals, int(time.time())
    for key, is_noted in (("one", False), ("two", True)):
        session.begin()
        record.add(alone.task, "s", structure.name, {key: now})
        session.commit()
        assert record.any_since(structure.name, now + 100) is is_noted


def test_rows_of_a_repair_were_not_made_already(session: TargetSession, structure: Table, alone: ZoneTask) -> None:
    put(session, structure, TWO)
    session.begin()
    session.meta.safe_range.save(alone.task, "s", lsn(alone.at + 2))
    session.commit()
    alone.apply(structure, SET, (Op.UPDATE, TWO, THREE))
    assert content(session, structure) == [THREE]
    alone.apply(structure, (Op.UPDATE, THREE, ONE))
    assert content(session, structure) == [ONE]
    assert locks(session, alone.task, structure) == []


def test_a_change_within_a_batch_finds_what_the_one_before_it_has_left(
    session: TargetSession, structure: Table, alone: ZoneTask
) -> None:
    put(session, structure, ONE)
    alone.apply(structure, SET, (Op.UPDATE, THREE, ONE))
    assert content(session, structure) == [TWO]
    assert len(locks(session, alone.task, structure)) == 1


def test_a_change_much_later_continues(session: TargetSession, structure: Table, alone: ZoneTask) -> None:
    now = int(time.time()) + 1000
    for seconds, row in ((now + LATER_SECONDS, TWO), (now + LATER_SECONDS + 1, ONE)):
        put(session, structure, TWO, deletes=[(5,)])
        alone.rules = replace(alone.rules, find_transactions=At(now))
        alone.apply(structure, SET)
        alone.rules = replace(alone.rules, find_transactions=At(seconds))
        alone.apply(structure, BACK)
        assert content(session, structure) == [row]
        ids = {one.id for one in locks(session, alone.task, structure)}
        resolve(session, alone.task, "s", structure.name, ids, ResolveWith.KEEP)


def test_a_resolved_row_continues(session: TargetSession, structure: Table, alone: ZoneTask) -> None:
    put(session, structure, TWO)
    alone.apply(structure, SET, BACK)
    (lock,) = locks(session, alone.task, structure)
    resolve(session, alone.task, "s", structure.name, {lock.id}, ResolveWith.SOURCE)
    assert content(session, structure) == [ONE]
    alone.apply(structure, (Op.UPDATE, ONE, THREE))
    assert content(session, structure) == [THREE]
    assert locks(session, alone.task, structure) == []


def test_another_tasks_change_is_set_aside_too(
    session: TargetSession, structure: Table, alone: ZoneTask, other: ZoneTask
) -> None:
    put(session, structure, TWO)
    alone.apply(structure, SET)
    other.apply(structure, BACK)
    assert content(session, structure) == [TWO]
    assert [one.why for one in locks(session, other.task, structure)] == [WHY.format(alone.task)]


def test_a_task_without_a_zone_keeps_no_record(session: TargetSession, structure: Table, alone: ZoneTask) -> None:
    alone.rules = replace(alone.rules, zone="")
    put(session, structure, TWO)
    alone.apply(structure, SET)
    alone.apply(structure, BACK)
    assert content(session, structure) == [ONE]


def test_a_change_made_already_counts_for_equal_keys(
    target: Target, session: TargetSession, name: TableName, alone: ZoneTask
) -> None:
    if isinstance(target, ValuesTarget):
        pytest.skip("it has no collations")
    folded = table(TableName(name.schema, f"{name.name}_f"), {"id": FOLDED, "u": INT})
    create(session, folded)
    put(session, folded, ("ADA", 2))
    alone.apply(folded, (Op.UPDATE, ("ADA", 1), ("ADA", 2)))
    alone.apply(folded, (Op.UPDATE, ("ADA", 2), ("Ada", 1)))
    assert content(session, folded) == [("ADA", 2)]
    assert len(locks(session, alone.task, folded)) == 1


def test_a_process_that_dies_anywhere_leaves_the_record_or_the_change(
    target: Target, session: TargetSession, task: str, structure: Table, other: ZoneTask
) -> None:
    put(session, structure, TWO)
    whole = ZoneTask(target, f"{task} dying", "a")
    counting = whole.target = Breaking(target)
    whole.apply(structure, SET)
    assert any("lock_shared" in point for point in counting.points)
    for broken in range(len(counting.points)):
        key = 100 + broken
        one, two = (key, *ONE[1:]), (key, *TWO[1:])
        put(session, structure, two)
        running = ZoneTask(target, whole.task, "a")
        before, running.target = running.at, Breaking(target, broken)
        try:
            running.apply(structure, (Op.UPDATE, one, two))
        except ProcessDied:
            running = ZoneTask(target, whole.task, "a")
            if running.at == before:
                running.apply(structure, (Op.UPDATE, one, two))
        other.apply(structure, (Op.UPDATE, two, one))
        assert (key, *TWO[1:]) in content(session, structure)
    whole.target = target
    whole.leave()
    assert len(locks(session, other.task, structure)) == len(counting.points)
