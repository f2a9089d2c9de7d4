"""Two commands that save the next step of the same cutover: only one succeeds, on every target."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import pytest
from tests.target.conformance.conftest import MYSQL_KINDS

from pidts.apply import Target, TargetSession
from pidts.model import ConstraintKind, Cutover, CutoverCommand, CutoverStage, TableName

BEGUN = Cutover(
    began_at=1795000001.5,
    read_only={"s": {"read_only": "OFF"}},
    constraints=(
        (ConstraintKind.COUNTER, TableName("shop", "orders é"), "id"),
        (ConstraintKind.CHECK, TableName("shop", "orders é"), "named"),
    ),
    command=CutoverCommand("db-host", 17, 1795000002.25),
)
STOPPING = replace(BEGUN, stage=CutoverStage.STOPPING)
UNDONE = replace(BEGUN, command=CutoverCommand("other", 18, 1795000003.0), is_undone=True)


def saved(session: TargetSession, task: str, before: Cutover | None, after: Cutover | None) -> bool:
    session.begin()
    is_saved = session.meta.cutovers.replace(task, before, after)
    session.commit()
    return is_saved


def test_a_record_is_replaced_only_if_it_is_the_expected_one(target: Target, task: str) -> None:
    with closing(target.connect()) as one, closing(target.connect()) as two:
        assert one.meta.cutovers.read(task) is None
        assert not saved(one, task, BEGUN, STOPPING), "there is no record"
        assert saved(one, task, None, BEGUN)
        found = two.meta.cutovers.read(task)
        assert found is not None
        assert found.dumps() == BEGUN.dumps()
        assert not saved(two, task, None, UNDONE)
        assert saved(two, task, BEGUN, UNDONE)
        assert not saved(one, task, BEGUN, STOPPING)
        assert not saved(one, task, BEGUN, None)
        found = one.meta.cutovers.read(task)
        assert found is not None
        assert found.dumps() == UNDONE.dumps()
        assert saved(two, task, UNDONE, None)
        assert one.meta.cutovers.read(task) is None
        assert saved(one, task, None, None)


def test_an_undone_switch_is_kept_under_a_name_of_its_own(target: Target, task: str) -> None:
    done = replace(BEGUN, stage=CutoverStage.DONE, position="bin.000001:4", done_at=1795000009.5)
    with closing(target.connect()) as session:
        session.meta.prepare()
        for epoch in (3, 5):
            assert session.meta.cutovers.undone(task) is None or epoch == 5
            assert saved(session, task, None, done)
            kept = replace(done, is_undone=True, undone_epoch=epoch)
            session.begin()
            session.meta.cutovers.keep_undone(task, kept)
            assert session.meta.cutovers.replace(task, done, None)
            session.commit()
            assert session.meta.cutovers.read(task) is None
            found = session.meta.cutovers.undone(task)
            assert found is not None
            assert found.dumps() == kept.dumps()


@pytest.mark.parametrize("after", [STOPPING, None])
def test_a_record_that_changes_while_it_is_replaced_is_not_replaced(
    target: Target, kind: str, task: str, after: Cutover | None
) -> None:
    if kind not in {"postgres", *MYSQL_KINDS}:
        pytest.skip("no application can switch to this target")
    with closing(target.connect()) as one, closing(target.connect()) as two, ThreadPoolExecutor(1) as thread:
        assert saved(one, task, None, BEGUN)
        one.begin()
        assert one.meta.cutovers.read(task) is not None  # MySQL's transaction sees this state until it ends.
        two.begin()
        assert two.meta.cutovers.replace(task, BEGUN, UNDONE)
        began = threading.Event()

        def replaced() -> bool:
            began.set()
            return one.meta.cutovers.replace(task, BEGUN, after)

        late = thread.submit(replaced)
        assert began.wait(10)
        two.commit()
        assert not late.result(60)
        one.rollback()
        found = two.meta.cutovers.read(task)
        assert found is not None
        assert found.dumps() == UNDONE.dumps()
