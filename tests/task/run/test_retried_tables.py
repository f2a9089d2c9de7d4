"""A table that is tried again after a halt counts as waiting until it has caught up or is halted again."""

from __future__ import annotations

from pidts.model import Halt, Lsn, TableName
from pidts.plan import HeldTables, PlanState
from pidts.task.run.retried_tables import RetriedTables

NONE: frozenset[TableName] = frozenset()
T, U = TableName("shop", "t"), TableName("shop", "u")


def place(number: int) -> Lsn:
    return Lsn(0, 1, number)


def halted(*tables: TableName) -> list[Halt]:
    return [Halt(tables=(name,), lsn=place(10), code="target-refused", what="no") for name in tables]


def test_a_table_that_was_halted_before_the_start_waits_until_it_has_the_log_of_that_time() -> None:
    retried = RetriedTables()
    assert not retried.may_delay_others(NONE)
    retried.begin_attempt(halted(T))
    assert retried.may_delay_others(NONE)
    assert retried.look(PlanState(place(10)), [], place(50), is_level=False) == {T: place(10)}
    assert retried.look(PlanState(place(40)), [], place(60), is_level=False) == {T: place(40)}
    assert (retried.is_any, retried.may_delay_others(NONE)) == (True, True)
    assert retried.look(PlanState(place(50)), [], place(90), is_level=False) == {}
    assert (retried.is_any, retried.may_delay_others(NONE)) == (False, False)


def test_a_table_without_further_changes_has_caught_up() -> None:
    retried = RetriedTables()
    retried.begin_attempt(halted(T))
    assert retried.look(PlanState(place(10)), [], place(50), is_level=True) == {}
    retried.begin_attempt(halted(T))
    held = PlanState(place(20), held=(HeldTables(frozenset({T}), place(10)),))
    assert retried.look(held, [], place(50), is_level=True) == {T: place(10)}, "it is before the place of the task"
    assert (retried.is_any, retried.may_delay_others(NONE)) == (True, False)


def test_a_table_that_is_halted_again_is_not_tried_again() -> None:
    retried = RetriedTables()
    retried.begin_attempt(halted(T, U))
    assert retried.look(PlanState(place(10)), [], place(50), is_level=False).keys() == {T, U}
    retried.begin_attempt([])
    assert retried.look(PlanState(place(10)), [T], place(50), is_level=False).keys() == {U}, "it has not caught up yet"
    assert retried.look(PlanState(place(50)), [T], place(60), is_level=True) == {}
    assert not retried.is_any
    assert retried.look(PlanState(place(50)), [], place(70), is_level=False) == {T: place(50)}, "after `ddl retry`"


def test_a_table_that_a_command_lets_continue_may_delay_others_before_the_next_look() -> None:
    retried = RetriedTables()
    assert retried.look(PlanState(place(10)), [T, U], place(50), is_level=True) == {}
    assert not retried.may_delay_others(frozenset({T, U}))
    assert retried.may_delay_others(frozenset({U})), "the batch has the old changes of T"
    assert retried.look(PlanState(place(50)), [U], place(50), is_level=True) == {}
    assert not retried.may_delay_others(frozenset({U}))
