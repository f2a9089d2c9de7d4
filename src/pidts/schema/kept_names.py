"""Finds the columns that an ALTER TABLE keeps, perhaps under other names."""

from __future__ import annotations

from pidts.model import Table
from pidts.schema.actions import AddColumn, ChangeColumn, DropColumn, ModifyColumn, PartitionRows, RenameColumn
from pidts.schema.statements import AlterTable


def kept_names(statement: AlterTable, before: Table, after: Table) -> dict[str, str]:
    """Maps the new name to the old name of each column that stays."""
    old_names = {column.name.lower(): column.name for column in before.columns}
    moved: dict[str, str] = {}
    gone = {action.name.lower() for action in statement.actions if isinstance(action, DropColumn)}
    fresh: set[str] = set()
    for action in statement.actions:
        match action:
            # In `DROP a, ADD a int, MODIFY a text`, which MariaDB accepts, MODIFY is about the new column.
            case ChangeColumn(old=old, column=column) if old.lower() not in gone:
                moved[column.name.lower()] = old.lower()
            case ModifyColumn(column=column) if column.name.lower() not in gone:
                moved[column.name.lower()] = column.name.lower()
            case RenameColumn(old=old, new=new) if old.lower() not in gone:
                moved[new.lower()] = old.lower()
            case AddColumn(column=column) if column.name.lower() not in old_names or column.name.lower() in gone:
                fresh.add(column.name.lower())
            case PartitionRows():
                raise action.refused(before.name)
            case _:
                pass
    left = gone | set(moved.values())
    found: dict[str, str] = {}
    for column in after.columns:
        name = column.name.lower()
        if name in moved and moved[name] in old_names:
            found[column.name] = old_names[moved[name]]
        elif name in old_names and name not in fresh and name not in left:
            found[column.name] = old_names[name]
    return found
