"""The SEQUENCE objects of MariaDB at a place in a log, updated with each statement.

The log contains the state of a sequence as rows of a table with the sequence's name. A sequence is not a table, so
these rows are left out. Statements on tables can also rename and drop sequences, since no table has the name of a
sequence.
"""

from __future__ import annotations

from collections.abc import Iterable

import pidts.schema.actions as alter
import pidts.schema.statements as ddl
from pidts.model.table import TableName
from pidts.schema.affected_tables import concerned

Sequences = frozenset[TableName]


def sequences_after(sequences: Sequences, statement: ddl.Statement, text: str) -> Sequences:
    """Returns the sequences after a statement. After an unparsed statement, no name in it counts as a sequence."""
    match statement:
        case ddl.SequenceChange(made=made, there=there, gone=gone):
            return (sequences | {*made, *there}) - {*gone}
        case (
            ddl.CreateTable(if_not_exists=True, or_replace=False)
            | ddl.CreateTableLike(if_not_exists=True, or_replace=False)
        ):
            return sequences
        case ddl.CreateTableLike(table=name, like=like) if like in sequences:
            return sequences | {name}  # the statement creates a sequence
        case ddl.CreateTable(table=name) | ddl.CreateTableLike(table=name):
            return sequences - {name}
        case ddl.RenameTable(pairs=pairs):
            return _renamed(sequences, pairs)
        case ddl.AlterTable():
            return _renamed(sequences, _renames(statement))
        case ddl.DropTable(tables=names):
            return sequences - {*names}
        case ddl.DropDatabase(name=schema) | ddl.CreateDatabase(name=schema, or_replace=True):
            return frozenset(name for name in sequences if name.schema != schema)
        case ddl.Unknown():
            return sequences - {name for name, _ in concerned(statement, text, sequences)}
    return sequences


def sequences_before(sequences: Sequences, statement: ddl.Statement) -> Sequences:
    """Returns the sequences before a statement, as far as the sequences after the statement (`sequences`) show them."""
    match statement:
        case ddl.SequenceChange(made=made, there=there, gone=gone):
            return (sequences - {*made}) | {*there, *gone}
        case ddl.CreateTableLike(table=name, like=like, if_not_exists=False) if like in sequences:
            return sequences - {name}
        case ddl.RenameTable(pairs=pairs):
            return _renamed(sequences, [(new, old) for old, new in reversed(pairs)])
        case ddl.AlterTable():
            return _renamed(sequences, [(new, old) for old, new in reversed(_renames(statement))])
    return sequences


def _renames(statement: ddl.AlterTable) -> list[tuple[TableName, TableName]]:
    return [(statement.table, action.name) for action in statement.actions if isinstance(action, alter.RenameTo)]


def _renamed(sequences: Sequences, pairs: Iterable[tuple[TableName, TableName]]) -> Sequences:
    now = set(sequences)
    for old, new in pairs:
        if old in now:
            now.remove(old)
            now.add(new)
    return sequences if now == sequences else frozenset(now)
