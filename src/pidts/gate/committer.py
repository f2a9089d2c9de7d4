"""Writes records to a datacenter exactly once, with the same numbers in each attempt.

The records of a log part, the row of `transfer_checkpoint`, the structures after the log part and the task's checkpoint
belong together. If there are few records, one transaction on one connection writes everything. If there are many,
several connections write them at once: each connection commits parts of the log part, called *pieces*. Programs read
only records at or before `transfer_checkpoint`. When all pieces are committed, a last transaction moves
`transfer_checkpoint` together with the task's checkpoint.

A crash can come at these points:

1. Before anything is written: nothing has happened.
2. Some pieces are committed, and the last transaction is not. The rows of these pieces are after `transfer_checkpoint`,
   where no program reads. The next attempt, in this or in another run, locks the task's checkpoint, removes these rows,
   and writes the records again. They get the same numbers, since the numbers follow from `transfer_checkpoint` and the
   log.
3. The answer to the last COMMIT is lost. The next attempt locks the task's checkpoint, so it waits until the old
   transaction has ended. Then it reads whether the old transaction was committed (ALREADY) or not (case 2).
4. After COMMIT: the caller repeats the log part and finds ALREADY.
5. Another run takes over the task. Each transaction locks the task's checkpoint before it writes (a piece takes a
   shared lock), and compares the epoch. The new run's claim waits for these locks. If a piece was committed before the
   claim, case 2 applies. A transaction that gets the lock after the claim finds the new epoch and writes nothing
   (`Fenced`).
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Self

import pyarrow as pa

from pidts.apply import Outcome, Retry, TargetSession, settle
from pidts.apply.checkpoint import fenced
from pidts.model import Checkpoint, Halted, Lsn, Transient, Where
from pidts.target.mysql import MySqlSession, MySqlTarget
from pidts.target.mysql.datacenter import Datacenter, Numbers
from pidts.time_spent import CommitMeter, CommitTime

Make = Callable[[Numbers], Iterator[tuple[pa.Table, Numbers]]]
"""A function that gets the numbers of a row, and yields the rows of `transfer_data` that follow this row, in order. It
yields several Arrow tables, each with the numbers of its last row.
"""
_ROWS, _BYTES = 20_000, 8 << 20
"""The largest number of rows of a piece, and about the largest number of bytes."""
_SHARED_ROWS = 2_500
"""The least rows of a part, if a piece is divided: committing a smaller part would take longer than writing its rows.
"""


@dataclass(frozen=True, slots=True)
class Channel:
    """A datacenter, the task that writes to it, and the number of connections that the task may use."""

    target: MySqlTarget
    database: str
    task: str
    source: str
    epoch: int
    connections: int


@dataclass(slots=True)
class DatacenterSession:
    """A session on the target's server, and the datacenter to which it writes."""

    session: MySqlSession
    datacenter: Datacenter


@dataclass(frozen=True, slots=True)
class _Ahead:
    """The numbers before and after a log part's records, and the rows that its last transaction still has to write."""

    base: Numbers
    last: Numbers
    rows: Sequence[pa.Table] = ()
    """The rows that are not written yet, if the log part is small."""


@dataclass(slots=True)
class _Failures:
    """The first error of any connection of an attempt."""

    first: BaseException | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, error: BaseException) -> None:
        with self.lock:
            self.first = self.first or error


class ChannelCommitter:
    """Commits one channel's log parts, one after the other; used by one thread."""

    def __init__(
        self, channel: Channel, *, retry: Retry | None = None, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._channel, self._retry, self._sleep = channel, retry or Retry(), sleep
        self._own: DatacenterSession | None = None
        self._others: list[DatacenterSession] = []
        """The connections that have written the pieces of the last log part, and will write the pieces of the next log
        part.
        """
        self._is_clean = False
        """Whether it is certain that no rows are after `transfer_checkpoint`, as after each commit of this object."""
        self.times = CommitMeter()

    def commit(
        self,
        expected: Lsn,
        checkpoint: Checkpoint,
        make: Make,
        *,
        has_records: bool,
        also: Callable[[TargetSession], None] = lambda _: None,
    ) -> Outcome:
        """Moves the task from `expected` to `checkpoint`. `also` writes further rows in the last transaction.

        `has_records` says whether the log part has records. Returns ALREADY if the target had this log part before.
        """
        with self.times.measured():
            return self._commit(expected, checkpoint, make, has_records=has_records, also=also)

    def _commit(
        self,
        expected: Lsn,
        checkpoint: Checkpoint,
        make: Make,
        *,
        has_records: bool,
        also: Callable[[TargetSession], None],
    ) -> Outcome:
        new = replace(
            checkpoint, task=self._channel.task, source=self._channel.source, worker=0, epoch=self._channel.epoch
        )
        asked = False

        def attempt() -> Outcome:
            nonlocal asked
            own = self._connected()
            trips = own.session.trips
            if not self._is_clean and not self._cleaned(own, expected, new, has_records=has_records):
                return Outcome.APPLIED if asked else Outcome.ALREADY
            ahead = self._wrote_ahead(own, expected, make)
            own.session.begin()
            stored = own.session.meta.checkpoints.lock(new.task, new.source, 0)
            if settle(stored, expected, new, rows=int(has_records)) is Outcome.ALREADY:
                own.session.rollback()
                return Outcome.APPLIED if asked else Outcome.ALREADY
            self._finish(own, ahead, make)
            also(own.session)
            own.session.meta.checkpoints.save(new)
            asked = True
            own.session.commit()
            self._is_clean = True
            self.times.add(CommitTime(trips=own.session.trips - trips))
            return Outcome.APPLIED

        return self._retry.repeat(attempt, drop=self._drop, sleep=self._sleep, given_up=self._given_up)

    def remove_old(self, seconds: int, most: int) -> int:
        """Removes old rows in a separate transaction, as `Datacenter.remove_old` describes; returns how many."""
        own = self._connected()
        try:
            return own.datacenter.remove_old(seconds, most)
        except BaseException:
            self._drop()
            raise

    def close(self) -> None:
        """Closes the connection; the next commit opens another."""
        self._drop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _connected(self) -> DatacenterSession:
        if self._own is None:
            self._own = self._connect()
        return self._own

    def _connect(self) -> DatacenterSession:
        session = self._channel.target.connect()
        return DatacenterSession(session, Datacenter(session, self._channel.database))

    def _drop(self) -> None:
        self._is_clean = False
        for connected in (*self._others, *filter(None, (self._own,))):
            connected.session.close()
        self._own = None
        self._others.clear()

    def _cleaned(self, own: DatacenterSession, expected: Lsn, new: Checkpoint, *, has_records: bool) -> bool:
        """Removes the rows that an interrupted attempt has left; returns False if the log part is already committed."""
        own.session.begin()
        stored = own.session.meta.checkpoints.lock(new.task, new.source, 0)
        if settle(stored, expected, new, rows=int(has_records)) is Outcome.ALREADY:
            own.session.rollback()
            return False
        own.datacenter.remove_beyond(own.datacenter.numbers().id)
        own.session.commit()
        return True

    def _wrote_ahead(self, own: DatacenterSession, expected: Lsn, make: Make) -> _Ahead | None:
        """Writes the pieces of a large log part on several connections. Returns None if the channel has only one."""
        if self._channel.connections == 1:
            return None
        own.session.begin()
        base = own.datacenter.numbers()
        own.session.rollback()
        pieces = self._shared(make(base))
        first = [piece for _, piece in zip(range(2), pieces, strict=False)]
        if len(first) < 2:
            return _Ahead(base, first[-1][1] if first else base, [rows for rows, _ in first])
        last = first[-1][1]
        work: queue.Queue[pa.Table | None] = queue.Queue(maxsize=1)
        failures = _Failures()
        kept, self._others = self._others, []
        with ExitStack() as cleanup:
            threads = [
                threading.Thread(target=self._writes, args=(work, failures, expected, connected), daemon=True)
                for connected in (*kept, *repeat(None, self._channel.connections - len(kept)))
            ]
            for thread in threads:
                thread.start()

            def ended() -> None:
                for _ in threads:
                    work.put(None)
                for thread in threads:
                    thread.join()

            cleanup.callback(ended)
            for rows, _ in first:
                work.put(rows)
            first.clear()
            for rows, reached in pieces:
                if failures.first is not None:
                    break
                work.put(rows)
                last = reached
        if failures.first is not None:
            raise failures.first
        return _Ahead(base, last)

    def _shared(self, pieces: Iterator[tuple[pa.Table, Numbers]]) -> Iterator[tuple[pa.Table, Numbers]]:
        """Yields each piece in equal parts, so that all connections work at the same time."""
        for rows, last in pieces:
            parts = max(1, min(self._channel.connections, len(rows) // _SHARED_ROWS))
            yield from _cut(rows, last, -(-len(rows) // parts))

    def _writes(
        self,
        work: queue.Queue[pa.Table | None],
        failures: _Failures,
        expected: Lsn,
        connected: DatacenterSession | None,
    ) -> None:
        """Commits pieces in a thread with its own connection. After an error, empties the queue without writing."""
        try:
            while (rows := work.get()) is not None:
                if failures.first is not None:
                    continue
                try:
                    connected = connected or self._connect()
                    self._write_piece(connected, rows, expected)
                except BaseException as error:  # noqa: BLE001 - the waiting thread raises it
                    failures.add(error)
        finally:
            if connected is not None and failures.first is None:
                self._others.append(connected)
            elif connected is not None:
                connected.session.close()

    def _write_piece(self, connected: DatacenterSession, rows: pa.Table, expected: Lsn) -> None:
        session, channel = connected.session, self._channel
        session.begin()
        (stored,) = session.meta.checkpoints.lock_shared(channel.task, channel.source)
        if stored.epoch != channel.epoch:
            raise fenced(stored, channel.epoch)
        if stored.lsn != expected:
            raise Halted(
                "checkpoint-mismatch",
                f"the task's checkpoint is at {stored.lsn}, not at {expected}, where this batch begins",
                where=Where(source=channel.source),
                todo="Restart the task: it continues from the target's checkpoint",
            )
        connected.datacenter.add(rows)
        session.commit()

    def _finish(self, own: DatacenterSession, ahead: _Ahead | None, make: Make) -> None:
        """Moves `transfer_checkpoint` in the open transaction, and writes the records that are not written yet."""
        base = own.datacenter.numbers()
        if ahead is not None:
            if ahead.base != base:
                what = "transfer_checkpoint has moved while records were written"
                raise Transient("datacenter-moved", what, where=Where(source=self._channel.source))
            for rows in ahead.rows:
                own.datacenter.add(rows)
            last = ahead.last
        else:
            last = base
            for rows, reached in make(base):
                own.datacenter.add(rows)
                last = reached
        if last != base:
            own.datacenter.move(base, last)

    def _given_up(self, error: Transient, attempts: int) -> Transient:
        return Transient(
            error.code,
            f"{error.what} ({attempts} attempts)",
            where=error.where if str(error.where) else Where(source=self._channel.source),
            todo=error.todo or "The task tries again by itself once the target answers",
        )


def in_pieces(rows: pa.Table, last: Numbers) -> Iterator[tuple[pa.Table, Numbers]]:
    """Yields the rows in pieces of similar size, each with its last row's numbers. `last`: the last piece's numbers."""
    yield from _cut(rows, last, min(_ROWS, -(-len(rows) * _BYTES // max(rows.nbytes, 1))))


def _cut(rows: pa.Table, last: Numbers, step: int) -> Iterator[tuple[pa.Table, Numbers]]:
    step = max(1, step)
    for first in range(0, len(rows), step):
        piece = rows.slice(first, step)
        end = first + len(piece)
        if end == len(rows):
            yield piece, last
        else:
            yield piece, Numbers(piece["id"][-1].as_py(), piece["tid"][-1].as_py())
