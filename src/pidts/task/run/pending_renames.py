"""Follows the names of a task's tables through schema changes that are not applied yet."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from pidts.model import Lsn, TableName
from pidts.rules import AllowList
from pidts.schema import (
    AlterTable,
    CreateDatabase,
    CreateTable,
    CreateTableLike,
    DropDatabase,
    DropTable,
    RenameTable,
    RenameTo,
    Statement,
    Unknown,
)

Pending = Collection[tuple[Lsn, Statement]]
"""The schema changes after the recorded structures, in the order of the log, each with its Lsn."""


def joining_tables(
    known: Iterable[TableName],
    pending: Pending,
    allow: AllowList,
    since: Mapping[TableName, Lsn],
    there: Collection[TableName],
) -> frozenset[TableName]:
    """Returns the tables of the source that have to join, because no statement of the log gives their structure.

    For example, `shop.a` was renamed to `shop.b`, and then another table got the name `shop.a` and has to join. The
    new table's structure replaces the record of `shop.a`. So `shop.b` loses its record, and also has to join.
    """
    kept = frozenset(known)
    while True:
        names = known_after(kept, pending, allow, since)
        taken = {name for name in kept if name in there and name not in names}
        if not taken:
            return frozenset(there) - names
        kept -= taken


def known_after(
    known: Iterable[TableName], pending: Pending, allow: AllowList, since: Mapping[TableName, Lsn]
) -> frozenset[TableName]:
    """Returns the names of tables whose structure follows from the records and the log's statements.

    For some of the names, `since` has the Lsn at which the recorded structure begins: earlier statements do not count.
    A table that the rules exclude has no record. If such a table takes a name, the name is not returned, even if a
    recorded table had it before. For example, suppose that the task carries only `shop`. After this statement, nothing
    gives the structure of `shop.t`:

        RENAME TABLE shop.t TO old.t, new.t TO shop.t

    CREATE TABLE IF NOT EXISTS does not give the structure of an unrecorded name either: the table may have existed.
    """
    later = dict(since)
    names = {name for name in known if name not in later}
    for lsn, statement in pending:
        begun = {name for name, at in later.items() if at < lsn}
        names |= begun
        later = {name: at for name, at in later.items() if name not in begun}
        match statement:
            case CreateTable(table=name, if_not_exists=passes, or_replace=replaces):
                if name in names or replaces or not passes:
                    names.add(name)
            case CreateTableLike(table=name, like=like, if_not_exists=passes, or_replace=replaces):
                if name in names and passes and not replaces:
                    continue
                if like in names and (replaces or not passes):
                    names.add(name)
                else:
                    names.discard(name)
            case DropTable(tables=gone):
                names.difference_update(gone)
            case RenameTable() | AlterTable():
                _rename(names, _pairs(statement))
            case DropDatabase(name=schema) | CreateDatabase(name=schema, or_replace=True):
                names = {name for name in names if name.schema != schema}
        names = set(filter(allow, names))
    return frozenset(names | (later.keys() & set(known)))


def removed_by(pending: Pending, names: Collection[TableName]) -> set[TableName]:
    """Returns the tables that are gone after the log's statements: dropped, or renamed to another name."""
    removed: set[TableName] = set()
    for _, statement in pending:
        match statement:
            case CreateTable(table=name) | CreateTableLike(table=name):
                removed.discard(name)
            case DropTable(tables=gone) | Unknown(tables=gone):
                removed.update(gone)
            case RenameTable() | AlterTable():
                for old, new in _pairs(statement):
                    removed.discard(new)
                    removed.add(old)
            case DropDatabase(name=schema) | CreateDatabase(name=schema, or_replace=True):
                removed.update(name for name in names if name.schema == schema)
    return removed.intersection(names)


def _pairs(statement: RenameTable | AlterTable) -> Sequence[tuple[TableName, TableName]]:
    if isinstance(statement, RenameTable):
        return statement.pairs
    return [(statement.table, action.name) for action in statement.actions if isinstance(action, RenameTo)]


def _rename(names: set[TableName], pairs: Iterable[tuple[TableName, TableName]]) -> None:
    for old, new in pairs:
        if old in names:
            names.remove(old)
            names.add(new)
        else:
            names.discard(new)
