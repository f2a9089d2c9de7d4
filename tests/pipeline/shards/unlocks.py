"""Unlocks changes as an operator does, so that some shards continue without the others, and checks the rows that the
target must have then.
"""

from __future__ import annotations

from contextlib import closing, suppress

from pidts.model import CommandKind, DdlCommand, Transient

from .shard_servers import Shard
from .task_in_memory import TaskInMemory, in_order


def unlock_one(task: TaskInMemory) -> None:
    """Unlocks a change at which a shard waits, if the rows of the other shards still fit after it."""
    hook, task.target.store.hook = task.target.store.hook, None  # A crash does not concern the operator.
    with suppress(Transient), closing(task.target.connect()) as session:
        waiting = [
            (shard, halt)
            for shard in task.shards.shards
            for halt in session.meta.halts.read("t", shard.source.name)
            if halt.awaits and shard.name in halt.tables
        ]
        if waiting:
            shard, halt = task.chance.choice(waiting)
            if _is_for_all(task, shard, halt.statement):
                session.meta.ddl_commands.give(
                    "t", shard.source.name, DdlCommand(lsn=halt.lsn, kind=CommandKind.UNLOCK)
                )
    task.target.store.hook = hook


def _is_for_all(task: TaskInMemory, shard: Shard, statement: str) -> bool:
    """Returns whether the statement has no CHANGE, and modifies no column that a shard lacks."""
    words = statement.split()
    if "MODIFY" not in words:
        return "CHANGE" not in words
    mates = [one for one in task.shards.everyone if one.group is shard.group]
    moments = [one.source.at(one.name, task.place(one.source.name).at(one.name)) for one in mates]
    column = words[words.index("COLUMN") + 1]
    return all(one is None or one.table is None or column in one.table.arrow.names for one in moments)


def check_unlocked(task: TaskInMemory) -> None:
    """Checks that every table is the result of merging, except for columns that some shards have dropped and others
    have.
    """
    places = {name: task.place(name) for name in task.shards.sources}
    for group in task.shards.all_groups:
        name, last = group.target, group.versions[-1].table
        gone = {column.name for version in group.versions for column in version.table.columns}
        gone -= {column.name for column in last.columns}
        if name in task.target.store.tables:
            rows = task.merged(name, lambda source, own: places[source.name].at(own))
            assert in_order(task.content(name), gone) == in_order(rows, gone), name
