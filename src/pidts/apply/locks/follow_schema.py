"""Decides whether held changes can be applied after a schema change of their table, and converts the changes' columns.

A held change keeps the structure that it has in the log, and is converted, column by column, when its lock is resolved:

    the schema change            a held row image
    adds a column                has the column's default there, as the source's rows got it; unknown if it is no
                                 constant: then the target's value stays
    drops a column               loses it
    widens a column              has the same value
    adds or drops keys           is as it was

Every other schema change waits until the rows are resolved. A new key, a new name, or a type that changes values would
make another row of a held row. Only the source's server could compute that row.

Before the target's table is altered, each lock records the structure after the change. If a crash comes between this
record and the change of the table, the change is made again. Until then the table may lack some of the recorded
columns. Only the columns that the table has are used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from pidts.apply.checkpoint import fenced
from pidts.apply.port import TargetSession
from pidts.model import Column, ColumnType, DdlCommand, Kind, RowLock, Table, TableName
from pidts.model.types import BLOBS, LABELED, TEXTS, WITH_FSP
from pidts.schema import (
    AddColumn,
    AlterTable,
    ChangeColumn,
    ConvertCharset,
    DropTable,
    ModifyColumn,
    PartitionRows,
    RenameColumn,
    RenameTable,
    RenameTo,
    Statement,
    TruncateTable,
)
from pidts.schema.column_defaults import default_value

Values = Mapping[str, pa.Scalar]

_AT_ONCE = 1000
"""The most locks that are in memory at a time."""
_WITH_LENGTH = frozenset({Kind.CHAR, Kind.VARCHAR, Kind.VARBINARY})


def obstacle(
    statement: Statement | None, order: DdlCommand | None, before: Table | None, after: Table | None
) -> str | None:
    """Returns the reason why held changes of a table cannot be applied after a schema change; None if they can."""
    if order is not None and order.statements:
        return "an operator's statements run instead"
    if not isinstance(statement, AlterTable) or before is None or after is None:
        return _other(statement)
    for action in statement.actions:
        if isinstance(action, RenameTo):
            return "the table gets another name"
        if isinstance(action, RenameColumn) or (
            isinstance(action, ChangeColumn) and action.old.lower() != action.column.name.lower()
        ):
            return f"column {action.old} gets another name"
        if isinstance(action, AddColumn) and action.column.name.lower() in _lower(before.arrow.names):
            return f"column {action.column.name} is dropped and added again"
        if isinstance(action, PartitionRows | ConvertCharset):
            return "the statement changes rows"
    return _key_obstacle(before, after) or _column_obstacle(before, after) or _computed_obstacle(statement, before)


def _other(statement: Statement | None) -> str:
    match statement:
        case TruncateTable():
            return "the table is emptied"
        case DropTable():
            return "the table is dropped"
        case RenameTable():
            return "the table gets another name"
        case AlterTable(actions=actions) if any(isinstance(action, RenameTo) for action in actions):
            return "the table gets another name"
    return "the statement is not a plain ALTER TABLE"


def _key_obstacle(before: Table, after: Table) -> str | None:
    if _lower(before.identity) != _lower(after.identity):
        return "the table gets another key"
    for one, other in zip(before.identity, after.identity, strict=True):
        if before.column(one).type != after.column(other).type or one != other:
            return f"column {one} of the key gets another type or another spelling of its name"
    return None


def _column_obstacle(before: Table, after: Table) -> str | None:
    known = {column.name.lower(): column for column in before.columns}
    for column in after.columns:
        old = known.get(column.name.lower())
        if old is None:
            continue
        if old.generated != column.generated or (old.generated and old != column):
            return f"column {column.name} is computed in another way"
        if old.nullable and not column.nullable:
            return f"column {column.name} becomes NOT NULL"
        if not is_wider(old.type, column.type):
            return f"column {column.name} gets a type that may change values"
    return None


def _computed_obstacle(statement: AlterTable, before: Table) -> str | None:
    known = {column.name.lower(): column for column in before.columns if column.generated}
    defined = (action.column for action in statement.actions if isinstance(action, ModifyColumn | ChangeColumn))
    for new in defined:
        old = known.get(new.name.lower())
        if old is not None and (not old.computed or old.computed != new.computed):
            return f"column {old.name} is computed in another way"
    return None


def comes_again(lock: RowLock, before: Table, after: Table) -> str | None:
    """Returns a message if an added column has the name of a column that the held changes had and that was dropped."""
    again = (set(_lower(after.arrow.names)) - set(_lower(before.arrow.names))) & set(lock.gone)
    return f"column {min(again)} was a different column when the changes were stored" if again else None


def is_wider(old: ColumnType, new: ColumnType) -> bool:
    """Whether a column of the new type can hold each value of the old type unchanged."""
    if old == new:
        return True
    if old.is_integer and new.is_integer:
        return old.unsigned == new.unsigned and _bits(old) <= _bits(new)
    if (old.charset, old.collation, old.unsigned) != (new.charset, new.collation, new.unsigned):
        return False
    if old.kind is Kind.FLOAT and new.kind is Kind.DOUBLE:
        return old.precision is new.precision is None
    for kinds in (TEXTS, BLOBS):
        if {old.kind, new.kind} <= {*kinds}:
            return kinds.index(old.kind) <= kinds.index(new.kind)
    if old.kind is not new.kind:
        return False
    if old.kind is Kind.DECIMAL:
        more = (new.scale or 0) - (old.scale or 0)
        return more >= 0 and (new.precision or 10) - (old.precision or 10) >= more
    if old.kind in _WITH_LENGTH:
        return (old.length or 1) <= (new.length or 1)
    if old.kind in WITH_FSP:
        return old.fsp <= new.fsp
    if old.kind in LABELED:
        return new.labels[: len(old.labels)] == old.labels
    return False


def _bits(kind: ColumnType) -> int:
    return int(kind.arrow.bit_width) - (8 if kind.kind is Kind.MEDIUMINT else 0)


def locks_of(session: TargetSession, task: str, source: str, table: TableName) -> Iterator[RowLock]:
    """Yields the locks of a table, with few of them in memory at a time."""
    ids = session.meta.row_locks.ids(task, source, table)
    for first in range(0, len(ids), _AT_ONCE):
        yield from session.meta.row_locks.some(task, source, table, ids[first : first + _AT_ONCE])


def carry(session: TargetSession, task: str, source: str, table: TableName, after: Table, epoch: int) -> None:
    """Records, in a transaction of its own, the structure after a schema change in each lock of a table.

    The epoch is checked, since another run may have taken over the task and made later changes.
    """
    session.begin()
    try:
        _demand_own_task(session, task, source, epoch)
        record = session.meta.row_locks
        ids = record.ids(task, source, table)
        for first in range(0, len(ids), _AT_ONCE):
            locks = record.lock(task, source, table, ids[first : first + _AT_ONCE])
            record.change(task, source, [new for one in locks if (new := carried(one, after)) != one])
        session.commit()
    except BaseException:
        session.rollback()
        raise


def _demand_own_task(session: TargetSession, task: str, source: str, epoch: int) -> None:
    stored = session.meta.checkpoints.lock(task, source, 0)
    if stored.epoch != epoch:
        raise fenced(stored, epoch)


def carried(lock: RowLock, after: Table) -> RowLock:
    """Returns the lock with the structure after a schema change.

    A column that was added after the lock was made keeps the default with which it was added, since the existing rows
    have got this value.
    """
    old, first = {column.name: column for column in lock.structure.columns}, set(lock.table.arrow.names)
    columns = (
        replace(column, default=old[column.name].default, nullable=old[column.name].nullable)
        if column.name in old and column.name not in first
        else column
        for column in after.columns
    )
    lost = set(_lower(lock.structure.arrow.names)) - set(_lower(after.arrow.names))
    return replace(lock, now=replace(after, columns=tuple(columns)), gone=tuple(sorted({*lock.gone, *lost})))


def structure_now(lock: RowLock, there: Table | None) -> Table:
    """Returns the structure in which a lock's changes are applied; `there` is the target's table.

    A schema change may be recorded but not made yet: its new columns are left out.
    """
    if there is None:
        return lock.structure
    names = {column.name.lower() for column in there.columns}
    columns = tuple(column for column in lock.structure.columns if column.name.lower() in names)
    if columns == lock.structure.columns:
        return lock.structure
    has = {column.name for column in columns}
    keys = tuple(key for key in lock.structure.keys if has.issuperset(key.columns))
    return replace(lock.structure, columns=columns, keys=keys)


def converted(values: Values | None, old: Table, new: Table) -> Values | None:
    """Returns a row image, or the known part of it, with the columns of the structure `new`; None if there is none."""
    if values is None or old == new:
        return values
    known = {name.lower(): value for name, value in values.items()}
    before = set(_lower(old.arrow.names))
    found = {}
    for column in new.columns:
        name = column.name.lower()
        if name in known:
            found[column.name] = known[name].cast(column.type.arrow)
        elif name not in before and (default := _default(column)) is not None:
            found[column.name] = default
    return found


def _default(column: Column) -> pa.Scalar | None:
    value = default_value(column)
    return None if value is None else value[0]


def _lower(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(name.lower() for name in names)
