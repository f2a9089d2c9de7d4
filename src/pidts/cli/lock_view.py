"""What a person reads about shards that wait for each other.

There may be hundreds of one table. They are told by what they want: each statement once, with the first of those who
have come to it. What is left out has a number, and `--table` shows all of one lock.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pidts.cli.waiting_words import behind, first_of, named, plural, position_of, shard_name, since
from pidts.model import Halt
from pidts.task.lock_sides import by_statement, sides

if TYPE_CHECKING:
    from pidts.task.locks import OpenLock
    from pidts.task.orders import Standing

_ANY = ": *"
"""Of a source that has not begun nobody knows how many shards it has."""


def show_lock(lock: OpenLock, task: Path, *, whole: bool = False) -> None:
    """Who waits for whom since when, and what to do about it."""
    print(f"{lock.target}: its shards wait for each other{since(lock.since)}; {_count(lock)}")
    groups, others = first_of(by_statement(lock.arrived), whole=whole)
    all_of_it = f"pidts ddl list {task} --table {lock.target}"
    for group in groups:
        print(f"  statement  {group[0].statement}{' (of each its own table)' if len(group) > 1 else ''}")
        shown, more = first_of(group, whole=whole)
        for one in shown:
            rows = f"; {behind(one.backlog)}" if one.backlog is not None else ""
            came = since(one.halt.since) if one.halt is not None else ""
            print(f"  arrived    {shard_name(one)} at {position_of(one)}, Lsn {one.lsn}{came}{rows}")
        if more:
            print(f"             … and {more:,} more: {all_of_it}")
    if others:
        print(f"             … and {plural('other statement', others)}: {all_of_it}")
    awaited, more = first_of(list(lock.awaited_since.items()), whole=whole)
    for name, seconds in awaited:
        print(f"  awaited    {name}{since(seconds)}{_cannot_come(lock, name)}")
    if more:
        print(f"             … and {more:,} more: {all_of_it}")
    for halt in _reasons(lock):
        print(f"  because    [{halt.code}] {halt.what}")
        print(f"  do         {halt.todo}")
    which = f"--source {lock.owner.source} --at {lock.owner.lsn}"
    of = f" {which}" if lock.disagrees else ""
    ways = [f"one of them alone: pidts ddl skip|replace|inject {task} {which}"]
    if not (lock.owner.halt and lock.owner.halt.stays):  # else it would go on waiting all the same
        ways.insert(0, f"without them: pidts ddl unlock {task} --table {lock.target}{of}")
    for heading, way in zip(("or", ""), ways, strict=False):
        print(f"  {heading:<10} {way}")


def others_go(lock: OpenLock, at: Standing) -> list[str]:
    """For whom the target's getting this change counts, and who has come with another one."""
    alike, apart = sides(lock, at)
    lines = [f"these go on, too: {named(map(shard_name, alike[1:]))}"] if len(alike) > 1 else []
    for group in by_statement(apart):
        lines.append(f"another change, which the target does not get: {group[0].statement}")
        lines.append(f"  of {named(map(shard_name, group))}")
    if apart:
        lines.append("where their rows have no place in the table then, they go on waiting, for an order about theirs")
    return lines


def _cannot_come(lock: OpenLock, name: str) -> str:
    if name not in lock.refused:
        return ""
    return f"; it cannot come, its rows are refused: [{lock.refused[name]}], which is told by itself"


def _count(lock: OpenLock) -> str:
    """The shards that have passed already are neither."""
    arrived = sum(len(one.tables) for one in lock.arrived)
    some = "at least " if any(name.endswith(_ANY) for name in lock.awaited) else ""
    every = arrived + sum(not name.endswith(_ANY) for name in lock.awaited)
    return f"{arrived:,} of {some}{every:,} arrived"


def _reasons(lock: OpenLock) -> list[Halt]:
    """Each kind once; where they disagree, that is what somebody has to know."""
    halts = [one.halt for one in lock.arrived if one.halt is not None]
    kinds = {halt.code: halt for halt in reversed(halts)}
    disagree = kinds.pop("shards-disagree", None)
    mine = lock.owner.halt
    first = disagree or mine
    rest = [halt for halt in kinds.values() if first is None or halt.code != first.code]
    return [*([first] if first is not None else []), *sorted(rest, key=lambda halt: halt.code)]
