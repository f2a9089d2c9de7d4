"""The backlog has the changes of the task's own tables that the target lacks, and not the changes of other tables."""

from __future__ import annotations

from collections.abc import Iterator

from pidts.model import LogEntry, Lsn
from pidts.plan import CopyState, PlanState, Unapplied

from .small_log import START, behind, log, relevance_of, table


class Reading:
    """A log that grows, and the part of it that was read."""

    def __init__(self, text: str) -> None:
        self.text, self.read = text, 0

    @property
    def end(self) -> Lsn:
        return log(self.text)[-1].transaction.lsn

    def __call__(self, after: Lsn, to: Lsn | None = None) -> Iterator[LogEntry]:
        for entry in behind(log(self.text), after, to):
            self.read += 1
            yield entry


def place(entry: LogEntry | None) -> int | None:
    return None if entry is None else (entry.transaction.lsn.offset - START.offset) // 100


def test_transactions_of_foreign_tables_are_not_lacked() -> None:
    assert Unapplied(relevance_of).first(PlanState(START), Reading("x x x"), Reading("x x x").end) is None


def test_the_first_transaction_of_the_tasks_tables_is_found() -> None:
    for text, first in (("x a x b", 2), ("x A", 2), ("*", 1), ("a a", 1)):
        reading = Reading(text)
        assert place(Unapplied(relevance_of).first(PlanState(START), reading, reading.end)) == first, text


def test_searched_log_is_not_read_again() -> None:
    unapplied, reading = Unapplied(relevance_of), Reading("x x x")
    state = PlanState(START)
    assert unapplied.first(state, reading, reading.end) is None
    assert unapplied.first(state, reading, reading.end) is None
    assert reading.read == 3
    reading.text = "x x x x a x"
    assert place(unapplied.first(state, reading, reading.end)) == 5
    assert place(unapplied.first(state, reading, reading.end)) == 5
    assert reading.read == 3 + 2
    applied = PlanState(log(reading.text)[4].transaction.lsn)
    assert unapplied.first(applied, reading, reading.end) is None


def test_changes_from_before_a_table_has_joined_are_not_its_own() -> None:
    reading = Reading("a a")
    joined = PlanState(START, {table("a"): CopyState(since=log(reading.text)[0].transaction.lsn)})
    assert place(Unapplied(relevance_of).first(joined, reading, reading.end)) == 2
