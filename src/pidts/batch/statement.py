"""A schema change of the source as it is to run on the target: what the filters leave of it, by the target's names.

What is filtered is not run, and is followed all the same: rows behind it have the structure that it made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from pidts.model import Halted, Table, TableName, Where
from pidts.rules import Rules, Verdict
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
from pidts.schema.event_types import sifted

_NOTHING: Mapping[TableName, Table] = MappingProxyType({})


def taken(
    statement: Statement,
    text: str,
    rules: Rules,
    where: Where,
    dialect: Dialect,
    before: Mapping[TableName, Table] = _NOTHING,
) -> Statement | None:
    """What of it is to run, by the source's names; None: nothing."""

    def takes(table: TableName, events: frozenset[str]) -> bool:
        verdict = rules.events(table, events, text)
        if verdict is Verdict.REFUSE:
            raise Halted(
                "event-refused",
                f"an event filter of the task file refuses this statement: {text[:200]}",
                where=replace(where, table=str(table) if table.name else where.table),
                todo="Look at what it does; then change the filter's action, or say what is to run: pidts ddl --help",
            )
        return verdict is Verdict.TAKE

    return sifted(statement, text, takes, before, dialect=dialect) if rules.events.rules else statement


def landed(statement: Statement, rules: Rules) -> Statement | None:
    """The same about the target's names; None where these are not touched."""
    match statement:
        case CreateTable(structure=structure):
            structure = rules.landed(structure)
            return replace(statement, table=structure.name, structure=structure)
        case CreateDatabase() | AlterDatabase() | DropDatabase():
            return replace(statement, name=rules.routes.schema(statement.name))
        case RenameTable(pairs=pairs):
            moving = tuple(pair for pair in pairs if rules.landed_name(pair[0]) != rules.landed_name(pair[1]))
            return retargeted(replace(statement, pairs=moving), rules.landed_name) if moving else None
        case AlterTable(table=table, actions=actions):
            there = [_clause(action, table, rules) for action in actions if not _stays(action, table, rules)]
            return retargeted(replace(statement, actions=tuple(there)), rules.landed_name) if there else None
        case _:
            return retargeted(statement, rules.landed_name)


def _stays(action: Action, table: TableName, rules: Rules) -> bool:
    return isinstance(action, RenameTo) and rules.landed_name(action.name) == rules.landed_name(table)


def _clause(action: Action, table: TableName, rules: Rules) -> Action:
    if isinstance(action, AddColumn | ModifyColumn | ChangeColumn):
        return replace(action, column=rules.mapped_column(action.column, table))
    if isinstance(action, AddKey) and rules.landed_name(table) in rules.keyed:
        return _among_own(action, tuple(name for name, _ in rules.routes.landing(table).extracted))
    return action


def _among_own(action: AddKey, extracted: tuple[str, ...]) -> AddKey:
    """A value is unique among the rows of one shard."""
    key, prefixes = action.key, action.prefixes
    if not (key.unique or key.primary):
        return action
    prefixes = (*prefixes, *(None for _ in extracted)) if prefixes else ()
    return replace(action, key=replace(key, columns=(*key.columns, *extracted)), prefixes=prefixes)
