"""Checks whether the tables of a source that joins a running task fit the target tables of the other sources.

A new source may be ahead of the target. For example, all servers have made a schema change, but the task has not
applied this change for the other sources yet: the change is still in their relays. If the new source joined the shard
group now, both would wait for ever: the schema change for the new source, and the new source for the schema change. So
the new source waits outside the group, and the other sources do not wait for it. When the other sources have reached
the new source's structure, the new source begins.

No shard waits for a table that has no rows on the target yet, not even if the log creates this table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace

from pidts.apply import TargetSession
from pidts.apply.merge.differences import differences_text
from pidts.model import MergedTablesKey, PidtsError, PrecheckFailed, Table, Transient, Where
from pidts.shards.structures import fits, same_version
from pidts.source import connect, read_structures
from pidts.task.checks.shards import differ_fix
from pidts.task.config.task_file import TaskConfig
from pidts.task.tables.merged import Shard


class ShardAhead(Transient):
    """The new source has a newer structure than the other sources, and waits until they have reached this structure."""


def shared_structure(target: TargetSession, task: str, begun: Sequence[Shard], mode: str) -> Table:
    """Returns the target's structure of the merged table of these shards. The task already carries all of them."""
    first = begun[0].target_table
    if mode != "optimistic" and all(same_version(first, other.target_table) for other in begun):
        return first
    return target.meta.structures.load(task, MergedTablesKey()).get(first.name, first)


def fitting_structure(
    config: TaskConfig, target: TargetSession, other_parts: Sequence[TaskConfig], group: Sequence[Shard]
) -> Table:
    """Returns the structure of a shard group's merged table. The task already carries some shards of the group.

    If a table of this source does not fit this structure, but fits the present structure of a shard on another source's
    server, raises `ShardAhead`. If it fits neither, refuses the start, except in optimistic mode.
    """
    begun = [one for one in group if one.begun]
    agreed = shared_structure(target, config.name, begun, config.shard_mode)
    for one in group:
        if one.begun or one.source or fits(one.target_table, agreed):
            continue
        differing = differences_text(one.target_table, agreed)
        found = f"{one} and {begun[0]} are merged into {agreed.name}, and differ in {differing}"
        where = Where(source=config.source.source_id, file=str(config.path))
        if any(fits(one.target_table, there.target_table) for there in _current_shards(other_parts, begun)):
            what = f"{found}; another source's server has already made this change, and the task has not reached it yet"
            raise ShardAhead("shard-ahead", what, where=where)
        if config.shard_mode != "optimistic":  # in optimistic mode it is enough that the rows fit
            raise PrecheckFailed("shards-differ", found, where=where, todo=differ_fix(config.shard_mode))
    return agreed


def waiting_reason(
    config: TaskConfig, target: TargetSession, other_parts: Sequence[TaskConfig], group: Sequence[Shard]
) -> str:
    """Returns the reason why a table of the group has to wait before it begins; empty if it does not wait."""
    if any(one.begun for one in group):
        try:
            fitting_structure(config, target, other_parts, group)
        except ShardAhead as ahead:
            return ahead.what
        except PidtsError:  # the check of the target's table reports this error
            return ""
    return ""


def _current_shards(other_parts: Sequence[TaskConfig], begun: Sequence[Shard]) -> Iterator[Shard]:
    """Yields the shards of `begun` that still exist, each with the structure that it has on its server now."""
    for config in other_parts:
        known = {one.table.name: one for one in begun if one.source == config.source.source_id}
        if known:
            with closing(connect(config.source.server)) as source:
                tables = read_structures(source, config.allow)
            yield from (replace(one, table=tables[name]) for name, one in known.items() if name in tables)
