"""Sets aside rows that differ: stores their changes on the target as held changes, in the checkpoint's transaction.

A locked key keeps its row as it is on the target. All its events are held, in the order of the log, beginning with the
first one that found another row. Changes of all other keys are applied. A crash can come at these points:

1. Before COMMIT: the target has neither the lock, nor held changes, nor the batch's rows, nor the checkpoint. The next
   attempt reads the target's rows again.
2. After COMMIT: the target has all four. The next batch with the key finds the lock, even on another worker. A key
   belongs to one worker at a time. The number of workers changes only when all workers are at one place in the log.
3. While COMMIT is under way: the checkpoint shows whether case 1 or case 2 applies.

A batch asks once which tables have locks. A table without locks needs no further query. The size of the queries depends
on the batch, not on the number of locks.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import pyarrow as pa
import structlog

from pidts.apply.locks.divergence import Divergence
from pidts.apply.locks.held_changes import FindTransactions, held_changes, lock_ids, split
from pidts.apply.locks.key_events import KeyEvents
from pidts.apply.locks.key_rows import KeyRows, joined_keys
from pidts.apply.locks.known_locks import KnownLocks
from pidts.apply.locks.presence import KnownColumns
from pidts.apply.locks.unique_values import Holders, holders, unique_keys, waiting_keys
from pidts.apply.port import TargetSession
from pidts.apply.rows.shown_values import shown_row, shown_rows
from pidts.apply.uncopied_keys import packed_each, unpacked
from pidts.model import ChangeBatch, Halted, Lsn, RowLock, Table, TableName, Where
from pidts.reduce.key_numbers import Mask, Numbers

_log = structlog.get_logger(__name__)

_SHOWN = 3
_AT_ONCE = 5000
"""The most keys whose locks and held changes are in memory at a time."""


class SetAside:
    """The locks of one source of a task that concern one batch."""

    def __init__(
        self,
        session: TargetSession,
        task: str,
        source: str,
        tables: Collection[TableName],
        limit: int,
        find_transactions: FindTransactions,
    ) -> None:
        self._find_transactions = find_transactions
        self._session, self._task, self._source, self._limit = session, task, source, limit
        self._locked, self.knows_removals = session.meta.row_locks.present(task, source, tables)
        """The tables with locks, and whether tasks have recorded deletes that found no row."""
        self._known: dict[TableName, KnownLocks] = {}
        self._holders: tuple[ChangeBatch, Holders, list[str]] | None = None

    def has_locks(self, table: TableName) -> bool:
        """Whether the table has locked rows."""
        return table in self._locked

    def free_events(self, key_rows: KeyRows, events: Numbers) -> Numbers:
        """Returns which of these events have a key that is not locked."""
        name = key_rows.events.batch.table.name
        if not len(events) or not self.has_locks(name):
            return events
        ids = lock_ids(key_rows.events.keys.take(pa.array(key_rows.events.key[events])))
        known = self._locks(key_rows.events.batch.table).among(ids)
        free: Numbers = events[np.array([one not in known for one in ids], np.bool_)]
        return free

    def without_locked(self, found: Divergence) -> Divergence | None:
        """Returns the divergence without the keys that are locked already; None if no key is left."""
        batch = found.events.batch
        if not self.has_locks(batch.table.name):
            return found
        ids = lock_ids(found.events.keys.take(pa.array(found.keys)))
        known = self._locks(batch.table).among(ids)
        free = np.array([one not in known for one in ids], np.bool_)
        return found.only(free) if free.any() else None

    def with_locked_keys(self, key_rows: KeyRows, found: Divergence | None) -> KeyRows:
        """Returns the batch's keys, after it has joined keys that the target treats as equal.

        Keys are joined only if one of them is locked or will be locked. If no keys have to be joined, the method
        returns `key_rows` itself.
        """
        keys, locks = key_rows.events.keys, self._locks(key_rows.events.batch.table)
        names = lock_ids(keys)
        known, (classes, of_class) = locks.among(names), locks.classes(keys, names)
        locked = np.array([one in known for one in names], np.bool_)
        own = {one for one, is_locked in zip(classes, locked.tolist(), strict=True) if is_locked}
        others = {
            one: unpacked(lock.key).select(keys.column_names).cast(keys.schema)
            for one, lock in of_class.items()
            if one not in own
        }
        wanted = locked.copy()
        if found is not None:
            wanted[found.keys] = True
        wanted[list(self._needing(key_rows, wanted, names))] = True
        return joined_keys(key_rows, classes, locked, wanted, others)

    def free_changes(self, key_rows: KeyRows, found: Divergence | None, columns: KnownColumns | None) -> ChangeBatch:
        """Locks the keys that have diverged, holds the events of all locked keys, and returns the other changes.

        `columns` says which columns of each change the log has; None: all.
        """
        events, batch = key_rows.events, key_rows.events.batch
        if found is None and not self.has_locks(batch.table.name):
            return batch
        names, record, name = lock_ids(events.keys), self._session.meta.row_locks, batch.table.name
        known = self._locks(batch.table).among(names)
        locked, begins = np.array([one in known for one in names], np.bool_), events.first.copy()
        new: dict[int, tuple[str, str]] = {}
        if found is not None:
            new |= {
                key: (why, "") for key, why in zip(found.keys.tolist(), found.reasons(), strict=True) if not locked[key]
            }
            if not self._session.schema.collision_columns(batch.table):
                begins[found.keys] = np.where(locked[found.keys], begins[found.keys], found.begins)
        locked[list(new)] = True
        for key, needs in self._needing(key_rows, locked, names).items():
            new[key] = ("it needs a unique value that a locked row has on the target", needs)
            locked[key] = True
        if not locked.any():
            return batch
        self._demand_room(batch, events, new)
        held = locked[events.key] & (np.arange(len(events.key)) >= begins[events.key])
        self._demand_whole(events, held, columns)
        examples: list[RowLock] = []
        for first in range(0, len(names), _AT_ONCE):
            mine = range(first, min(first + _AT_ONCE, len(names)))
            if some := {key: new[key] for key in mine if key in new}:
                made = self._made(key_rows, names, begins, some)
                record.add(self._task, self._source, made)
                examples += made[: _SHOWN - len(examples)]
            ids = {key: names[key] for key in mine if locked[key]}
            if not ids:
                continue
            before = record.lock(self._task, self._source, name, known & set(ids.values()))
            altered = {one.id for one in before if one.table != batch.table}
            part = held & (events.key >= mine.start) & (events.key < mine.stop)
            record.hold(
                self._task,
                self._source,
                name,
                held_changes(events, part, ids, columns, altered, self._find_transactions),
            )
        if new:
            self._log_locks(batch, examples, len(new))
        return split(events, held)

    def _locks(self, table: Table) -> KnownLocks:
        if table.name not in self._known:
            has_locks = self.has_locks(table.name)
            self._known[table.name] = KnownLocks(self._session, self._task, self._source, table, any_=has_locks)
        return self._known[table.name]

    def _needing(self, key_rows: KeyRows, locked: Mask, names: Sequence[str]) -> Mapping[int, str]:
        """Returns the keys whose new row needs a unique value of a locked row, each with that row's lock."""
        batch = key_rows.events.batch
        if not locked.any() and not self.has_locks(batch.table.name):
            return {}
        if self._holders is None or self._holders[0] is not batch:
            found = holders(self._session, batch, unique_keys(self._session, batch.table))
            self._holders = batch, found, self._locks(batch.table).locks_of(found.keys)
        return waiting_keys(key_rows, locked, names, *self._holders[1:])

    def _made(
        self, key_rows: KeyRows, names: Sequence[str], begins: Numbers, new: Mapping[int, tuple[str, str]]
    ) -> list[RowLock]:
        """Returns new locks for these keys, each with its reason and the lock that it waits for."""
        batch, events, chosen = key_rows.events.batch, key_rows.events, list(new)
        keys = events.keys.take(pa.array(chosen))
        first = batch.rows.column("lsn").take(pa.array(events.change[begins[chosen]]))
        now = time.time()
        columns = zip(
            chosen,
            packed_each(keys),
            shown_rows(keys),
            map(Lsn.from_bytes, first.to_pylist()),
            self._locks(batch.table).forms(keys, [names[key] for key in chosen]),
            strict=True,
        )
        return [
            RowLock(
                table=batch.table,
                id=names[key],
                key=packed,
                shown=shown,
                origin=batch.origin,
                lsn=lsn,
                why=new[key][0],
                since=now,
                needs=new[key][1],
                form=form,
            )
            for key, packed, shown, lsn, form in columns
        ]

    def _demand_room(self, batch: ChangeBatch, events: KeyEvents, new: Mapping[int, tuple[str, str]]) -> None:
        if not new:
            return
        name = batch.table.name
        before = self._session.meta.row_locks.count(self._task, self._source, name) if self.has_locks(name) else 0
        if before + len(new) > self._limit:
            first = events.keys.take(pa.array([next(iter(new))]))
            raise Halted(
                "too-many-locked-rows",
                f"{before} rows of the table are locked, and {len(new)} more differ from the source: more than "
                f"pidts.lock-limit ({self._limit})",
                where=Where(table=str(batch.table.name), key=shown_row(first)),
                todo="Was the table restored, or does another program write to it? To see the locks, run: pidts locks "
                "list TASK. Resolve the locks, or copy the table again: pidts run TASK --resync TABLE",
            )

    def _demand_whole(self, events: KeyEvents, held: Mask, known: KnownColumns | None) -> None:
        """Halts if an UPDATE moves a row from a locked key to a free one, and the log lacks columns of the new row."""
        if known is None:
            return
        batch = events.batch
        plain = [place for place, column in enumerate(batch.table.columns) if not column.generated]
        lacks = ~known.after[:, plain].all(axis=1)
        from_locked = np.zeros(len(batch), np.bool_)
        from_locked[events.change[events.leaves & held]] = True
        from_locked[events.change[events.arrives & held & known.halved[events.change]]] = True
        arriving = np.zeros(len(batch), np.bool_)
        arriving[events.change[events.arrives & ~(held & known.partial[events.change])]] = True
        found = np.nonzero(lacks & from_locked & arriving)[0]
        if len(found):
            lsn = Lsn.from_bytes(batch.rows.column("lsn")[int(found[0])].as_py())
            raise Halted(
                "partial-row-image",
                "the log has only a part of a row whose key changes, and the row with the old key is locked",
                where=Where(table=str(batch.table.name), position=str(lsn)),
                todo="To see the locked row, run: pidts locks list TASK. Resolve the row. To have such rows set aside "
                "instead, set binlog_row_image=FULL on the source and let its sessions reconnect",
            )

    def _log_locks(self, batch: ChangeBatch, made: Sequence[RowLock], rows: int) -> None:
        shown = "; ".join(one.shown for one in made)
        is_one = len({one.why for one in made}) == 1
        _log.warning(
            "rows of the target differ from the source and are set aside",
            table=str(batch.table.name),
            rows=rows,
            keys=shown if rows == len(made) else f"{shown}; ...",
            why=made[0].why if is_one else "; ".join(f"{one.shown}: {one.why}" for one in made),
            lsn=str(made[0].lsn),
        )
