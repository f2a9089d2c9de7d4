"""Tables wait while another shard changes their merged table."""

from __future__ import annotations

import random

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.examples import examples

from pidts.plan import CopyState, HeldTables, Limits, PlanState, next_state, plan_between

from .small_log import LIMITS, START, behind, log, relevance_of, table
from .test_halted import finish, run
from .test_held import carried, picture


def step(state, entries, kept="", done=()):
    dones = [entries[number - 1].transaction.lsn for number in done]
    return next_state(
        state, lambda at, to: behind(entries, at, to), {}, LIMITS, relevance_of, None, dones, (), set(map(table, kept))
    )


def test_kept_tables_wait_and_catch_up_while_others_continue():
    entries = log("ab a b a")
    after = step(PlanState(START), entries, "a")
    assert picture(after) == (4, None, {"a": (0, None)})
    assert carried(PlanState(START), after, entries) == ["1:b", "3:b"]
    assert step(after, entries, "a") is None
    free = step(after, entries)
    assert picture(free) == (4, None, {})
    assert carried(after, free, entries) == ["1:a", "2:a", "4:a"]


def test_a_batch_is_planned_to_keep_a_table_even_without_other_work():
    """The shard that makes the change waits for this batch."""
    after = step(PlanState(START), [], "a")
    assert picture(after) == (0, None, {"a": (0, None)})
    assert step(after, [], "a") is None


def test_a_kept_table_is_no_longer_held_with_others_and_a_due_change_comes_first():
    entries = log("AB b a C c")
    at = [entry.transaction.lsn for entry in entries]
    state = PlanState(at[2], held=(HeldTables(frozenset(map(table, "ab")), at[0]),))
    assert picture(step(state, entries, "a")) == (3, 4, {"a": (1, None)})
    due = PlanState(at[2], due=at[3])
    after = step(due, entries, "c", done=[4])
    assert picture(after) == (5, None, {"c": (4, None)})
    assert picture(step(after, entries)) == (5, None, {})
    running = step(due, entries, "bc")
    assert picture(running) == (5, None, {"b": (3, None), "c": (3, 4)})
    assert picture(step(running, entries, "bc", done=[4])) == (5, None, {"b": (3, None), "c": (4, None)})


def test_a_statement_of_them_and_others_holds_the_others():
    entries = log("AB c b")
    after = step(PlanState(START), entries, "a")
    assert picture(after) == (3, None, {"a": (0, None), "b": (0, None)})
    assert picture(step(after, entries)) == (3, None, {"ab": (0, 1)})


def test_tables_that_are_copied_are_not_kept():
    state = PlanState(START, {table("a"): CopyState()})
    assert [request.table.name for request in step(state, [], "a").reading] == ["a"]


@settings(max_examples=examples(60), deadline=None)
@given(
    words=st.lists(st.sampled_from(["a", "b", "ab", "bc", "A", "B", "AB", "BC", "*", "x"]), max_size=12),
    size=st.integers(1, 5),
    seed=st.integers(0, 1 << 32),
)
@example(words=["a", "a", "*", "a", "a", "*", "x"], size=1, seed=1)
def test_whenever_they_are_kept_each_table_gets_all_of_its_log_in_order(words, size, seed):
    entries, chance = log(" ".join(words)), random.Random(seed)
    limits = Limits(transactions=size, idle_entries=50)
    state, done, kept, got = PlanState(START), set(), set(), {name: [] for name in "abc"}
    for _ in range(80):
        if chance.random() < 0.1:
            state, done = PlanState.from_checkpoint(state.lsn, state.copy_json()), set()
        if chance.random() < 0.3:
            kept = {table(name) for name in "abc" if chance.random() < 0.4}
        for due in state.dues:
            if due not in done and chance.random() < 0.5:
                run(entries, due, state, done, got)
        after = next_state(
            state, lambda at, to: behind(entries, at, to), {}, limits, relevance_of, None, list(done), (), kept
        )
        if after is None:
            continue
        words_of = carried(state, after, entries)
        assert not {letter for word in words_of for letter in word.partition(":")[2]} & {one.name for one in kept}
        for word in words_of:
            number, _, letters = word.partition(":")
            for letter in letters.replace("x", ""):
                got[letter].append(int(number))
        plan_between(state, after, lambda at, to: behind(entries, at, to), relevance_of)
        state = after
    state = finish(PlanState.from_checkpoint(state.lsn, state.copy_json()), entries, got)
    says = [entry.transaction.lsn for entry, word in zip(entries, words, strict=True) if word != "x"]
    assert state.lsn >= max(says, default=START), "what says nothing of any table may be passed over with what comes"
    for letter in "abc":
        wanted = [number for number, word in enumerate(words, 1) if letter in word.lower() or word == "*"]
        assert list(dict.fromkeys(got[letter])) == wanted, (letter, words)
        rows = [number for number in got[letter] if words[number - 1].islower()]
        assert rows == sorted(set(rows)), "no row twice, none early"
