"""Shards that differ from what they have become, in a task that lets none of them go ahead.

That is so where a task was an optimistic one before. Nothing is wrong with it, and nothing is refused: their rows have
a place. But who looks only at the mode would think that the others' next change waits for them, and it does not while
their rows fit: see `pidts.plan.shards`. Who was left behind by an unlocked change is waited for, and is not meant.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from pidts.apply import SHARED, TargetSession
from pidts.apply.unlike import unlike_words
from pidts.batch.shard_record import load_owed
from pidts.model import Member
from pidts.plan.shard_versions import same_version
from pidts.task.shards import Shard

ALIKE = (
    "Bring these shards to the same structure on their sources, or go on with shard-mode: optimistic until they have it"
)
_SHOWN = 4
"""So many are named."""


def standing_apart(target: TargetSession, task: str, begun: Sequence[Shard], sources: Collection[str]) -> str:
    """What it means that some of a group look otherwise than its table on the target; empty where none does.

    They are looked at as they stand on the target, not as they are on their servers by now.
    """
    recorded = target.load_structures(task, SHARED)
    known = {source: target.load_structures(task, source) for source in sources}
    owed = load_owed(target, task, sources)
    found = []
    for one in begun:
        stood, agreed = known.get(one.source, {}).get(one.table.name), recorded.get(one.landed.name)
        if stood is None or agreed is None or Member(one.source, one.table.name) in owed:
            continue
        landed = replace(one, table=stood).landed
        if not same_version(landed, agreed):
            found.append(f"{one} in {unlike_words(landed, agreed)}")
    if not found:
        return ""
    named = "; ".join(found[:_SHOWN]) + (f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else "")
    return (
        f"these differ from {begun[0].lands} on the target, which has what all of them have together: {named}. In "
        "pessimistic mode the others' changes do not wait for these while their rows have a place behind them, and a "
        "change of one of these waits for all others where the target has no place for it"
    )
