"""What a person, or a program, reads about halted tables, shards that wait for each other, and orders."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pidts.cli.errors import show_error
from pidts.cli.relay_view import in_units
from pidts.model import Halt, Halted, OrderKind, Where
from pidts.task.orders import is_of_shards

if TYPE_CHECKING:
    from pidts.task.locks import OpenLock
    from pidts.task.orders import Standing
    from pidts.task.waiting import Backlog, Held

_REREAD = frozenset({"ddl-not-translatable"})
"""The target's table can be given its new shape, but only the source knows the values."""


def advice(halt: Halt, task: str, source: str = "") -> str:
    """What to mend, and the commands that go on; `source` where the task has several."""
    return ". ".join(filter(None, (halt.todo.rstrip("."), _ways(halt, task, source))))


def _ways(halt: Halt, task: str, source: str) -> str:
    at = f"--source {source} --at {halt.lsn}" if source else f"--at {halt.lsn}"
    resync = f"stop the task, pidts run {task} --resync {','.join(map(str, halt.tables))}"
    if is_of_shards(halt):
        return f"See: pidts ddl list {task}"
    if halt.statement and halt.code in _REREAD:
        return f'First: pidts ddl replace {task} "SQL" {at}; then have its rows read again: {resync}'
    if halt.statement:
        ways = f"Then: pidts ddl retry {task} {at}; or instead: pidts ddl skip|replace|inject {task} {at}"
        return ways if halt.tables else f"{ways}. Then run the task again"
    if halt.tables:
        again = f"Then: pidts ddl retry {task} --table {halt.tables[0]}"
        return f"{again}. A row that can never fit: mend it on the source, {resync}"
    return f"Then run the task again: pidts run {task}"


def show_halt(halt: Halt, task: Path, source: str = "") -> None:
    """On stderr, like an error."""
    where = Where(source=source, position=halt.position or str(halt.lsn), table=", ".join(map(str, halt.tables)))
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
) -> None:
    """All of it."""
    if as_json:
        print(json.dumps({"task": name, **_standing_json(standing, locks, held)}, ensure_ascii=False))
        return
    several = len(held) > 1
    waiting = [one for one in standing if one.waits]
    for lock in locks:
        show_lock(lock, task)
    for one in waiting:
        if not one.is_shard:
            show_waiting(one, task, several=several)
    orders = [one for one in standing if one.order is not None]
    for one in orders:
        print(f"order at {_place(one, several=several)}: {_order_text(one)}")
        print("\n".join(f"  {sql}" for sql in _ordered(one)))
    for part in held:
        if part.tables:
            print(f"{part.source}: {plural('table', len(part.tables))} held back, {kept_log(part)}")
    if not waiting and not orders:
        print(f"{name}: nothing waits for an operator")


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
        print(json.dumps({**about, **more, "lock": lock.to_json() if lock else None}, ensure_ascii=False))
        return
    print(f"{at.source}, Lsn {at.lsn}: {at.statement}")
    if at.halt is not None:
        print(f"  it waits: [{at.halt.code}] {at.halt.what}")
    journal = at.journal
    if journal is not None and journal.step:
        print(f"  of it the target has: {'; '.join(journal.rendered[: journal.step])}")
    print(f"  {_says(kind, lock)}{':' if statements else ''}")
    for sql in statements:
        print(f"    {sql}")
    for line in _of_shards(at, kind, lock) if lock is not None else ():
        print(f"  {line}")
    all_go = lock is not None and kind in {OrderKind.UNLOCK, OrderKind.REPLACE} and not lock.disagrees
    for one in lock.arrived if lock is not None and all_go else [at]:
        if one.backlog is not None:
            print(f"  {_shard(one)}: {_behind(one.backlog)}{'; then they follow' if one.backlog.transactions else ''}")
    if kind in {OrderKind.SKIP, OrderKind.REPLACE} and at.tables:
        tables = ",".join(map(str, at.tables))
        print("  Rows that are on the target stay as they are. If the change gave them other values on the source:")
        print(f"    pidts run TASK --resync {tables}")
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


def _of_shards(at: Standing, kind: OrderKind, lock: OpenLock) -> list[str]:
    """What becomes of the others."""
    others = ", ".join(_shard(one) for one in lock.arrived if one.place != at.place)
    if kind is OrderKind.SKIP:
        return [f"{lock.target} stays as it is, and this shard's rows have to fit there; the others go on waiting"]
    if kind not in {OrderKind.UNLOCK, OrderKind.REPLACE}:
        return []
    lines = []
    if others:
        says = "those of the others that want the same go on, too" if lock.disagrees else "these go on, too"
        lines.append(f"{says}: {others}")
    if lock.awaited:
        lines += [
            f"not waited for: {', '.join(lock.awaited)}",
            "their rows go on where they still fit, and their own change passes when it comes",
        ]
    return lines


def show_lock(lock: OpenLock, task: Path) -> None:
    """Who waits for whom since when, and what to do about it."""
    print(f"{lock.target}: its shards wait for each other{since(lock.since)}")
    for one in lock.arrived:
        rows = f"; {_behind(one.backlog)}" if one.backlog is not None else ""
        came = since(one.halt.since) if one.halt is not None else ""
        print(f"  arrived    {_shard(one)} at {_position(one)}, Lsn {one.lsn}{came}{rows}")
        print(f"    {one.statement}")
    for name, seconds in lock.awaited_since.items():
        print(f"  awaited    {name}{since(seconds)}")
    halt = next((one.halt for one in lock.arrived if one.halt is not None and one.halt.code == "shards-disagree"), None)
    halt = halt or lock.owner.halt
    if halt is not None:
        print(f"  because    [{halt.code}] {halt.what}")
        print(f"  do         {halt.todo}")
    which = f"--source {lock.owner.source} --at {lock.owner.lsn}"
    of = f" {which}" if lock.disagrees else ""
    print(f"  or         without them: pidts ddl unlock {task} --table {lock.target}{of}")
    print(f"             one of them alone: pidts ddl skip|replace|inject {task} {which}")


def show_waiting(one: Standing, task: Path, *, several: bool) -> None:
    """Tables that stand still for another reason than other shards."""
    halt = one.halt
    if halt is None:
        return
    source = f"{one.source}: " if several else ""
    tables = ", ".join(map(str, halt.tables)) or "all tables"
    print(f"{source}{tables}: halted at {_position(one)}, Lsn {halt.lsn}{since(halt.since)}")
    if halt.statement:
        print(f"  statement  {halt.statement}")
    if one.order is not None and halt.code == "order-refused":
        print(f"  ordered    {_order_text(one)}: {'; '.join(one.order.statements)}")
    print(f"  because    [{halt.code}] {halt.what}")
    if one.backlog is not None:
        print(f"  waiting    {_behind(one.backlog)}")
    print(f"  do         {advice(halt, str(task), one.source if several else '')}")


def _behind(behind: Backlog) -> str:
    count = plural("transaction", behind.transactions)
    least = "" if behind.is_whole else "at least "
    if not behind.transactions:
        return f"no transaction waits{'' if behind.is_whole else ' among those looked at'}"
    verb = "waits" if behind.transactions == 1 else "wait"
    return f"{least}{count} ({in_units(behind.own_bytes)}) {verb}, from {_time(behind.since)} on"


def plural(noun: str, count: int) -> str:
    """1 row, 2 rows."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _shard(one: Standing) -> str:
    return f"{one.source}: {', '.join(map(str, one.tables))}"


def _position(one: Standing) -> str:
    return (one.halt.position if one.halt is not None else "") or "-"


def _place(one: Standing, *, several: bool) -> str:
    return f"{one.source}, Lsn {one.lsn}" if several else f"Lsn {one.lsn}"


def kept_log(held: Held) -> str:
    """How much of it the relay has only for these tables."""
    if not held.is_known:
        return "how much log is kept for that is known where the relay is"
    return f"{in_units(held.log_bytes)} of log is kept in the relay for that"


def since(seconds: float) -> str:
    """Nothing where nobody knows."""
    return f", since {moment(seconds)}" if seconds else ""


def moment(seconds: float) -> str:
    """And how long ago it is."""
    minutes = max(0, int(time.time() - seconds)) // 60
    age = f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"
    return f"{_time(seconds)} ({age})"


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if seconds else "-"


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
    }
