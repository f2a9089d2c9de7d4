"""Finds the columns that the values of a table's columns come from when an ALTER is done.

A structure does not show it: `DROP COLUMN d, ADD COLUMN d INT` leaves the structure as it was and no value of `d`.
"""

from __future__ import annotations

from collections.abc import Mapping

from pidts.model import Table
from pidts.schema.actions import AddColumn, ChangeColumn, DropColumn, RenameColumn
from pidts.schema.statements import AlterTable


def origins(statement: AlterTable, before: Table) -> Mapping[str, str | None]:
    """Returns, for each column after the ALTER, the column that it was before, in lower case; None: it is new."""
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
