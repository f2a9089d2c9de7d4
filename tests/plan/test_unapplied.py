"""The backlog has the changes of the task's own tables that the target lacks, and not the changes of other tables."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pidts.model import LogEntry, Lsn, TableName
from pidts.plan import CopyState, PlanState, UnappliedSearch, WaitingTableSearch
from pidts.plan import unapplied as searches

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
    assert UnappliedSearch(relevance_of).first(PlanState(START), Reading("x x x"), Reading("x x x").end) is None


def test_the_first_transaction_of_the_tasks_tables_is_found() -> None:
    for text, first in (("x a x b", 2), ("x A", 2), ("*", 1), ("a a", 1)):
        reading = Reading(text)
        assert place(UnappliedSearch(relevance_of).first(PlanState(START), reading, reading.end)) == first, text


def test_searched_log_is_not_read_again() -> None:
    unapplied, reading = UnappliedSearch(relevance_of), Reading("x x x")
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
    assert place(UnappliedSearch(relevance_of).first(joined, reading, reading.end)) == 2


def test_changes_that_concern_only_waiting_tables_are_not_lacked() -> None:
    for text, first in (("A a x b", 4), ("A a", None), ("AB a", 1), ("ab", 1), ("a *", 2)):
        reading = Reading(text)
        unapplied = UnappliedSearch(relevance_of)
        assert place(unapplied.first(PlanState(START), reading, reading.end, [table("a")])) == first, text
        assert place(unapplied.first(PlanState(START), reading, reading.end)) == 1, "the table does not wait any more"


def at(number: int) -> Lsn:
    return Lsn(START.change_no, START.log_index, START.offset + 100 * number)


def waits(reading: Reading, search: WaitingTableSearch | None = None, **places: int) -> int | None:
    """Returns the place of the oldest change that waits; each table waits at the given place."""
    named: dict[TableName, Lsn] = {table(name): at(number) for name, number in places.items()}
    return place((search or WaitingTableSearch(relevance_of)).first(named, {}, reading, reading.end))


def test_the_oldest_change_after_the_place_of_its_own_table_is_found() -> None:
    reading = Reading("a b x A b ab c B")
    assert waits(reading) is None
    assert waits(reading, a=0) == 1
    assert waits(reading, a=1) == 4, "the statement counts, too"
    assert waits(reading, a=4, b=5) == 6
    assert waits(reading, a=4, b=2) == 5, "the table that waits at the earlier place"
    assert waits(reading, b=6) == 8
    assert waits(reading, c=7) is None
    assert waits(Reading("x * a"), a=0) == 2, "a statement about any table"
    reading = Reading("a a")
    found = WaitingTableSearch(relevance_of).first(
        {table("a"): START}, {table("a"): CopyState(since=at(1))}, reading, reading.end
    )
    assert place(found) == 2, "a change from before the table has joined is not its own"


def test_a_found_change_is_not_searched_for_again_and_a_later_one_is_found_when_the_table_moves() -> None:
    reading, search = Reading("x x a x b a"), WaitingTableSearch(relevance_of)
    assert waits(reading, search, a=0) == 3
    assert waits(reading, search, a=0) == 3
    assert reading.read == 3
    assert waits(reading, search, a=3) == 6
    assert waits(reading, search, a=3, b=4) == 5, "another table waits, too"
    assert waits(reading, search, a=3) == 6
    assert waits(reading, search, a=6) is None
    assert waits(reading, search, a=0) == 3, "a new attempt begins at an earlier place"


def test_one_search_reads_a_part_of_a_long_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searches, "_MOST", 2)
    reading, search = Reading("x x x a"), WaitingTableSearch(relevance_of)
    assert waits(reading, search, a=0) is None
    assert waits(reading, search, a=0) == 4


def test_an_entry_that_is_not_examined_yet_counts_as_lacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searches, "_MOST", 2)
    for text, places in (("x x x x a x", [3, 5, 5]), ("x x x x x", [3, 5, None]), ("x x", [None])):
        reading, unapplied = Reading(text), UnappliedSearch(relevance_of)
        found = [place(unapplied.first(PlanState(START), reading, reading.end)) for _ in places]
        assert found == places, text
        assert reading.read <= 2 * len(places) + 2
