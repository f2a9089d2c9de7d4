"""Between zones, a row that needs a unique value of another row is set aside; all other rows are written."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

import pytest
from tests.crashes import ProcessDied
from tests.target.conformance.breaking import Breaking
from tests.target.conformance.locks.test_row_locks import Change, content, locks, logged, put
from tests.target.conformance.samples import INT, checkpoint, create, table, text

from pidts.apply import ApplyRules, Committer, Retry, Target, TargetSession
from pidts.apply.locks.resolve import ResolveWith, resolve
from pidts.batch.applying import apply
from pidts.batch.blobs import Blob
from pidts.batch.workers import Commit
from pidts.model import Halted, OnDivergence, Op, Table, TableName
from pidts.target import IcebergTarget, PostgresTarget

pytestmark = pytest.mark.repeats("values-journaled", "mysql56", "mysql97")


@pytest.fixture
def structure(target: Target, name: TableName) -> Table:
    if isinstance(target, IcebergTarget | PostgresTarget):
        pytest.skip("no program writes there, so it is no target between zones")
    made = table(name, {"id": INT, "s": text(), "u": INT, "t": text()}, unique=["u", "t"])
    with closing(target.connect()) as session:
        create(session, made)
    return made


class Task:
    """A task between zones, whose batches are committed like all batches."""

    def __init__(self, target: Target, task: str, zone: str = "b", source: str = "s") -> None:
        self.target, self.task, self.source = target, task, source
        with closing(target.connect()) as session:
            self.epoch = session.meta.checkpoints.claim(task, source, 1, checkpoint(100))[0].epoch
            self.at = session.meta.checkpoints.read(task, source)[0].lsn.offset
        self.rules = ApplyRules(task=task, source=source, zone=zone, on_divergence=OnDivergence.LOCK)

    def apply(self, structure: Table, *changes: Change, partial: Sequence[bytes | None] = ()) -> None:
        batch = logged(structure, self.at + 1, *changes, partial=partial)
        before, after = (replace(checkpoint(at), task=self.task, source=self.source) for at in (self.at, self.at + 100))
        with Committer(
            self.target,
            self.task,
            self.source,
            self.epoch,
            rules=self.rules,
            retry=Retry(attempts=8),
            sleep=lambda _: None,
        ) as committer:
            apply(committer, Commit((before,), (after,)), 0, [Blob(0, Blob.first_order(0), batch)])
        self.at += 100


def test_a_row_that_needs_another_ones_value_is_set_aside_and_names_it(
    target: Target, session: TargetSession, task: str, structure: Table
) -> None:
    put(session, structure, (7, "theirs", 5, "seven"), (1, "one", 1, "one"))
    running = Task(target, task)
    running.apply(
        structure,
        (Op.INSERT, None, (3, "mine", 5, "three")),
        (Op.UPDATE, (1, "one", 1, "one"), (1, "uno", 1, "one")),
        (Op.INSERT, None, (4, "d", 6, "four")),
    )
    assert content(session, structure) == [(1, "uno", 1, "one"), (4, "d", 6, "four"), (7, "theirs", 5, "seven")]
    (lock,) = locks(session, task, structure)
    assert lock.shown == "id=3"
    assert lock.why == "it needs the unique value u=5, which row id=7 of the target has"
    running.apply(structure, (Op.UPDATE, (3, "mine", 5, "three"), (3, "more", 5, "three")))
    assert len(locks(session, task, structure)) == 1
    with pytest.raises(Halted, match="target-refused"):
        resolve(session, task, "s", structure.name, {lock.id}, ResolveWith.SOURCE)
    put(session, structure, (7, "theirs", 8, "seven"))
    assert len(resolve(session, task, "s", structure.name, {lock.id}, ResolveWith.SOURCE)) == 1
    assert content(session, structure)[1] == (3, "more", 5, "three")


def test_several_values_and_texts_that_the_target_holds_equal(
    target: Target, session: TargetSession, task: str, structure: Table
) -> None:
    put(session, structure, (7, "x", 5, "seven"), (8, "x", 9, "eight"), (9, "x", 19, "nine"))
    running = Task(target, task)
    running.apply(
        structure,
        *((Op.INSERT, None, (key, "new", 100 + key, f"t{key}")) for key in range(20, 40)),
        (Op.INSERT, None, (1, "a", 5, "a")),
        (Op.INSERT, None, (2, "b", 2, "eight")),
        (Op.UPDATE, (9, "x", 19, "nine"), (9, "x", 20, "nine")),
        (Op.INSERT, None, (3, "c", 19, "c")),
        (Op.INSERT, None, (4, "d", None, None)),
    )
    assert [(one.shown, one.why) for one in locks(session, task, structure)] == [
        ("id=1", "it needs the unique value u=5, which row id=7 of the target has"),
        ("id=2", "it needs the unique value t='eight', which row id=8 of the target has"),
    ]
    assert len(content(session, structure)) == 3 + 20 + 2


def test_a_value_that_is_unique_on_the_source_alone_locks_no_row(
    target: Target, session: TargetSession, task: str, name: TableName
) -> None:
    if isinstance(target, IcebergTarget | PostgresTarget):
        pytest.skip("no program writes there, so it is no target between zones")
    columns = {"id": INT, "s": text(), "u": INT, "t": text()}
    create(session, table(name, columns, unique=["t"]))
    structure = table(name, columns, unique=["u", "t"])
    put(session, structure, (7, "x", 5, "seven"), (8, "x", 9, "eight"))
    Task(target, task).apply(
        structure,
        (Op.INSERT, None, (1, "a", 5, "a")),
        (Op.INSERT, None, (2, "b", 2, "eight")),
        (Op.INSERT, None, (3, "c", 2, "c")),
    )
    (lock,) = locks(session, task, structure)
    assert lock.why == "it needs the unique value t='eight', which row id=8 of the target has"
    assert [key for key, *_ in content(session, structure)] == [1, 3, 7, 8]


def test_a_row_that_needs_a_kept_value_waits_for_it(
    target: Target, session: TargetSession, task: str, structure: Table
) -> None:
    put(session, structure, (7, "x", 5, "seven"), (1, "a", 1, "a"))
    running = Task(target, task)
    running.apply(
        structure,
        (Op.UPDATE, (1, "a", 1, "a"), (1, "a", 5, "a")),
        (Op.INSERT, None, (2, "b", 1, "b")),
        (Op.INSERT, None, (3, "c", 3, "c")),
    )
    assert content(session, structure) == [(1, "a", 1, "a"), (3, "c", 3, "c"), (7, "x", 5, "seven")]
    first, second = locks(session, task, structure)
    assert (first.shown, second.shown, second.needs) == ("id=1", "id=2", first.id)
    put(session, structure, deletes=[(7,)])
    assert len(resolve(session, task, "s", structure.name, {first.id}, ResolveWith.SOURCE)) == 2
    assert content(session, structure) == [(1, "a", 5, "a"), (2, "b", 1, "b"), (3, "c", 3, "c")]


def test_a_task_of_no_zone_halts_the_table(target: Target, session: TargetSession, task: str, structure: Table) -> None:
    put(session, structure, (7, "theirs", 5, "seven"))
    running = Task(target, task, zone="")
    with pytest.raises(Halted, match="target-refused") as halted:
        running.apply(structure, (Op.INSERT, None, (3, "mine", 5, "three")))
    assert halted.value.where.key == "id=3"
    assert locks(session, task, structure) == []


def test_a_process_that_dies_anywhere_leaves_lock_and_checkpoint_or_neither(
    target: Target, session: TargetSession, task: str, structure: Table
) -> None:
    put(session, structure, (7, "theirs", 5, "seven"))
    changes: list[Change] = [
        (Op.INSERT, None, (3, "mine", 5, "three")),
        (Op.INSERT, None, (4, "d", 6, "four")),
    ]
    whole = Breaking(target)
    Task(whole, f"{task} points").apply(structure, *changes)
    assert len(locks(session, f"{task} points", structure)) == 1
    for broken in range(len(whole.points)):
        put(session, structure, deletes=[(4,)])
        name = f"{task} {broken}"
        running = Task(target, name)
        running.target = Breaking(target, broken)
        died = False
        try:
            running.apply(structure, *changes)
        except ProcessDied:
            died = True
        again = Task(target, name)
        if again.at == 100:
            assert died
            assert locks(session, name, structure) == []
            again.apply(structure, *changes)
        assert [one.shown for one in locks(session, name, structure)] == ["id=3"]
        assert content(session, structure) == [(4, "d", 6, "four"), (7, "theirs", 5, "seven")]
