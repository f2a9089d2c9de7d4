"""Recognizes the names of MariaDB's SEQUENCE objects in a log. Tasks leave out the rows and statements of sequences.

The log has the state of a sequence as rows of a table with the sequence's name. RENAME TABLE, ALTER TABLE and DROP
TABLE accept sequences, too. The relay's record of structures says which names are sequences at a place in the log.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from pidts.model import Lsn, TableName, Transaction
from pidts.relay import RelayReader
from pidts.relay.structures import dialect_at, history_at
from pidts.schema import (
    AlterTable,
    CreateTable,
    CreateTableLike,
    Dialect,
    DropTable,
    RenameTable,
    Statement,
)
from pidts.schema.evolve.known_structures import KnownStructures
from pidts.schema.evolve.sequences import sequences_before


class SequencesOfRelay:
    """Looks names up in the relay's record of structures, usually in the order of the log."""

    def __init__(self, relay: RelayReader) -> None:
        self._relay = relay
        self._place: tuple[Lsn, KnownStructures, Dialect] | None = None

    def is_sequence(self, name: TableName, after: Lsn, to: Lsn) -> bool:
        """Whether rows that the log has under this name, between two places, are the state of a sequence.

        False if the record of structures has a table of this name at the first place, or after a schema change between
        the two places.
        """
        history, dialect = self._at(after)
        found = history.is_sequence(name)
        for change in self._relay.schema_changes(after, to):
            if name in history.tables or name in history.unknown:
                return False
            history = history.after(change, dialect)
            found = found or history.is_sequence(name)
        return found and name not in history.tables

    def _at(self, lsn: Lsn) -> tuple[KnownStructures, Dialect]:
        if self._place is None or self._place[0] > lsn:
            self._place = lsn, history_at(self._relay, lsn), dialect_at(self._relay, lsn)
        before, history, dialect = self._place
        for change in self._relay.schema_changes(before, lsn):
            history = history.after(change, dialect)
        self._place = lsn, history, dialect
        return history, dialect


def sequences_of(
    relay: RelayReader, transaction: Transaction, statement: Statement, known: Collection[TableName], dialect: Dialect
) -> frozenset[TableName]:
    """Returns those names in a statement that belong to sequences before or after it; `known` are the task's tables.

    Only MariaDB has sequences. The record is read only if the statement names a table that is not in `known`.
    """
    if not dialect.mariadb or not _names_other_tables(statement, known):
        return frozenset()
    there = history_at(relay, transaction.prev_lsn).sequences
    left = history_at(relay, transaction.lsn).sequences
    names = (there | left | sequences_before(left, statement)).intersection(statement.tables)
    return names - {*known} - _new_names(statement, known)


def _names_other_tables(statement: Statement, known: Collection[TableName]) -> bool:
    match statement:
        case RenameTable(pairs=pairs):
            return any(begun not in known for begun, _ in _moves(pairs))
        case AlterTable(table=table):
            return table not in known
        case DropTable(tables=tables):
            return any(name not in known for name in tables)
        case CreateTable(table=table, if_not_exists=True):
            return table not in known
        case CreateTableLike(table=table, like=like, if_not_exists=may_be_there):
            return like not in known or (may_be_there and table not in known)
    return False


def _new_names(statement: Statement, known: Collection[TableName]) -> set[TableName]:
    """Returns names that the statement gives to tables of the task. Before it, sequences may have had these names."""
    if not isinstance(statement, RenameTable):
        return set()
    return {ends for begun, ends in _moves(statement.pairs) if begun in known}


def _moves(pairs: Iterable[tuple[TableName, TableName]]) -> list[tuple[TableName, TableName]]:
    """Returns each name before the statement with the name after it."""
    first: dict[TableName, TableName] = {}
    for old, new in pairs:
        first[new] = first.pop(old, old)
    return [(begun, ends) for ends, begun in first.items()]
