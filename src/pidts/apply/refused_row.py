"""Finds, among all rows that a commit writes, the row that the target refuses.

A server refuses a statement with many rows, and does not always name the row. So prefixes of the commit's changes are
tried again. The shortest prefix that the target refuses ends with the refused row. It would not be enough to try each
row alone:

    rows (1, u=1) and (2, u=1), u is unique     each is accepted by itself, and row 2 is refused after row 1
    row 1 gives up u=1, row 2 gets it           row 2 is refused by itself, and accepted after the changes before it

No try leaves anything on the target, even if the search is interrupted:

1. Each try is a transaction of its own. Like the commit, a try runs under the lock of the worker's checkpoint, but is
   never committed. A try is rolled back here or, after a lost connection or the end of the process, by the server. The
   next run finds the same checkpoint, and meets the same refusal.
2. The row is not found in three cases: a try fails for another reason, the target no longer refuses the row, or the
   time is too short for all tries. Then the server's refusal is reported unchanged.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace

import pyarrow as pa
import structlog

from pidts.apply.port import Target, TargetSession
from pidts.apply.rows.shown_values import shown_row
from pidts.model import Halted, Table, TableName
from pidts.reduce import NetChange

_log = structlog.get_logger(__name__)

_SECONDS = 20.0
"""The longest time that a search may take. Meanwhile the source's other changes wait."""
_BYTES = 64 << 20
"""The most bytes of changes that a search may have in memory."""


@dataclass(frozen=True, slots=True)
class RefusedRow:
    """A refused row, with the target's error."""

    table: Table
    row: pa.Table
    """The row's identity; all of its columns if its table has none."""
    written: bool
    """Whether the target has refused to write the row; False if it has refused to remove the row."""
    error: Halted
    change: int = 0
    """The index of the row's net change among the commit's net changes."""
    source_table: TableName | None = None
    """The source table that the row comes from; None if it is not known."""

    def __str__(self) -> str:
        return shown_row(self.row)


class Search:
    """The search for the refused row of one commit."""

    def __init__(
        self,
        target: Target,
        lock: Callable[[TargetSession], object],
        changes: Callable[[TargetSession], Iterable[NetChange]],
        whose: Callable[[RefusedRow], TableName | None],
    ) -> None:
        """`changes` makes the commit's changes, `lock` locks the checkpoint, and `whose` finds a row's source table."""
        self._target, self._lock, self._changes, self._whose = target, lock, changes, whose
        self._until = time.monotonic() + _SECONDS

    def row(self, refusal: Halted) -> RefusedRow | None:
        """Returns the refused row; None if the search fails for any reason."""
        try:
            with closing(self._target.connect()) as session:
                changes = self._to_write(session)
                found = first_refused(changes, lambda some: self._tried(session, some), refusal.code)
            return found and replace(found, source_table=self._whose(found))
        except Exception as error:  # noqa: BLE001 - the refusal itself is reported in any case
            _log.info("the row that the target refuses is not found", cause=str(error))
            return None

    def _to_write(self, session: TargetSession) -> list[NetChange]:
        """Writes the commit's changes, and returns them.

        Each change is written before the next one is made, since the next one may depend on the written rows. The
        returned changes lack `NetChange.expected`, `is_new` and `there`: these describe rows which the transaction of
        the commit had locked, and the search tries the changes in other transactions.
        """
        changes: list[NetChange] = []
        size = 0
        with self._undone(session), suppress(Halted):
            for change in self._changes(session):
                changes.append(replace(change, there=None, expected=None, is_new=None, likely_new=None))
                size += change.deletes.nbytes + change.upserts.nbytes
                self._demand_time()
                if size > _BYTES:
                    raise _TooMuchError("too many rows")
                session.write(change)
        return changes

    def _tried(self, session: TargetSession, changes: Sequence[NetChange]) -> Halted | None:
        self._demand_time()
        with self._undone(session):
            try:
                for change in changes:
                    session.write(change)
                self._lock(session)  # this query makes sure that the server has executed all writes
            except Halted as error:
                return error
        return None

    @contextmanager
    def _undone(self, session: TargetSession) -> Iterator[None]:
        session.begin()
        try:
            self._lock(session)
            yield
        finally:
            session.rollback()

    def _demand_time(self) -> None:
        if time.monotonic() > self._until:
            raise _TooMuchError("too little time")


class _TooMuchError(Exception):
    """Raised if there are too many changes to try."""


def first_refused(
    changes: Sequence[NetChange], tried: Callable[[Sequence[NetChange]], Halted | None], code: str
) -> RefusedRow | None:
    """Returns the row that the target refuses with this code.

    Prefixes of `changes` are tried, by a binary search. The refused row is the last row of the shortest prefix that
    fails. The length is counted in steps: a step is a row that is removed or written, or the beginning of a change. The
    result is None if the target refuses a change before its first row, refuses nothing, or refuses with another code.
    """
    steps = [1 + change.deletes.num_rows + change.upserts.num_rows for change in changes]
    low, high = 0, sum(steps)
    error = tried(changes)
    while error is not None and high - low > 1:
        middle = (low + high) // 2
        found = tried(_beginning(changes, middle))
        if found is None:
            low = middle
        else:
            high, error = middle, found
    if error is None or error.code != code:
        return None
    for number, (change, count) in enumerate(zip(changes, steps, strict=True)):
        if high <= count:
            is_its_own = error.where.table == str(change.table.name)
            return replace(_row(change, high - 2, error), change=number) if high > 1 and is_its_own else None
        high -= count
    return None


def _beginning(changes: Sequence[NetChange], steps: int) -> list[NetChange]:
    found = []
    for change in changes:
        if steps <= 0:
            break
        removed = change.deletes.slice(0, steps - 1)
        written = change.upserts.slice(0, max(0, steps - 1 - removed.num_rows))
        times = None if change.times is None else change.times.slice(0, removed.num_rows)
        found.append(replace(change, deletes=removed, upserts=written, times=times))
        steps -= 1 + change.deletes.num_rows + change.upserts.num_rows
    return found


def _row(change: NetChange, place: int, error: Halted) -> RefusedRow:
    names = list(change.table.identity or change.table.arrow.names)
    written = place >= change.deletes.num_rows
    rows, at = (change.upserts, place - change.deletes.num_rows) if written else (change.deletes, place)
    return RefusedRow(change.table, rows.select(names).slice(at, 1), written, error)
