"""Builds the target's statement for a schema change of the source: with the target's names, without filtered parts.

The target does not run the parts of a statement that filters leave out. But these parts change the recorded structures,
since later rows have the new structure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from types import MappingProxyType

from pidts.model import Halted, Table, TableName, Where
from pidts.model.advice import REPLACE
from pidts.rules import FilterDecision, Rules, mapping_of
from pidts.schema import (
    AddColumn,
    AddKey,
    AlterDatabase,
    AlterTable,
    ChangeColumn,
    CreateDatabase,
    CreateTable,
    Dialect,
    DropDatabase,
    ModifyColumn,
    RenameTable,
    RenameTo,
    Statement,
    retargeted,
)
from pidts.schema.actions import Action
from pidts.schema.dm_events import kept_parts

_NOTHING: Mapping[TableName, Table] = MappingProxyType({})


def taken(
    statement: Statement,
    text: str,
    rules: Rules,
    where: Where,
    dialect: Dialect,
    before: Mapping[TableName, Table] = _NOTHING,
) -> Statement | None:
    """Returns the part of the statement that the filters take, with the source's names; None if they take nothing."""

    def takes(table: TableName, events: frozenset[str]) -> bool:
        verdict = rules.events(table, events, text)
        if verdict is FilterDecision.REFUSE:
            raise Halted(
                "event-refused",
                f"an event filter of the task file refuses this statement: {text[:200]}",
                where=replace(where, table=str(table) if table.name else where.table),
                todo=f"Change the filter's action, or give the statements for the target: run {REPLACE}",
            )
        return verdict is FilterDecision.TAKE

    return kept_parts(statement, text, takes, before, dialect=dialect) if rules.events.rules else statement


def routed_statement(statement: Statement, rules: Rules) -> Statement | None:
    """Returns the statement with the target's names; None if it concerns no table or schema of the target."""
    match statement:
        case CreateTable(structure=structure):
            structure = rules.target_table(structure)
            return replace(statement, table=structure.name, structure=structure)
        case CreateDatabase() | AlterDatabase() | DropDatabase():
            return replace(statement, name=rules.routes.schema(statement.name))
        case RenameTable(pairs=pairs):
            moving = tuple(pair for pair in pairs if rules.target_name(pair[0]) != rules.target_name(pair[1]))
            return retargeted(replace(statement, pairs=moving), rules.target_name) if moving else None
        case AlterTable(table=table, actions=actions):
            there = [_clause(action, table, rules) for action in actions if not _stays(action, table, rules)]
            return retargeted(replace(statement, actions=tuple(there)), rules.target_name) if there else None
        case _:
            return retargeted(statement, rules.target_name)


def _stays(action: Action, table: TableName, rules: Rules) -> bool:
    return isinstance(action, RenameTo) and rules.target_name(action.name) == rules.target_name(table)


def _clause(action: Action, table: TableName, rules: Rules) -> Action:
    if (
        isinstance(action, AddColumn)
        and action.computed is not None
        and _maps({*action.computed.names, action.column.name.lower()}, table, rules)
    ):
        # A column mapping changes this column, or a column from which it is computed. So the target stores the values
        # of this column, and does not compute them.
        action = replace(action, computed=None, column=replace(action.column, computed=""))
    if isinstance(action, AddColumn | ModifyColumn | ChangeColumn):
        return replace(action, column=rules.mapped_column(action.column, table))
    if isinstance(action, AddKey) and rules.target_name(table) in rules.keyed:
        return _among_own(action, tuple(name for name, _ in rules.routes.destination(table).extracted))
    return action


def _maps(names: Collection[str], table: TableName, rules: Rules) -> bool:
    mapping = mapping_of(rules.mappings, table)
    return mapping is not None and mapping.target_column.lower() in names


def _among_own(action: AddKey, extracted: tuple[str, ...]) -> AddKey:
    """Adds the extracted columns to a unique key: a value is unique only among the rows of one shard."""
    key, prefixes = action.key, action.prefixes
    if not (key.unique or key.primary):
        return action
    prefixes = (*prefixes, *(None for _ in extracted)) if prefixes else ()
    downwards = (*key.descending, *(False for _ in extracted)) if key.descending else ()
    wider = replace(key, columns=(*key.columns, *extracted), descending=downwards)
    return replace(action, key=wider, prefixes=prefixes)
