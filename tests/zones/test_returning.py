"""The steps by which a zone returns: what is given up is told first, and no task begins before the last look."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from pidts.model import PrecheckFailed, TableName
from pidts.task.zones.returning import RecordedTask, Steps, let_return

ORDERS = TableName("shop", "orders")
TASKS = [RecordedTask("a", "c", "ac", "a"), RecordedTask("c", "a", "ca", "c"), RecordedTask("b", "c", "bc", "b")]


def run(
    unsent: Counter[TableName] | None, written: Counter[TableName], *, discard: bool = False
) -> tuple[list[str], str]:
    """Returns the steps that were done, and the code of the refusal."""
    done: list[str] = []

    def step(name: str) -> Callable[[], None]:
        return lambda: done.append(name)

    def told(name: str, found: Counter[TableName] | None) -> Counter[TableName] | None:
        done.append(name)
        return found

    steps = Steps(
        unsent=lambda: told("unsent", unsent),
        forget=lambda one: done.append(f"forget {one.task}"),
        allow=step("allow"),
        copy=step("copy"),
        written=lambda: told("written", written) or Counter(),
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
        ["unsent", "note", *forgotten, "allow", "copy", "written", "begin"],
        "",
    )


@pytest.mark.parametrize("unsent", [None, Counter({ORDERS: 2})])
def test_what_others_have_not_got_is_given_up_only_on_demand(unsent: Counter[TableName] | None) -> None:
    assert run(unsent, Counter()) == (["unsent"], "zone-unsent")
    assert run(unsent, Counter(), discard=True)[0][-1] == "begin"


def test_a_zone_that_was_written_to_has_not_returned() -> None:
    done, code = run(Counter(), Counter({ORDERS: 1}))
    assert code == "zone-written"
    assert "begin" not in done
