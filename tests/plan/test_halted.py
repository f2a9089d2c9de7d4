"""Halted tables wait until an operator has acted, while all other tables continue."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from pidts.model import Lsn
from pidts.plan import CopyState, HeldTables, Limits, PlanState, next_state, plan_between

from .small_log import LIMITS, START, behind, log, relevance_of, table, tables_of
from .test_held import carried, picture, place


def step(state, entries, done=(), halted=(), goal=None, limits=LIMITS):
    def at(numbers):
        return [entries[number - 1].transaction.lsn for number in numbers]

    return next_state(
        state, lambda since, to: behind(entries, since, to), {}, limits, relevance_of, goal, at(done), at(halted)
    )


def names(text: str):
    return frozenset(map(table, text))


def test_a_table_whose_rows_are_refused_stays_and_others_continue():
    entries = log("a ab b a")
    state = PlanState(entries[0].transaction.lsn).halting(names("a"))
    assert picture(state) == (1, None, {"a": (1, None)})
    after = step(state, entries)
    assert picture(after) == (4, None, {"a": (1, None)})
    assert carried(state, after, entries) == ["2:b", "3:b"]
    assert step(after, entries) is None
    assert after.needs == entries[0].transaction.lsn


def test_the_next_run_tries_it_again():
    entries = log("a ab b a")
    state = step(PlanState(entries[0].transaction.lsn).halting(names("a")), entries)
    again = PlanState.from_checkpoint(state.lsn, state.copy_json())
    free = step(again, entries)
    assert picture(free) == (4, None, {})
    assert carried(again, free, entries) == ["2:a", "4:a"]


def test_a_halted_table_is_no_longer_held_with_others():
    entries = log("AB a b c")
    state = PlanState(entries[-1].transaction.lsn, held=(HeldTables(names("ab"), START),)).halting(names("a"))
    assert picture(state) == (4, None, {"b": (0, None), "a": (0, None)})
    after = step(state, entries)
    assert after is None, "the statement concerns both tables"
    # In the next run, neither table is halted: both arrive at the statement, and continue together.
    again = PlanState.from_checkpoint(state.lsn, state.copy_json())
    assert picture(step(again, entries)) == (4, None, {"ab": (0, 1)})


def test_a_statement_of_halted_tables_and_others_holds_the_others():
    entries = log("A b AB b a c")
    start = step(step(PlanState(START), entries), entries)
    assert picture(start) == (2, None, {"a": (0, 1)}), "until it is known that it fails, all wait before the statement"
    after = step(start, entries, halted=[1])
    assert picture(after) == (6, None, {"a": (0, 1), "b": (2, None)})
    assert carried(start, after, entries) == ["6:c"]
    assert step(after, entries, halted=[1]) is None
    met = step(after, entries, done=[1])
    assert picture(met) == (6, None, {"ab": (2, 3)})
    free = step(met, entries, done=[3])
    assert picture(free) == (6, None, {})
    assert carried(met, free, entries) == ["4:b", "5:a"]


def test_tables_held_at_two_places_join_before_a_statement_about_both():
    entries = log("A B AB c")
    state = step(step(PlanState(START), entries), entries)
    assert picture(state) == (1, 2, {"a": (0, 1)})
    state = step(state, entries)
    assert picture(state) == (4, None, {"a": (0, 1), "b": (1, 2)})
    first = step(state, entries, done=[2])
    assert picture(first) == (4, None, {"a": (0, 1), "b": (2, None)})
    assert picture(step(first, entries, done=[1])) == (4, None, {"ab": (2, 3)})


def test_other_tables_do_not_wait_before_a_statement_with_a_halted_table():
    entries = log("A AB a c")
    start = step(PlanState(START), entries)
    assert step(start, entries) is None
    after = step(start, entries, halted=[1])
    assert picture(after) == (4, None, {"a": (0, 1), "b": (1, None)})
    assert carried(start, after, entries) == ["4:c"]


def test_a_statement_that_may_be_about_any_table_waits_for_halted_ones():
    entries = log("A b * c")
    start = step(step(PlanState(START), entries, halted=[1]), entries, halted=[1])
    assert picture(start) == (2, None, {"a": (0, 1)})
    assert step(start, entries, halted=[1]) is None


def test_a_held_table_continues_if_the_next_statement_of_tables_held_with_it_does_not_name_it():
    entries = log("x A a b")
    state = PlanState(entries[-1].transaction.lsn, held=(HeldTables(names("ab"), START),))
    after = step(state, entries)
    assert picture(after) == (4, None, {"a": (1, 2)})
    assert carried(state, after, entries) == ["4:b"]


def test_the_position_reaches_the_goal_without_the_halted():
    entries = log("A a x")
    start = step(PlanState(START), entries)
    assert step(start, entries, halted=[1]) is None
    after = step(start, entries, halted=[1], goal=entries[-1].transaction.lsn)
    assert picture(after) == (3, None, {"a": (0, 1)})


def test_a_halted_table_is_not_copied():
    state = PlanState(START, {table("a"): CopyState(), table("b"): CopyState()}).halting(names("a"))
    assert [request.table.name for request in step(state, []).reading] == ["b"]


def test_a_halt_is_kept_in_sparks_offsets_but_not_in_the_checkpoint():
    state = PlanState(Lsn(0, 1, 500)).halting(names("a"))
    assert PlanState.from_json(state.to_json()) == state
    assert PlanState.from_checkpoint(state.lsn, state.copy_json()).held == ()
    behind_it = PlanState(Lsn(0, 1, 500), held=(HeldTables(names("a"), START, halted=True),))
    assert PlanState.from_checkpoint(behind_it.lsn, behind_it.copy_json()).held == (HeldTables(names("a"), START),)


WORDS = ["a", "b", "c", "ab", "bc", "A", "B", "C", "AB", "BC", "ABC", "*", "x"]


@settings(max_examples=examples(80), deadline=None)
@given(
    words=st.lists(st.sampled_from(WORDS), max_size=14),
    size=st.integers(1, 5),
    seed=st.integers(0, 1 << 32),
)
def test_whatever_halts_and_is_repaired_each_table_gets_all_of_its_log_in_order(words, size, seed):
    """Rows and statements of each table arrive once and in order.

    A statement arrives when all its tables have reached it.
    """
    entries, chance = log(" ".join(words)), random.Random(seed)
    limits = Limits(transactions=size, idle_entries=50)
    state, done, halted, got = PlanState(START), set(), set(), {name: [] for name in "abc"}
    for _ in range(100):
        if chance.random() < 0.15:
            poisoned = [name for name in "abc" if chance.random() < 0.3]
            # In a new run, a table that was halted because of its rows is tried again, and may be refused again.
            state = PlanState.from_checkpoint(state.lsn, state.copy_json()).halting(names("".join(poisoned)))
            done, halted = set(), set()
        for due in state.dues:
            fate = chance.choice(["done", "halted", "running"])
            halted.discard(due)
            if fate == "done":
                run(entries, due, state, done, got)
            elif fate == "halted" and tables_of(entries[place(due) - 1].transaction.ddl) is not None:
                halted.add(due)
        after = next_state(
            state, lambda at, to: behind(entries, at, to), {}, limits, relevance_of, None, list(done), list(halted)
        )
        if after is not None:
            for word in carried(state, after, entries):
                number, _, letters = word.partition(":")
                for letter in letters.replace("x", ""):
                    got[letter].append(int(number))
            plan_between(state, after, lambda at, to: behind(entries, at, to), relevance_of)
            state = after
    state = finish(PlanState.from_checkpoint(state.lsn, state.copy_json()), entries, got)
    for letter in "abc":
        wanted = [number for number, word in enumerate(words, 1) if letter in word.lower() or word == "*"]
        assert list(dict.fromkeys(got[letter])) == wanted, (letter, words)
        rows = [number for number in got[letter] if words[number - 1].islower()]
        assert rows == sorted(set(rows)), "no row twice, none early"


def run(entries, due, state, done, got):
    """Does what the driver does. A run that begins again finds the change done already."""
    number = place(due)
    tables = tables_of(entries[number - 1].transaction.ddl) or names("abc")
    before = entries[number - 2].transaction.lsn if number > 1 else START
    assert all(state.at(name) == before for name in tables), "begun when all before it is there, and nothing behind"
    done.add(due)
    for name in tables:
        got[name.name].append(number)


def finish(state, entries, got):
    done = set()
    for _ in range(200):
        for due in state.dues:
            if due not in done:
                run(entries, due, state, done, got)
        after = step(state, entries, done=[place(lsn) for lsn in done])
        if after is None:
            break
        for word in carried(state, after, entries):
            number, _, letters = word.partition(":")
            for letter in letters.replace("x", ""):
                got[letter].append(int(number))
        state = after
    assert state.held == ()
    return state
