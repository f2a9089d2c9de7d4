"""If another shard makes a change for some shards, they notice it as soon as the target's records say that it is made."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from pidts.ddl.shards.coordinator import ShardGroups
from pidts.model import SourceTablesKey
from pidts.shards.decide import RunDecision

from .step_by_step import TWO, C, stories

A, B = "one: shard_1.t_1", "two: shard_1.t_1"


@pytest.mark.parametrize("transactional", [False, True])
def test_an_attempt_ends_when_another_one_begins_to_make_its_change(
    monkeypatch: pytest.MonkeyPatch, *, transactional: bool
) -> None:
    with stories(transactional_ddl=transactional) as make_story:
        task = make_story(TWO)
        task.looks = False
        task.finish()
        task.plan(C)
        arrive, member_changes = ShardGroups.arrive, ShardGroups.member_changes
        left: list[str] = []
        gone: list[object] = []

        def arrives(groups: ShardGroups, *args: Any) -> object:
            decision = arrive(groups, *args)
            if not left and isinstance(decision, RunDecision) and len(decision.arrivals) > 1:
                left.extend({"one", "two"} - {decision.leader.member.source})
                gone.append(task.streams[left[0]])
                task.begin_anew(*left)
                groups.forget(*left)
            return decision

        def slow_member_changes(groups: ShardGroups, run: RunDecision) -> object:
            found = member_changes(groups, run)
            while gone and (task.streams[left[0]] is gone[0] or not task.locks()):
                task.scheduler.wait(0)  # The source's next attempt arrives at the change before the change is made.
            gone.clear()
            return found

        monkeypatch.setattr(ShardGroups, "member_changes", slow_member_changes)
        monkeypatch.setattr(ShardGroups, "arrive", arrives)
        for name in (A, B):
            task[name].alter()
        task.finish()
        assert left
        task.start()
        task.write(A, B, times=3)
        task.finish_and_check()
        assert task.waiting() == []
        with closing(task.target.connect()) as session:
            for name in (A, B):
                source, _, table = name.partition(": ")
                (structure,) = (
                    one
                    for one in session.meta.structures.load("t", SourceTablesKey(source)).values()
                    if str(one.name) == table
                )
                assert "c" in structure.arrow.names
