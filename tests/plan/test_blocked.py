"""Tables wait before a statement because of other tables that the statement names."""

from __future__ import annotations

import pytest

from pidts.model import LogEntry
from pidts.plan import HeldTables, PlanState, Relevance, RelevanceKind
from pidts.plan.blocked import blocked_statements

from .small_log import START, behind, log, relevance_of, table


def names(text: str):
    return frozenset(map(table, text))


def shown(state, entries, halted=(), known="abc", relevance=relevance_of):
    found = blocked_statements(
        state,
        lambda at, to: behind(entries, at, to),
        relevance,
        names(known),
        [entries[number - 1].transaction.lsn for number in halted],
    )
    return [
        tuple("".join(sorted(one.name for one in group)) for group in (each.tables, each.others, each.leaving))
        for each in found
    ]


def gone(entry):
    """Returns the effect of an entry: a statement with several tables drops them, and `*` drops their schema."""
    relevance = relevance_of(entry)
    if relevance.kind is RelevanceKind.DDL and relevance.tables is None:
        return Relevance(RelevanceKind.DDL, schemas=("shop",), gone_schemas=("shop",))
    return (
        Relevance(relevance.kind, relevance.tables, gone=tuple(relevance.tables))
        if relevance.tables and len(relevance.tables) > 1
        else relevance
    )


def test_a_table_waits_before_a_statement_that_names_a_waiting_table() -> None:
    entries = log("A b AB c")
    at = [entry.transaction.lsn for entry in entries]
    state = PlanState(at[3], held=(HeldTables(names("a"), START, at[0]), HeldTables(names("b"), at[1])))
    assert shown(state, entries) == [("b", "a", "")]
    assert shown(state, entries, relevance=gone) == [("b", "a", "b")]
    free = PlanState(at[3], held=(HeldTables(names("ab"), at[1]),))
    assert shown(free, entries) == [], "they have met there"


def test_a_table_that_is_created_like_a_waiting_table_is_blocked_on_it() -> None:
    entries = log("A AN n")
    assert shown(PlanState(START, due=entries[0].transaction.lsn), entries, halted=[1]) == [("n", "a", "")]
    entries = log("A AN NM")
    both = [("n", "a", ""), ("m", "n", "")]
    assert shown(PlanState(START, due=entries[0].transaction.lsn), entries, halted=[1]) == both, "nobody knows n yet"


def test_a_table_that_is_catching_up_is_not_blocked() -> None:
    entries = log("A b b AB c")
    at = [entry.transaction.lsn for entry in entries]
    state = PlanState(at[4], held=(HeldTables(names("a"), START, at[0]), HeldTables(names("b"), at[1])))
    assert shown(state, entries) == []


@pytest.mark.parametrize("text", ["A AB", "A x a AB", "A AB b"])
def test_blocked_statements_need_no_further_batch(text: str) -> None:
    """The planner makes no batch whose only purpose is that a table waits."""
    entries = log(text)
    assert shown(PlanState(START, due=entries[0].transaction.lsn), entries, halted=[1]) == [("b", "a", "")]
    assert shown(PlanState(START, due=entries[0].transaction.lsn), entries) == [], "it runs, it does not wait"


def test_rows_come_before_it() -> None:
    entries = log("A b AB")
    assert shown(PlanState(START, due=entries[0].transaction.lsn), entries, halted=[1]) == []


def test_a_statement_of_a_whole_schema_keeps_all_of_it() -> None:
    entries = log("A * b")
    at = entries[0].transaction.lsn
    state = PlanState(at, held=(HeldTables(names("a"), START, at),))
    assert shown(state, entries, relevance=gone) == [("bc", "a", "bc")]
    (one,) = blocked_statements(state, lambda at, to: behind(entries, at, to), gone, names("abc"), [])
    assert one.holds_all

    def made(entry: LogEntry) -> Relevance:
        return Relevance(RelevanceKind.DDL, schemas=("shop",)) if entry.transaction.ddl == "*" else relevance_of(entry)

    assert shown(state, entries, relevance=made) == [], "who makes or alters one waits for nobody"
