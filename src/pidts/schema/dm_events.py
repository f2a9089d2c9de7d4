"""Names the kinds of change in a statement as DM's event filters do.

DM splits a statement into parts before it filters. Each table of a DROP TABLE, each pair of a RENAME TABLE and each
clause of an ALTER TABLE is a part with one kind. So a filter may remove some parts of a statement. Example: with
`Ignore: [drop column]`, the statement `ALTER TABLE t ADD a int, DROP b` adds column a, and column b stays. A part is
removed if the filter of one of its tables refuses it.

If DM has a special kind for a clause, the clause has only this kind: `DROP COLUMN` is only a `drop column`. All other
clauses are an `alter table`. As in DM, some kinds include more than their names say: ADD INDEX is a `modify
constraint`. DM has some names that it assigns to no clause, such as `add column`. Here, ADD COLUMN has this name in
addition to DM's kind (`alter table`), so that filters with this name take effect.

For a column's new definition (MODIFY, CHANGE), the kind depends on the structure before the statement: it is the first
kind in this list that applies. For example, if a clause renames a column and reduces its range of values, the kind is
only `value range decrease`.

1. A change of the values that the column may have: `precision decrease`, `value range decrease`, or `modify column` for
   all other such changes.
2. The definition leaves out AUTO_INCREMENT (`remove auto increment`), the column's PRIMARY KEY (`drop primary key`) or
   its UNIQUE (`drop unique key`). The server keeps these keys, but DM reads only the text, and this module does the
   same. So `MODIFY id bigint` of a primary key's column is a `drop primary key`.
3. Default, charset, collation, order of columns, name: a change of each has its own kind. All other changes are an
   `alter table`.

Some of DM's kinds are surprising: CHAR(20) to CHAR(10) is an `alter table`, DECIMAL(5,2) to DECIMAL(9,2) a `precision
decrease`. PiDTS keeps these kinds, so that a filter that is copied from DM has the same effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from functools import partial
from types import MappingProxyType

import pidts.schema.actions as alter
import pidts.schema.statements as ddl
from pidts.model.table import Column, Table, TableName
from pidts.model.types import FRACTIONS, INTEGERS, LOB_BYTES, ColumnType, Kind
from pidts.schema.charset_rules import closed
from pidts.schema.dialect import MYSQL, Dialect
from pidts.schema.parse.key_clause import PRIMARY
from pidts.schema.parse.lexer import NotUnderstoodError
from pidts.schema.parse.token_cursor import TokenCursor

ALTER = "alter table"
NOBODY = TableName("", "")
"""The table whose filter decides about an unparsed statement: only a rule for `*` matches it."""

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
_Definition = alter.ModifyColumn | alter.ChangeColumn
_SMALLER, _LESS_PRECISE, _OTHER = "value range decrease", "precision decrease", "modify column"
_FIXED, _VARYING = frozenset({Kind.CHAR, Kind.BINARY}), frozenset({Kind.VARCHAR, Kind.VARBINARY})
_DIGITS = {Kind.FLOAT: 12, Kind.DOUBLE: 22}


@dataclass(frozen=True, slots=True)
class StatementPart:
    """A part of a statement that is filtered separately: the names of its kind, and the tables whose filters decide."""

    statement: ddl.Statement
    events: frozenset[str]
    tables: tuple[TableName, ...]


def kept_parts(
    statement: ddl.Statement,
    text: str,
    takes: Callable[[TableName, frozenset[str]], bool],
    before: Mapping[TableName, Table] = _NOTHING,
    *,
    dialect: Dialect = MYSQL,
) -> ddl.Statement | None:
    """Returns the statement with the parts that a filter keeps: the same object if it keeps all, None if it keeps none.

    `takes` is called for each part and each of its tables, until it returns False.
    """
    whole = statement_parts(statement, text, before, dialect)
    left = [part.statement for part in whole if all(takes(table, part.events) for table in part.tables)]
    if len(left) == len(whole):
        return statement
    return _together(statement, left) if left else None


def statement_parts(
    statement: ddl.Statement, text: str, before: Mapping[TableName, Table], dialect: Dialect
) -> tuple[StatementPart, ...]:
    """Returns the parts of a statement. Each part has one kind, and a statement of its own.

    These statements, run one after the other, have the same effect as the whole statement.
    """
    match statement:
        case ddl.CreateTable() | ddl.CreateTableLike():
            return (StatementPart(statement, frozenset({"create table"}), statement.tables),)
        case ddl.DropTable(tables=tables):
            kind = frozenset({"drop table"})
            return tuple(StatementPart(replace(statement, tables=(name,)), kind, (name,)) for name in tables)
        case ddl.TruncateTable():
            return (StatementPart(statement, frozenset({"truncate table"}), statement.tables),)
        case ddl.RenameTable(pairs=pairs):
            kind = frozenset({"rename table"})
            return tuple(StatementPart(replace(statement, pairs=(pair,)), kind, pair) for pair in pairs)
        case ddl.CreateDatabase(name=name):
            return (StatementPart(statement, frozenset({"create database"}), (TableName(name, ""),)),)
        case ddl.AlterDatabase(name=name):
            kind = frozenset({"alter database", "modify schema charset and collate"})
            return (StatementPart(statement, kind, (TableName(name, ""),)),)
        case ddl.DropDatabase(name=name):
            return (StatementPart(statement, frozenset({"drop database"}), (TableName(name, ""),)),)
        case ddl.AlterTable():
            return _of_alter(statement, text, before.get(statement.table), dialect)
        case ddl.StatementDml() | ddl.Unknown():
            return (StatementPart(statement, frozenset(), (NOBODY,)),)
        case ddl.IgnoredStatement():
            return (StatementPart(statement, frozenset(), ()),)


def _of_alter(
    statement: ddl.AlterTable, text: str, before: Table | None, dialect: Dialect
) -> tuple[StatementPart, ...]:
    verb = _first_word(text, dialect)
    if verb in ("CREATE", "DROP"):
        return (StatementPart(statement, frozenset({f"{verb.lower()} index"}), statement.tables),)
    found: list[StatementPart] = []
    name = statement.table
    for place, action in enumerate(statement.actions):
        if _is_manner(action):
            continue
        following = statement.actions[place + 1 :]
        events = _of_action(action, partial(_column_event, before, following=following, dialect=dialect))
        part = replace(statement, table=name, actions=(action,))
        found.append(StatementPart(part, frozenset(events), part.tables))
        if isinstance(action, alter.RenameTo):
            name = action.name
    return tuple(found) or (StatementPart(statement, frozenset({ALTER}), statement.tables),)


def _first_word(text: str, dialect: Dialect) -> str:
    """Returns the first word: CREATE INDEX and DROP INDEX are parsed as ALTER TABLE, but have kinds of their own."""
    try:
        return TokenCursor(text, dialect, "").peek().word
    except NotUnderstoodError:
        return ""


def _is_manner(action: alter.Action) -> bool:
    """Whether a clause only says how the server makes the change (`ALGORITHM=INPLACE`).

    A filter cannot remove a clause of this kind: it stays with the parts that the filter keeps.
    """
    return isinstance(action, alter.AlterOption) and action.what == _MANNER


def _of_action(action: alter.Action, column: Callable[[_Definition], str]) -> tuple[str, ...]:
    """Returns DM's name for this kind of clause, followed by the other names that filters may use for it."""
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
    """Returns `statement` with only the parts that are `left`, joined into one statement."""
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


def _column_event(table: Table | None, clause: _Definition, following: Sequence[alter.Action], dialect: Dialect) -> str:
    """Returns the kind of a column's new definition.

    `following` contains the clauses after the definition. The first of these clauses add the definition's own keys. If
    the structure before the statement is unknown, the kind is `alter table`, as in DM.
    """
    before = _column(table, clause.old if isinstance(clause, alter.ChangeColumn) else clause.column.name)
    if table is None or before is None:
        return ALTER
    charset = table.charset or dialect.charset
    after = closed(clause.column, (charset, table.collation or dialect.collation_of(charset)), dialect)
    if (kind := _of_values(before.type, after.type)) is not None:
        return kind
    own = _keys_of_definition(after, following)
    for holds, kind in (
        (before.auto_increment and not after.auto_increment, "remove auto increment"),
        (_in_primary(table, before) and not any(key.key.primary for key in own), "drop primary key"),
        (_unique_alone(table, before) and not any(key.key.unique for key in own), "drop unique key"),
        (not _same_default(before, after), "modify default value"),
        (before.type.charset != after.type.charset, "modify charset"),
        (before.type.collation != after.type.collation, "modify collation"),
        (clause.first or clause.after is not None, "modify columns order"),
        (before.name.lower() != after.name.lower(), "rename column"),
    ):
        if holds:
            return kind
    return ALTER


def _column(table: Table | None, name: str) -> Column | None:
    found = (column for column in table.columns if column.name.lower() == name.lower()) if table else ()
    return next(iter(found), None)


def _in_primary(table: Table, column: Column) -> bool:
    return any(key.primary and column.name in key.columns for key in table.keys)


def _unique_alone(table: Table, column: Column) -> bool:
    return any(key.unique and not key.primary and key.columns == (column.name,) for key in table.keys)


def _same_default(before: Column, after: Column) -> bool:
    """Whether two defaults have the same value: as numbers, `'0'`, `0` and `'0.00'` are equal."""
    texts = [text[1:-1] if text and text.startswith("'") else text for text in (before.default, after.default)]
    if None not in texts and (after.type.is_integer or after.type.kind in FRACTIONS):
        try:
            return Decimal(texts[0] or "") == Decimal(texts[1] or "")
        except InvalidOperation:
            pass
    return texts[0] == texts[1]


def _keys_of_definition(column: Column, following: Sequence[alter.Action]) -> list[alter.AddKey]:
    keys = []
    for action in following:
        if not isinstance(action, alter.AddKey) or [name.lower() for name in action.key.columns] != [
            column.name.lower()
        ]:
            break
        keys.append(action)
    return keys


def _of_values(old: ColumnType, new: ColumnType) -> str | None:
    if _family(old.kind) == _family(new.kind):
        return _of_same(old, new)
    if {old.kind, new.kind} <= _FIXED | _VARYING:
        return _OTHER
    if _holds_characters(old.kind) and _holds_characters(new.kind):
        return _OTHER if _size(new) < _size(old) else None
    if old.kind in INTEGERS and new.kind in INTEGERS:
        shrinks = INTEGERS.index(new.kind) < INTEGERS.index(old.kind) or new.unsigned != old.unsigned
        return _SMALLER if shrinks else None
    return _OTHER


def _of_same(old: ColumnType, new: ColumnType) -> str | None:
    """Returns the kind of a change of size or sign within one of DM's types; None if the change has no kind."""
    differs = old.unsigned != new.unsigned
    kind = old.kind
    if kind is Kind.DECIMAL:
        differs = differs or _decimal(old) != _decimal(new)
        return _LESS_PRECISE if differs else None
    if kind in (Kind.ENUM, Kind.SET):
        return None if new.labels[: len(old.labels)] == old.labels else _SMALLER
    if kind in INTEGERS:
        return _LESS_PRECISE if differs else None
    if kind in _FIXED:
        return _LESS_PRECISE if kind is Kind.BINARY and new.length != old.length else None
    shrinks = _size(new) < _size(old) or _decimals(new) < _decimals(old)
    return _SMALLER if shrinks or differs else None


def _family(kind: Kind) -> frozenset[Kind]:
    """Returns this type and the types that DM does not distinguish from it.

    For DM, CHAR and BINARY are one type with two charsets. The same is true for each text type and the blob type of its
    size.
    """
    for same in (_FIXED, _VARYING):
        if kind in same:
            return same
    return frozenset(name for name, most in LOB_BYTES.items() if most == LOB_BYTES.get(kind)) or frozenset({kind})


def _holds_characters(kind: Kind) -> bool:
    return kind in _FIXED or kind in _VARYING or kind in LOB_BYTES


def _decimal(kind: ColumnType) -> tuple[int, int]:
    return (10 if kind.precision is None else kind.precision), kind.scale or 0


def _size(kind: ColumnType) -> int:
    if kind.kind in LOB_BYTES:
        return LOB_BYTES[kind.kind]
    if kind.kind in _DIGITS:
        return _DIGITS[kind.kind] if kind.precision is None else kind.precision
    return 1 if kind.length is None else kind.length


def _decimals(kind: ColumnType) -> int:
    if kind.kind in _DIGITS:
        return -1 if kind.scale is None else kind.scale
    return kind.fsp
