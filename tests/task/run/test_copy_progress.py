"""The progress of thousands of tables is shown at a cost that depends only on the tables that are being copied."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from pidts.model import TableName
from pidts.plan import CopyState, Phase
from pidts.task.measure import copy_progress
from pidts.task.measure.copy_progress import CopyProgress
from pidts.task.operate.progress import TableProgress


def name(number: int) -> TableName:
    return TableName("a", f"t{number}")


class Plain:
    """Computes the same progress from a snapshot of all tables after each batch."""

    def __init__(self) -> None:
        self.states: dict[TableName, CopyState] = {}
        self.snapshots: list[tuple[float, Mapping[TableName, int]]] = []
        self.unsettled: Mapping[TableName, int] = {}
        self.moved_at = 0.0

    def begin(self, copied: list[TableName], copy: Mapping[TableName, CopyState], now: float) -> None:
        self.snapshots.clear()
        self.unsettled = {}
        self.states = {one: self.states.get(one, CopyState(phase=Phase.FINISH)) for one in copied}
        self.moved_at = now
        self.reached(copy, now)

    def reached(self, copy: Mapping[TableName, CopyState], now: float) -> None:
        if any(one not in self.states or self.states[one].rows != state.rows for one, state in copy.items()):
            self.moved_at = now
        done = {one: replace(state, done=True) for one, state in self.states.items() if one not in copy}
        self.states = {**done, **copy}
        self.snapshots.append((now, {one: state.rows for one, state in self.states.items()}))

    def tables(self, now: float) -> tuple[TableProgress, ...]:
        while len(self.snapshots) > 2 and self.snapshots[1][0] < now - copy_progress._COPY_SECONDS:
            self.snapshots.pop(0)
        since, before = self.snapshots[0]
        copied = {
            one: state.rows + (0 if state.done else self.unsettled.get(one, 0)) for one, state in self.states.items()
        }
        return tuple(
            TableProgress(
                name=str(one),
                copied=copied[one],
                estimate=state.estimate,
                done=state.done,
                phase=state.phase,
                rate=max(0, copied[one] - before.get(one, 0)) / max(now - since, 1.0)
                if now - self.moved_at <= copy_progress._WAIT_SECONDS
                else 0.0,
            )
            for one, state in sorted(self.states.items(), key=lambda pair: pair[0])
        )


@pytest.mark.parametrize("seed", range(20))
def test_the_progress_is_that_of_a_snapshot_after_each_batch(seed: int) -> None:
    chance, now = random.Random(seed), 100.0
    progress, plain = CopyProgress(), Plain()
    copy: dict[TableName, CopyState] = {}
    for step in range(120):
        now += chance.choice((0.1, 1.0, 7.0))
        if step % 40 == 0:
            copied = [name(number) for number in chance.sample(range(15), 8)]
            copy = {one: CopyState(estimate=9) for one in chance.sample(copied, 4)}
            progress.begin(copied, copy, now)
            plain.begin(copied, copy, now)
        else:
            copy = {one: state for one, state in copy.items() if not state.done}
            for one in chance.sample(list(copy), min(len(copy), 2)):
                copy[one] = replace(copy[one], rows=copy[one].rows + chance.randrange(3), done=not chance.randrange(9))
            if chance.randrange(8) == 0:
                copy[name(chance.randrange(20))] = CopyState()
            if chance.randrange(8) == 0 and copy:
                del copy[chance.choice(list(copy))]
            if chance.randrange(4) == 0:
                copy = {one: replace(state) for one, state in copy.items()}  # equal states that are other objects
            progress.reached(copy, now)
            plain.reached(copy, now)
        if chance.randrange(2):
            unsettled = {name(chance.randrange(20)): chance.randrange(5) for _ in range(3)}
            if sum(unsettled.values()) > sum(plain.unsettled.values()):
                plain.moved_at = now
            plain.unsettled = unsettled
            progress.being_copied(unsettled, now)
        assert progress.is_copying == any(not state.done for state in plain.states.values())
        if chance.randrange(3):
            assert progress.tables(now) == plain.tables(now)


def made_in(count: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Returns how many tables each of ten views has computed while one table after the other is copied."""
    made: list[str] = []

    def counted(**values: Any) -> TableProgress:
        made.append(values["name"])
        return TableProgress(**values)

    monkeypatch.setattr(copy_progress, "TableProgress", counted)
    names = [name(number) for number in range(count)]
    copy = {one: CopyState() for one in names[: count // 2]}
    progress, now, counts = CopyProgress(), 100.0, []
    progress.begin(names, copy, now)
    assert len(progress.tables(now)) == count == len(made)
    for one in names[:10]:
        now += 30.0
        copy = {other: state for other, state in copy.items() if other != one}
        progress.reached(copy, now)
        made.clear()
        assert sum(table.done for table in progress.tables(now)) == count - len(copy)
        counts.append(len(made))
    made.clear()
    assert progress.tables(now) is progress.tables(now)
    assert not made, "nothing has changed"
    return counts


def test_a_view_computes_only_the_tables_that_have_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert made_in(20, monkeypatch) == made_in(2000, monkeypatch) == [1] * 10


def test_while_a_copy_waits_the_remaining_time_does_not_grow() -> None:
    """For example, it waits for Spark or for a lock. The average of the last seconds would fall slowly."""
    progress, table = CopyProgress(), name(1)
    progress.begin([table], {table: CopyState(estimate=1000)}, 100.0)
    progress.reached({table: CopyState(estimate=1000, rows=500)}, 104.0)
    (moving,) = progress.tables(105.0)
    assert (moving.rate, moving.eta_seconds) == (100.0, 5.0)
    (waiting,) = progress.tables(110.0)
    assert (waiting.rate, waiting.eta_seconds) == (0.0, None)
    progress.being_copied({table: 100}, 112.0)
    (again,) = progress.tables(112.0)
    assert (again.rate, again.eta_seconds) == (50.0, 8.0)
