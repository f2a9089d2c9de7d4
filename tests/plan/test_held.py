"""Tables wait for their own schema change, while all other tables continue."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pidts.batch.pointers import Pointer
from pidts.model import LogEntry, Lsn
from pidts.plan import ChunkRequest, CopyState, HeldTables, Phase, PlanState, StagedChunk, next_state, plan_between

from .small_log import LIMITS, START, behind, log, relevance_of, table


def step(state, entries, done=(), limits=LIMITS, staged=None):
    return next_state(
        state,
        lambda at, to: behind(entries, at, to),
        staged or {},
        limits,
        relevance_of,
        None,
        [entries[number - 1].transaction.lsn for number in done],
    )


def place(lsn: Lsn | None) -> int | None:
    return None if lsn is None else (lsn.offset - START.offset) // 100


def picture(state: PlanState) -> tuple:
    """Returns the state's place and the place of the statement that it waits for. Returns both for tables that are
    held together, too.
    """
    held = {
        "".join(sorted(n.name for n in waiting.tables)): (place(waiting.lsn), place(waiting.due))
        for waiting in state.held
    }
    return place(state.lsn), place(state.due), held


def carried(start: PlanState, end: PlanState, entries: list[LogEntry]) -> list[str]:
    """Returns `number:tables` for each transaction that a slice carries, with those of its tables that the slice
    carries.
    """
    plan = plan_between(start, end, lambda at, to: behind(entries, at, to), relevance_of)
    found = []
    for pointer in [Pointer.from_json(Pointer(log=piece).to_json()) for piece in plan.log]:
        piece = pointer.log
        for number, entry in enumerate(entries, 1):
            if piece.extent.offset <= entry.extent.offset < piece.extent.end:
                names = "".join(name.name for name in entry.transaction.tables if piece.carries(name))
                found += [f"{number}:{names}"] if names else []
    return found


def test_other_tables_continue_during_a_ddl_and_its_tables_catch_up_later():
    entries = log("a A a b ab")
    before = step(PlanState(START), entries)
    assert picture(before) == (1, 2, {})
    held = step(before, entries)
    assert picture(held) == (5, None, {"a": (1, 2)})
    assert carried(before, held, entries) == ["4:b", "5:b"]
    assert step(held, entries) is None
    free = step(held, entries, done=[2])
    assert picture(free) == (5, None, {})
    assert carried(held, free, entries) == ["3:a", "5:a"]


def test_no_batch_passes_a_schema_change_without_need():
    before = step(PlanState(START), log("A"))
    assert step(before, log("A a x")) is None
    assert picture(step(before, log("A a x B"))) == (3, 4, {"a": (0, 1)})


def test_held_and_other_changes_share_a_batch():
    held = PlanState(
        log("a A a b")[-1].transaction.lsn, held=(HeldTables(frozenset({table("a")}), START.at_row(0), None),)
    )
    entries = log("a a b b a b")
    free = step(held, entries)
    assert picture(free) == (6, None, {})
    assert carried(held, free, entries) == ["1:a", "2:a", "5:a", "6:b"]


def test_a_backlog_is_caught_up_in_pieces_while_others_continue():
    entries = log("A a a a a b b b")
    limits = replace(LIMITS, transactions=2)
    state = step(PlanState(START), entries, limits=limits)
    seen = []
    while (after := step(state, entries, done=[1] if place(state.lsn) == 8 else [], limits=limits)) is not None:
        seen.append(picture(after))
        state = after
    assert seen[0][2] == {"a": (0, 1)}
    assert [held for _, _, held in seen if held][-3:] == [{"a": (2, None)}, {"a": (4, None)}, {"a": (6, None)}]
    assert seen[-1] == (8, None, {})


def test_a_ddl_of_a_held_table_is_passed_by_others_and_reached_again_later():
    entries = log("A b A b")
    start = step(PlanState(START), entries)
    held = step(start, entries)
    assert picture(held) == (4, None, {"a": (0, 1)})
    again = step(held, entries, done=[1])
    assert picture(again) == (4, None, {"a": (2, 3)})
    assert picture(step(again, entries, done=[3])) == (4, None, {})


@pytest.mark.parametrize("other", ["AB", "*"])
def test_a_ddl_of_held_tables_and_others_waits_for_them(other):
    entries = log(f"A b {other} c")
    held = step(step(PlanState(START), entries), entries)
    assert picture(held) == (2, None, {"a": (0, 1)})
    assert step(held, entries) is None
    assert picture(step(held, entries, done=[1])) == (2, None, {})
    free = step(step(held, entries, done=[1]), entries)
    assert picture(free) == (2, 3, {})
    overtaken = step(free, entries)
    assert overtaken is None if other == "*" else picture(overtaken) == (4, None, {"ab": (2, 3)})


def test_the_rows_of_a_create_table_select_come_once_it_is_done():
    entries = log("A+a b")
    before = step(PlanState(START), entries)
    held = step(before, entries)
    assert carried(before, held, entries) == ["2:b"]
    assert carried(held, step(held, entries, done=[1]), entries) == ["1:a"]
    assert carried(before, step(before, entries, done=[1]), entries) == ["1:a", "2:b"]


def test_a_held_table_is_not_copied_and_others_are():
    copy = {table("a"): CopyState(reads=4), table("b"): CopyState()}
    entries = log("A b")
    before = step(PlanState(START, copy), entries)
    assert before.reading == ()
    held = step(before, entries)
    assert [request.table for request in held.reading] == [table("b")]
    staged = {table("b"): StagedChunk(held.reading[0], held.lsn, 1, (1,), (9,), is_last=True, waiting=1)}
    free = step(held, entries, done=[1], staged=staged)
    assert free.written == free.settled == held.reading
    assert free.reading == (
        ChunkRequest(table("a"), 4, None, None, 2000),
        ChunkRequest(table("b"), 1, None, None, 0, phase=Phase.FINISH),
    )


def test_a_state_survives_spark_s_offset_log_and_the_target_s_checkpoint():
    held = (
        HeldTables(frozenset({table("a"), table("b")}), START, Lsn(0, 1, 104)),
        HeldTables(frozenset({table("c")}), Lsn(0, 1, 50)),
    )
    state = PlanState(Lsn(0, 1, 500), {table("a"): CopyState((1,))}, held, due=Lsn(0, 1, 600))
    assert PlanState.from_json(state.to_json()) == state
    assert PlanState.from_checkpoint(state.lsn, state.copy_json()) == state.durable()
    assert state.needs == START
    assert [state.at(table(name)) for name in "abcd"] == [START, START, Lsn(0, 1, 50), state.lsn]


def test_a_checkpoint_from_before_there_were_held_tables_is_read():
    old = '[["shop", "a", {"after": [5], "upto": null, "reads": 1, "rows": 5, "done": false, "reading": null}]]'
    assert PlanState.from_checkpoint(START, old).copy == {table("a"): CopyState((5,), reads=1, rows=5)}
