"""A schema change of the source as it is to run on the target: what the filters leave of it, by the target's names.

What is filtered is not run, and is followed all the same: rows behind it have the structure that it made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from pidts.model import Halted, Table, TableName, Where
from pidts.rules import Rules, Verdict
from pidts.rules.column_mapping import mapping_of
from pidts.schema import (
    AddColumn,
    AlterDatabase,
    AlterTable,
    ChangeColumn,
    CreateDatabase,
    CreateTable,
    Dialect,
    DropDatabase,
    DropTable,
    ModifyColumn,
    RenameTable,
    Statement,
    TruncateTable,
    retargeted,
)
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


def landed(statement: Statement, rules: Rules) -> Statement:
    """The same about the target's names."""
    match statement:
        case CreateTable(structure=structure):
            structure = rules.landed(structure)
            return replace(statement, table=structure.name, structure=structure)
        case CreateDatabase() | AlterDatabase() | DropDatabase():
            return replace(statement, name=rules.routes.schema(statement.name))
        case AlterTable(table=table) if (mapping := mapping_of(rules.mappings, table)) is not None:
            actions = (
                replace(action, column=mapping.mapped_column(action.column, table))
                if isinstance(action, AddColumn | ModifyColumn | ChangeColumn)
                else action
                for action in statement.actions
            )
            return retargeted(replace(statement, actions=tuple(actions)), rules.landed_name)
        case _:
            return retargeted(statement, rules.landed_name)


def apart(statement: Statement, merges: Callable[[TableName], bool], rules: Rules, where: Where) -> Statement | None:
    """What of it may run where several tables of the source are one on the target; None: nothing.

    Such a table neither goes nor is emptied because one of them does. What changes one of them changes all, which is
    nothing that one can ask for.
    """
    match statement:
        case DropTable(tables=tables):
            left = tuple(name for name in tables if not merges(name))
            return replace(statement, tables=left) if left else None
        case TruncateTable(table=table) if merges(table):
            return None
        case RenameTable(pairs=pairs):
            left_pairs = tuple(pair for pair in pairs if rules.landed_name(pair[0]) != rules.landed_name(pair[1]))
            if any(merges(name) for pair in left_pairs for name in pair):
                raise _of_all(statement, rules, where)
            return replace(statement, pairs=left_pairs) if left_pairs else None
        case AlterTable() if any(map(merges, statement.tables)):
            raise _of_all(statement, rules, where)
        case _:
            return statement


def _of_all(statement: Statement, rules: Rules, where: Where) -> Halted:
    names = dict.fromkeys(str(rules.landed_name(name)) for name in statement.tables)
    return Halted(
        "merged-table-changed",
        f"a table is changed of which {', '.join(names)} has only a part of its rows: the others would change with it",
        where=replace(where, table=str(statement.tables[0])),
        todo="Run on the target what all of them need, then: pidts ddl skip",
    )
