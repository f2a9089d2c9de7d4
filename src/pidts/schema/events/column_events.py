"""Names the change that a column's new definition (MODIFY, CHANGE) makes, as DM's event filters call it.

The first of these that holds is the kind, and the only one: a column that is renamed and made smaller is smaller.

1. Its values: `precision decrease`, `value range decrease`, or `modify column` where they become others.
2. What the definition leaves out: AUTO_INCREMENT (`remove auto increment`), the column's part in the primary key
   (`drop primary key`) or its own unique key (`drop unique key`). The server keeps those keys; DM goes by the words,
   and so does this: `MODIFY id bigint` of a primary key's column is a `drop primary key`.
3. Default, charset, collation, place, name, each by its own kind; else it is an `alter table` like any other.

Nor is a decrease always called one: CHAR(20) to CHAR(10) is an `alter table`, DECIMAL(5,2) to DECIMAL(9,2) a `precision
decrease`. A filter copied from DM does here what it did there.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation

from pidts.model.table import Column, Table
from pidts.model.types import LOB_BYTES, ColumnType, Kind
from pidts.schema.actions import Action, AddKey, ChangeColumn, ModifyColumn
from pidts.schema.charset_rules import closed
from pidts.schema.dialect import Dialect

ALTER = "alter table"
_SMALLER, _LESS_PRECISE, _OTHER = "value range decrease", "precision decrease", "modify column"

_INTEGERS = (Kind.TINYINT, Kind.SMALLINT, Kind.MEDIUMINT, Kind.INT, Kind.BIGINT)
_FIXED, _VARYING = frozenset({Kind.CHAR, Kind.BINARY}), frozenset({Kind.VARCHAR, Kind.VARBINARY})
_NUMBERS = frozenset({Kind.DECIMAL, Kind.FLOAT, Kind.DOUBLE})
_DIGITS = {Kind.FLOAT: 12, Kind.DOUBLE: 22}


def column_event(
    table: Table | None, clause: ModifyColumn | ChangeColumn, behind: Sequence[Action], dialect: Dialect
) -> str:
    """The kind of a column's new definition. `behind` are the clauses after it: a key in the definition is the next.

    Without the structure that the statement meets it is an `alter table`, as in DM.
    """
    before = _column(table, clause.old if isinstance(clause, ChangeColumn) else clause.column.name)
    if table is None or before is None:
        return ALTER
    charset = table.charset or dialect.charset
    after = closed(clause.column, (charset, table.collation or dialect.collation_of(charset)), dialect)
    if (kind := _of_values(before.type, after.type)) is not None:
        return kind
    own = _keys_of_definition(after, behind)
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
    """Whether two defaults are one: `'0'` and `0` are one of a number, and `'0.00'` is a third spelling of it."""
    texts = [text[1:-1] if text and text.startswith("'") else text for text in (before.default, after.default)]
    if None not in texts and (after.type.is_integer or after.type.kind in _NUMBERS):
        try:
            return Decimal(texts[0] or "") == Decimal(texts[1] or "")
        except InvalidOperation:
            pass
    return texts[0] == texts[1]


def _keys_of_definition(column: Column, behind: Sequence[Action]) -> list[AddKey]:
    keys = []
    for action in behind:
        if not isinstance(action, AddKey) or [name.lower() for name in action.key.columns] != [column.name.lower()]:
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
    if old.kind in _INTEGERS and new.kind in _INTEGERS:
        shrinks = _INTEGERS.index(new.kind) < _INTEGERS.index(old.kind) or new.unsigned != old.unsigned
        return _SMALLER if shrinks else None
    return _OTHER


def _of_same(old: ColumnType, new: ColumnType) -> str | None:
    """Returns the same type to DM, of another size or sign."""
    differs = old.unsigned != new.unsigned
    kind = old.kind
    if kind is Kind.DECIMAL:
        differs = differs or _decimal(old) != _decimal(new)
        return _LESS_PRECISE if differs else None
    if kind in (Kind.ENUM, Kind.SET):
        return None if new.labels[: len(old.labels)] == old.labels else _SMALLER
    if kind in _INTEGERS:
        return _LESS_PRECISE if differs else None
    if kind in _FIXED:
        return _LESS_PRECISE if kind is Kind.BINARY and new.length != old.length else None
    shrinks = _size(new) < _size(old) or _decimals(new) < _decimals(old)
    return _SMALLER if shrinks or differs else None


def _family(kind: Kind) -> frozenset[Kind]:
    """Returns the type's family for DM.

    CHAR and BINARY are one type with two charsets to DM, and so are each text and its blob.
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
