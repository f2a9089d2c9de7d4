"""Reports shards of a pessimistic task whose structure differs from that of their merged table.

A task that was optimistic before may have such shards. This is no error, and nothing is refused: their rows fit. But
the mode alone suggests that the next change of the other shards waits for them. It does not as long as their rows fit:
see `pidts.shards.decide`. A shard that an unlocked change has skipped is different: the others do wait for it, and it
is not reported here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from pidts.apply import TargetSession
from pidts.apply.merge.differences import unlike_words
from pidts.ddl.shards.record import load_owed
from pidts.model import Member, OfGroups, OfSource
from pidts.shards.structures import same_version
from pidts.task.tables.merged import Shard

ALIKE = "Give these shards the same structure on their sources, or stay with shard-mode: optimistic until they have it"
_SHOWN = 4
"""A message names at most this many shards."""


def diverged_text(target: TargetSession, task: str, begun: Sequence[Shard], sources: Collection[str]) -> str:
    """Returns a message about the shards whose structure differs from their merged table's; empty if there are none.

    The structures compared are those at the checkpoints on the target, not those that the servers have by now.
    """
    recorded = target.meta.structures.load(task, OfGroups())
    known = {source: target.meta.structures.load(task, OfSource(source)) for source in sources}
    owed = load_owed(target, task, sources)
    found = []
    for one in begun:
        stood, agreed = known.get(one.source, {}).get(one.table.name), recorded.get(one.target_table.name)
        if stood is None or agreed is None or Member(one.source, one.table.name) in owed:
            continue
        landed = replace(one, table=stood).target_table
        if not same_version(landed, agreed):
            found.append(f"{one} in {unlike_words(landed, agreed)}")
    if not found:
        return ""
    named = "; ".join(found[:_SHOWN]) + (f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else "")
    return (
        f"these shards differ from {begun[0].target_name} on the target, which has the columns of all: {named}. "
        "In pessimistic mode the other shards' schema changes do not wait for these while their rows still fit, and a "
        "schema change of one of these waits for all others if the target has no column for it"
    )
