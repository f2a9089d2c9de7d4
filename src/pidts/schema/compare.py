"""Lists the differences between two structures of one table, as sentences for the operator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from pidts.model.table import Column, Key, Table
from pidts.model.types import ColumnType, Kind
from pidts.schema.actions import AddColumn, ChangeColumn, DropColumn, RenameColumn
from pidts.schema.charsets import charset_name, collation_name
from pidts.schema.render.statement import type_text
from pidts.schema.statements import AlterTable


def differences(expected: Table, actual: Table) -> list[str]:
    """Returns the differences in columns (their names, order, types, nullability) and in keys; empty if there are none.

    Details that servers show differently for the same table are ignored: the display width of integers (except
    `tinyint(1)`), the two names of utf8mb3, the case of names, defaults and comments.
    """
    return [*_columns(expected, actual), *_keys(expected, actual)]


def same_type(one: ColumnType, other: ColumnType) -> bool:
    """Whether two columns store the same values in the same way."""
    return _plain(one) == _plain(other)


def _plain(kind: ColumnType) -> ColumnType:
    if kind.is_integer:
        counts = kind.kind is Kind.TINYINT and kind.length == 1 and not kind.unsigned
        return replace(kind, length=1 if counts else None)
    if kind.charset is not None:
        collation = collation_name(kind.collation) if kind.collation is not None else None
        kind = replace(kind, charset=charset_name(kind.charset), collation=collation)
    if kind.charset == "binary":
        return replace(kind, charset=None, collation=None)
    return kind


def _columns(expected: Table, actual: Table) -> Iterator[str]:
    wanted = {column.name.lower(): column for column in expected.columns}
    found = {column.name.lower(): column for column in actual.columns}
    for name, column in wanted.items():
        if name not in found:
            yield f"column {column.name} is missing"
        else:
            yield from _column(column, found[name])
    for name, column in found.items():
        if name not in wanted:
            yield f"column {column.name} should not exist"
    if wanted.keys() == found.keys() and list(wanted) != list(found):
        order = ", ".join(column.name for column in expected.columns)
        yield f"the order of the columns should be {order}"


def _column(expected: Column, actual: Column) -> Iterator[str]:
    if not same_type(expected.type, actual.type):
        yield f"column {actual.name} is {type_text(actual.type)} instead of {type_text(expected.type)}"
    if expected.nullable != actual.nullable:
        yield f"column {actual.name} {'does not take' if expected.nullable else 'takes'} NULL"
    if expected.auto_increment != actual.auto_increment:
        yield (
            f"column {actual.name} is {'not ' if expected.auto_increment else ''}AUTO_INCREMENT or an identity column"
        )
    if expected.generated != actual.generated:
        yield f"column {actual.name} is {'not ' if expected.generated else ''}generated"


def _keys(expected: Table, actual: Table) -> Iterator[str]:
    wanted = {key.name.lower(): key for key in expected.keys}
    found = {key.name.lower(): key for key in actual.keys}
    for name, key in wanted.items():
        if name not in found:
            yield f"{_said(key)} is missing"
        elif _said(key).lower() != _said(found[name]).lower():
            yield f"{_said(found[name])} should be {_said(key)}"
    for name, key in found.items():
        if name not in wanted:
            yield f"{_said(key)} should not exist"


def _said(key: Key) -> str:
    columns = ", ".join(key.columns)
    if key.primary:
        return f"primary key ({columns})"
    return f"{'unique ' if key.unique else ''}key {key.name} ({columns})"


def origins(statement: AlterTable, before: Table) -> Mapping[str, str | None]:
    """Returns, for each column after the ALTER, the column's name before the ALTER, in lower case; None if it is new.

    The structures before and after do not show which old column became which new column. `DROP COLUMN d, ADD COLUMN d
    INT` may leave the structure unchanged, but removes all values of `d`.
    """
    found: dict[str, str | None] = {column.name.lower(): column.name.lower() for column in before.columns}
    renamed: dict[str, str] = {}
    added: set[str] = set()
    for action in statement.actions:
        match action:
            case DropColumn(name=name):
                found.pop(name.lower(), None)
            case RenameColumn(old=old, new=new):
                renamed[old.lower()] = new.lower()
            case ChangeColumn(old=old, column=column):
                renamed[old.lower()] = column.name.lower()
            case AddColumn(column=column, if_not_exists=passes):
                if not (passes and column.name.lower() in found):
                    added.add(column.name.lower())
    left = {name: old for name, old in found.items() if name not in renamed}
    arrived = {new: old for old, new in renamed.items() if old in found}
    return {**left, **arrived, **dict.fromkeys(added)}
