"""What a person, or a program, reads about halted tables, shards that wait for each other, and orders."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pidts.cli.errors import show_error
from pidts.cli.lock_view import others_go, show_lock
from pidts.cli.waiting_words import behind, first_of, kept_log, moment, named, plural, position_of, shard_name, since
from pidts.model import Halt, Halted, OrderKind, TableName, Where
from pidts.task.lock_sides import sides
from pidts.task.orders import is_of_shards

if TYPE_CHECKING:
    from pidts.task.locks import OpenLock
    from pidts.task.orders import Standing
    from pidts.task.waiting import Held

_HALTS = 12
"""So many are told at the end of a run."""
_OLD_SECONDS = 24 * 3600
"""Orders that were carried out so long ago are not listed any more."""
_REREAD = frozenset({"ddl-not-translatable"})
"""The target's table can be given its new shape, but only the source knows the values."""


def advice(halt: Halt, task: str, source: str = "") -> str:
    """What to mend, and the commands that go on; `source` where the task has several."""
    return ". ".join(filter(None, (halt.todo.rstrip("."), _ways(halt, task, source))))


def _ways(halt: Halt, task: str, source: str) -> str:
    at = f"--source {source} --at {halt.lsn}" if source else f"--at {halt.lsn}"
    resync = f"stop the task, pidts run {task} --resync {_of_source(halt.tables, source)}"
    if is_of_shards(halt):
        return f"See: pidts ddl list {task}"
    if halt.statement and halt.code in _REREAD:
        return f'First: pidts ddl replace {task} "SQL" {at}; then have its rows read again: {resync}'
    if halt.statement:
        ways = f"Then: pidts ddl retry {task} {at}; or instead: pidts ddl skip|replace|inject {task} {at}"
        return ways if halt.tables else f"{ways}. Then run the task again"
    if halt.tables:
        again = f"Then: pidts ddl retry {task} --table {halt.tables[0]}" + (f" --source {source}" if source else "")
        return f"{again}. A row that can never fit: mend it on the source, {resync}"
    return f"Then run the task again: pidts run {task}"


def _of_source(tables: Iterable[TableName], source: str) -> str:
    """As `--resync` takes them: other sources may have tables of these names."""
    return ",".join(f"{source}:{name}" if source else str(name) for name in tables)


def show_halts(halts: Iterable[tuple[str, Halt]], task: Path) -> None:
    """Each with its source where the task has several; of many the first, what needs somebody before what waits."""
    inorder = sorted(halts, key=lambda one: is_of_shards(one[1]) and one[1].code != "shards-disagree")
    for source, halt in inorder[:_HALTS]:
        show_halt(halt, task, source)
    if len(inorder) > _HALTS:
        print(f"and {len(inorder) - _HALTS:,} more: pidts ddl list {task}", file=sys.stderr)


def show_halt(halt: Halt, task: Path, source: str = "") -> None:
    """On stderr, like an error."""
    tables = ", ".join(map(str, halt.tables))
    where = Where(source=source, position=halt.position or str(halt.lsn), table=tables, key=halt.key)
    statement = f" ({halt.statement[:200]})" if halt.statement else ""
    todo = advice(halt, str(task), source)
    show_error(Halted(halt.code, f"{halt.what}{statement}", where=where, todo=todo), as_json=False)


def show_standing(
    name: str,
    task: Path,
    standing: Sequence[Standing],
    locks: Sequence[OpenLock],
    held: Sequence[Held],
    *,
    as_json: bool,
    whole: bool = False,
) -> None:
    """What stands; `whole` leaves out nothing of what is alike."""
    if as_json:
        print(json.dumps({"task": name, **_standing_json(standing, locks, held)}, ensure_ascii=False))
        return
    several = len(held) > 1
    waiting = [one for one in standing if one.waits]
    for lock in locks:
        show_lock(lock, task, whole=whole)
    for one in waiting:
        if not one.is_shard:
            show_waiting(one, task, several=several)
    ordered = [one for one in standing if one.order is not None]
    orders = [one for one in ordered if not _is_old(one)]
    for one in orders:
        done = f", {moment(one.done_at)}" if one.done_at else ""
        print(f"order at {_place(one, several=several)}: {_order_text(one)}{done}")
        print("\n".join(f"  {sql}" for sql in _ordered(one)))
    for part in held:
        if part.tables:
            print(f"{part.source}: {plural('table', len(part.tables))} held back, {kept_log(part)}")
    if not waiting and not orders:
        print(f"{name}: nothing waits for an operator")
    if len(ordered) > len(orders):
        old = plural("order", len(ordered) - len(orders))
        print(f"{old} of more than a day ago: pidts ddl list {task} --json")


def _is_old(one: Standing) -> bool:
    """Whether it was carried out long ago, and nothing stands still for its change any more."""
    return one.is_done and one.halt is None and 0 < one.done_at < time.time() - _OLD_SECONDS


def show_lifted(rows: Sequence[Standing], *, given: bool, as_json: bool) -> None:
    """Rows that are tried again."""
    tables = [str(name) for one in rows for name in one.tables]
    if as_json:
        print(json.dumps({"tables": tables, "order": "retry", "given": given}, ensure_ascii=False))
        return
    for one in rows:
        print(f"{', '.join(map(str, one.tables))}: rows were refused; they are tried again")
    _show_given(given=given)


def show_order(
    at: Standing,
    kind: OrderKind,
    statements: Sequence[str],
    *,
    given: bool,
    as_json: bool,
    lock: OpenLock | None = None,
) -> None:
    """What was ordered, or would be, and what becomes of the rows that wait."""
    if as_json:
        about = {"source": at.source, "lsn": str(at.lsn), "statement": at.statement, "order": kind.value}
        more = {"statements": list(statements), "given": given, "backlog": at.backlog.to_json() if at.backlog else None}
        more |= {"stays": list(at.halt.stays) if at.halt is not None and kind is OrderKind.UNLOCK else []}
        more |= {"counts_for": [shard_name(one) for one in _follow(at, kind, lock)] if at.tables else []}
        print(json.dumps({**about, **more, "lock": lock.to_json() if lock else None}, ensure_ascii=False))
        return
    print(f"{at.source}, Lsn {at.lsn}: {at.statement}")
    if at.halt is not None:
        print(f"  it waits: [{at.halt.code}] {at.halt.what}")
    journal = at.journal
    if journal is not None and journal.step:
        print(f"  of it the target has: {'; '.join(journal.rendered[: journal.step])}")
    stays = at.halt.stays if at.halt is not None and kind is OrderKind.UNLOCK else ()
    if stays:
        print(f"  it goes on waiting all the same: {'; '.join(stays)}")
        print(f"  to have it go on: pidts ddl skip, then pidts run TASK --resync {_of_source(at.tables, at.source)}")
        _show_given(given=given)
        return
    print(f"  {_says(kind, lock)}{':' if statements else ''}")
    for sql in statements:
        print(f"    {sql}")
    for line in _of_shards(at, kind, lock) if lock is not None else ():
        print(f"  {line}")
    shown, left = first_of(_follow(at, kind, lock))
    for one in shown:
        if one.backlog is not None:
            print(
                f"  {shard_name(one)}: {behind(one.backlog)}{'; then they follow' if one.backlog.transactions else ''}"
            )
    if left:
        print(f"  … and what waits behind {left:,} more shards")
    moved = at.halt is not None and at.halt.code == "rename-moves-rows"
    if moved and kind is OrderKind.SKIP:
        print("  Rows that are on the target stay as they are, and may not be found by the new name any more")
    elif kind in {OrderKind.SKIP, OrderKind.REPLACE} and at.tables and not moved:
        of = at.source if at.halt is not None and is_of_shards(at.halt) else ""
        print("  Rows that are on the target stay as they are. If the change gave them other values on the source:")
        print(f"    pidts run TASK --resync {_of_source(at.tables, of)}")
    _show_given(given=given)


def _show_given(*, given: bool) -> None:
    if given:
        print("Ordered. A running task takes it over within seconds, else the next `pidts run` does.")
    else:
        print("Nothing was done yet: add --yes to order it.")


def _says(kind: OrderKind, lock: OpenLock | None) -> str:
    match kind:
        case OrderKind.UNLOCK:
            return "the target runs it, without the shards that have not come"
        case OrderKind.SKIP:
            return "it is not run; the source's structure is followed all the same"
        case OrderKind.REPLACE:
            return "instead of it, the target runs"
        case OrderKind.INJECT:
            return "before it, the target runs" + (", once all shards have come" if lock else "")
        case OrderKind.REVERT:
            return "it waits for the others, as it is" if lock else "it is run as it is, once more"


def _follow(at: Standing, kind: OrderKind, lock: OpenLock | None) -> list[Standing]:
    """Whose rows go on with it."""
    return sides(lock, at)[0] if lock is not None and kind in {OrderKind.UNLOCK, OrderKind.REPLACE} else [at]


def _of_shards(at: Standing, kind: OrderKind, lock: OpenLock) -> list[str]:
    """What becomes of the others."""
    if kind is OrderKind.SKIP:
        lines = [f"{lock.target} stays as it is, and this shard's rows have to fit there; the others go on waiting"]
        lacks = at.halt.lacks if at.halt is not None else ()
        return [*lines, f"rows of its new structure do not fit there, and halt: {'; '.join(lacks)}"] if lacks else lines
    if kind not in {OrderKind.UNLOCK, OrderKind.REPLACE}:
        return []
    lines = others_go(lock, at)
    if lock.awaited:
        lines += [
            f"not waited for: {named(lock.awaited)}",
            "their rows go on where they still fit, and their own change passes when it comes",
        ]
    unfit = ", ".join(at.halt.unfit) if at.halt is not None and kind is OrderKind.UNLOCK else ""
    if unfit:
        lines.append(f"rows of these will not fit until their own change, and halt before it: {unfit}")
        lines.append("better make the change there first; what halts then needs: pidts run TASK --resync TABLE")
    return lines


def show_waiting(one: Standing, task: Path, *, several: bool) -> None:
    """Tables that stand still for another reason than other shards."""
    halt = one.halt
    if halt is None:
        return
    source = f"{one.source}: " if several else ""
    tables = ", ".join(map(str, halt.tables)) or "all tables"
    print(f"{source}{tables}: halted at {position_of(one)}, Lsn {halt.lsn}{since(halt.since)}")
    if halt.statement:
        print(f"  statement  {halt.statement}")
    if one.order is not None and halt.code == "order-refused":
        print(f"  ordered    {_order_text(one)}: {'; '.join(one.order.statements)}")
    print(f"  because    [{halt.code}] {halt.why}")
    if one.backlog is not None:
        print(f"  waiting    {behind(one.backlog)}")
    print(f"  do         {advice(halt, str(task), one.source if several else '')}")


def _place(one: Standing, *, several: bool) -> str:
    return f"{one.source}, Lsn {one.lsn}" if several else f"Lsn {one.lsn}"


def _state(one: Standing) -> str:
    if one.is_done:
        return "done"
    if one.halt is not None and one.halt.code == "order-refused":
        return "failed"
    return "begun" if one.order is not None and one.order.taken else "given"


def _order_text(one: Standing) -> str:
    return f"{one.order.kind} ({_state(one)})" if one.order is not None else ""


def _ordered(one: Standing) -> tuple[str, ...]:
    return (one.order.statements if one.order is not None else ()) or (one.statement,)


def _standing_json(standing: Sequence[Standing], locks: Sequence[OpenLock], held: Sequence[Held]) -> dict[str, Any]:
    return {
        "halted": [halted_json(one, one.halt) for one in standing if one.waits and one.halt is not None],
        "locks": [lock.to_json() for lock in locks],
        "orders": [_order_json(one) for one in standing if one.order is not None],
        "held": [part.to_json() for part in held if part.tables],
    }


def halted_json(one: Standing, halt: Halt) -> dict[str, Any]:
    """Tables that stand still, why, and what waits behind them."""
    return {**halt.to_json(), "source": one.source, "backlog": one.backlog.to_json() if one.backlog else None}


def _order_json(one: Standing) -> dict[str, Any]:
    order = one.order
    if order is None:
        return {}
    return {
        "source": one.source,
        "lsn": str(one.lsn),
        "statement": one.statement,
        "order": order.kind.value,
        "statements": list(order.statements),
        "begun": order.taken,
        "failed": _state(one) == "failed",
        "done": one.is_done,
        "done_at": one.done_at or None,
    }
