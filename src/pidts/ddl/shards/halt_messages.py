"""Writes the messages about a schema change that waits for other shards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pidts.apply.merge.differences import unlike_words
from pidts.model import Arrival, Halt, Halted, Lsn, Member, Table, TableName
from pidts.plan.blocked import BlockedStatement
from pidts.shards.decide import Wait, added_by_one
from pidts.shards.structures import clashing

_NAMED = 5
"""The number of members that a message names; the list of all is shown beside it."""


def waiting_halt(
    wait: Wait,
    *,
    lsn: Lsn,
    tables: tuple[TableName, ...],
    position: str,
    statement: str,
    arrival: Arrival | None = None,
    agreed: Table | None = None,
) -> Halt:
    """Returns the halt of a waiting change: as in any halt, its tables stop and all others go on."""
    error = _reason(wait, arrival, agreed)
    awaits = [*map(str, wait.awaited), *(str(one.member) for one in wait.disagree)]
    awaits += [f"{name}: *" for name in wait.absent]
    awaits += [f"{wait.begun[0]}: *"] if wait.begun is not None else []
    if wait.leader is not None:
        awaits.append(str(wait.leader))
    since = arrival.since if arrival is not None else 0.0
    halt = Halt.of(error, tables, lsn, position=position, statement=statement, since=since)
    return replace(halt, awaits=tuple(dict.fromkeys(awaits)))


def blocked_halt(one: BlockedStatement, source: str, position: str, since: float) -> Halt:
    """Returns the halt of tables that wait only since a statement names them together with others."""
    names, others = sorted(one.tables), sorted(one.others)
    named = _names([Member(source, name) for name in others])
    all_wait = "; all tables of this source wait for it" if one.holds_all else ""
    error = Halted(
        "ddl-awaits-tables",
        f"the next statement of these tables also names tables that wait before another one: {named}{all_wait}",
        todo="See what these wait for: pidts ddl list. Where they wait for a shard that stands here, or for one whose "
        "change comes later in the same log, say pidts ddl unlock for them",
    )
    halt = Halt.of(error, tuple(names), one.lsn, position=position, statement=one.text, since=since)
    return replace(halt, awaits=tuple(str(Member(source, name)) for name in others))


def _reason(wait: Wait, arrival: Arrival | None, agreed: Table | None) -> Halted:
    """Returns the error that explains a wait. It is reported, never raised: the change continues by itself."""
    if (leader := wait.leader) is not None:
        what = f"{leader} makes this change for all shards, and has not ended"
        todo = (
            f"Nothing for this shard. Where {leader.table} has halted itself, do what its own halt says, and then: "
            f"pidts ddl retry TASK --source {leader.source} --table {leader.table}"
        )
        return Halted("shard-awaits", what, todo=todo)
    if wait.begun is not None:
        source, lsn = wait.begun
        what = f"{source} has begun a change of this table at {lsn}, has not ended it, and has not come back to it"
        todo = "It goes on when that source has ended it; if it never comes again, say: pidts ddl skip"
        return Halted("shard-awaits", what, todo=todo)
    if wait.absent:
        what = f"it is not known yet what {', '.join(wait.absent)} has"
        todo = "It goes on when these sources have begun; or say: pidts ddl skip"
        return Halted("shard-awaits", what, todo=todo)
    if arrival is not None and not arrival.runs and agreed is not None:
        names = unlike_words(arrival.after, agreed) or "what its columns take"
        what = f"the new table's rows have no place in {agreed.name}: it differs in {names}"
        if not (wait.awaited or wait.disagree):
            todo = (
                "Alter the new table on its source, or the target's table by hand, so that its rows fit there; then "
                "say pidts ddl skip. The target's table keeps its rows"
            )
            return Halted("shard-no-place", f"{what}, and no other shard has to come", todo=todo)
        todo = "It goes on when the other shards have come there; else say: pidts ddl skip"
        return Halted("shard-structure", what, todo=todo)
    if wait.disagree and arrival is not None:
        return Halted("shards-disagree", _disagreement(arrival, wait.disagree), todo=_WAYS_OUT)
    if wait.met:
        return _met(wait, arrival, agreed)
    away = clashing(arrival.before, arrival.after, agreed) if arrival is not None and agreed is not None else []
    if arrival is not None and agreed is not None and away:
        columns = [f"column {name}" for name in away]
        what = f"the other shards have another {unlike_words(arrival.after, agreed, columns)}"
        todo = (
            "Take this change out, pidts ddl skip, and bring the shard to the same structure; or give the target what "
            "has room for all, pidts ddl replace"
        )
        return Halted("shards-disagree", what, todo=todo)
    if not wait.awaited and arrival is not None and agreed is not None:
        what = (
            "no other shard has to come, and this change does not lead from what the target has to where all shards "
            f"would be: {unlike_words(arrival.after, agreed)}"
        )
        todo = "Take it out, pidts ddl skip, and bring the shard to the others' structure; or pidts ddl replace"
        return Halted("shards-disagree", what, todo=todo)
    # The log has only a rename of an online schema change.
    is_swap = arrival is not None and arrival.text.lstrip()[:6].upper() == "RENAME"
    made = f" of {unlike_words(arrival.before, arrival.after)}" if arrival is not None and is_swap else ""
    what = f"other shards of the same table have not come to this change{made}: {_names(wait.awaited)}"
    todo = "Make the change on these, too; or do without them: pidts ddl unlock"
    return Halted("shard-awaits", what, todo=todo)


def _met(wait: Wait, arrival: Arrival | None, agreed: Table | None) -> Halted:
    """Returns the error about columns that the target has already.

    Where their defaults differ, the shards disagree, and no shard that still arrives changes that.
    """
    columns = [f"column {name}" for name in wait.met]
    unlike = unlike_words(arrival.after, agreed, columns) if arrival is not None and agreed is not None else ""
    again = "pidts ddl skip, and have this shard's rows copied again: pidts run TASK --resync"
    if arrival is not None:
        again += f" {arrival.member.source}:{arrival.member.table}"
    if unlike != ", ".join(columns):
        what = f"the target has another {unlike}, and its values in rows that this shard has"
        todo = f"Say {again}"
        return Halted("shards-disagree", what, todo=todo)
    what = f"column {', '.join(wait.met)} is on the target already, with other values in this shard's rows"
    if not wait.awaited:
        return Halted("shards-disagree", f"{what}; no shard has it any more", todo=f"Say {again}")
    what = f"{what}; these shards have it: {_names(wait.awaited)}"
    return Halted("shard-awaits", what, todo=f"It goes on when they have dropped it; or say {again}")


_WAYS_OUT = (
    "Say which change is to be made: pidts ddl unlock; take others out: pidts ddl skip, and bring their shards to the "
    "same structure"
)


_EXPRESSION = "the expression of a generated column"


def _unlike(arrival: Arrival, other: Arrival) -> str:
    if names := added_by_one(arrival, other):
        return f"whether column {', '.join(sorted(names))} is new or an old one under a new name"
    return unlike_words(arrival.after, other.after) or _EXPRESSION


def _disagreement(arrival: Arrival, others: Sequence[Arrival]) -> str:
    listed = [
        f"{other.member} (at {other.position or other.lsn}): {other.text[:200]}, "
        f"which differs in {_unlike(arrival, other)}"
        for other in others[:_NAMED]
    ]
    more = f"; and {len(others) - _NAMED:,} more" if len(others) > _NAMED else ""
    return f"other shards of the same table have come with another change: {'; '.join(listed)}{more}"


def _names(members: Sequence[Member]) -> str:
    named = ", ".join(map(str, members[:_NAMED]))
    left = len(members) - _NAMED
    return f"{named} and {left} more" if left > 0 else named
