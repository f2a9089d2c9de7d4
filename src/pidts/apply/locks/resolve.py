"""Resolves locked rows as an operator says; their held changes follow in the same transaction.

1. All workers' checkpoints are locked: no batch commits meanwhile, whether the task runs or not.
2. The locks are locked. Of two who resolve one row at once the second finds nothing, and is told so.
3. What the held changes make of each row is written, and locks and held changes are removed. COMMIT.

Rows that wait for nothing but a unique value of these rows are resolved with them. Crash points: before COMMIT nothing
has happened; after it the rows and the records are right, and the next change of such a row finds it as it is. Nobody
reads a state in between.

What becomes of a row depends on where its held changes begin:

    take        the row before them                 what follows
    source      what the source says it was         all of them: the row is as on the source
    target      what the target has                 of an UPDATE only the columns that it changes; an INSERT finds its
                                                    row; a DELETE removes it
    set         as with source, and then these columns get other values

After `target` and `set` the row may still differ from the source in some columns. Then its next change finds that.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pyarrow as pa

from pidts.apply.port import TargetSession
from pidts.apply.unread import unpacked
from pidts.model import Checkpoint, ConfigError, Halted, Lsn, Op, RowLock, Table, TableName, Where
from pidts.plan import PlanState
from pidts.reduce import Counts, NetChange

Values = Mapping[str, pa.Scalar]


class Take(StrEnum):
    """Whose row it is on which the held changes follow."""

    SOURCE = "source"
    TARGET = "target"


@dataclass(frozen=True, slots=True)
class Outlook:
    """A locked row from all sides."""

    lock: RowLock
    expected: Values | None
    """The row as the source says it was before the first held change; None: there was none."""
    actual: Values | None
    """The row on the target."""
    outcome: Values | None
    """The row that the held changes make of it."""
    changes: Sequence[tuple[Lsn, Op]]


def outlook(
    session: TargetSession, task: str, source: str, lock: RowLock, take: Take, values: Mapping[str, Any] | None = None
) -> Outlook:
    """Returns what resolving a lock would do; `values` are those that an operator sets."""
    held = [unpacked(one.changes) for one in session.meta.row_locks.held(task, source, lock.table.name, {lock.id})]
    changes = pa.concat_tables(held).combine_chunks()
    there = _first(session.read_rows(lock.table, keys=unpacked(lock.key), lock=False))
    first = changes.slice(0, 1)
    expected = _image(first["before"][0]) if first["op"][0].as_py() != Op.INSERT else None
    row = expected if take is Take.SOURCE else there
    for place in range(changes.num_rows):
        row = _followed(row, changes.slice(place, 1), take)
    if values:
        if row is None:
            raise ConfigError(
                "row-is-gone",
                f"row {lock.shown} of {lock.table.name} is deleted by its held changes: there is nothing to set",
                where=Where(table=str(lock.table.name), key=lock.shown),
                todo="Resolve it with --take source",
            )
        row = {**row, **{name: _scalar(lock.table, name, text) for name, text in values.items()}}
    lsns = [Lsn.from_bytes(each) for each in changes["lsn"].to_pylist()]
    ops = [Op(each) for each in changes["op"].to_pylist()]
    return Outlook(lock, expected, there, row, list(zip(lsns, ops, strict=True)))


def resolve(
    session: TargetSession,
    task: str,
    source: str,
    table: TableName,
    ids: Collection[str],
    take: Take,
    values: Mapping[str, Any] | None = None,
) -> list[Outlook]:
    """Resolves some locks of one table, and those that wait for them; returns what was made of each row."""
    session.begin()
    try:
        checkpoints = session.meta.checkpoints.lock_shared(task, source)
        found = session.meta.row_locks.lock(task, source, table, ids)
        _demand_copied(checkpoints, found)
        done = [outlook(session, task, source, one, take, values) for one in found]
        if take is Take.SOURCE:
            done += _waiting(session, task, source, table, {one.id for one in found})
        if done:
            _write(session, done)
            session.meta.row_locks.remove(task, source, table, {one.lock.id for one in done})
        session.commit()
    except BaseException:
        session.rollback()
        raise
    return done


def _demand_copied(checkpoints: Sequence[Checkpoint], locks: Sequence[RowLock]) -> None:
    """Raises where the table is copied again: the copy makes its rows those of the source, and ends the locks."""
    for checkpoint in checkpoints:
        copies = PlanState.from_checkpoint(checkpoint.lsn, checkpoint.copy).copy if checkpoint.copy else {}
        for one in locks:
            if one.origin in copies and not copies[one.origin].done:
                raise Halted(
                    "table-is-copied",
                    f"{one.origin} is being copied: its locked rows become what they are on the source",
                    where=Where(table=str(one.table.name), key=one.shown),
                    todo="Nothing: the locks end with the copy",
                )


def _waiting(session: TargetSession, task: str, source: str, table: TableName, resolved: set[str]) -> list[Outlook]:
    """Returns the locks whose rows wait for no other one than these, directly or by others of them."""
    known = session.meta.row_locks.read(task, source, table)
    free, ids = [], set(resolved)
    while new := [one for one in known if one.needs in ids and one.id not in ids]:
        free += new
        ids |= {one.id for one in new}
    free = session.meta.row_locks.lock(task, source, table, {one.id for one in free}) if free else []
    return [outlook(session, task, source, one, Take.SOURCE) for one in free]


def _write(session: TargetSession, done: Sequence[Outlook]) -> None:
    """Removes all rows first where they may trade unique values."""
    table = done[0].lock.table
    names = list(table.identity)
    keys = {one.lock.id: unpacked(one.lock.key).select(names) for one in done}
    trade = bool(session.schema.collision_columns(table))
    gone = [keys[one.lock.id] for one in done if trade or one.outcome is None]
    rows = [one.outcome for one in done if one.outcome is not None]
    order = [(name, "ascending") for name in names]
    schema = pa.schema([table.arrow.field(name) for name in names])
    deletes = pa.concat_tables([schema.empty_table(), *(each.cast(schema) for each in gone)]).sort_by(order)
    columns = [
        _array([row[name] for row in rows], kind)
        for name, kind in zip(table.arrow.names, table.arrow.types, strict=True)
    ]
    upserts = pa.Table.from_arrays(columns, schema=table.arrow).sort_by(order)
    session.write(NetChange(table, deletes.combine_chunks(), upserts.combine_chunks(), Counts()))


def _array(values: Sequence[pa.Scalar], kind: pa.DataType) -> pa.Array:
    """Values of any time are kept: some dates have no value in Python."""
    return pa.concat_arrays([pa.array([], kind), *(pa.repeat(value, 1).cast(kind) for value in values)])


def _followed(row: Values | None, change: pa.Table, take: Take) -> Values | None:
    op = change["op"][0].as_py()
    if op == Op.DELETE:
        return None
    after = _image(change["after"][0])
    if take is Take.SOURCE:
        return after
    if op == Op.INSERT:
        return after if row is None else row
    if row is None:
        return None
    before = _image(change["before"][0])
    return {name: value if not value.equals(before[name]) else row[name] for name, value in after.items()}


def _image(value: pa.StructScalar) -> Values:
    return dict(value.items())


def _first(rows: pa.Table) -> Values | None:
    return {name: rows[name][0] for name in rows.column_names} if rows.num_rows else None


def _scalar(table: Table, name: str, value: Any) -> pa.Scalar:
    column = next((one for one in table.columns if one.name.lower() == name.lower()), None)
    if column is None or column.name in table.identity:
        what = "is part of its key" if column else "is no column of it"
        raise ConfigError("bad-value", f"{name} cannot be set: it {what}", where=Where(table=str(table.name)))
    kind = column.type.arrow
    try:
        if value is None:
            return pa.scalar(None, kind)
        return pa.scalar(value.encode(), kind) if column.type.is_bytes else pa.scalar(value).cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ConfigError(
            "bad-value", f"{value!r} is no value of column {name}: {error}", where=Where(table=str(table.name))
        ) from None
