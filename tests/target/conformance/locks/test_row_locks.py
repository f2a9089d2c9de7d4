"""Rows that differ are set aside together with the batch's checkpoint, and resolved once, even by two commands."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from tests.crashes import ProcessDied
from tests.target.conformance.breaking import Breaking
from tests.target.conformance.conftest import MYSQL_KINDS
from tests.target.conformance.samples import INT, change, checkpoint, create, lsn, table, text, write

from pidts.apply import ApplyRules, Committer, Retry, Target, TargetSession
from pidts.apply.locks.follow_schema import carry
from pidts.apply.locks.resolve import ResolveWith, outlook, outlooks, resolve
from pidts.batch.applying import apply
from pidts.batch.blobs import Blob
from pidts.batch.workers import Commit
from pidts.model import (
    ChangeBatch,
    Column,
    ColumnType,
    ConfigError,
    Halted,
    HeldChanges,
    Key,
    Kind,
    Lsn,
    OnDivergence,
    Op,
    RowLock,
    Table,
    TableName,
    Transient,
    change_schema,
)
from pidts.schema import AddColumn, AlterTable, DropColumn, ModifyColumn
from pidts.target import IcebergTarget
from pidts.task.operate.row_locks import TaskLocks

pytestmark = pytest.mark.repeats("values-journaled", "mysql56", "mysql97")

Row = tuple[Any, ...]
Change = tuple[Op, Row | None, Row | None]


@pytest.fixture
def structure(target: Target, name: TableName) -> Table:
    made = table(name, {"id": INT, "s": text(), "u": INT}, unique=["u"])
    with closing(target.connect()) as session:
        create(session, made)
    return made


def put(session: TargetSession, structure: Table, *upserts: Row, deletes: Sequence[Row] = ()) -> None:
    write(session, change(structure, upserts=upserts, deletes=deletes))


def logged(structure: Table, start: int, *changes: Change, partial: Sequence[bytes | None] = ()) -> ChangeBatch:
    names = structure.arrow.names
    images = [[None if row is None else dict(zip(names, row, strict=True)) for row in each[1:]] for each in changes]
    values = [
        [Lsn(0, 1, start, place).to_bytes() for place in range(len(changes))],
        [int(op) for op, _, _ in changes],
        [before for before, _ in images],
        [after for _, after in images],
        [*partial, *[None] * (len(changes) - len(partial))],
    ]
    return ChangeBatch.of(
        structure, *(pa.array(v, f.type) for v, f in zip(values, change_schema(structure), strict=True))
    )


class Task:
    """A task that locks rows, batch by batch."""

    def __init__(self, target: Any, task: str, limit: int = 1000, *, expects: bool = True) -> None:
        """Without `expects`, the task reads rows even if the target could compare them."""
        self.target, self.task, self.at, self.expects = target, task, 100, expects
        with closing(target.connect()) as session:
            self.epoch = session.meta.checkpoints.claim(task, "s", 1, checkpoint(100))[0].epoch
            self.at = session.meta.checkpoints.read(task, "s")[0].lsn.offset
        self.rules = ApplyRules(task=task, source="s", on_divergence=OnDivergence.LOCK, lock_limit=limit)

    def apply(self, structure: Table, *changes: Change, partial: Sequence[bytes | None] = ()) -> None:
        with self.committer() as committer:
            self.commit(committer, structure, *changes, partial=partial)

    def committer(self) -> Committer:
        made = Committer(
            self.target, self.task, "s", self.epoch, rules=self.rules, retry=Retry(attempts=8), sleep=lambda _: None
        )
        if not self.expects:
            made.expecting.refused("")
        return made

    def commit(
        self, committer: Committer, structure: Table, *changes: Change, partial: Sequence[bytes | None] = ()
    ) -> None:
        batch = logged(structure, self.at + 1, *changes, partial=partial)
        commit = Commit((checkpoint(self.at),), (checkpoint(self.at + 100),))
        apply(committer, commit, 0, [Blob(0, Blob.first_order(0), batch)])
        self.at += 100


def locks(session: TargetSession, task: str, structure: Table) -> list[RowLock]:
    return session.meta.row_locks.read(task, "s", structure.name)


def content(session: TargetSession, structure: Table) -> list[Row]:
    return sorted(tuple(row.values()) for row in session.read_rows(structure).to_pylist())


def test_the_row_stays_and_all_others_continue(
    target: Target, session: TargetSession, task: str, structure: Table
) -> None:
    put(session, structure, (1, "theirs", 1), (2, "b", 2))
    running = Task(target, task)
    running.apply(structure, (Op.UPDATE, (1, "a", 1), (1, "aa", 1)), (Op.UPDATE, (2, "b", 2), (2, "bb", 2)))
    running.apply(structure, (Op.UPDATE, (1, "aa", 1), (1, "aaa", 1)), (Op.INSERT, None, (3, "c", 3)))
    assert content(session, structure) == [(1, "theirs", 1), (2, "bb", 2), (3, "c", 3)]
    (lock,) = locks(session, task, structure)
    assert (lock.shown, lock.why, lock.table.name) == ("id=1", "the target's row has other values in s", structure.name)
    assert session.meta.row_locks.tables(task, "s") == {structure.name: 1}
    seen = outlook(session, task, "s", lock, ResolveWith.SOURCE)
    for row, said in ((seen.expected, "a"), (seen.actual, "theirs"), (seen.outcome, "aaa")):
        assert row is not None
        assert row["s"].as_py() == said
    assert [each.op for each in seen.changes] == [Op.UPDATE, Op.UPDATE]
    assert len(resolve(session, task, "s", structure.name, {lock.id}, ResolveWith.SOURCE)) == 1
    assert content(session, structure)[0] == (1, "aaa", 1)
    assert session.meta.row_locks.tables(task, "s") == {}
    running.apply(structure, (Op.DELETE, (1, "aaa", 1), None))
    assert content(session, structure) == [(2, "bb", 2), (3, "c", 3)]


def test_if_versions_decide_about_a_table_none_of_its_rows_is_locked(
    target: Target, session: TargetSession, task: str, structure: Table
) -> None:
    """Column u is the version. An older change is left out, and a later one is written over a row that differs."""
    put(session, structure, (1, "theirs", 5), (2, "theirs", 2))
    running = Task(target, task)
    running.rules = replace(running.rules, version_column="u")
    running.apply(structure, (Op.UPDATE, (1, "a", 3), (1, "older", 4)), (Op.UPDATE, (2, "b", 1), (2, "later", 6)))
    assert content(session, structure) == [(1, "theirs", 5), (2, "later", 6)]
    assert not locks(session, task, structure)


def test_rows_of_a_table_without_the_version_column_are_locked(
    target: Target, session: TargetSession, task: str, structure: Table
) -> None:
    put(session, structure, (1, "theirs", 1))
    running = Task(target, task)
    running.rules = replace(running.rules, version_column="absent")
    running.apply(structure, (Op.UPDATE, (1, "a", 1), (1, "aa", 1)), (Op.INSERT, None, (2, "b", 2)))
    assert content(session, structure) == [(1, "theirs", 1), (2, "b", 2)]
    assert [lock.shown for lock in locks(session, task, structure)] == ["id=1"]


def test_the_targets_row_keeps_what_the_held_changes_leave_alone(
    target: Target, session: TargetSession, task: str, structure: Table
) -> None:
    put(session, structure, (1, "theirs", 1), (2, "theirs", 2))
    running = Task(target, task)
    running.apply(structure, (Op.UPDATE, (1, "a", 1), (1, "a", 7)), (Op.DELETE, (2, "b", 2), None))
    ids = {one.id for one in locks(session, task, structure)}
    resolve(session, task, "s", structure.name, ids, ResolveWith.TARGET)
    assert content(session, structure) == [(1, "theirs", 7)]


@pytest.mark.parametrize("take", [ResolveWith.SOURCE, ResolveWith.TARGET])
def test_held_changes_follow_with_the_columns_that_a_schema_change_has_left(
    target: Target, session: TargetSession, task: str, structure: Table, take: ResolveWith
) -> None:
    """Column s is dropped, u becomes wider, and w is added, with 5 in all existing rows."""
    put(session, structure, (1, "theirs", 1), (2, "theirs", 2), (3, "theirs", 3), (4, "theirs", 4))
    running = Task(target, task)
    running.apply(structure, *((Op.UPDATE, (key, "a", key), (key, "a", key + 10)) for key in (1, 2, 3)))
    wider = Column("u", ColumnType(Kind.BIGINT)), Column("w", INT, default="5")
    later = replace(structure, columns=(structure.columns[0], *wider))
    carry(session, task, "s", structure.name, later, running.epoch)
    seen = {lock.shown: lock for lock in locks(session, task, structure)}
    # The target's table is not altered yet, so it has no column w.
    assert outlook(session, task, "s", seen["id=1"], take).table.arrow.names == ["id", "u"]
    alter(
        session,
        AlterTable(structure.name, (DropColumn("s"), ModifyColumn(wider[0]), AddColumn(wider[1]))),
        structure,
        later,
    )
    theirs = replace(later, keys=structure.keys)
    put(session, theirs, (2, 2, 8), (3, 3, 8))
    running.apply(later, (Op.UPDATE, (2, 12, 5), (2, 2**40, 6)), (Op.UPDATE, (4, 40, 5), (4, 41, 5)))
    ids = {one.id for one in locks(session, task, structure)}
    assert len(ids) == 4
    assert len(resolve(session, task, "s", structure.name, ids, take)) == 4
    target_takes = take is ResolveWith.TARGET
    assert content(session, later) == [
        (1, 11, 5),
        (2, 2**40, 6),
        (3, 13, 8 if target_takes else 5),
        (4, 41, 5),
    ]
    assert session.meta.row_locks.tables(task, "s") == {}


def test_a_column_that_has_come_counts_while_another_one_is_pending(
    target: Target, session: TargetSession, task: str, structure: Table
) -> None:
    """The row was locked before column b was added; b was changed; and column c is recorded, but not yet on the target."""
    put(session, structure, (1, "theirs", 1))
    running = Task(target, task)
    running.apply(structure, (Op.UPDATE, (1, "a", 1), (1, "a", 2)))
    columns = (Column("b", INT), Column("c", INT))
    second, third = (replace(structure, columns=(*structure.columns, *columns[:some])) for some in (1, 2))
    carry(session, task, "s", structure.name, second, running.epoch)
    alter(session, AlterTable(structure.name, (AddColumn(columns[0]),)), structure, second)
    running.apply(second, (Op.UPDATE, (1, "a", 2, None), (1, "a", 2, 7)))
    carry(session, task, "s", structure.name, replace(third, keys=(*third.keys, Key("c", ("c",)))), running.epoch)
    (lock,) = locks(session, task, structure)
    resolve(session, task, "s", structure.name, {lock.id}, ResolveWith.SOURCE)
    assert content(session, second) == [(1, "a", 2, 7)]


def alter(session: TargetSession, statement: AlterTable, before: Table, after: Table) -> None:
    if session.schema.transactional_ddl:
        session.begin()
    for sql in session.schema.ddl_statements(statement, {before.name: before}, {before.name: after}).statements:
        session.execute(sql)
    if session.schema.transactional_ddl:
        session.commit()


def test_changes_of_which_the_log_holds_a_part_are_held_and_followed_as_far_as_they_go(
    target: Target, session: TargetSession, task: str, structure: Table
) -> None:
    """With MINIMAL images, an UPDATE is logged with its key and the columns that it sets; bit 0 is id, 1 is s, 2 is u."""
    put(session, structure, (1, "theirs", 1))
    running = Task(target, task)
    key, sets_u = b"\1", b"\1\4"
    running.apply(
        structure,
        (Op.INSERT, None, (1, "a", 1)),
        (Op.UPDATE, (1, None, None), (None, None, 7)),
        (Op.UPDATE, (2, None, None), (None, None, 8)),
        (Op.UPDATE, (3, None, None), (None, None, 9)),
        (Op.INSERT, None, (4, "d", 4)),
        partial=[None, sets_u, sets_u, sets_u],
    )
    assert content(session, structure) == [(1, "theirs", 1), (4, "d", 4)]
    first, second, third = locks(session, task, structure)
    assert [one.why for one in (second, third)] == ["the target does not have the row"] * 2
    running.apply(
        structure,
        (Op.UPDATE, (1, None, None), (None, "b", None)),
        (Op.DELETE, (3, None, None), None),
        partial=[b"\1\2", key],
    )
    assert len(locks(session, task, structure)) == 3
    resolve(session, task, "s", structure.name, {first.id, third.id}, ResolveWith.SOURCE)
    assert content(session, structure) == [(1, "b", 7), (4, "d", 4)]
    seen = outlook(session, task, "s", second, ResolveWith.SOURCE)
    assert seen.expected is not None
    assert seen.outcome is not None
    assert (seen.expected.keys(), seen.outcome.keys()) == ({"id"}, {"id", "u"})
    with pytest.raises(Halted, match="not known: s") as halted:
        resolve(session, task, "s", structure.name, {second.id}, ResolveWith.SOURCE)
    assert halted.value.code == "partial-row-image"
    assert [one.id for one in locks(session, task, structure)] == [second.id]
    resolve(session, task, "s", structure.name, {second.id}, ResolveWith.SOURCE, {"s": "set"})
    assert content(session, structure) == [(1, "b", 7), (2, "set", 8), (4, "d", 4)]


def test_the_targets_row_gets_what_a_change_in_part_sets(
    target: Target, session: TargetSession, task: str, structure: Table
) -> None:
    put(session, structure, (1, "theirs", 1))
    running = Task(target, task)
    running.apply(
        structure,
        (Op.INSERT, None, (1, "a", 5)),
        (Op.UPDATE, (1, None, None), (None, None, 7)),
        (Op.UPDATE, (2, None, None), (None, "x", None)),
        partial=[None, b"\1\4", b"\1\2"],
    )
    resolve(session, task, "s", structure.name, {one.id for one in locks(session, task, structure)}, ResolveWith.TARGET)
    assert content(session, structure) == [(1, "theirs", 7)]


def test_a_row_that_comes_in_part_from_a_locked_key_halts_its_table(
    target: Target, session: TargetSession, task: str, structure: Table
) -> None:
    put(session, structure, (1, "theirs", 1))
    running = Task(target, task)
    running.apply(structure, (Op.UPDATE, (1, "a", 1), (1, "b", 1)))
    move: Change = (Op.UPDATE, (1, None, None), (2, None, None))
    with pytest.raises(Halted, match="the row with the old key is locked") as halted:
        running.apply(structure, move, partial=[b"\1\1"])
    assert halted.value.code == "partial-row-image"
    assert content(session, structure) == [(1, "theirs", 1)]


def test_values_that_an_operator_sets(target: Target, session: TargetSession, task: str, structure: Table) -> None:
    put(session, structure, (1, "theirs", 1))
    running = Task(target, task)
    running.apply(structure, (Op.UPDATE, (1, "a", 1), (1, "a", 7)))
    (lock,) = locks(session, task, structure)
    for values, said in (
        ({"id": "2"}, "part of the table's key"),
        ({"x": "2"}, "not a column"),
        ({"u": "two"}, "not a value"),
    ):
        with pytest.raises(ConfigError, match=said):
            resolve(session, task, "s", structure.name, {lock.id}, ResolveWith.SOURCE, values)
    resolve(session, task, "s", structure.name, {lock.id}, ResolveWith.SOURCE, {"s": "mine", "u": None})
    assert content(session, structure) == [(1, "mine", None)]


def test_rows_that_need_a_value_of_a_locked_row_wait_for_it_and_follow_it(
    target: Target, session: TargetSession, task: str, structure: Table
) -> None:
    if isinstance(target, IcebergTarget):
        pytest.skip("an Iceberg table has no unique keys besides its identity")
    put(session, structure, (1, "theirs", 5), (2, "b", 2), (3, "c", 3))
    running = Task(target, task)
    running.apply(structure, (Op.UPDATE, (1, "a", 5), (1, "a", 6)), (Op.UPDATE, (2, "b", 2), (2, "b", 5)))
    running.apply(structure, (Op.UPDATE, (3, "c", 3), (3, "c", 2)), (Op.INSERT, None, (4, "d", 3)))
    assert content(session, structure) == [(1, "theirs", 5), (2, "b", 2), (3, "c", 3)]
    first, *others = locks(session, task, structure)
    assert (first.needs, len(others)) == ("", 3)
    assert all(one.needs for one in others)
    assert session.meta.row_locks.read(task, "s", structure.name, waiting=True) == others
    shown = outlooks(session, task, "s", [first], ResolveWith.SOURCE)
    assert [one.outcome["u"].as_py() for one in shown if one.outcome] == [6, 5, 2, 3]
    done = resolve(session, task, "s", structure.name, {first.id}, ResolveWith.SOURCE)
    assert len(done) == 4
    assert content(session, structure) == [(1, "a", 6), (2, "b", 5), (3, "c", 2), (4, "d", 3)]
    assert locks(session, task, structure) == []


@pytest.mark.parametrize("kind", ["values"])
def test_the_schema_of_a_table_is_not_made_for_each_of_its_locks(
    target: Target, session: TargetSession, task: str, structure: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(session, structure, *((key, "theirs", key) for key in range(60)))
    running, made, arrow = Task(target, task), list[Table](), Table.arrow
    running.apply(structure, *((Op.UPDATE, (key, "a", key), (key, "b", key)) for key in range(60)))
    ids = session.meta.row_locks.ids(task, "s", structure.name)
    assert len(ids) == 60

    def counted(self: Table) -> pa.Schema:
        if self._arrow is None:
            made.append(self)
        return arrow.fget(self)  # type: ignore[attr-defined]

    monkeypatch.setattr(Table, "arrow", property(counted))
    counts = []
    for some in (ids[:10], ids[10:]):
        made.clear()
        assert len(resolve(session, task, "s", structure.name, some, ResolveWith.SOURCE)) == len(some)
        counts.append(len(made))
    assert counts[0] == counts[1]


def test_a_unique_value_that_another_row_has_is_reported_with_both_rows(
    target: Target, session: TargetSession, task: str, structure: Table
) -> None:
    if isinstance(target, IcebergTarget):
        pytest.skip("an Iceberg table has no unique keys besides its identity")
    put(session, structure, (1, "theirs", 1), (2, "theirs", 2), (7, "program", 5))
    running = Task(target, task)
    running.apply(structure, (Op.UPDATE, (1, "a", 1), (1, "a", 5)), (Op.UPDATE, (2, "b", 2), (2, "b", 9)))
    one, two = locks(session, task, structure)
    with pytest.raises(Halted, match=r"row id=1 needs the unique value u=5, which row id=7 of the target has") as found:
        resolve(session, task, "s", structure.name, {one.id, two.id}, ResolveWith.SOURCE)
    assert (found.value.code, found.value.where.key) == ("target-refused", "id=1")
    assert content(session, structure) == [(1, "theirs", 1), (2, "theirs", 2), (7, "program", 5)]
    assert len(locks(session, task, structure)) == 2
    resolve(session, task, "s", structure.name, {one.id}, ResolveWith.SOURCE, {"u": "6"})
    assert content(session, structure)[0] == (1, "a", 6)


def test_two_rows_that_are_resolved_together_may_trade_their_unique_values(
    target: Target, session: TargetSession, task: str, structure: Table
) -> None:
    if isinstance(target, IcebergTarget):
        pytest.skip("an Iceberg table has no unique keys besides its identity")
    put(session, structure, (1, "theirs", 5), (2, "theirs", 6))
    running = Task(target, task)
    running.apply(structure, (Op.UPDATE, (1, "a", 1), (1, "a", 6)), (Op.UPDATE, (2, "b", 2), (2, "b", 5)))
    resolve(session, task, "s", structure.name, {one.id for one in locks(session, task, structure)}, ResolveWith.SOURCE)
    assert content(session, structure) == [(1, "a", 6), (2, "b", 5)]


@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
@pytest.mark.parametrize("by_batch", [True, False])
@pytest.mark.parametrize("theirs", [{1, 2}, {1}, {2}, {1, 2, 3, 4, 5}])
def test_all_locked_rows_of_a_table_may_have_traded_unique_values(
    target: Target, session: TargetSession, task: str, structure: Table, theirs: set[int], *, by_batch: bool
) -> None:
    """Rows 1 and 2, and rows 3 to 5, exchange their values. The rows in `theirs` differ on the target."""
    put(session, structure, *((key, "theirs" if key in theirs else "ours", key) for key in range(1, 7)))
    changes = []
    for cycle in ((1, 2), (3, 4, 5)):
        first, *others = cycle
        changes.append((Op.UPDATE, (first, "ours", first), (first, "ours", None)))
        free = first
        for key in others:
            changes.append((Op.UPDATE, (key, "ours", key), (key, "ours", free)))
            free = key
        changes.append((Op.UPDATE, (first, "ours", None), (first, "ours", free)))
    running = Task(target, task)
    for batch in [[one] for one in changes] if by_batch else [changes]:
        running.apply(structure, *batch)
    part = SimpleNamespace(name=task, source=SimpleNamespace(source_id="s"))
    commands = TaskLocks([cast("Any", part)], session)
    done = list(commands.resolve(commands.all_of(str(structure.name)), ResolveWith.SOURCE, {}))
    assert {one.lock.shown for one in done} >= {f"id={key}" for key in theirs}
    expected = {1: 2, 2: 1, 3: 5, 4: 3, 5: 4, 6: 6}
    assert content(session, structure) == [(key, "ours", value) for key, value in expected.items()]
    assert locks(session, task, structure) == []


def test_too_many_locked_rows_halt_the_table_and_nothing_is_written(
    target: Target, session: TargetSession, task: str, structure: Table
) -> None:
    put(session, structure, (1, "theirs", 1), (2, "theirs", 2), (3, "theirs", 3))
    running = Task(target, task, limit=2)
    running.apply(structure, (Op.UPDATE, (1, "a", 1), (1, "aa", 1)))
    with pytest.raises(Halted, match="too-many-locked-rows") as halted:
        running.apply(structure, *((Op.UPDATE, (key, "a", key), (key, "b", key)) for key in (2, 3)))
    assert halted.value.where.table == str(structure.name)
    assert len(locks(session, task, structure)) == 1


def test_a_lock_that_was_reported_is_the_same_lock(
    target: Target, session: TargetSession, task: str, structure: Table
) -> None:
    put(session, structure, *((key, "theirs", key) for key in range(3)))
    running = Task(target, task)
    running.apply(structure, *((Op.UPDATE, (key, "a", key), (key, "b", key)) for key in range(3)))
    before = {one.id: one for one in locks(session, task, structure)}
    found = {one.id for one in before.values() if one.shown != "id=1"}
    session.begin()
    record = session.meta.row_locks
    record.change(task, "s", [replace(one, is_reported=True) for one in record.lock(task, "s", structure.name, found)])
    session.commit()
    after = {one.id: one for one in locks(session, task, structure)}
    assert after == {id_: replace(one, is_reported=id_ in found) for id_, one in before.items()}
    running.apply(structure, (Op.UPDATE, (0, "b", 0), (0, "c", 0)))
    assert len(resolve(session, task, "s", structure.name, set(before), ResolveWith.SOURCE)) == 3
    assert content(session, structure) == [(0, "c", 0), (1, "b", 1), (2, "b", 2)]


def test_wherever_it_breaks_a_row_is_locked_and_its_changes_held_once(
    target: Target, session: TargetSession, task: str, structure: Table
) -> None:
    broken, round_ = 0, 0
    put(session, structure, (1, "theirs", 1))
    while True:
        watched = Breaking(target, broken, ProcessDied)
        running = Task(target, task)
        running.target = watched
        changes: list[Change] = [
            (Op.UPDATE, (1, f"v{round_}", 1), (1, f"v{round_ + 1}", 1)),
            (Op.INSERT, None, (10 + round_, "x", 10 + round_)),
        ]
        try:
            running.apply(structure, *changes)
        except ProcessDied:
            running = Task(target, task)
            if running.at == 100 * (round_ + 1):
                running.apply(structure, *changes)
        round_ += 1
        (lock,) = locks(session, task, structure)
        held = outlook(session, task, "s", lock, ResolveWith.SOURCE)
        assert len(held.changes) == round_
        assert content(session, structure)[0] == (1, "theirs", 1)
        assert len(content(session, structure)) == 1 + round_
        if len(watched.points) <= broken:
            break
        broken += 1
    resolve(session, task, "s", structure.name, {lock.id}, ResolveWith.SOURCE)
    assert content(session, structure)[0] == (1, f"v{round_}", 1)


@pytest.mark.parametrize("take", [ResolveWith.SOURCE, ResolveWith.TARGET])
def test_wherever_a_resolution_breaks_all_of_it_has_happened_or_nothing(
    target: Target, session: TargetSession, task: str, structure: Table, take: ResolveWith
) -> None:
    """Row 1 differs, and row 2 needs its u: with the source's values for row 1, row 2 is resolved, too."""
    if isinstance(target, IcebergTarget):
        pytest.skip("an Iceberg table has no unique keys besides its identity")
    running, broken, is_whole = Task(target, task), 0, False
    row = (1, "mine" if take is ResolveWith.SOURCE else "theirs", 9)
    while not is_whole:
        put(session, structure, (1, "theirs", 0), (2, "b", 2), deletes=[(1,), (2,)])
        running.apply(structure, (Op.UPDATE, (1, "mine", 0), (1, "mine", 9)), (Op.UPDATE, (2, "b", 2), (2, "b", 0)))
        first, second = locks(session, task, structure)
        assert (first.needs, second.needs) == ("", first.id)
        before = [(1, "theirs", 0), (2, "b", 2)], [first, second]
        after = ([row, (2, "b", 0)], []) if take is ResolveWith.SOURCE else ([row, (2, "b", 2)], [second])
        watched = Breaking(target, broken, ProcessDied)
        with closing(watched.connect()) as dying, suppress(ProcessDied):
            resolve(dying, task, "s", structure.name, {first.id}, take)
        assert (content(session, structure), locks(session, task, structure)) in (before, after)
        resolve(session, task, "s", structure.name, {first.id}, take)
        assert (content(session, structure), locks(session, task, structure)) == after
        resolve(session, task, "s", structure.name, {second.id}, ResolveWith.SOURCE)
        assert content(session, structure) == [row, (2, "b", 0)]
        is_whole, broken = len(watched.points) <= broken, broken + 1
    assert {"commit:before", "commit:after", "meta.row_locks.remove:after"} <= set(watched.points)


def test_a_row_is_kept_and_its_held_changes_are_dropped_together_or_neither(
    target: Target, session: TargetSession, task: str, structure: Table, kind: str
) -> None:
    """Row 1 differs, row 2 is deleted by the source, and row 3 waits for the u of row 1."""
    if kind == "iceberg":
        pytest.skip("a warehouse has no unique keys, so no row waits for a value of another one")
    running, broken, is_whole = Task(target, task), 0, False
    rows = [(1, "theirs", 0), (2, "theirs", 2), (3, "c", 3)]
    while not is_whole:
        put(session, structure, *rows, deletes=[(1,), (2,), (3,)])
        running.apply(
            structure,
            (Op.UPDATE, (1, "mine", 0), (1, "mine", 9)),
            (Op.DELETE, (2, "b", 2), None),
            (Op.UPDATE, (3, "c", 3), (3, "c", 0)),
        )
        *kept, waiting = locks(session, task, structure)
        assert waiting.needs == kept[0].id
        ids = {one.id for one in kept}
        assert all(outlook(session, task, "s", one, ResolveWith.KEEP).outcome is not None for one in kept)
        watched = Breaking(target, broken, ProcessDied)
        with closing(watched.connect()) as dying, suppress(ProcessDied):
            resolve(dying, task, "s", structure.name, ids, ResolveWith.KEEP)
        assert locks(session, task, structure) in ([*kept, waiting], [waiting])
        resolve(session, task, "s", structure.name, ids, ResolveWith.KEEP)
        assert (content(session, structure), locks(session, task, structure)) == (rows, [waiting])
        resolve(session, task, "s", structure.name, {waiting.id}, ResolveWith.KEEP)
        assert session.meta.row_locks.tables(task, "s") == {}
        is_whole, broken = len(watched.points) <= broken, broken + 1
    running.apply(structure, (Op.UPDATE, (3, "c", 3), (3, "cc", 3)), (Op.UPDATE, (1, "mine", 9), (1, "mine", 10)))
    assert content(session, structure) == [(1, "theirs", 0), (2, "theirs", 2), (3, "cc", 3)]
    assert [one.shown for one in locks(session, task, structure)] == ["id=1"], "its next change finds another row"


@pytest.mark.parametrize("kind", ["postgres", *MYSQL_KINDS])
def test_only_one_of_two_commands_resolves_a_row(
    target: Target, session: TargetSession, task: str, structure: Table
) -> None:
    put(session, structure, (1, "theirs", 1))
    running = Task(target, task)
    running.apply(structure, (Op.UPDATE, (1, "a", 1), (1, "b", 1)))
    (lock,) = locks(session, task, structure)
    together, done = threading.Barrier(3), []

    def work(take: ResolveWith) -> None:
        with closing(target.connect()) as mine:
            together.wait(10)
            done.append(len(resolve(mine, task, "s", structure.name, {lock.id}, take)))

    threads = [
        threading.Thread(target=work, args=[take])
        for take in (ResolveWith.SOURCE, ResolveWith.SOURCE, ResolveWith.TARGET)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(done) == [0, 0, 1]
    assert content(session, structure) == [(1, "b", 1)]


@pytest.mark.parametrize("kind", [*MYSQL_KINDS, "postgres"])
def test_a_programs_write_during_a_resolution_stays(
    target: Target, session: TargetSession, task: str, structure: Table
) -> None:
    put(session, structure, (1, "theirs", 1))
    Task(target, task).apply(structure, (Op.UPDATE, (1, "a", 1), (1, "a", 7)))
    (lock,) = locks(session, task, structure)
    begun = threading.Event()

    def work() -> None:
        with closing(target.connect()) as mine:
            begun.set()
            resolve(mine, task, "s", structure.name, {lock.id}, ResolveWith.TARGET)

    with closing(target.connect()) as program:
        program.begin()
        program.write(change(structure, upserts=[(1, "program", 1)]))
        program.read_rows(structure)  # The session has not sent the write yet. A read sends it first.
        resolving = threading.Thread(target=work)
        resolving.start()
        assert begun.wait(30)
        resolving.join(3)
        assert resolving.is_alive(), "it waits for the program"
        program.commit()
    resolving.join(60)
    assert content(session, structure) == [(1, "program", 7)]


def test_a_task_that_begins_knows_no_locks_of_an_earlier_one(
    target: Target, session: TargetSession, task: str, structure: Table
) -> None:
    session.begin()
    lock = RowLock(
        table=structure,
        id="0" * 64,
        key="",
        shown='id=\'ä"\\%s"needs": ""',
        origin=structure.name,
        lsn=lsn(7),
        why="it differs",
        since=1.5,
        needs="1" * 64,
    )
    session.meta.row_locks.add(task, "s", [lock])
    session.meta.row_locks.hold(
        task, "s", structure.name, [HeldChanges(lock.id, lsn(place), "x" * 70_000) for place in (9, 8)]
    )
    session.commit()
    assert session.meta.row_locks.read(task, "s", structure.name) == [lock]
    assert session.meta.row_locks.read(task, "s", structure.name, waiting=True) == [lock]
    assert [one.lsn for one in session.meta.row_locks.held(task, "s", structure.name, {lock.id})] == [lsn(8), lsn(9)]
    assert not session.meta.row_locks.ids(task, "other", structure.name)
    session.meta.checkpoints.claim(task, "s", 1, checkpoint(100))
    assert session.meta.row_locks.recorded(task, "s") == {}
    assert session.meta.row_locks.held(task, "s", structure.name, {lock.id}) == []


@pytest.mark.parametrize("kind", [*MYSQL_KINDS, "postgres"])
def test_a_structure_is_kept_once_for_all_locks_that_have_it(
    target: Target, session: TargetSession, task: str, structure: Table
) -> None:
    """A lock that an earlier version has stored contains its structure, and is read with the same result."""
    run: Any = session
    running = Task(target, task)
    running.apply(structure, *((Op.UPDATE, (n, "a", n), (n, "b", n)) for n in range(1, 6)))
    before = locks(session, task, structure)
    texts = run.rows("SELECT row_key, about FROM pidts_meta.row_lock WHERE task = %s", (task,))
    assert len(texts) == 5
    assert not any("columns" in about for _, about in texts)
    kept = "SELECT digest, row_key FROM pidts_meta.locked_structure WHERE task = %s"
    assert len(run.rows(kept, (task,))) == 1

    id_, about = texts[0]
    data = json.loads(about)
    del data["of"]
    old = json.dumps({"structure": structure.to_json(), **data})
    run.run("UPDATE pidts_meta.row_lock SET about = %s WHERE task = %s AND row_key = %s", (old, task, id_))
    assert locks(session, task, structure) == before

    wider = replace(structure, columns=(*structure.columns, Column("w", INT, nullable=True)))
    carry(session, task, "s", structure.name, wider, running.epoch)
    with closing(target.connect()) as other:
        after = locks(other, task, structure)
    assert {(one.table, one.now) for one in after} == {(structure, wider)}
    assert len(run.rows(kept, (task,))) == 2
    run.run("DELETE FROM pidts_meta.locked_structure WHERE task = %s", (task,))
    with closing(target.connect()) as other, pytest.raises(Transient, match="lacks a structure"):
        locks(other, task, structure)
