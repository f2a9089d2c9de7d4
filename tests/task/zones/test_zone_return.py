"""A zone returns step by step: the command first lists what is lost, and no task begins before the last check."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from pidts.model import Checkpoint, Lsn, Position, PrecheckFailed, TableName
from pidts.plan import PlanState
from pidts.plan.copy.state import CopyState
from pidts.plan.state import HeldTables
from pidts.task.zones.zone_return import RecordedTask, Steps, let_return
from pidts.task.zones.zone_return_servers import read_up_to

ORDERS = TableName("shop", "orders")
TASKS = [RecordedTask("a", "c", "ac", "a"), RecordedTask("c", "a", "ca", "c"), RecordedTask("b", "c", "bc", "b")]


def run(
    unsent: Counter[TableName] | None,
    written: Counter[TableName],
    *,
    discard: bool = False,
    running: Sequence[str] = (),
) -> tuple[list[str], str]:
    """Runs the command. Returns the steps that were done, and the code of the refusal."""
    done: list[str] = []

    def step(name: str) -> Callable[[], None]:
        return lambda: done.append(name)

    def noted(name: str, found: Counter[TableName] | None) -> Counter[TableName] | None:
        done.append(name)
        return found

    steps = Steps(
        running=lambda: running,
        unsent=lambda: noted("unsent", unsent),
        forget=lambda one: done.append(f"forget {one.task}"),
        forget_relays=step("forget relays"),
        allow=step("allow"),
        copy=step("copy"),
        written=lambda: noted("written", written) or Counter(),
        note_place=step("note"),
        begin_out=step("begin"),
    )
    try:
        let_return("c", TASKS, steps, discard=discard, say=lambda _: None)
    except PrecheckFailed as error:
        return done, error.code
    return done, ""


def test_the_place_is_on_record_before_a_task_is_forgotten_and_tasks_out_of_the_zone_begin_last() -> None:
    forgotten = ["forget ca", "forget ac", "forget bc"]
    assert run(Counter(), Counter()) == (
        ["unsent", "note", *forgotten, "forget relays", "allow", "copy", "written", "begin"],
        "",
    )


def test_nothing_changes_while_tasks_of_the_zone_run() -> None:
    assert run(Counter(), Counter(), running=["ca"]) == ([], "zone-tasks-run")


@pytest.mark.parametrize("unsent", [None, Counter({ORDERS: 2})])
def test_changes_that_other_zones_lack_are_given_up_only_on_demand(unsent: Counter[TableName] | None) -> None:
    assert run(unsent, Counter()) == (["unsent"], "zone-unsent")
    assert run(unsent, Counter(), discard=True)[0][-1] == "begin"


def test_a_zone_that_was_written_to_has_not_returned() -> None:
    done, code = run(Counter(), Counter({ORDERS: 1}))
    assert code == "zone-written"
    assert "begin" not in done


def checkpoint(at: int, worker: int, held: int | None = None) -> Checkpoint:
    """Returns a worker's checkpoint, with a table that waits at an earlier place."""
    waits = (HeldTables(frozenset({ORDERS}), Lsn(0, 1, held)),) if held else ()
    state = PlanState(Lsn(0, 1, at), held=waits)
    place = f"bin.000001:{at}"
    return Checkpoint(task="ca", source="c", worker=worker, lsn=state.lsn, position=place, copy=state.copy_json())


def test_changes_of_a_table_that_waits_in_another_zone_are_unsent() -> None:
    assert read_up_to([checkpoint(900, 0), checkpoint(800, 1)]) == Position("bin.000001", 800)
    assert read_up_to([checkpoint(900, 0, held=304), checkpoint(800, 1)]) == Position("bin.000001", 304)
    assert read_up_to([]) is None


def test_nobody_knows_what_is_unsent_while_another_zone_copies_a_table() -> None:
    copies = PlanState(Lsn(0, 1, 900), {ORDERS: CopyState()})
    begun = Checkpoint(
        task="ca", source="c", worker=0, lsn=copies.lsn, position="bin.000001:900", copy=copies.copy_json()
    )
    assert read_up_to([checkpoint(900, 1), begun]) is None
