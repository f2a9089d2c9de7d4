"""For a state without copies and waiting tables, the planner takes fewer steps, with the same result."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pidts.model import Lsn
from pidts.plan import CopyState, Limits, PlanState, next_state

from .small_log import START, behind, log, relevance_of, table


@given(
    words=st.lists(st.sampled_from(["a", "b", "ab", "x", "x", "A", "B", "AB", "*", "A+a"]), max_size=12),
    at=st.integers(0, 12),
    due=st.none() | st.integers(0, 12),
    is_done=st.booleans(),
    keeps=st.booleans(),
    limits=st.builds(Limits, transactions=st.integers(1, 8), idle_entries=st.integers(1, 8)),
    goal=st.none() | st.integers(0, 12),
)
def test_a_state_without_copies_goes_where_one_with_a_copy_that_is_done_goes(
    words: list[str],
    at: int,
    due: int | None,
    is_done: bool,
    keeps: bool,
    limits: Limits,
    goal: int | None,
) -> None:
    entries = log(" ".join(words))
    places = [START, *(entry.transaction.lsn for entry in entries)]

    def place(number: int) -> Lsn:
        return places[min(number, len(places) - 1)]

    named = place(due) if due is not None and due > at else None
    state = PlanState(place(at), due=named)
    facts: tuple[Any, ...] = (
        partial(behind, entries),
        {},
        limits,
        relevance_of,
        place(goal) if goal is not None else None,
        [named] if is_done and named is not None else [],
        [],
        [table("b")] if keeps else [],
    )
    copied = replace(state, copy={table("z"): CopyState(done=True)})
    assert next_state(state, *facts) == next_state(copied, *facts)
