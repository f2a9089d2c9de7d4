"""Tables wait for their own schema change, while all other tables continue."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from pidts.batch.pointers import Pointer
from pidts.model import LogEntry, Lsn
from pidts.plan import (
    ChunkRequest,
    CopyState,
    HeldTables,
    Limits,
    Phase,
    PlanState,
    StagedChunk,
    next_state,
    plan_between,
)

from .small_log import LIMITS, START, behind, log, relevance_of, table, tables_of


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
    assert PlanState.from_checkpoint(state.lsn, state.copy_json()) == PlanState(
        state.lsn, state.copy, held=(HeldTables(held[0].tables, START), held[1])
    )
    assert state.needs == START
    assert [state.at(table(name)) for name in "abcd"] == [START, START, Lsn(0, 1, 50), state.lsn]


def test_a_checkpoint_from_before_there_were_held_tables_is_read():
    old = '[["shop", "a", {"after": [5], "upto": null, "reads": 1, "rows": 5, "done": false, "reading": null}]]'
    assert PlanState.from_checkpoint(START, old).copy == {table("a"): CopyState((5,), reads=1, rows=5)}


LETTERS = "abcdefghijklmnopqrst"


class ReadLog:
    """A log of many tables that counts the entries that were read."""

    def __init__(self, text: str) -> None:
        self.entries = log(text)
        self.read = 0

    def __call__(self, at: Lsn, to: Lsn | None) -> Iterator[LogEntry]:
        for entry in behind(self.entries, at, to):
            self.read += 1
            yield entry

    def held(self) -> PlanState:
        """Returns the state in which each table is held before its first statement, and no table is not held."""
        first = {}
        for entry in self.entries:
            transaction = entry.transaction
            if transaction.ddl:
                first.setdefault(next(iter(tables_of(transaction.ddl))), transaction)
        groups = [HeldTables(frozenset({name}), one.prev_lsn, one.lsn) for name, one in first.items()]
        return PlanState(self.entries[-1].transaction.lsn, held=tuple(groups))

    def after(self, state: PlanState, limits: Limits = LIMITS) -> PlanState | None:
        """Returns the state after the next batch if all statements are done."""
        return next_state(state, self, {}, limits, relevance_of, None, state.dues)

    def carried(self, start: PlanState, end: PlanState) -> list[str]:
        return carried(start, end, self.entries)


def test_tables_that_are_released_together_read_the_log_once():
    """Each of 20 tables waits before its own statement: their log is read about twice, and not 20 times."""
    rows = " ".join(LETTERS)
    made = ReadLog(" ".join(f"{letter.upper()} {letter}" for letter in LETTERS) + f" {rows} {rows}")
    held = made.held()
    free = made.after(held)
    assert free == PlanState(held.lsn)
    assert made.read < 2 * len(made.entries)
    made.read = 0
    plan = plan_between(held, free, made, relevance_of)
    assert made.read < 2 * len(made.entries)
    assert plan.row_events == 3 * len(LETTERS)
    found = made.carried(held, free)
    assert len(found) == len(set(found)) == 3 * len(LETTERS)


def test_tables_that_are_released_together_go_on_as_one_group_when_the_batch_is_full():
    made = ReadLog("A a a a B a b b C a b c c ab abc")
    state, limits, seen = made.held(), replace(LIMITS, transactions=4), []
    while (after := made.after(state, limits)) is not None:
        seen.append(picture(after)[2])
        state = after
    assert seen[0] == {"a": (4, None), "b": (4, 5), "c": (12, None)}
    assert seen[1:] == [{"ab": (8, None)}, {"ab": (12, None)}, {}]


def test_a_released_table_near_the_end_of_the_log_does_not_wait_for_one_that_is_far_behind():
    made = ReadLog(f"A {'a ' * 20}B b b C c c")
    state = made.held()
    limits = replace(LIMITS, transactions=5)
    first = made.after(state, limits)
    assert picture(first)[2] == {"a": (5, None), "b": (21, 22)}
    assert made.carried(state, first) == [*(f"{number}:a" for number in range(2, 6)), "26:c", "27:c"]
    second = made.after(first, limits)
    assert picture(second)[2] == {"a": (10, None), "b": (26, None)}


def test_a_released_table_near_the_end_of_the_log_does_not_wait_for_two_that_are_far_behind():
    """Both tables have waited for a long statement. They do not make the third one wait until they have caught up."""
    made = ReadLog(f"A {'a ' * 20}B {'b ' * 20}C c c")
    lsns = [entry.transaction.lsn for entry in made.entries]
    behind_twice = [HeldTables(frozenset({table(n)}), lsns[at], takes_along=True) for n, at in (("a", 0), ("b", 21))]
    released = HeldTables(frozenset({table("c")}), lsns[41], lsns[42])
    after = made.after(PlanState(lsns[-1], held=(*behind_twice, released)), replace(LIMITS, transactions=5))
    assert picture(after)[2] == {"a": (6, None), "b": (27, None)}


def test_a_place_within_a_transaction_is_not_the_end_of_a_part_of_the_log():
    """An earlier run has committed a part of transaction 3, so table b is within it."""
    entries = log("A a B+b a b")
    within = Lsn(START.change_no, START.log_index, entries[2].transaction.begin.offset + 50)
    groups = (
        HeldTables(frozenset({table("a")}), START, entries[0].transaction.lsn),
        HeldTables(frozenset({table("b")}), within, entries[2].transaction.lsn),
    )
    held = PlanState(entries[-1].transaction.lsn, held=groups)
    free = step(held, entries, done=[1, 3])
    assert free == PlanState(held.lsn)
    assert sorted(carried(held, free, entries)) == ["2:a", "3:b", "4:a", "5:b"]
