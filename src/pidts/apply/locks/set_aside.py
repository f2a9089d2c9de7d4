"""Sets rows that differ aside: their changes are held in the target's record, in the transaction of the checkpoint.

A locked key keeps its row as it is on the target. Each of its events is held, in the order of the log, from the first
one that found another row on. All other keys go on. These cases cover a break at each point:

1. Before COMMIT: neither the lock, nor held changes, nor the batch's rows, nor the checkpoint. The next attempt reads
   the target's rows again.
2. After COMMIT: all of them. The next batch finds the lock by its key, whichever worker brings it: a key belongs to one
   worker at a time, and another number of workers is accepted only where all are at one place.
3. While COMMIT is under way: the checkpoint tells which of the two.

A batch looks once for tables with locks. For a table without any there is nothing more to do.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import compress

import numpy as np
import pyarrow as pa
import structlog

from pidts.apply.locks.divergence import Divergence
from pidts.apply.locks.held import Moments, held_changes, lock_ids, nowhere, split
from pidts.apply.locks.key_events import KeyEvents
from pidts.apply.locks.key_rows import KeyRows, with_locks
from pidts.apply.locks.presence import KnownColumns
from pidts.apply.locks.unique_values import TakenValues, locked_for_values
from pidts.apply.port import TargetSession
from pidts.apply.rows.key_numbers import Mask
from pidts.apply.rows.shown_values import shown_row
from pidts.apply.rows.target_rows import target_rows
from pidts.apply.unread import packed, unpacked
from pidts.model import ChangeBatch, Halted, Lsn, RowLock, TableName, Where

_log = structlog.get_logger(__name__)

_SHOWN = 3


class SetAside:
    """The locks of one source of a task, as one batch meets them."""

    def __init__(self, session: TargetSession, task: str, source: str, limit: int, moments: Moments = nowhere) -> None:
        self._moments = moments
        self._session, self._task, self._source, self._limit = session, task, source, limit
        self._counts: Mapping[TableName, int] = session.meta.row_locks.tables(task, source)

    def has_locks(self, table: TableName) -> bool:
        """Whether the table has locked rows."""
        return table in self._counts

    def without_locked(self, found: Divergence) -> Divergence | None:
        """Returns the divergence without keys that are locked already."""
        name = found.events.batch.table.name
        if not self.has_locks(name):
            return found
        known = self._session.meta.row_locks.ids(self._task, self._source, name)
        ids = lock_ids(found.events.keys.take(pa.array(found.keys)))
        free = np.array([one not in known for one in ids], np.bool_)
        return found.only(free) if free.any() else None

    def with_locked_keys(self, met: KeyRows, found: Divergence | None) -> KeyRows:
        """Returns the batch's keys with those in one that the target holds equal to a key that is or will be locked.

        Where nothing is to be joined it returns `met` itself.
        """
        keys, table = met.events.keys, met.events.batch.table
        record, names = self._session.meta.row_locks, lock_ids(keys)
        before = record.read(self._task, self._source, table.name) if self.has_locks(table.name) else []
        locks, mine = {one.id: one for one in before}, set(names)
        locked = np.array([one in locks for one in names], np.bool_)
        others = [unpacked(locks[one].key).cast(keys.schema) for one in locks if one not in mine]
        wanted = locked.copy()
        if found is not None:
            wanted[found.keys] = True
        if not others and not wanted.any():
            return met
        wanted[list(self._needing(met, wanted, names, set(locks)))] = True
        return with_locks(
            self._session, met, pa.concat_tables([keys.slice(0, 0), *others]).combine_chunks(), locked, wanted
        )

    def free_changes(self, met: KeyRows, found: Divergence | None, columns: KnownColumns | None) -> ChangeBatch:
        """Holds the events of locked keys, after locking those that have diverged; returns the others.

        `columns` says which columns the log holds of each change; None: all.
        """
        events, batch = met.events, met.events.batch
        if found is None and not self.has_locks(batch.table.name):
            return batch
        names, locks, name = lock_ids(events.keys), self._session.meta.row_locks, batch.table.name
        known = locks.ids(self._task, self._source, name) if self.has_locks(name) else set()
        locked, begins = np.array([one in known for one in names], np.bool_), events.first.copy()
        new: dict[int, tuple[str, str]] = {}
        if found is not None:
            new |= {key: (found.why(at), "") for at, key in enumerate(found.keys.tolist()) if not locked[key]}
            if not self._session.schema.collision_columns(batch.table):
                begins[found.keys] = np.where(locked[found.keys], begins[found.keys], found.begins)
        locked[list(new)] = True
        if locked.any() or known:
            for key, needs in self._needing(met, locked, names, known).items():
                new[key] = ("it needs a unique value that a locked row has on the target", needs)
                locked[key] = True
        if not locked.any():
            return batch
        self._demand_room(batch, events, new, known)
        held = locked[events.key] & (np.arange(len(events.key)) >= begins[events.key])
        self._demand_whole(events, held, columns)
        if new:
            made = [self._lock(events, key, int(begins[key]), names[key], *about) for key, about in new.items()]
            locks.add(self._task, self._source, made)
            self._tell(batch, made)
        ids = {key: names[key] for key in np.nonzero(locked)[0].tolist()}
        before = locks.lock(self._task, self._source, name, known.intersection(ids.values()))
        altered = {one.id for one in before if one.table != batch.table}
        locks.hold(self._task, self._source, name, held_changes(events, held, ids, columns, altered, self._moments))
        return split(events, held)

    def _needing(self, met: KeyRows, locked: Mask, names: Sequence[str], known: set[str]) -> Mapping[int, str]:
        """Returns the keys that need a unique value of a locked row, with the lock that has it."""
        events, rows, at = met.events, met.rows, met.at
        table, schema = events.batch.table, self._session.schema
        if not schema.collision_columns(table):
            return {}
        there = schema.structure(table.name)
        unique = [key.columns for one in (table, there) if one is not None for key in one.keys if key.unique]
        unique = [key for key in unique if set(key) <= set(table.arrow.names) and key != table.identity]
        taken = TakenValues(unique)
        here = [key for key in np.nonzero(locked)[0].tolist() if at[key] >= 0]
        taken.add(rows.take(pa.array([at[key] for key in here], pa.int64())), [names[key] for key in here])
        others = known.difference(names)
        if others:
            locks = self._session.meta.row_locks.read(self._task, self._source, table.name)
            waiting = {one.id: unpacked(one.key) for one in locks if one.id in others}
            theirs, place = target_rows(self._session, table, pa.concat_tables(waiting.values()))
            found_at = place >= 0
            taken.add(theirs.take(pa.array(place[found_at])), list(compress(waiting, found_at)))
        return locked_for_values(events, locked, taken, rows, at, names)

    def _lock(self, events: KeyEvents, key: int, event: int, id_: str, why: str, needs: str) -> RowLock:
        batch, one = events.batch, events.keys.take(pa.array([key]))
        first = batch.rows.column("lsn")[int(events.change[event])].as_py()
        return RowLock(
            table=batch.table,
            id=id_,
            key=packed(one),
            shown=shown_row(one),
            origin=batch.origin,
            lsn=Lsn.from_bytes(first),
            why=why,
            since=time.time(),
            needs=needs,
        )

    def _demand_room(
        self, batch: ChangeBatch, events: KeyEvents, new: Mapping[int, tuple[str, str]], known: set[str]
    ) -> None:
        if new and len(known) + len(new) > self._limit:
            first = events.keys.take(pa.array([next(iter(new))]))
            raise Halted(
                "too-many-locked-rows",
                f"{len(known)} rows of the table are locked, and {len(new)} more differ from the source: more than "
                f"pidts.lock-limit ({self._limit})",
                where=Where(table=str(batch.table.name), key=shown_row(first)),
                todo="Was the table restored, or does another program write to it? Resolve the locks (pidts locks), "
                "or copy the table again: pidts run TASK --resync TABLE",
            )

    def _demand_whole(self, events: KeyEvents, held: Mask, known: KnownColumns | None) -> None:
        """Halts where a row comes from a locked key, and the log leaves to that key's row what some columns hold."""
        if known is None:
            return
        batch = events.batch
        plain = [place for place, column in enumerate(batch.table.columns) if not column.generated]
        lacks = ~known.after[:, plain].all(axis=1)
        from_locked = np.zeros(len(batch), np.bool_)
        from_locked[events.change[events.leaves & held]] = True
        from_locked[events.change[events.arrives & held & known.halved[events.change]]] = True
        arriving = np.zeros(len(batch), np.bool_)
        arriving[events.change[events.arrives]] = True
        found = np.nonzero(lacks & from_locked & arriving)[0]
        if len(found):
            lsn = Lsn.from_bytes(batch.rows.column("lsn")[int(found[0])].as_py())
            raise Halted(
                "partial-row-image",
                "the log has only a part of a row whose key changes, and the row of the old key is locked",
                where=Where(table=str(batch.table.name), position=str(lsn)),
                todo="Resolve the locked row (pidts locks), then pidts ddl retry. To let such rows be set aside, set "
                "binlog_row_image=FULL on the source and let its sessions reconnect",
            )

    def _tell(self, batch: ChangeBatch, made: Sequence[RowLock]) -> None:
        shown = "; ".join(one.shown for one in made[:_SHOWN])
        _log.warning(
            "rows of the target differ from the source and are set aside",
            table=str(batch.table.name),
            rows=len(made),
            keys=shown if len(made) <= _SHOWN else f"{shown}; ...",
            why=made[0].why,
            lsn=str(made[0].lsn),
        )
