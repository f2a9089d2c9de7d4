"""Predicts what an order about a waiting schema change would do to rows, as far as structures tell it."""

from __future__ import annotations

from dataclasses import replace

from pidts.model import Arrival, Member, OrderKind
from pidts.shards.decide import Decision, Group, Run, Wait, decide
from pidts.shards.structures import misfitting
from pidts.shards.type_fit import takes


def unfit_if_unlocked(group: Group, mine: Arrival) -> tuple[Member, ...]:
    """Returns the members that would go on writing rows that do not fit, until they make the change themselves."""
    decision = _if_unlocked(group, mine)
    if not isinstance(decision, Run):
        return ()
    writing = (member for member in decision.left if member not in group.arrivals)
    return tuple(member for member in writing if misfitting(group.members[member], decision.agreed, takes))


def staying_if_unlocked(group: Group, mine: Arrival) -> tuple[str, ...]:
    """Returns the reasons for which the member would still wait after an unlock."""
    decision = _if_unlocked(group, mine)
    if not isinstance(decision, Wait):
        return ()
    found = tuple(f"column {name} is on the target already, with other values in its rows" for name in decision.met)
    return found or ("the target's table is not what it can be run on",)


def _if_unlocked(group: Group, mine: Arrival) -> Decision:
    ordered = {**group.arrivals, mine.member: replace(mine, order=OrderKind.UNLOCK)}
    return decide(replace(group, arrivals=ordered), mine.member)


def lacking_if_skipped(group: Group, mine: Arrival) -> tuple[str, ...]:
    """Returns the reasons for which the member's own rows after the change would not fit."""
    return tuple(misfitting(mine.after, group.agreed, takes))
