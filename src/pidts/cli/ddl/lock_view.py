"""Prints the shards of one target table that wait for each other.

A table may have hundreds of shards. So each statement is shown once, with some of the shards that have reached it and
the number of the rest. `--table` shows all shards of one table.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from pidts.cli.backlog_text import backlog_size, first_of, indented, position_of, shard_name, since
from pidts.model import Halt
from pidts.model.advice import with_task
from pidts.model.errors import escaped, in_one_line, listed, plural
from pidts.task.operate.ddl_commands import is_joining
from pidts.task.operate.shard_locks import by_statement, split_by_agreement

if TYPE_CHECKING:
    from pidts.task.operate.ddl_commands import BlockedChange
    from pidts.task.operate.shard_locks import OpenLock

_ANY = ": *"
"""A name with this suffix stands for all shards of a source. The task has not begun with this source yet, so the number
of its shards is not known.
"""


def show_lock(lock: OpenLock, task: Path, *, whole: bool = False) -> None:
    """Prints which shards wait, for which shards, since when, and the commands that end the wait."""
    mine, target = lock.first.halt, in_one_line(str(lock.target))
    if mine is not None and mine.code == "shard-no-place":
        print(f"{target}: rows of a new shard do not fit this table's columns; action needed{since(lock.since)}")
    else:
        print(f"{target}: a schema change waits for all shards{since(lock.since)}; {_count(lock)}")
    groups, others = first_of(by_statement(lock.arrived), whole=whole)
    quoted, table = shlex.quote(str(task)), shlex.quote(target)
    all_of_it = f"pidts ddl list {quoted} --table {table}"
    for group in groups:
        print(f"  statement  {escaped(group[0].statement)}{' (on the table of each shard)' if len(group) > 1 else ''}")
        shown, more = first_of(group, whole=whole)
        for one in shown:
            rows = f"; {backlog_size(one.backlog)}" if one.backlog is not None else ""
            came = since(one.halt.since) if one.halt is not None else ""
            print(f"  reached by {in_one_line(shard_name(one))} at {position_of(one)}, Lsn {one.lsn}{came}{rows}")
        if more:
            print(f"             … and {more:,} more: {all_of_it}")
    if others:
        print(f"             … and {plural('other statement', others)}: {all_of_it}")
    awaited, more = first_of(list(lock.awaited_since.items()), whole=whole)
    for name, seconds in awaited:
        print(f"  waits for  {in_one_line(name)}{since(seconds)}{_why_never(lock, name)}")
    if more:
        print(f"             … and {more:,} more: {all_of_it}")
    for halt in _reasons(lock):
        print(f"  because    [{halt.code}] {escaped(halt.what)}")
        print(f"  do         {escaped(indented(with_task(halt.todo, str(task))))}")
    if decided := [one for one in lock.arrived if one.is_decided and one.command is not None]:
        kinds = listed(f"ddl {one.command.kind} of {shard_name(one)}" for one in decided if one.command is not None)
        print(f"  given      {kinds}: a run carries it out within seconds, otherwise the next start does")
        return
    which = f"--source {shlex.quote(lock.first.source)} --at {lock.first.lsn}"
    of = f" {which}" if lock.disagrees else ""
    joins = mine is not None and is_joining(mine)
    choices = [f"decide for this shard only: pidts ddl {'skip' if joins else 'skip|replace|inject'} {quoted} {which}"]
    is_named = any("pidts ddl unlock" in halt.todo for halt in _reasons(lock))
    if not (joins or is_named or (mine and mine.stays)):  # if it joins or stays, unlocking would not end the wait
        choices.insert(0, f"do not wait for the others: pidts ddl unlock {quoted} --table {table}{of} --yes")
    for heading, choice in zip(("or", ""), choices, strict=False):
        print(f"  {heading:<10} {choice}")


def effect_on_others(lock: OpenLock, at: BlockedChange) -> list[str]:
    """Returns lines that say what happens to the other waiting shards if the target runs this change.

    Shards whose changes agree with this change also continue. The target does not run the changes of other shards.
    """
    alike, apart = split_by_agreement(lock, at)
    lines = [f"these shards also continue: {listed(map(shard_name, alike[1:]))}"] if len(alike) > 1 else []
    for group in by_statement(apart):
        lines.append(f"the target does not run this different change: {group[0].statement}")
        lines.append(f"  from {listed(map(shard_name, group))}")
    if apart:
        lines.append(
            "if the rows of these shards do not fit the changed table, the shards still wait and need a ddl command of "
            "their own"
        )
    return lines


def _why_never(lock: OpenLock, name: str) -> str:
    if name not in lock.refused:
        return ""
    return f"; it cannot reach the change, since its rows are refused: [{lock.refused[name]}] (listed separately)"


def _count(lock: OpenLock) -> str:
    """Returns a text that says how many of all shards have reached the change."""
    arrived = sum(len(one.tables) for one in lock.arrived)
    some = "at least " if any(name.endswith(_ANY) for name in lock.awaited) else ""
    every = arrived + sum(not name.endswith(_ANY) for name in lock.awaited)
    return f"{arrived:,} of {some}{every:,} have reached it"


def _reasons(lock: OpenLock) -> list[Halt]:
    """Returns one halt for each error code; first a disagreement of shards, which an operator has to resolve."""
    halts = [one.halt for one in lock.arrived if one.halt is not None]
    kinds = {halt.code: halt for halt in reversed(halts)}
    disagree = next((kinds.pop(code) for code in ("shards-disagree", "shard-no-place") if code in kinds), None)
    mine = lock.first.halt
    first = disagree or mine
    rest = [halt for halt in kinds.values() if first is None or halt.code != first.code]
    return [*([first] if first is not None else []), *sorted(rest, key=lambda halt: halt.code)]
