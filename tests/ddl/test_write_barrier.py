"""While a merged table is changed, no shard writes to it, and no shard waits for one that is not running."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from pidts.ddl.planner_signals import kept_of, signal_kept
from pidts.ddl.shards.write_barrier import WriteBarrier
from pidts.model import TableName

T, U = TableName("shard", "t"), TableName("shard", "u")


class Change(threading.Thread):
    """A schema change of the merged table."""

    def __init__(self, holds: WriteBarrier, tables: dict[str, frozenset[TableName]]) -> None:
        super().__init__(daemon=True)
        self.holds, self.tables = holds, tables
        self.begun, self.ends = threading.Event(), threading.Event()
        self.start()

    def run(self) -> None:
        with self.holds.holding(self.tables):
            self.begun.set()
            self.ends.wait(10)


def attending(holds: WriteBarrier, source: str, held: dict[str, frozenset[TableName]]) -> Callable[..., None]:
    def keep(tables: frozenset[TableName]) -> None:
        held[source] = tables

    holds.attend(source, keep)
    return keep


def test_a_change_begins_when_all_parts_have_stopped_and_they_continue_after_it() -> None:
    holds, found = WriteBarrier(), dict[str, frozenset[TableName]]()
    for source in "ab":
        attending(holds, source, found)
    change = Change(holds, {"a": frozenset({T}), "b": frozenset({T, U}), "down": frozenset({T})})
    holds.set_held("a", {T, U})
    holds.set_held("b", {T})
    assert not change.begun.wait(0.1)
    assert found == {"a": {T}, "b": {T, U}}
    other = attending(holds, "b", found)
    assert found["b"] == {T, U}, "an attempt that begins meanwhile is held, too"
    holds.leave("b", other)
    assert change.begun.wait(5), "who is not there writes nothing"
    again = attending(holds, "b", found)
    change.ends.set()
    change.join(5)
    assert found == {"a": frozenset(), "b": frozenset()}
    holds.leave("b", other)
    assert holds._keeps["b"] is again, "an earlier attempt that ends late ends itself alone"


def test_two_changes_keep_what_both_need() -> None:
    holds, found = WriteBarrier(), dict[str, frozenset[TableName]]()
    attending(holds, "a", found)
    holds.set_held("a", {T, U})
    first, second = Change(holds, {"a": frozenset({T})}), Change(holds, {"a": frozenset({U})})
    assert first.begun.wait(5)
    assert second.begun.wait(5)
    assert found["a"] == {T, U}
    first.ends.set()
    first.join(5)
    assert found["a"] == {U}
    second.ends.set()
    second.join(5)


def test_a_part_that_waits_for_its_own_change_writes_nothing() -> None:
    holds, found = WriteBarrier(), dict[str, frozenset[TableName]]()
    attending(holds, "a", found)
    change = Change(holds, {"a": frozenset({T})})
    assert not change.begun.wait(0.1)
    with holds.quiet("a"):
        assert change.begun.wait(5)
    change.ends.set()
    change.join(5)


def test_patience_ends() -> None:
    holds, found = WriteBarrier(patience_seconds=0.1), dict[str, frozenset[TableName]]()
    attending(holds, "a", found)
    change = Change(holds, {"a": frozenset({T})})
    assert change.begun.wait(5)
    change.ends.set()
    change.join(5)


def test_the_planner_reads_what_is_kept(tmp_path: Path) -> None:
    assert kept_of(tmp_path) == frozenset()
    signal_kept(tmp_path, ())
    assert [*tmp_path.iterdir()] == []
    signal_kept(tmp_path, {T, U})
    assert kept_of(tmp_path) == {T, U}
    signal_kept(tmp_path, ())
    assert kept_of(tmp_path) == frozenset()
