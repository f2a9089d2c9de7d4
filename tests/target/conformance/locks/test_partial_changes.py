"""Between zones, a change with a partial row image is set aside: conflicting changes of other zones cannot be detected."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from tests.target.conformance.locks.test_early_removals import ZoneTask
from tests.target.conformance.locks.test_row_locks import Change, content, locks, put
from tests.target.conformance.samples import INT, create, table, text

from pidts.apply import Target, TargetSession
from pidts.apply.locks.resolve import ResolveWith, resolve
from pidts.model import Halted, Op, Table, TableName
from pidts.target import IcebergTarget, PostgresTarget

pytestmark = pytest.mark.repeats("values-journaled", "mysql56", "mysql97")
KEY, SETS_U, SETS_ID = b"\1", b"\1\4", b"\1\1"
"""MINIMAL images: bit 0 is id, 1 is s, 2 is u."""


@pytest.fixture
def structure(target: Target, name: TableName) -> Table:
    if isinstance(target, IcebergTarget | PostgresTarget):
        pytest.skip("no program writes there, so it is no target between zones")
    made = table(name, {"id": INT, "s": text(), "u": INT})
    with closing(target.connect()) as session:
        create(session, made)
    return made


@pytest.fixture
def running(target: Target, task: str, structure: Table) -> Iterator[ZoneTask]:
    del structure
    made = ZoneTask(target, task, "a")
    yield made
    made.leave()


def test_updates_and_deletes_in_part_are_set_aside_and_follow_when_they_are_resolved(
    session: TargetSession, structure: Table, running: ZoneTask
) -> None:
    put(session, structure, (1, "a", 1), (2, "b", 2), (3, "c", 3))
    running.apply(
        structure,
        (Op.UPDATE, (1, None, None), (1, None, 7)),
        (Op.DELETE, (2, None, None), None),
        (Op.UPDATE, (3, "c", 3), (3, "c", 4)),
        partial=[SETS_U, KEY],
    )
    assert content(session, structure) == [(1, "a", 1), (2, "b", 2), (3, "c", 4)]
    found = locks(session, running.task, structure)
    assert [one.shown for one in found] == ["id=1", "id=2"]
    assert all("binlog_row_image=FULL" in one.why for one in found)
    running.apply(structure, (Op.UPDATE, (1, "a", 7), (1, "z", 7)))
    resolve(session, running.task, "s", structure.name, {one.id for one in found}, ResolveWith.SOURCE)
    assert content(session, structure) == [(1, "z", 7), (3, "c", 4)]
    running.apply(structure, (Op.UPDATE, (1, "z", 7), (1, "y", 7)))
    assert content(session, structure) == [(1, "y", 7), (3, "c", 4)]
    assert locks(session, running.task, structure) == []


def test_a_row_that_gets_another_key_in_part_is_held_at_both(
    session: TargetSession, structure: Table, running: ZoneTask
) -> None:
    put(session, structure, (1, "a", 1), (2, "b", 2))
    change: Change = (Op.UPDATE, (1, None, None), (5, None, None))
    running.apply(structure, change, (Op.UPDATE, (2, "b", 2), (2, "c", 2)), partial=[SETS_ID])
    assert content(session, structure) == [(1, "a", 1), (2, "c", 2)]
    old, new = sorted(locks(session, running.task, structure), key=lambda one: one.shown)
    assert (old.shown, new.shown) == ("id=1", "id=5")
    resolve(session, running.task, "s", structure.name, {old.id}, ResolveWith.SOURCE)
    with pytest.raises(Halted, match="not known: s, u") as halted:
        resolve(session, running.task, "s", structure.name, {new.id}, ResolveWith.SOURCE)
    assert halted.value.code == "partial-row-image"
    resolve(session, running.task, "s", structure.name, {new.id}, ResolveWith.SOURCE, {"s": "a", "u": "1"})
    assert content(session, structure) == [(2, "c", 2), (5, "a", 1)]


def test_an_inserted_row_has_the_defaults_that_the_log_leaves_out(
    session: TargetSession, structure: Table, running: ZoneTask
) -> None:
    put(session, structure, (2, None, 2), (3, "c", 3))
    running.apply(
        structure,
        (Op.INSERT, None, (1, None, 1)),
        (Op.INSERT, None, (2, None, 2)),
        (Op.INSERT, None, (3, None, 3)),
        partial=[b"\5"] * 3,
    )
    assert content(session, structure) == [(1, None, 1), (2, None, 2), (3, "c", 3)]
    assert [one.shown for one in locks(session, running.task, structure)] == ["id=3"]
