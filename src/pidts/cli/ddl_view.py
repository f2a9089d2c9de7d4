"""What a person, or a program, reads about halted tables and orders."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pidts.cli.errors import show_error
from pidts.model import Halt, Halted, OrderKind, Where

if TYPE_CHECKING:
    from pidts.task.orders import Standing

_SAYS = {
    OrderKind.SKIP: "it is not run; the source's structure is followed all the same",
    OrderKind.REPLACE: "instead of it, the target runs",
    OrderKind.INJECT: "before it, the target runs",
    OrderKind.REVERT: "it is run as it is, once more",
}


def ways_out(halt: Halt, task: str) -> str:
    """The commands that go on."""
    if halt.statement:
        at = f"--at {halt.lsn}"
        return f"pidts ddl retry|skip|replace|inject {task} {at}" + ("" if halt.tables else ", then run the task again")
    return f"mend the cause, then stop the task and run it again: pidts run {task}"


def show_halt(halt: Halt, task: Path) -> None:
    """On stderr, like an error."""
    todo = ". ".join(filter(None, (halt.todo.rstrip("."), f"Then, or instead: {ways_out(halt, str(task))}")))
    where = Where(position=halt.position or str(halt.lsn), table=", ".join(map(str, halt.tables)))
    statement = f" ({halt.statement[:200]})" if halt.statement else ""
    show_error(Halted(halt.code, f"{halt.what}{statement}", where=where, todo=todo), as_json=False)


def show_standing(task: str, halts: Sequence[Halt], standing: Sequence[Standing], *, as_json: bool) -> None:
    """All of it."""
    if as_json:
        rows = [halt.to_json() for halt in halts]
        ordered = [_order_json(one) for one in standing if one.order is not None]
        print(json.dumps({"task": task, "halted": rows, "orders": ordered}, ensure_ascii=False))
        return
    for halt in halts:
        print(f"{', '.join(map(str, halt.tables)) or 'all tables'}: halted at {halt.position or '-'}, Lsn {halt.lsn}")
        if halt.statement:
            print(f"  statement  {halt.statement}")
        print(f"  because    [{halt.code}] {halt.what}")
        print(f"  do         {'. '.join(filter(None, (halt.todo.rstrip('.'), ways_out(halt, 'TASK'))))}")
    for one in standing:
        if one.order is not None:
            state = "done" if one.is_done else "begun" if one.order.taken else "given"
            print(f"order at Lsn {one.lsn}: {one.order.kind} ({state})")
            print("\n".join(f"  {sql}" for sql in one.order.statements or (one.statement,)))
    if not halts and not standing:
        print(f"{task}: nothing waits for an operator")


def show_order(at: Standing, kind: OrderKind, statements: Sequence[str], *, given: bool, as_json: bool) -> None:
    """What was ordered, or would be."""
    if as_json:
        about = {"lsn": str(at.lsn), "statement": at.statement, "order": kind.value, "statements": list(statements)}
        print(json.dumps({**about, "given": given}, ensure_ascii=False))
        return
    print(f"at Lsn {at.lsn}: {at.statement}")
    if at.halt is not None:
        print(f"  it waits: [{at.halt.code}] {at.halt.what}")
    journal = at.journal
    if journal is not None and journal.step:
        print(f"  of it the target has: {'; '.join(journal.rendered[: journal.step])}")
    print(f"  {_SAYS[kind]}{':' if statements else ''}")
    for sql in statements:
        print(f"    {sql}")
    if given:
        print("Ordered. A running task takes it over within seconds, else the next `pidts run` does.")
    else:
        print("Nothing was done yet: add --yes to order it.")


def _order_json(one: Standing) -> dict[str, Any]:
    order = one.order
    if order is None:
        return {}
    return {
        "lsn": str(one.lsn),
        "statement": one.statement,
        "order": order.kind.value,
        "statements": list(order.statements),
        "begun": order.taken,
        "done": one.is_done,
    }
