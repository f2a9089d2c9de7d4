"""In a task that locks rows, refuses a merged table unless a version column decides which change of a row wins.

The rows of a merged table are not compared, since another shard may have written the row that differs. So rows that
other programs have changed on the target would be overwritten, although the task file says that they are locked
(`on-divergence: lock`). `pidts check` refuses tables that are merged when a run starts. This module refuses two changes
in the log:

1. A CREATE TABLE that adds a table to a target table.
2. An ALTER TABLE after which the version column of a merged table no longer decides which change of a row wins.

If a version column decides for all source tables of a target table, none of its rows is ever locked. So the module
refuses nothing for this target table.
"""

from __future__ import annotations

from dataclasses import replace

from pidts.batch.context import JobContext
from pidts.ddl.interpreter import DueStatement
from pidts.ddl.shards.coordinator import ShardGroups
from pidts.model import Halted, Member, OnDivergence, Where
from pidts.model.advice import RETRY
from pidts.model.errors import listed

_TODO = (
    "Set on-divergence to overwrite, warn or halt in the task file: rows of merged tables are then not compared. Or "
    f"give the table a target table of its own (routes), or exclude it in block-allow-list. Then run {RETRY}"
)


def demand_lockable(context: JobContext, groups: ShardGroups, found: DueStatement, where: Where) -> None:
    """Halts if the task locks rows, and this change would merge tables whose versions do not decide about all rows."""
    if context.writing.on_divergence is not OnDivergence.LOCK:
        return
    rules, guards = context.rules, context.writing.guards
    source, before, after = context.source.source_id, context.structures, found.change.structures
    for name in sorted(after):
        table = after[name]
        if table is None:
            continue
        target, is_guarded = rules.target_name(name), guards(rules.target_table(table))
        if name in before:
            if is_guarded or not guards(rules.target_table(before[name])):
                continue
            what = f"versions would not decide about the rows of {name} any more. Rows of {target} also come from"
        else:
            if is_guarded and all(map(guards, groups.structures(target))):
                continue
            what = f"rows of {target} would come from {name} and"
        others = [
            one
            for one in groups.members(target)
            if one != Member(source, name) and (one.source != source or after.get(one.table, True) is not None)
        ]
        if others:
            raise Halted(
                "merged-not-locked",
                f"{what} {listed(one.table for one in others)}, and rows of merged tables cannot be locked "
                "(on-divergence: lock)",
                where=replace(where, table=str(name)),
                todo=_TODO,
            )
