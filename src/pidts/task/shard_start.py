"""A source that begins beside others of its task that have begun: its tables need a place where theirs land.

They need not be equal. What is on record of the others is as old as their checkpoints: a schema change may have been
made on all servers, and lie in the relays of those that have begun. The counterexample to refusing a source then: the
others' change waits for it, since nobody knows what it has, and it would wait for the others; nobody would ever begin.
So it stands aside: the others do not wait for it, come to the structure that it has, and then it begins. As with a
table that comes by the log, nobody waits for one that has no rows on the target yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace

from pidts.apply import SHARED, TargetSession
from pidts.apply.unlike import unlike_words
from pidts.model import PidtsError, PrecheckFailed, Table, Transient, Where
from pidts.plan.shard_versions import fits, same_version
from pidts.source import connect, read_structures
from pidts.task.compose import source_config
from pidts.task.config import TaskConfig
from pidts.task.shard_checks import differ_fix
from pidts.task.shards import Shard


class ShardAhead(Transient):
    """It goes on as soon as the others have come to where it is."""


def agreed_by(target: TargetSession, task: str, begun: Sequence[Shard], mode: str) -> Table:
    """What those that have begun have on the target."""
    first = begun[0].landed
    if mode != "optimistic" and all(same_version(first, other.landed) for other in begun):
        return first
    return target.load_structures(task, SHARED).get(first.name, first)


def demand_place(
    config: TaskConfig, target: TargetSession, beside: Sequence[TaskConfig], group: Sequence[Shard]
) -> Table:
    """What the group's table is; some of the group have begun.

    `ShardAhead` where a table of this source has no place there yet, and the others' servers have a place for it
    already; refused where nothing is on its way that would make one.
    """
    begun = [one for one in group if one.begun]
    agreed = agreed_by(target, config.name, begun, config.shard_mode)
    for one in group:
        if one.begun or one.source or fits(one.landed, agreed):
            continue
        found = f"{one} becomes {agreed.name} with {begun[0]}, and they differ in {unlike_words(one.landed, agreed)}"
        where = Where(source=config.source.source_id, file=str(config.path))
        if any(fits(one.landed, there.landed) for there in _now(beside, begun)):
            what = f"{found}; the others have the change on their servers, and come to it"
            raise ShardAhead("shard-ahead", what, where=where)
        if config.shard_mode != "optimistic":  # there it is enough that the target's table has a place
            raise PrecheckFailed("shards-differ", found, where=where, todo=differ_fix(config.shard_mode))
    return agreed


def comes(config: TaskConfig, target: TargetSession, beside: Sequence[TaskConfig], group: Sequence[Shard]) -> str:
    """What a table of the group waits for at its start, where it does, and will begin all the same."""
    if any(one.begun for one in group):
        try:
            demand_place(config, target, beside, group)
        except ShardAhead as ahead:
            return ahead.what
        except PidtsError:  # then it is told as what the target has not got
            return ""
    return ""


def _now(beside: Sequence[TaskConfig], begun: Sequence[Shard]) -> Iterator[Shard]:
    """Those that have begun as they are on their servers."""
    for config in beside:
        known = {one.table.name: one for one in begun if one.source == config.source.source_id}
        if known:
            with closing(connect(source_config(config))) as source:
                tables = read_structures(source, config.allow)
            yield from (replace(one, table=tables[name]) for name, one in known.items() if name in tables)
