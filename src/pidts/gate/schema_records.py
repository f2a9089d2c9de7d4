"""Schema changes as records: ALTERTABLE, RENAME, CREATETABLE and TRUNCATE.

Inception Gate has no record for DROP TABLE, CREATE DATABASE and DROP DATABASE: these statements change the recorded
structures only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pidts.gate.json_text import json_of
from pidts.gate.records import SchemaRecord
from pidts.gate.replay import ALTER_PARTS
from pidts.model import Column, ColumnType, Key, Kind, Table, TableName
from pidts.schema import (
    AddColumn,
    AddKey,
    AlterTable,
    ChangeColumn,
    CreateTable,
    CreateTableLike,
    DropColumn,
    DropKey,
    ModifyColumn,
    RenameColumn,
    RenameTable,
    RenameTo,
    Statement,
    TruncateTable,
    type_text,
)
from pidts.schema.actions import Action

OTHERS = "Be ignored or nothing"
"""The value of OTHERS in each ALTERTABLE record: the statement may have clauses that the record does not contain."""
_WIDTHS = {
    Kind.TINYINT: (4, 3),
    Kind.SMALLINT: (6, 5),
    Kind.MEDIUMINT: (9, 8),
    Kind.INT: (11, 10),
    Kind.BIGINT: (20, 20),
}
"""The display widths that a server gives a signed and an unsigned integer if the statement gives none."""
_ONE = frozenset({Kind.CHAR, Kind.BINARY, Kind.BIT})

Structures = Mapping[TableName, Table | None]


def schema_records(statement: Statement | None, before: Structures, after: Structures) -> list[SchemaRecord]:
    """Returns the records of a statement. `before` and `after`: the structures before and after the statement."""
    match statement:
        case TruncateTable(table=table):
            return [SchemaRecord("TRUNCATE", table.schema, table.name, "")]
        case CreateTable(table=table) | CreateTableLike(table=table):
            made = after.get(table)
            return [] if made is None else [_created(made)]
        case RenameTable(pairs=pairs):
            return [_renamed(pairs)] if pairs else []
        case AlterTable(table=table, actions=actions):
            return _altered(table, actions, before, after)
    return []


def created_type(kind: ColumnType) -> str:
    """Returns a column's type as `SHOW COLUMNS` of MySQL 5.6 prints it: `int(11)`, `decimal(10,0) unsigned`."""
    text = _plain(kind)
    if "(" in text:
        return text
    if kind.is_integer:
        signed, unsigned = _WIDTHS[kind.kind]
        name = f"{kind.kind.value}({unsigned if kind.unsigned else signed})"
    elif kind.kind is Kind.DECIMAL:
        name = "decimal(10,0)"
    elif kind.kind in _ONE:
        name = f"{kind.kind.value}(1)"
    elif kind.kind is Kind.YEAR:
        name = "year(4)"
    else:
        return text
    return f"{name} unsigned" if kind.unsigned else name


def altered_type(kind: ColumnType) -> str:
    """Returns a column's type as the statement gives it, in upper case: `INT`, `VARCHAR(64)`."""
    name, paren, rest = _plain(kind).partition("(")
    if not paren:
        return name.upper()
    inside, _, tail = rest.rpartition(")")
    return f"{name.upper()}({inside}){tail.upper()}"


def _plain(kind: ColumnType) -> str:
    return type_text(replace(kind, charset=None, collation=None))


def _created(table: Table) -> SchemaRecord:
    primary = next((key.columns for key in table.keys if key.primary), ())
    columns = [
        {
            "field_name": column.name,
            "nullable": _yes(column.nullable),
            "primary_key": _yes(column.name in primary),
            "data_type": created_type(column.type),
        }
        for column in table.columns
    ]
    return SchemaRecord("CREATETABLE", table.name.schema, table.name.name, json_of({"NEW": columns}))


def _yes(is_so: bool) -> str:  # noqa: FBT001 - its only argument
    return "Yes" if is_so else "No"


def _renamed(pairs: Iterable[tuple[TableName, TableName]]) -> SchemaRecord:
    pairs = list(pairs)
    document = {"RENAME": [{"from": _named(old), "to": _named(new)} for old, new in pairs]}
    first = pairs[0][0]
    return SchemaRecord("RENAME", first.schema, first.name, json_of(document))


def _named(name: TableName) -> dict[str, str]:
    return {"dbname": name.schema, "tablename": name.name}


def _altered(table: TableName, actions: Iterable[Action], before: Structures, after: Structures) -> list[SchemaRecord]:
    """Returns the record of an ALTER TABLE's clauses. If the table gets a new name, a RENAME record follows."""
    actions = list(actions)
    moves = [(table, action.name) for action in actions if isinstance(action, RenameTo)]
    old, new = before.get(table), after.get(moves[-1][1] if moves else table)
    actions = [action for action in actions if old is None or _has_effect(action, old, actions)]
    parts: dict[str, list[Any]] = {name: [] for name in ALTER_PARTS}
    for action in actions:
        _clause(parts, action, old, new)
    records = []
    if len(moves) < len(actions):
        document = {**{name: part for name, part in parts.items() if part}, "OTHERS": OTHERS}
        records.append(SchemaRecord("ALTERTABLE", table.schema, table.name, json_of(document)))
    return [*records, _renamed(moves)] if moves else records


def _has_effect(action: Action, old: Table, actions: Sequence[Action]) -> bool:
    """Whether a clause with IF [NOT] EXISTS changes the table. A column that another clause drops counts as absent."""
    there = {column.name.lower() for column in old.columns}
    match action:
        case AddColumn(column=column, if_not_exists=True):
            dropped = {one.name.lower() for one in actions if isinstance(one, DropColumn)}
            return column.name.lower() not in there - dropped
        case (
            DropColumn(name=name, if_exists=True)
            | ChangeColumn(old=name, if_exists=True)
            | RenameColumn(old=name, if_exists=True)
            | ModifyColumn(column=Column(name=name), if_exists=True)
        ):
            return name.lower() in there
        case AddKey(key=key, if_not_exists=True):
            return not any(one.primary if key.primary else one.name.lower() == key.name.lower() for one in old.keys)
    return True


def _clause(parts: dict[str, list[Any]], action: Action, old: Table | None, new: Table | None) -> None:
    match action:
        case AddColumn(column=column):
            parts["ADDCOLUMN"].append({"field_name": column.name, "data_type": altered_type(column.type)})
        case AddKey(key=key) if not action.supports_foreign_key:
            parts["ADDINDEX"].append({"index_name": _index_name(key, old, new), "column_name": list(key.columns)})
        case DropColumn(name=name):
            parts["DROPCOLUMN"].append(name)
        case ModifyColumn(column=column):
            parts["CHANGECOLUMN"].append(_changed(column.name, column))
        case ChangeColumn(old=name, column=column):
            parts["CHANGECOLUMN"].append(_changed(name, column))
        case RenameColumn(old=name, new=to):
            found = next((one for one in (old.columns if old else ()) if one.name.lower() == name.lower()), None)
            kind = altered_type(found.type) if found is not None else ""
            parts["CHANGECOLUMN"].append({"origin_field_name": name, "field_name": to, "data_type": kind})
        case DropKey(name=name):
            parts["DROPINDEX"].append(name)


def _changed(name: str, column: Column) -> dict[str, str]:
    return {"origin_field_name": name, "field_name": column.name, "data_type": altered_type(column.type)}


def _index_name(key: Key, old: Table | None, new: Table | None) -> str:
    """Returns the index's name in the statement, or else the name that the server has chosen."""
    if key.primary:
        return "PRIMARY"
    if key.name or new is None:
        return key.name
    known = {one.name for one in (old.keys if old is not None else ())}
    return next((one.name for one in new.keys if one.columns == key.columns and one.name not in known), "")
