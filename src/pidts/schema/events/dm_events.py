"""Names the kinds of change that a DDL makes, as DM's event filters call them.

DM takes a statement apart before it filters: each table of a DROP TABLE, each pair of a RENAME TABLE and each clause of
an ALTER TABLE stands alone and has one kind. So a filter may leave half of a statement: of `ALTER TABLE t ADD a int,
DROP b` under `Ignore: [drop column]` the column a is added and b stays. Every table that a part names is asked, and one
that says no is enough.

A clause without a kind of its own is an `alter table`; one with its own is not: `DROP COLUMN` is a `drop column` alone.
Some kinds are wider than their names, as in DM: ADD INDEX is a `modify constraint`. Some names DM knows, and has no
clause for (`add column`); they stand here beside the kind that it does give (`alter table`), so that they do what they
say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

import pidts.schema.actions as alter
import pidts.schema.statements as ddl
from pidts.model.table import Table, TableName
from pidts.schema.dialect import MYSQL, Dialect
from pidts.schema.events.column_events import column_event
from pidts.schema.parse.key_clause import PRIMARY
from pidts.schema.parse.lexer import NotUnderstoodError
from pidts.schema.parse.token_cursor import Cursor

ALTER = "alter table"
NOBODY = TableName("", "")
"""The table that a statement without understanding is asked for: only `*` means it."""

_NOTHING: Mapping[TableName, Table] = MappingProxyType({})
_OPTIONS: dict[str, tuple[str, ...]] = {
    "engine": ("modify storage engine",),
    "type": ("modify storage engine",),
    "auto_increment": (ALTER, "rebase auto id"),
    "check": ("modify constraint",),
    "key over an expression": ("modify constraint",),
    "alter index": (ALTER, "alter index visibility"),
    "add partition": (ALTER, "add table partition"),
    "drop partition": ("drop table partition",),
    "truncate partition": ("truncate table partition",),
    "reorganize partition": ("reorganize table partition",),
    "rebuild partition": ("rebuild table partition",),
    "coalesce partition": ("coalesce table partition",),
    "exchange partition": ("exchange table partition",),
}
_ACTIONS: dict[type, tuple[str, ...]] = {
    alter.AddColumn: (ALTER, "add column"),
    alter.DropColumn: ("drop column",),
    alter.RenameColumn: ("rename column",),
    alter.SetDefault: ("modify default value", "set default value"),
    alter.RenameKey: ("rename index",),
    alter.RenameTo: ("rename table",),
    alter.ConvertCharset: ("modify charset", "modify table charset and collate"),
    alter.SetComment: (ALTER, "modify table comment"),
}
_MANNER = "manner"


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a statement that is filtered alone: its kind under all its names, and the tables that are asked."""

    statement: ddl.Statement
    events: frozenset[str]
    tables: tuple[TableName, ...]


def event_types(
    statement: ddl.Statement,
    text: str,
    before: Mapping[TableName, Table] = _NOTHING,
    *,
    dialect: Dialect = MYSQL,
) -> frozenset[str]:
    """Returns the kinds of all parts of a statement.

    `before` holds the structures that it meets: what a column's new definition changes cannot be told without.
    """
    found: frozenset[str] = frozenset()
    return found.union(*(part.events for part in parts(statement, text, before, dialect)))


def sifted(
    statement: ddl.Statement,
    text: str,
    takes: Callable[[TableName, frozenset[str]], bool],
    before: Mapping[TableName, Table] = _NOTHING,
    *,
    dialect: Dialect = MYSQL,
) -> ddl.Statement | None:
    """Returns the part of a statement that a filter leaves to run: the same object if all of it, None if nothing.

    `takes` is asked for each part and each of its tables, until one says no.
    """
    whole = parts(statement, text, before, dialect)
    left = [part.statement for part in whole if all(takes(table, part.events) for table in part.tables)]
    if len(left) == len(whole):
        return statement
    return _together(statement, left) if left else None


def parts(statement: ddl.Statement, text: str, before: Mapping[TableName, Table], dialect: Dialect) -> tuple[Part, ...]:
    """Returns the statements that do the same one after the other, each of one kind."""
    match statement:
        case ddl.CreateTable() | ddl.CreateTableLike():
            return (Part(statement, frozenset({"create table"}), statement.tables),)
        case ddl.DropTable(tables=tables):
            kind = frozenset({"drop table"})
            return tuple(Part(replace(statement, tables=(name,)), kind, (name,)) for name in tables)
        case ddl.TruncateTable():
            return (Part(statement, frozenset({"truncate table"}), statement.tables),)
        case ddl.RenameTable(pairs=pairs):
            kind = frozenset({"rename table"})
            return tuple(Part(replace(statement, pairs=(pair,)), kind, pair) for pair in pairs)
        case ddl.CreateDatabase(name=name):
            return (Part(statement, frozenset({"create database"}), (TableName(name, ""),)),)
        case ddl.AlterDatabase(name=name):
            kind = frozenset({"alter database", "modify schema charset and collate"})
            return (Part(statement, kind, (TableName(name, ""),)),)
        case ddl.DropDatabase(name=name):
            return (Part(statement, frozenset({"drop database"}), (TableName(name, ""),)),)
        case ddl.AlterTable():
            return _of_alter(statement, text, before.get(statement.table), dialect)
        case ddl.StatementDml() | ddl.Unknown():
            return (Part(statement, frozenset(), (NOBODY,)),)
        case ddl.Ignored():
            return (Part(statement, frozenset(), ()),)


def _of_alter(statement: ddl.AlterTable, text: str, before: Table | None, dialect: Dialect) -> tuple[Part, ...]:
    verb = _first_word(text, dialect)
    if verb in ("CREATE", "DROP"):
        return (Part(statement, frozenset({f"{verb.lower()} index"}), statement.tables),)
    found: list[Part] = []
    name = statement.table
    for place, action in enumerate(statement.actions):
        if _is_manner(action):
            continue
        behind = statement.actions[place + 1 :]
        events = _of_action(action, partial(column_event, before, behind=behind, dialect=dialect))
        part = replace(statement, table=name, actions=(action,))
        found.append(Part(part, frozenset(events), part.tables))
        if isinstance(action, alter.RenameTo):
            name = action.name
    return tuple(found) or (Part(statement, frozenset({ALTER}), statement.tables),)


def _first_word(text: str, dialect: Dialect) -> str:
    """CREATE INDEX and DROP INDEX are read as an ALTER TABLE, and yet are kinds of their own."""
    try:
        return Cursor(text, dialect, "").peek().word
    except NotUnderstoodError:
        return ""


def _is_manner(action: alter.Action) -> bool:
    """Whether a clause only says how the server does the change (`ALGORITHM=INPLACE`).

    Such a clause is no part of its own: it goes with the parts that are left.
    """
    return isinstance(action, alter.AlterOption) and action.what == _MANNER


def _of_action(
    action: alter.Action, column: Callable[[alter.ModifyColumn | alter.ChangeColumn], str]
) -> tuple[str, ...]:
    """Returns the kind that DM gives, and behind it the names that it knows besides."""
    match action:
        case alter.ModifyColumn() | alter.ChangeColumn():
            return (column(action),)
        case alter.AddKey(supports_foreign_key=True):
            return "modify constraint", "add foreign key"
        case alter.AddKey(key=key):
            return ("modify constraint", "add primary key") if key.primary else ("modify constraint",)
        case alter.DropKey(name=name):
            return ("drop primary key",) if name.upper() == PRIMARY else ("drop index",)
        case alter.SetCharset(charset=charset, collation=collation):
            kind = "modify collation" if charset is None and collation is not None else "modify charset"
            return kind, "modify table charset and collate"
        case alter.AlterOption(what="drop constraint", text=words) if "FOREIGN" in words.upper().split():
            return ALTER, "drop foreign key"
        case alter.AlterOption(what="partition", text=words):
            removes = words.upper().startswith("REMOVE")
            return ALTER, "remove table partitioning" if removes else "alter table partitioning"
        case alter.AlterOption(what=what) | alter.PartitionRows(what=what):
            return _OPTIONS.get(what, (ALTER,))
        case _:
            return _ACTIONS.get(type(action), (ALTER,))


def _together(statement: ddl.Statement, left: Sequence[ddl.Statement]) -> ddl.Statement:
    """Returns one statement again of the parts that are left."""
    match statement:
        case ddl.DropTable():
            return replace(statement, tables=tuple(name for part in left for name in part.tables))
        case ddl.RenameTable():
            pairs = tuple(pair for part in left if isinstance(part, ddl.RenameTable) for pair in part.pairs)
            return replace(statement, pairs=pairs)
        case ddl.AlterTable(actions=actions):
            kept = [id(action) for part in left if isinstance(part, ddl.AlterTable) for action in part.actions]
            return replace(
                statement, actions=tuple(action for action in actions if _is_manner(action) or id(action) in kept)
            )
        case _:
            return statement
