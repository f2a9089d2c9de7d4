"""Which names the tables of a task have behind schema changes that are still to come."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

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
)

Pending = Collection[tuple[Lsn, Statement]]
"""Schema changes that the structures on record do not have yet, in log order, each with its place."""


def newcomers(
    known: Iterable[TableName],
    pending: Pending,
    allow: AllowList,
    since: Mapping[TableName, Lsn],
    there: Collection[TableName],
) -> frozenset[TableName]:
    """Tables of the source that have to join: no statement of the log tells their structure.

    Where one of the task's names has been taken by such a table, its own structure is not on record any more when that
    has joined. So a name that its own table went to joins as well: nothing can be said of it from the record.
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
    """The names whose structure follows from the log: those on record, and those that statements make of them.

    `since` tells of some of them from where on they are on record. Of tables that the rules do not let pass nothing is,
    whatever the log has of them.

    A name that a table which is not on record takes is not among them, whoever had it before. The counterexample:
    `RENAME TABLE shop.t TO old.t, new.t TO shop.t` where only `shop` is followed; what `shop.t` is now, no statement
    tells. Nor does a CREATE TABLE IF NOT EXISTS of a name that is not on record: it may have made nothing.
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
            case RenameTable(pairs=pairs):
                _rename(names, pairs)
            case AlterTable(table=table, actions=actions):
                _rename(names, ((table, action.name) for action in actions if isinstance(action, RenameTo)))
            case DropDatabase(name=schema) | CreateDatabase(name=schema, or_replace=True):
                names = {name for name in names if name.schema != schema}
        names = set(filter(allow, names))
    return frozenset(names | (later.keys() & set(known)))


def _rename(names: set[TableName], pairs: Iterable[tuple[TableName, TableName]]) -> None:
    for old, new in pairs:
        if old in names:
            names.remove(old)
            names.add(new)
        else:
            names.discard(new)
