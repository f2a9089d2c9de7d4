"""Writes one batch of one worker to the target, exactly once.

A commit is one target transaction: lock the worker's checkpoint row, decide, write the rows, save the checkpoint,
COMMIT. A commit can be interrupted at these points:

1. Before the row is locked: nothing happened.
2. Between lock and COMMIT, by an error: the transaction is rolled back here. By a lost connection or a dead process:
   the server rolls back. Until the server has rolled back, the row stays locked, so the next attempt waits for the lock
   and sees the old checkpoint.
3. While COMMIT is under way, and its answer is lost: the target has the whole transaction or nothing of it. The next
   attempt, here or in another process, gets the row's lock when the old transaction has ended. Then the attempt reads
   the row. The new Lsn means that the batch is committed (ALREADY). The old Lsn means that the batch has to be
   written again. A read without the lock could show the old Lsn while the commit is being made, and the batch would be
   written twice.
4. After COMMIT, before the caller is informed: the caller repeats the batch and gets ALREADY.
5. A run that another run has replaced may still execute any of these steps. If the old run holds the lock, the new
   run's `claim` waits for it, and the old run's batch is valid. If not, the old run finds a newer epoch when it next
   locks the row, and ends with `Fenced`. The lock and the writes are in one transaction, so each write comes after a
   check of the epoch.

If this committer itself was the last to write the row, it does not read the row first: the transaction begins with a
statement that *advances* the row. The statement locks the row and saves the new checkpoint, or fails if the row is not
exactly as this committer has left it. The whole transaction is sent at once, since after a failed statement the server
executes neither the writes nor COMMIT. Then:

6. The row is as this committer has left it: no other transaction has written it, and none writes it before COMMIT.
   Reading the row would have led to the same decision. Cases 2 to 4 apply from here on.
7. The row differs or does not exist: another run has taken over, a repeated attempt has committed the batch, or
   somebody has changed the row by hand. Nothing was written. A second attempt locks and reads the row.
8. After any error, the committer no longer assumes that it knows the row. The next attempt locks and reads the row.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Self, TypeAlias

import structlog

from pidts.apply.apply_rules import ApplyRules
from pidts.apply.checkpoint import Outcome, settle
from pidts.apply.locks.write_comparison import WriteComparison
from pidts.apply.port import Target, TargetSession
from pidts.apply.refused_row import RefusedRow, Search
from pidts.apply.retry import Retry
from pidts.model import TRANSACTION_TOO_LARGE, Checkpoint, Halted, Lsn, OtherCheckpoint, TableName, Transient, Where
from pidts.reduce import NetChange
from pidts.time_spent import CommitMeter, CommitTime

Changes: TypeAlias = Callable[[TargetSession], Iterable[NetChange]]
"""Returns the changes to write. The changes may depend on the target's rows, and need not be in memory all at once."""
Whose: TypeAlias = Callable[[RefusedRow], TableName | None]
"""Returns the source table of a refused row; None if none can be named."""
Largest: TypeAlias = Callable[[str], TableName | None]
"""Returns the source table with the most changes in a table of the target; None if they cannot be counted."""
Again: TypeAlias = Callable[[Halted], bool]
"""Returns whether changes that the target has refused are prepared and written once more, under other rules."""

_log = structlog.get_logger(__name__)

_KEPT_ROW = (
    "The task's filters leave out some changes of {}. So it is likely that the target has kept a row that has this "
    "unique value, and that the source has changed or removed. Correct that row on the target, or remove it. If there "
    "is no such row: {}"
)
"""The advice to the operator if two rows need one unique value, and a filter may be the cause."""
_MOST_TO_ADVANCE = 16 << 10
"""The most characters in the copy progress and GTID sets of a former and a new checkpoint row that one statement may
replace. This statement contains both rows: the server must accept its size, and it is sent together with the next
statements. Larger rows are read and then written.
"""


@dataclass(slots=True)
class _Commit:
    worker: int
    expected: Lsn
    new: Checkpoint
    changes: Changes
    rows: int
    origin: str
    asked: bool = False
    """Whether an attempt has sent COMMIT. Then the target may have the changes already."""


class Committer:
    """Commits batches over one session. A committer belongs to one thread: each parallel worker has its own."""

    def __init__(
        self,
        target: Target,
        task: str,
        source: str,
        epoch: int,
        *,
        rules: ApplyRules | None = None,
        retry: Retry | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.rules = rules or ApplyRules(source=source)
        """The task's rules for writing; callers use them to make `changes`."""
        self.expecting = WriteComparison()
        self._target = target
        self._task, self._source, self._epoch = task, source, epoch
        self._retry = retry or Retry()
        self._sleep = sleep
        self.comparing = replace(self.rules, expects=True, inserts=True)
        """The rules for batches that the target itself may compare with its rows while it writes them."""
        self._session: TargetSession | None = None
        self._left: dict[int, Checkpoint] = {}
        """The checkpoint row of each worker as this committer has left it. A worker has no entry after an error."""
        self._advances = True
        """Whether the target can compare a checkpoint row with the row that this committer has left."""
        self._trips = 0
        """The number of the session's round trips so far."""
        self.times = CommitMeter()

    def commit(
        self,
        worker: int,
        expected: Lsn,
        checkpoint: Checkpoint,
        changes: Changes,
        *,
        has_rows: bool = True,
        whose: Whose = lambda _: None,
        largest: Largest = lambda _: None,
        again: Again = lambda _: False,
        origin: str = "",
    ) -> Outcome:
        """Moves the worker from `expected` to `checkpoint.lsn` with these changes, or finds that this was already done.

        Each attempt first locks the worker's checkpoint, then calls `changes` and writes the result. If this call
        itself made the commit, it never returns ALREADY, even if the connection was lost.

        - `has_rows`: whether the changes have any rows, as known beforehand.
        - `whose` returns the source table of a refused row. The error names the row and this table, if they are found.
        - `largest` returns the source table that the error names if the whole transaction is too large.
        - `again` decides after each refusal of the changes whether another attempt follows.
        - `origin` is the other zone from which the rows came.
        """
        commit = _Commit(worker, expected, self._mine(checkpoint, worker), changes, int(has_rows), origin)
        with self.times.measured():
            while True:
                try:
                    return self._retry.repeat(
                        lambda: self._attempt(commit),
                        drop=self._drop,  # this ends the lock of the checkpoint
                        sleep=self._sleep,
                        given_up=lambda error, attempts: self._given_up(error, attempts, asked=commit.asked),
                    )
                except Halted as error:
                    if again(error):
                        continue
                    located = self._located(error, worker, changes, whose, largest)
                    raise located from (error if located is not error else error.__cause__)

    def _attempt(self, commit: _Commit) -> Outcome:
        """Makes one attempt. If the checkpoint row may be advanced, the attempt does not read it first."""
        left = self._left.pop(commit.worker, None)
        if left is None or not self._may_advance(left, commit.expected, commit.new, rows=commit.rows):
            return self._written(commit, None)
        trips = self._connected().trips
        try:
            return self._written(commit, left)
        except OtherCheckpoint as error:
            _log.debug("the checkpoint is read again before a batch", worker=commit.worker, cause=error.what)
            refused = left
        except Halted:
            # Without a round trip, the server has not compared the checkpoint row yet. The row may have been changed
            # by hand, and this may be the cause of the halt. So the next attempt reads the row.
            if self._connected().trips > trips:
                raise
            refused = None
        self._drop()
        return self._written(commit, None, refused)

    def _written(self, commit: _Commit, left: Checkpoint | None, refused: Checkpoint | None = None) -> Outcome:
        """Runs one transaction, which advances the checkpoint row from `left`. If `left` is None, the row is read.

        `refused` is the row that the attempt before could not advance.
        """
        session = self._connected()
        session.begin(commit.origin)
        is_saved = left is not None and session.meta.checkpoints.advance(left, commit.new)
        if not is_saved:
            stored = self._locked(session, commit.worker)
            # If `advance` was refused although the row is as this committer has left it, this target cannot compare the
            # row. From now on, the row is read first. Otherwise each batch would be refused once.
            self._advances = self._advances and stored != refused
            if settle(stored, commit.expected, commit.new, rows=commit.rows) is Outcome.ALREADY:
                session.rollback()
                return Outcome.APPLIED if commit.asked else Outcome.ALREADY
        for change in commit.changes(session):
            self._write(session, change)
            del change  # so that a large batch does not have two changes in memory
        if not is_saved:
            session.meta.checkpoints.save(commit.new)
        was_asked, commit.asked = commit.asked, True
        try:
            session.commit()
        except OtherCheckpoint:
            commit.asked = was_asked  # COMMIT was not executed
            raise
        self._left[commit.worker] = commit.new
        self._count_trips(session)
        return Outcome.APPLIED

    def _mine(self, checkpoint: Checkpoint, worker: int) -> Checkpoint:
        """Returns the checkpoint with this run's task, source and epoch, and with the worker's number."""
        found = checkpoint.task, checkpoint.source, checkpoint.worker, checkpoint.epoch
        if found == (self._task, self._source, worker, self._epoch):
            return checkpoint
        return replace(checkpoint, task=self._task, source=self._source, worker=worker, epoch=self._epoch)

    def _locked(self, session: TargetSession, worker: int) -> Checkpoint:
        """Locks the worker's checkpoint row and returns it. The same round trip asks which tables have locked rows."""
        if self.rules.looks_for_locks:
            session.meta.row_locks.ask(self._task, self._source)
        return session.meta.checkpoints.lock(self._task, self._source, worker)

    def _may_advance(self, left: Checkpoint, expected: Lsn, new: Checkpoint, *, rows: int) -> bool:
        """Whether the batch may be written without reading the checkpoint row first.

        The target then compares the row with `left`, which this committer saved last, and refuses the batch if the row
        was changed since then.

        False if rows may be locked: the locked rows have to be read before anything is written, and the same round trip
        reads the checkpoint. Also False if the texts of the two checkpoint rows are large (`_MOST_TO_ADVANCE`).
        """
        if not self._advances or self.rules.looks_for_locks or left.lsn != expected:
            return False
        if sum(map(len, (left.copy, left.gtid, new.copy, new.gtid))) > _MOST_TO_ADVANCE:
            return False
        with suppress(Halted):
            return settle(left, expected, new, rows=rows) is Outcome.APPLIED
        return False

    def _count_trips(self, session: TargetSession) -> None:
        trips = session.trips
        self.times.add(CommitTime(trips=trips - self._trips))
        self._trips = trips

    def close(self) -> None:
        """Closes the connection; the next commit opens another."""
        self._drop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _connected(self) -> TargetSession:
        if self._session is None:
            self._session = self._target.connect()
            self._trips = self._session.trips
        return self._session

    def _drop(self) -> None:
        """Closes the session, which rolls back its open transaction. After an error, its state is not known."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def _given_up(self, error: Transient, attempts: int, *, asked: bool) -> Transient:
        open_end = (
            "; it is not known yet whether the last COMMIT succeeded, and the next attempt finds out" if asked else ""
        )
        return Transient(
            error.code,
            f"{error.what} ({attempts} attempts{open_end})",
            where=error.where if str(error.where) else Where(source=self._source),
            todo=error.todo or "The task tries again by itself once the target answers",
        )

    def _write(self, session: TargetSession, change: NetChange) -> None:
        """Writes a change. If the target refuses a change of a merged table, the error names the change's shard."""
        try:
            session.write(change)
        except Halted as error:
            if change.origin is not None and error.where.table == str(change.table.name):
                error.where = replace(error.where, source=self._source, table=str(change.origin))
            raise

    def _located(self, error: Halted, worker: int, changes: Changes, whose: Whose, largest: Largest) -> Halted:
        """Returns the error with the refused row, and with the table that the row comes from.

        If the transaction is too large, no single row is the cause. Then only the source table with the most changes
        halts, and the next attempt writes the changes of the others.
        """
        if not error.where.table:
            return error
        if error.code == TRANSACTION_TOO_LARGE:
            if (most := largest(error.where.table)) is not None:
                error.where = replace(error.where, source=self._source, table=str(most))
            return error

        def lock(session: TargetSession) -> None:
            session.meta.checkpoints.lock(self._task, self._source, worker)

        found = Search(self._target, lock, changes, whose).row(error)
        if found is None:
            return error
        where, todo = replace(error.where, key=found.error.where.key or str(found)), found.error.todo
        if (name := found.source_table) is not None:
            where = replace(where, source=self._source, table=str(name))
            if found.error.is_duplicate and self.rules.filters.keeps_rows(name):
                todo = _KEPT_ROW.format(name, todo)
        return Halted(error.code, found.error.what, where=where, todo=todo)
