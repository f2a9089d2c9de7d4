"""The SEQUENCE objects of MariaDB at a place of a log, followed from statement to statement.

The log has the state of a sequence as rows of a table of its name. A sequence is no table: these rows are left out. Its
name is one among the tables' names, so statements on tables rename and drop it, too.
"""

from __future__ import annotations

from collections.abc import Iterable

from pidts.model.table import TableName
from pidts.schema.actions import RenameTo
from pidts.schema.affected_tables import concerned
from pidts.schema.statements import (
    AlterTable,
    CreateDatabase,
    CreateTable,
    CreateTableLike,
    DropDatabase,
    DropTable,
    RenameTable,
    SequenceChange,
    Statement,
    Unknown,
)

Sequences = frozenset[TableName]


def sequences_after(sequences: Sequences, statement: Statement, text: str) -> Sequences:
    """Returns the sequences behind a statement. One that was not understood leaves nothing known of what it names."""
    match statement:
        case SequenceChange(made=made, there=there, gone=gone):
            return (sequences | {*made, *there}) - {*gone}
        case CreateTable(if_not_exists=True, or_replace=False) | CreateTableLike(if_not_exists=True, or_replace=False):
            return sequences
        case CreateTableLike(table=name, like=like) if like in sequences:
            return sequences | {name}  # it makes a sequence
        case CreateTable(table=name) | CreateTableLike(table=name):
            return sequences - {name}
        case RenameTable(pairs=pairs):
            return _renamed(sequences, pairs)
        case AlterTable():
            return _renamed(sequences, _renames(statement))
        case DropTable(tables=names):
            return sequences - {*names}
        case DropDatabase(name=schema) | CreateDatabase(name=schema, or_replace=True):
            return frozenset(name for name in sequences if name.schema != schema)
        case Unknown():
            return sequences - {name for name, _ in concerned(statement, text, sequences)}
    return sequences


def sequences_before(sequences: Sequences, statement: Statement) -> Sequences:
    """Returns the sequences in front of a statement, as far as those behind it tell."""
    match statement:
        case SequenceChange(made=made, there=there, gone=gone):
            return (sequences - {*made}) | {*there, *gone}
        case CreateTableLike(table=name, like=like, if_not_exists=False) if like in sequences:
            return sequences - {name}
        case RenameTable(pairs=pairs):
            return _renamed(sequences, [(new, old) for old, new in reversed(pairs)])
        case AlterTable():
            return _renamed(sequences, [(new, old) for old, new in reversed(_renames(statement))])
    return sequences


def _renames(statement: AlterTable) -> list[tuple[TableName, TableName]]:
    return [(statement.table, action.name) for action in statement.actions if isinstance(action, RenameTo)]


def _renamed(sequences: Sequences, pairs: Iterable[tuple[TableName, TableName]]) -> Sequences:
    now = set(sequences)
    for old, new in pairs:
        if old in now:
            now.remove(old)
            now.add(new)
    return sequences if now == sequences else frozenset(now)
