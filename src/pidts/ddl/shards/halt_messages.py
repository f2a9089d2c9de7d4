"""Writes the messages about a schema change that waits for other shards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pidts.apply.merge.differences import differences_text
from pidts.model import Arrival, Halt, Halted, Lsn, Member, Table, TableName
from pidts.model.advice import LIST, REPLACE, RESYNC, RETRY, SKIP, UNLOCK, of_table, with_place
from pidts.model.errors import named
from pidts.plan.blocked import BlockedStatement
from pidts.shards.decide import Wait, added_by_one
from pidts.shards.structures import clashing

_NAMED = 5
"""A message names at most this many members. The list of all members is shown separately."""


def waiting_halt(
    wait: Wait,
    *,
    source: str,
    lsn: Lsn,
    tables: tuple[TableName, ...],
    position: str,
    statement: str,
    arrival: Arrival | None = None,
    agreed: Table | None = None,
) -> Halt:
    """Returns the halt of a waiting change. The tables of the halt stop, and all other tables continue."""
    error = _reason(wait, arrival, agreed)
    awaits = [*map(str, wait.awaited), *(str(one.member) for one in wait.disagree)]
    awaits += [f"{name}: *" for name in wait.absent]
    awaits += [f"{wait.begun[0]}: *"] if wait.begun is not None else []
    if wait.leader is not None:
        awaits.append(str(wait.leader))
    since = arrival.since if arrival is not None else 0.0
    halt = Halt.of(error, tables, lsn, source=source, position=position, statement=statement, since=since)
    return replace(halt, awaits=tuple(dict.fromkeys(awaits)))


def waiting_code(wait: Wait, arrival: Arrival | None, agreed: Table | None) -> str:
    """Returns the code of the halt that `waiting_halt` would return."""
    return _reason(wait, arrival, agreed).code


def blocked_halt(one: BlockedStatement, source: str, position: str, since: float) -> Halt:
    """Returns the halt of tables that wait only because a statement names them together with other tables."""
    names, others = sorted(one.tables), sorted(one.others)
    named = _names([Member(source, name) for name in others])
    all_wait = "; all tables of this source wait for it" if one.holds_all else ""
    error = Halted(
        "ddl-awaits-tables",
        f"the next statement of these tables also names tables that wait at an earlier statement: {named}{all_wait}",
        todo=f"See what those tables wait for: run {LIST}. They may wait for a shard that is stopped at this "
        "statement, or for a shard whose change is later in the same log. In both cases, let the change of those "
        f"tables run without that shard: run {of_table(UNLOCK, source, others[0])}",
    )
    halt = Halt.of(error, tuple(names), one.lsn, source=source, position=position, statement=one.text, since=since)
    return replace(halt, awaits=tuple(str(Member(source, name)) for name in others))


def _reason(wait: Wait, arrival: Arrival | None, agreed: Table | None) -> Halted:
    """Returns the error that explains a wait. It is reported but never raised: the change continues by itself."""
    if (leader := wait.leader) is not None:
        what = f"{leader} runs this change for all shards and has not finished it"
        todo = (
            f"Nothing to do for this shard. If {leader.table} itself is halted, do what its halt says, and then run "
            f"{of_table(RETRY, leader.source, leader.table)}"
        )
        return Halted("shard-awaits", what, todo=todo)
    if wait.begun is not None:
        source, lsn = wait.begun
        what = f"{source} began a change of this table at {lsn}, did not finish it, and has not reached it again"
        todo = f"This table continues when that source has finished the change. If it never finishes it: run {SKIP}"
        return Halted("shard-awaits", what, todo=todo)
    if wait.absent:
        what = f"these sources have not begun, so their shards are not known yet: {', '.join(wait.absent)}"
        todo = f"This table continues when these sources have begun. To continue without them: run {SKIP}"
        return Halted("shard-awaits", what, todo=todo)
    if arrival is not None and not arrival.runs and agreed is not None:
        names = differences_text(arrival.after, agreed) or "the values that the columns can hold"
        what = f"the new table's rows do not fit {agreed.name}: the structures differ in {names}"
        if not (wait.awaited or wait.disagree):
            todo = (
                "Alter the new table on its source, or the target's table by hand, so that the rows fit; then run "
                f"{SKIP}"
                ". The target's table keeps its rows"
            )
            return Halted("shard-no-place", f"{what}, and no other shard will change that", todo=todo)
        todo = f"This table continues when the other shards have this structure. If they will never have it: run {SKIP}"
        return Halted("shard-structure", what, todo=todo)
    if wait.disagree and arrival is not None:
        return Halted("shards-disagree", _disagreement(arrival, wait.disagree), todo=_ways_out(wait.disagree))
    if wait.differing_columns:
        return _already_there(wait, arrival, agreed)
    away = clashing(arrival.before, arrival.after, agreed) if arrival is not None and agreed is not None else []
    if arrival is not None and agreed is not None and away:
        columns = [f"column {name}" for name in away]
        what = f"the other shards have a different {differences_text(arrival.after, agreed, columns)}"
        todo = (
            f"Skip this change, and give the shard the structure of the others: run {SKIP}. Or give the target table a "
            f"structure that fits all shards: run {REPLACE}"
        )
        return Halted("shards-disagree", what, todo=todo)
    if not wait.awaited and arrival is not None and agreed is not None:
        what = (
            f"this change need not wait for other shards, but after it the target table would not have the structure "
            f"of all shards; the difference: {differences_text(arrival.after, agreed)}"
        )
        todo = (
            f"Skip this change, and give the shard the structure of the others: run {SKIP}. Or give the target table a "
            f"structure that fits all shards: run {REPLACE}"
        )
        return Halted("shards-disagree", what, todo=todo)
    # For an online schema change, the statement in the log is only a RENAME.
    is_swap = arrival is not None and arrival.text.lstrip()[:6].upper() == "RENAME"
    made = f" of {differences_text(arrival.before, arrival.after)}" if arrival is not None and is_swap else ""
    what = f"other shards of the same table have not reached this change{made}: {_names(wait.awaited)}"
    todo = f"Make the change on these shards, too; or continue without them: run {UNLOCK}"
    return Halted("shard-awaits", what, todo=todo)


def _already_there(wait: Wait, arrival: Arrival | None, agreed: Table | None) -> Halted:
    """Returns the error for columns that the target already has.

    If the columns have other defaults on the target than in the statement, no further arrival ends the disagreement.
    """
    columns = [f"column {name}" for name in wait.differing_columns]
    unlike = differences_text(arrival.after, agreed, columns) if arrival is not None and agreed is not None else ""
    again = f"this change, and copy this shard's rows again: run {SKIP}; {RESYNC}"
    if unlike != ", ".join(columns):
        what = f"the target has a different {unlike}, and stores the target's values in this shard's rows"
        todo = f"Skip {again}"
        return Halted("shards-disagree", what, todo=todo)
    what = (
        f"{named('column', wait.differing_columns, 'is', 'are')} already on the target, with other values in this "
        "shard's rows than on the source"
    )
    if not wait.awaited:
        return Halted("shards-disagree", f"{what}; no shard has this column any more", todo=f"Skip {again}")
    what = f"{what}; these shards have this column: {_names(wait.awaited)}"
    todo = f"This table continues when those shards have dropped the column; or skip {again}"
    return Halted("shard-awaits", what, todo=todo)


def _ways_out(others: Sequence[Arrival]) -> str:
    """Returns the advice if shards have different changes: a command for this change, and one for each other change."""
    skips = [with_place(SKIP, one.member.source, str(one.lsn)) for one in others[:_NAMED]]
    if len(others) > _NAMED:
        skips.append(f"and {len(others) - _NAMED:,} more, which this command shows: {LIST}")
    return (
        f"Choose the change to make. For this one: run {UNLOCK}. Skip the others, and give their shards the same "
        "structure"
        ": " + "; ".join(skips)
    )


_EXPRESSION = "the expression of a generated column"


def _unlike(arrival: Arrival, other: Arrival) -> str:
    if names := added_by_one(arrival, other):
        return f"whether {named('column', sorted(names), 'is', 'are')} new or renamed"
    return differences_text(arrival.after, other.after) or _EXPRESSION


def _disagreement(arrival: Arrival, others: Sequence[Arrival]) -> str:
    listed = [
        f"{other.member} (at {other.position or other.lsn}): {other.text[:200]}, "
        f"which differs in {_unlike(arrival, other)}"
        for other in others[:_NAMED]
    ]
    more = f"; and {len(others) - _NAMED:,} more" if len(others) > _NAMED else ""
    return f"other shards of the same table have reached a different change: {'; '.join(listed)}{more}"


def _names(members: Sequence[Member]) -> str:
    named = ", ".join(map(str, members[:_NAMED]))
    left = len(members) - _NAMED
    return f"{named} and {left} more" if left > 0 else named
