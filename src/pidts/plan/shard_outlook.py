"""What an order about a schema change that waits for other shards would do to rows, as far as structures tell it."""

from __future__ import annotations

from dataclasses import replace

from pidts.model import Arrival, Member, OrderKind
from pidts.plan.shard_versions import misfitting
from pidts.plan.shards import Decision, Group, Run, Wait, decide
from pidts.plan.value_room import takes


def unfit_if_unlocked(group: Group, mine: Arrival) -> tuple[Member, ...]:
    """Those who go on writing rows that will not fit, before their own change."""
    decision = _if_unlocked(group, mine)
    if not isinstance(decision, Run):
        return ()
    writing = (member for member in decision.left if member not in group.arrivals)
    return tuple(member for member in writing if misfitting(group.members[member], decision.agreed, takes))


def staying_if_unlocked(group: Group, mine: Arrival) -> tuple[str, ...]:
    """What keeps it waiting all the same."""
    decision = _if_unlocked(group, mine)
    if not isinstance(decision, Wait):
        return ()
    found = tuple(f"column {name} is on the target already, with other values in its rows" for name in decision.met)
    return found or ("the target's table is not what it can be run on",)


def _if_unlocked(group: Group, mine: Arrival) -> Decision:
    ordered = {**group.arrivals, mine.member: replace(mine, order=OrderKind.UNLOCK)}
    return decide(replace(group, arrivals=ordered), mine.member)


def lacking_if_skipped(group: Group, mine: Arrival) -> tuple[str, ...]:
    """What keeps its own rows behind the change from fitting."""
    return tuple(misfitting(mine.after, group.agreed, takes))
