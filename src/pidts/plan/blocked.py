"""Finds tables that wait before a statement because other tables that the statement names have not reached it yet.

The planner decides by itself which tables wait, and does not need this module. Operators see the blocked tables. Shard
groups use them, too: if the statement removes a blocked table, the shard group need not wait for this table, since the
target has all of its rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from pidts.model import LogEntry, Lsn, TableName
from pidts.plan.relevance import JoinedTables, Log, Relevance, RelevanceKind, RelevanceOf
from pidts.plan.state import HeldTables, PlanState


@dataclass(frozen=True, slots=True)
class BlockedStatement:
    """A statement of the log, with the tables that are blocked before it."""

    lsn: Lsn
    text: str
    tables: frozenset[TableName]
    """The known tables that are blocked; if there are none, the new tables."""
    others: frozenset[TableName]
    """The known tables that have to reach the statement first, since they are held at an earlier place."""
    leaving: frozenset[TableName]
    """The blocked tables that no longer exist after the statement."""
    holds_all: bool = False
    """Whether all tables wait, because the statement may concern any table."""


def blocked_statements(
    state: PlanState, log: Log, relevance_of: RelevanceOf, known: Collection[TableName], halted: Collection[Lsn]
) -> tuple[BlockedStatement, ...]:
    """Returns the blocked statements of known and new tables. `halted`: schema changes that need an operator."""
    joined, places = JoinedTables(state.copy), state.exceptions
    there = [_of_held_tables(held, state.lsn, log, relevance_of, joined, places) for held in state.held]
    there += _of_all(state, log(state.lsn, None), relevance_of, known, halted)
    names = frozenset(known)
    return tuple(
        replace(one, tables=one.tables & names or one.tables, others=one.others & names or one.others)
        for one in there
        if one is not None
    )


def _of_held_tables(
    held: HeldTables,
    end: Lsn,
    log: Log,
    relevance_of: RelevanceOf,
    joined: JoinedTables,
    places: Mapping[TableName, Lsn],
) -> BlockedStatement | None:
    if held.halted or held.due is not None or held.lsn >= end:
        return None
    for entry in log(held.lsn, end):
        lsn = entry.transaction.lsn
        relevance = joined.narrow(relevance_of(entry), lsn)
        if relevance.kind is RelevanceKind.DDL and relevance.tables is not None and relevance.tables & held.tables:
            others = frozenset(name for name in relevance.tables - held.tables if places.get(name, end) < lsn)
            return _blocked(entry, relevance, relevance.tables & held.tables, others) if others else None
        if not held.tables.isdisjoint(entry.transaction.tables):
            return None
    return None


def _of_all(
    state: PlanState,
    entries: Iterable[LogEntry],
    relevance_of: RelevanceOf,
    known: Collection[TableName],
    halted: Collection[Lsn],
) -> list[BlockedStatement]:
    """Returns the blocked statements of tables that no batch holds yet."""
    found: list[BlockedStatement] = []
    joined, held = JoinedTables(state.copy), set(state.exceptions)
    for entry in entries:
        relevance = joined.narrow(relevance_of(entry), entry.transaction.lsn)
        names = relevance.tables
        if relevance.kind is RelevanceKind.NOTHING or (names is not None and names <= held):
            continue
        if names is not None and entry.transaction.lsn == state.due and state.due in halted:
            held |= names
            continue
        if relevance.kind is not RelevanceKind.DDL or not relevance.touches(held):
            break
        if names is None:
            schemas = relevance.gone_schemas
            mine = frozenset(name for name in known if not schemas or name.schema in schemas)
            found.append(replace(_blocked(entry, relevance, mine - held, mine & held), holds_all=True))
            break
        found.append(_blocked(entry, relevance, names - held, names & held))
        held |= names
    return found


def _blocked(
    entry: LogEntry, relevance: Relevance, tables: frozenset[TableName], others: frozenset[TableName]
) -> BlockedStatement:
    leaving = frozenset(name for name in tables if name in relevance.gone or name.schema in relevance.gone_schemas)
    return BlockedStatement(entry.transaction.lsn, entry.transaction.ddl or "", tables, others, leaving)
