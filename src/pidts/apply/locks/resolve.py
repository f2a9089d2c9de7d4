"""Resolves locked rows, together with their held changes, in one transaction, as an operator has chosen.

1. All workers' checkpoints are locked: no batch commits meanwhile, whether the task runs or not.
2. The records of the locks are locked. If two operators resolve one row at once, the second one finds no lock, and gets
   a message.
3. The rows are read and locked: if a program has an open transaction on one of them, the command waits for its end.
4. The held changes are applied to each row, the result is written, and locks and held changes are removed. COMMIT.

Rows that wait only for a unique value of the resolved rows are resolved with them. Crash points: before COMMIT, nothing
has happened. After it, rows and records are right, and the next change of a resolved row finds the written row. No
other transaction sees a state in between.

The outcome for a row depends on the row to which its held changes are applied:

    take        the row before them                 outcome
    source      the row that the source had         all are applied: the row is as on the source
    target      the row that the target has         an UPDATE writes only the columns it changes; an INSERT finds its
                                                    row; a DELETE removes it
    keep        the row that the target has         nothing: the held changes are dropped, and no row is written
    set         as with source, and then the columns that `--set` names get its values

If the log has partial images (MINIMAL, NOBLOB), the row before the held changes gets the missing columns from the
target's row. If the target has no row, these columns have no value, and the operator has to set them.

The table may have been altered since the changes were held: `pidts.apply.locks.follow_schema` handles this.

After `target`, `keep` and `set` the row may still differ from the source in some columns. Then its next change finds
the difference.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pyarrow as pa

from pidts.apply.locks.already_applied import forget_made
from pidts.apply.locks.early_removals import lock_out_other_tasks, note_keys
from pidts.apply.locks.follow_schema import converted, structure_now
from pidts.apply.locks.held_changes import held_batch, lock_ids
from pidts.apply.locks.unique_values import holders, unique_keys
from pidts.apply.port import TargetSession
from pidts.apply.rows.shown_values import shown_row
from pidts.apply.uncopied_keys import unpacked
from pidts.model import (
    ChangeBatch,
    Checkpoint,
    ConfigError,
    Halted,
    HeldChanges,
    Lsn,
    Op,
    PrecheckFailed,
    RowLock,
    SourceTransaction,
    Table,
    TableName,
    Where,
)
from pidts.model.errors import listed
from pidts.plan import PlanState
from pidts.reduce import Counts, NetChange
from pidts.reduce.column_presence import column_presence
from pidts.reduce.key_numbers import Mask, chunkless

Values = Mapping[str, pa.Scalar]


class ResolveWith(StrEnum):
    """The row to which the held changes are applied. With `keep` they are not applied."""

    SOURCE = "source"
    TARGET = "target"
    KEEP = "keep"


@dataclass(frozen=True, slots=True)
class UnfinishedResolves:
    """The unfinished commands that this command may end. Each of them gives all zones the row of one zone.

    A command that was killed is ended by a command with the same choice. Another choice could leave zones with
    different rows and no lock, since some zones may have the row of the first choice already. So another choice is
    accepted only if the first command cannot be repeated.
    """

    winner: str = ""
    """The zone whose row this command writes to all zones."""
    zones: Collection[str] | None = None
    """The zones whose row a repeated command can still write everywhere. If the winner of an unfinished command is not
    among them, that command cannot be repeated, and this command may end it. None: this command must not end an
    unfinished command with another winner.
    """

    def may_end(self, winner: str) -> bool:
        """Whether this command may resolve a lock for which another command has recorded this winner."""
        return winner in {"", self.winner} or (self.zones is not None and winner not in self.zones)


@dataclass(frozen=True, slots=True)
class HeldChange:
    """One held change."""

    lsn: Lsn
    op: Op
    transaction: SourceTransaction


@dataclass(frozen=True, slots=True)
class ResolvePreview:
    """A locked row on the source, on the target, and after it is resolved."""

    lock: RowLock
    table: Table
    """The table with the structure under which the row is written."""
    expected: Values | None
    """The row before the first held change, in the columns that the source's log has; None: there was no row."""
    actual: Values | None
    """The row on the target; None: there is no row."""
    outcome: Values | None
    """The row after the held changes, without columns whose value is unknown; None: there is no row."""
    changes: Sequence[HeldChange]


def outlook(
    session: TargetSession,
    task: str,
    source: str,
    lock: RowLock,
    take: ResolveWith,
    values: Mapping[str, Any] | None = None,
) -> ResolvePreview:
    """Returns the preview of a lock's resolution; `values` are the values that an operator sets."""
    return _looked_at(session, task, source, [lock], take, values)[0]


def _looked_at(
    session: TargetSession,
    task: str,
    source: str,
    locks: Sequence[RowLock],
    take: ResolveWith,
    values: Mapping[str, Any] | None = None,
    *,
    writes: bool = False,
) -> list[ResolvePreview]:
    """Returns the `outlook` of each of these locks of one table; reads rows and held changes together.

    `writes`: the outcome is written in this transaction, so the target's row is locked when it is read. Otherwise a
    program's change between the reading and the writing would be overwritten:

        the row has s = 'a', and a program's UPDATE to s = 'b' is open       the outcome of u = 7 is made with s = 'b'
    """
    if not locks:
        return []
    name = locks[0].table.name
    there = session.schema.structure(name)
    tables = [structure_now(one, there) for one in locks]
    held: dict[str, list[HeldChanges]] = {}
    for each in session.meta.row_locks.held(task, source, name, {one.id for one in locks}):
        held.setdefault(each.id, []).append(each)
    rows = _rows_of(session, locks, tables, writes=writes)
    return [
        _outlook(lock, table, row, held.get(lock.id, ()), take, values)
        for lock, table, row in zip(locks, tables, rows, strict=True)
    ]


def _outlook(
    lock: RowLock,
    table: Table,
    there: Values | None,
    held: Sequence[HeldChanges],
    take: ResolveWith,
    values: Mapping[str, Any] | None,
) -> ResolvePreview:
    before: list[Values | None] = []
    after: list[Values | None] = []
    changes: list[HeldChange] = []
    for one in held:
        batch, transactions = held_batch(lock, one)
        presence = column_presence(batch)
        for images, side, mask in ((before, "before", presence.before), (after, "after", presence.after)):
            images += [converted(each, batch.table, table) for each in _images(batch.rows.column(side), mask)]
        lsns, ops = batch.rows.column("lsn").to_pylist(), batch.rows.column("op").to_pylist()
        events = zip(map(Lsn.from_bytes, lsns), map(Op, ops), transactions, strict=True)
        changes += [HeldChange(*event) for event in events]
    expected = before[0]
    row = there
    if take is ResolveWith.SOURCE:
        row = None if expected is None else {**(there or {}), **expected}
    for old, new in zip(before, after, strict=True) if take is not ResolveWith.KEEP else ():
        row = _followed(row, old, new, take)
    if values:
        if row is None:
            raise ConfigError(
                "row-is-gone",
                f"row {lock.shown} of {lock.table.name} is deleted by its held changes: there is nothing to set",
                where=Where(table=str(lock.table.name), key=lock.shown),
                todo="Resolve the row with --take source",
            )
        row = {**row, **{name: _scalar(table, name, text) for name, text in values.items()}}
    return ResolvePreview(lock, table, expected, there, row, changes)


def _rows_of(
    session: TargetSession, locks: Sequence[RowLock], tables: Sequence[Table], *, writes: bool
) -> list[Values | None]:
    found: list[Values | None] = [None] * len(locks)
    for table in _alike(tables):
        mine = [place for place, one in enumerate(tables) if _is_alike(one, table)]
        schema = pa.schema([table.arrow.field(name) for name in table.identity])
        keys = pa.concat_tables(_key(locks[place], schema) for place in mine).combine_chunks()
        rows = session.read_rows(table, keys=keys, lock=writes)
        of_id = dict(zip(lock_ids(rows.select(schema.names).cast(schema)), _values(rows), strict=True))
        for place in mine:
            found[place] = of_id.get(locks[place].id)
        alone = [place for place in mine if found[place] is None]
        if not all(table.column(name).type.is_integer for name in table.identity):
            # The target may spell the key in another way, and may have one row for several of the locked keys.
            for place in alone:
                row = session.read_rows(table, keys=_key(locks[place], schema), lock=writes)
                found[place] = next(iter(_values(row)), None)
    return found


def _key(lock: RowLock, schema: pa.Schema) -> pa.Table:
    return unpacked(lock.key).select(schema.names).cast(schema)


def _values(rows: pa.Table) -> list[Values]:
    columns = chunkless(rows, rows.column_names)
    return [dict(zip(rows.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def outlooks(
    session: TargetSession,
    task: str,
    source: str,
    locks: Sequence[RowLock],
    take: ResolveWith,
    values: Mapping[str, Any] | None = None,
    *,
    awaited: bool = True,
) -> list[ResolvePreview]:
    """Returns what `resolve` would do with some locks of one table.

    `awaited`: other locks may wait for these locks. The result then includes the waiting locks.
    """
    found = _looked_at(session, task, source, locks, take, values)
    if take is ResolveWith.SOURCE and locks and awaited:
        waiting = _waiting(session, task, source, locks[0].table.name, {one.id for one in locks})
        found += _looked_at(session, task, source, waiting, ResolveWith.SOURCE)
    return found


def resolve(
    session: TargetSession,
    task: str,
    source: str,
    table: TableName,
    ids: Collection[str],
    take: ResolveWith,
    values: Mapping[str, Any] | None = None,
    begun: UnfinishedResolves | None = None,
    *,
    awaited: bool = True,
) -> list[ResolvePreview]:
    """Resolves some locks of one table, and the locks that wait for these; returns the outcome for each row.

    `awaited`: other locks may wait for these locks. If False, no such lock is searched for.
    """
    session.begin()
    try:
        done = resolve_in(session, task, source, table, ids, take, values, begun, awaited=awaited)
        session.commit()
    except BaseException:
        session.rollback()
        raise
    return done


def resolve_in(
    session: TargetSession,
    task: str,
    source: str,
    table: TableName,
    ids: Collection[str],
    take: ResolveWith,
    values: Mapping[str, Any] | None = None,
    begun: UnfinishedResolves | None = None,
    *,
    awaited: bool = True,
) -> list[ResolvePreview]:
    """Does what `resolve` does, in the open transaction. `begun` are the unfinished commands that it may end."""
    checkpoints = session.meta.checkpoints.lock_shared(task, source)
    found = session.meta.row_locks.lock(task, source, table, ids)
    demand_winner(found, begun or UnfinishedResolves())
    _demand_copied(checkpoints, found)
    done = _looked_at(session, task, source, found, take, values, writes=True)
    if take is ResolveWith.SOURCE and awaited:
        waiting = {one.id for one in _waiting(session, task, source, table, {one.id for one in found})}
        more = session.meta.row_locks.lock(task, source, table, waiting) if waiting else []
        demand_winner(more, begun or UnfinishedResolves())
        done += _looked_at(session, task, source, more, ResolveWith.SOURCE, writes=True)
    if done:
        if take is not ResolveWith.KEEP:
            _demand_whole(session, done)
            _demand_free(session, done)
            _write(session, done)
            _note_removals(session, task, source, done)
        session.meta.row_locks.remove(task, source, table, {one.lock.id for one in done})
        for table_then in _alike([one.lock.table for one in done]):
            schema = pa.schema([table_then.arrow.field(name) for name in table_then.identity])
            mine = [_key(one.lock, schema) for one in done if _is_alike(one.lock.table, table_then)]
            forget_made(session, task, table_then, pa.concat_tables(mine).combine_chunks())
    return done


def demand_winner(locks: Sequence[RowLock], begun: UnfinishedResolves) -> None:
    """Raises if another command has begun to write another zone's row to all zones."""
    for one in locks:
        if not begun.may_end(one.winner):
            raise PrecheckFailed(
                "lock-being-resolved",
                f"a command has begun to give all zones the row of zone {one.winner}: some zones may already have it",
                where=Where(table=str(one.table.name), key=one.shown),
                todo="Wait until the command has ended. If it was killed, repeat it: pidts locks resolve TASK "
                f"{one.id[:12]}. Add --take source if the lock's changes come from zone {one.winner}, and --take keep "
                f"if the lock is in zone {one.winner}. If zone {one.winner} is not in the file any more, or if some "
                "zones do not feed each other any more, resolve only this lock (--only-here)",
            )


def _demand_copied(checkpoints: Sequence[Checkpoint], locks: Sequence[RowLock]) -> None:
    """Raises if the table is being copied again, since the copy writes the source's rows and removes the locks."""
    for checkpoint in checkpoints:
        copies = PlanState.from_checkpoint(checkpoint.lsn, checkpoint.copy).copy if checkpoint.copy else {}
        for one in locks:
            if one.origin in copies and not copies[one.origin].done:
                raise Halted(
                    "table-is-copied",
                    f"{one.origin} is being copied: its locked rows get the values of the source",
                    where=Where(table=str(one.table.name), key=one.shown),
                    todo="Wait until the copy is complete. The copy removes the locks",
                )


def _waiting(session: TargetSession, task: str, source: str, table: TableName, resolved: set[str]) -> list[RowLock]:
    """Returns the locks whose rows wait only for the `resolved` rows, directly or through other waiting rows."""
    known = session.meta.row_locks.read(task, source, table, waiting=True)
    free, ids = [], set(resolved)
    while new := [one for one in known if one.needs in ids and one.id not in ids]:
        free += new
        ids |= {one.id for one in new}
    return free


def _demand_whole(session: TargetSession, done: Sequence[ResolvePreview]) -> None:
    """Raises if a row to write has no value for a column that the target does not compute."""
    there = session.schema.structure(done[0].table.name)
    computed = {column.name.lower() for column in (there.columns if there else ()) if column.generated}
    for one in done:
        lacks = [] if one.outcome is None else [each.name for each in one.table.columns if each.name not in one.outcome]
        if lacks := [name for name in lacks if name.lower() not in computed]:
            raise Halted(
                "partial-row-image",
                "the log has only a part of the row, and the target does not have the row, so these values are not "
                f"known: {listed(lacks)}",
                where=Where(table=str(one.table.name), key=one.lock.shown),
                todo="Give these columns values (--set COLUMN=VALUE), or let the row stay deleted: --take "
                f"{'keep' if one.expected is None else 'target'}",
            )


def _demand_free(session: TargetSession, done: Sequence[ResolvePreview]) -> None:
    """Raises if a row gets a unique value that another row keeps: the target's own error would name neither row.

    If another program inserts such a row after this check, the target refuses the write.
    """
    rows = [one for one in done if one.outcome is not None]
    if not any(unique_keys(session, table) for table in _alike([one.table for one in rows])):
        return
    going: set[str] = set()
    for table in _alike([one.table for one in done]):
        actual = [one.actual for one in done if one.actual is not None and _is_alike(one.table, table)]
        going |= set(lock_ids(_rows(table, actual).select(list(table.identity))))
    for table in _alike([one.table for one in rows]):
        keys = unique_keys(session, table)
        mine = [one for one in rows if keys and _is_alike(one.table, table)]
        found = holders(session, _inserts(table, [one.outcome or {} for one in mine]), keys) if mine else None
        if found is None or not len(found.change):
            continue
        ids = lock_ids(found.keys)
        for place, (change, row) in enumerate(zip(found.change.tolist(), found.row.tolist(), strict=True)):
            if ids[row] in going:
                continue
            one, names = mine[change], found.by[place]
            value = pa.table({name: pa.repeat((one.outcome or {})[name], 1) for name in names})
            raise Halted(
                "target-refused",
                f"row {one.lock.shown} needs the unique value {shown_row(value)}, which row "
                f"{shown_row(found.keys.slice(row, 1))} of the target has",
                where=Where(table=str(table.name), key=one.lock.shown),
                todo="If that row is locked, too, resolve both rows together. Otherwise give one of the two another "
                "value: the locked row with --set COLUMN=VALUE, or the other row on the target",
            )


def _inserts(table: Table, rows: Sequence[Values]) -> ChangeBatch:
    columns = chunkless(_rows(table, rows), table.arrow.names)
    images = pa.StructArray.from_arrays(columns, fields=list(table.arrow))
    lsns = pa.array([bytes(Lsn.SIZE)] * len(rows), pa.binary(Lsn.SIZE))
    none = pa.nulls(len(rows), images.type)
    return ChangeBatch.of(table, lsns, pa.array([int(Op.INSERT)] * len(rows), pa.int8()), none, images)


def _rows(table: Table, rows: Sequence[Values]) -> pa.Table:
    columns = [
        _array([row.get(name, pa.scalar(None, kind)) for row in rows], kind)
        for name, kind in zip(table.arrow.names, table.arrow.types, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=table.arrow)


def _alike(tables: Sequence[Table]) -> list[Table]:
    """Returns each structure once."""
    found: list[Table] = []
    for table in tables:
        if not any(_is_alike(one, table) for one in found):
            found.append(table)
    return found


def _is_alike(one: Table, other: Table) -> bool:
    """Whether rows of two structures have the same columns. Nearly always, the two are one object."""
    return one is other or one.arrow == other.arrow


def _write(session: TargetSession, done: Sequence[ResolvePreview]) -> None:
    """Deletes all rows that may exchange unique values, and then writes the rows of each structure together."""
    tables = _alike([one.table for one in done])
    names = list(tables[0].identity)
    order = [(name, "ascending") for name in names]
    schema = pa.schema([tables[0].arrow.field(name) for name in names])
    watched = session.schema.collision_columns(tables[0])
    gone = [one for one in done if one.outcome is None or _trades(one, watched) or _has_other_spelling(one, names)]
    keys = (unpacked(one.lock.key).select(names).cast(schema) for one in gone)
    deletes = pa.concat_tables([schema.empty_table(), *keys]).sort_by(order).combine_chunks()
    for table in tables:
        rows = [one.outcome for one in done if one.outcome is not None and _is_alike(one.table, table)]
        upserts = _rows(table, rows).sort_by(order)
        session.write(NetChange(table, deletes, upserts.combine_chunks(), Counts()))
        deletes = deletes.slice(0, 0)


def _note_removals(session: TargetSession, task: str, source: str, done: Sequence[ResolvePreview]) -> None:
    """Records which rows are deleted, since another zone's changes of these rows may still come."""
    gone = [one for one in done if one.outcome is None]
    if gone and lock_out_other_tasks(session, task, source):
        for one in gone:
            times = [change.transaction.time for change in one.changes[-1:]] or [0]
            note_keys(session, task, source, one.table, unpacked(one.lock.key), times)


def _trades(one: ResolvePreview, watched: Collection[str]) -> bool:
    """Whether the row gets another unique value. Then another row may get the value that this row had."""
    return any(one.actual is None or one.actual.get(name) != (one.outcome or {}).get(name) for name in watched)


def _has_other_spelling(one: ResolvePreview, names: Sequence[str]) -> bool:
    """Whether the target's row spells the key differently from the row to write. Then no statement overwrites it."""
    actual, outcome = one.actual, one.outcome
    return actual is not None and outcome is not None and any(actual.get(name) != outcome.get(name) for name in names)


def _array(values: Sequence[pa.Scalar], kind: pa.DataType) -> pa.Array:
    """Converts values without Python's date types, which lack some of the servers' dates."""
    return pa.concat_arrays([pa.array([], kind), *(pa.repeat(value, 1).cast(kind) for value in values)])


def _followed(row: Values | None, before: Values | None, after: Values | None, take: ResolveWith) -> Values | None:
    """Returns the row after a held change; None: no row. `before` and `after` have only columns that the log has."""
    if after is None:
        return None
    if before is None:
        return after if take is ResolveWith.SOURCE or row is None else row
    if take is ResolveWith.SOURCE:
        return {**(row or {}), **after}
    if row is None:
        return None
    return {**row, **{name: value for name, value in after.items() if _changes(name, value, before)}}


def _changes(name: str, value: pa.Scalar, before: Values) -> bool:
    return name not in before or not value.equals(before[name])


def _images(images: pa.StructArray, known: Mask) -> list[Values | None]:
    """Returns each image with only its known columns."""
    return [
        {name: one for (name, one), is_known in zip(image.items(), mine, strict=True) if is_known}
        if image.is_valid
        else None
        for image, mine in zip(images, known.tolist(), strict=True)
    ]


def _scalar(table: Table, name: str, value: Any) -> pa.Scalar:
    column = next((one for one in table.columns if one.name.lower() == name.lower()), None)
    if column is None or column.name in table.identity:
        what = "is part of the table's key" if column else "is not a column of the table"
        others = [one.name for one in table.columns if one.name not in table.identity]
        raise ConfigError(
            "bad-value",
            f"{name} cannot be set: it {what}",
            where=Where(table=str(table.name)),
            todo=f"These columns can be set: {listed(others, 20)}",
        )
    kind = column.type.arrow
    try:
        if value is None:
            return pa.scalar(None, kind)
        return pa.scalar(value.encode(), kind) if column.type.is_bytes else pa.scalar(value).cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ConfigError(
            "bad-value",
            f"{value!r} is not a value for column {name}: {error}",
            where=Where(table=str(table.name)),
            todo=f"Give a value of type {kind}, or NULL",
        ) from None
