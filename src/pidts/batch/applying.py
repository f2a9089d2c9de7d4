"""Writes the changes of one worker to the target: reduces them, and commits them with that worker's checkpoint.

The work is the same in the driver and in a Spark task. Changes that do not fit into memory at once are reduced and
written part by part, in one transaction, which ends with the checkpoint. An ordinary batch is one part.

Each attempt reads the changes of a long batch from the log again. The work can be interrupted between two parts:

1. An error of the target (deadlock, lost connection): the transaction is gone. The committer begins another
   transaction, locks the checkpoint and reads the log again from the first part.
2. The process dies (SIGKILL, out of memory): the server rolls back when it sees the connection end. Spark runs its task
   again. The second attempt waits for the checkpoint's lock until the server is done, finds the old position and starts
   over. Rolling back millions of rows may last longer than the lock timeout. Then the attempt fails, and a further
   attempt waits.
3. The JVM or the driver dies: the server rolls back in the same way. The next run's claim waits for this, and then
   reads the checkpoint.
4. Spark runs a second attempt of its task beside the first one (speculation, or the first one was assumed dead): the
   second attempt waits for the lock. If the first one has committed, the second one finds the new position and writes
   nothing. If the first one has failed, the second one does the work.

With `pidts.split-transactions`, each part is committed by itself. A part's checkpoint has the Lsn of the part's last
change, inside the transaction. All other values of that checkpoint (batch, GTID, position, copies) stay as they were
before the batch, with two exceptions: the checkpoint says how this run assigns rows to workers, and it names the tables
that are held after the batch. The second exception has this reason: a refused row halts its table, which then waits at
the batch's start. If the checkpoint did not name the table, a restart would pass over the refused row.

A restart plans the same transaction again, and each worker skips the changes up to its own checkpoint. Every row of the
log has its own Lsn, so no row is lost or written twice, even without a key. Where a part ends depends only on the log
and on the number of rows in a part. A repeated Spark task continues after the last committed part.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby, islice
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from pidts.apply import ApplyRules, Committer, LaggingTables, Outcome, RefusedRow, TargetSession, prepared
from pidts.apply.locks.write_comparison import WriteComparison
from pidts.batch.blobs import Blob
from pidts.batch.lagging_merge import lagging_in
from pidts.batch.log_parts import PART_BYTES, LogPart, parts
from pidts.batch.source_of_row import source_table
from pidts.batch.workers import Commit
from pidts.model import ChangeBatch, Checkpoint, Halted, Lsn, Op, PidtsError, TableName
from pidts.plan import CopyMode, CopyState, Phase, dealing_of, inside_batch
from pidts.reduce import Counts, NetChange

_ORDINARY_BYTES = 64 << 20
"""The size of one part, in bytes, if the whole batch is in memory anyway. Long sorted parts are written faster."""

_LARGE_BYTES = 1 << 20
"""After a part with more bytes than this, freed memory is given back to the system. This takes as long as decoding a
few rows.
"""

_FEW = 64
"""Up to this many rows are handled one by one. For so few rows, calls of Arrow would take longer."""

_TRIES_AFTER_REFUSAL = 3
"""How often refused changes are prepared again. Before each attempt, another program may have used a further unique
value.
"""

_READ = pa.array([int(Op.COPY), int(Op.ABSENT)], pa.int8())
"""The operations that do not come from the log."""

LogParts: TypeAlias = Callable[[], Iterable[LogPart]]
"""Returns a worker's changes in log order. Every call returns the same changes."""


def apply(committer: Committer, commit: Commit, worker: int, blobs: Iterable[Blob]) -> Counts:
    """Writes one worker's changes and checkpoint in one transaction. Returns the number of changes of each kind."""
    ordered = sorted(blobs, key=lambda blob: blob.order)
    before, after = commit.before[worker], commit.after[worker]
    copies = _Copies.of(commit, worker)
    if (ordered and ordered[0].order == Blob.COPIED) or copies.settles:
        # A copied row must be reduced together with all its changes in the log. Rows that were loaded ahead of the log
        # already have the unique values of the batch's end. If the batch were cut, an earlier part could collide with
        # these values.
        log_parts = [LogPart([blob.changes for blob in ordered])]
    else:
        log_parts = [
            LogPart([blob.changes for blob in mine]) for _, mine in groupby(ordered, key=lambda blob: blob.slice)
        ]
    floor = commit.places(before).at
    newer = [LogPart([_after_floor(floor, batch) for batch in log_part.changes]) for log_part in log_parts]
    lagging = lagging_in(committer.rules, commit, worker)
    copied = copies.ended
    read_first = committer.expecting.next_batch()
    work = _CommitInput(
        lambda: newer,
        replace(committer.comparing, read_first=read_first) if read_first else committer.comparing,
        copies.after,
        part_bytes=_ORDINARY_BYTES,
        lagging=lagging,
        copied=copied,
        origin=commit.origin,
    )
    has_rows = any(map(len, newer))
    return _committed(committer, commit, worker, before.lsn, after, work, has_rows=has_rows)


def apply_long(
    committer: Committer,
    commit: Commit,
    worker: int,
    log_parts: LogParts,
    split_rows: int | None = None,
    tables: Collection[TableName] = (),
    part_bytes: int | None = None,
) -> Counts:
    """Does what `apply` does, for changes that do not fit into memory.

    - `split_rows`: each part is a transaction of its own, and large transactions of the log are cut into parts of this
      many rows. But if a held table moves, no part is committed by itself: a part's checkpoint has only one Lsn.
    - `tables` are the tables with changes.
    - `part_bytes` replaces `PART_BYTES`. All changes are one part if the planner has counted on this
      (`_Copies.need_one_part`).
    """
    before, after = commit.before[worker], commit.after[worker]
    lagging, cut = (lagging_in(committer.rules, commit, worker, cut) for cut in ((), tables))
    copies = _Copies.of(commit, worker)
    held_before, held_after = commit.places(before), commit.places(after)
    if copies.need_one_part:
        split_rows, log_parts = None, partial(_in_one_part, log_parts)
    elif held_after.moved_since(held_before):
        split_rows = None
    copied = copies.ended
    counts = Counts()
    if split_rows is not None:

        def commit_part(expected: Lsn, reached: Checkpoint, part: LogPart) -> Counts:
            own = cut if part.after_cut else lagging
            work = _CommitInput(
                lambda: [part],
                committer.rules,
                copies.after,
                lagging=own,
                copied=copied,
                origin=commit.origin,
            )
            return _committed(committer, commit, worker, expected, reached, work, has_rows=len(part) > 0)

        copy = inside_batch(before.lsn, before.copy, held_after, dealing_of(after.copy))
        held: LogPart | None = None
        newer = _CommitInput(log_parts, committer.rules, {}, commit.places(before).at).newer()
        for part in parts(newer, PART_BYTES, split_rows):
            if held is not None:
                reached = replace(before, lsn=held.end, copy=copy)
                counts += commit_part(before.lsn, reached, held)
                before = reached
            held = part
        return counts + commit_part(before.lsn, after, held or LogPart([]))
    work = _CommitInput(
        log_parts,
        committer.rules,
        copies.after,
        commit.places(before).at,
        part_bytes,
        lagging=lagging,
        cut=cut,
        copied=copied,
        origin=commit.origin,
    )
    moves = before.lsn < after.lsn or before.copy != after.copy
    return _committed(committer, commit, worker, before.lsn, after, work, has_rows=moves)


def _in_one_part(log_parts: LogParts) -> list[LogPart]:
    return [LogPart([batch for log_part in log_parts() for batch in log_part.changes])]


def _committed(
    committer: Committer,
    commit: Commit,
    worker: int,
    expected: Lsn,
    reached: Checkpoint,
    work: _CommitInput,
    *,
    has_rows: bool,
) -> Counts:
    """Commits one transaction's changes. Returns their numbers, or empty counts if they were committed before."""
    outcome = committer.commit(
        worker,
        expected,
        reached,
        work,
        has_rows=has_rows,
        whose=work.source_table,
        largest=work.largest_source,
        again=lambda refusal: work.made_anew(refusal, committer.expecting),
        origin=commit.origin,
    )
    if outcome is Outcome.ALREADY:
        return Counts()
    committer.expecting.accepted(work.expected)
    return work.counts


Floor: TypeAlias = Callable[[TableName], Lsn]


@dataclass(frozen=True, slots=True)
class _Copies:
    """The progress, by source table, of the full copies that are incomplete before or after one worker's batch."""

    before: Mapping[TableName, CopyState]
    after: Mapping[TableName, CopyState]

    @classmethod
    def of(cls, commit: Commit, worker: int) -> _Copies:
        return cls(*(_unfinished(commit.copies(one[worker])) for one in (commit.before, commit.after)))

    @property
    def ended(self) -> Collection[TableName]:
        """Returns the source tables whose full copy is complete after this batch, but not before it."""
        return self.before.keys() - self.after.keys()

    @property
    def settles(self) -> bool:
        """Whether this batch records chunks as copied."""
        before = self.before
        return any(name not in before or before[name].settled != one.settled for name, one in self.after.items())

    @property
    def need_one_part(self) -> bool:
        """Whether the batch settles loaded rows, but removes no other rows that have a unique value of a written row.

        The planner decides this for a batch with little log (`CopyState.ahead`). If such a batch were cut, an earlier
        part could collide with a loaded row that a later part changes.
        """
        return any(
            (was := self.before.get(name)) is not None
            and was.phase is Phase.ROWS
            and was.settled != one.settled
            and one.mode is CopyMode.NEW
            and not (one.keyless or one.ahead)
            for name, one in self.after.items()
        )


def _unfinished(copies: Mapping[TableName, CopyState]) -> Mapping[TableName, CopyState]:
    return {name: one for name, one in copies.items() if not one.done}


class _CommitInput:
    """The changes that a commit writes, read again for each of its attempts."""

    def __init__(
        self,
        log_parts: LogParts,
        rules: ApplyRules,
        copying: Mapping[TableName, CopyState],
        floor: Floor | None = None,
        part_bytes: int | None = None,
        lagging: LaggingTables | None = None,
        cut: LaggingTables | None = None,
        copied: Collection[TableName] = (),
        origin: str = "",
    ) -> None:
        """`cut` has the lagging tables for parts with `after_cut`, and `lagging` those for all other parts."""
        self._log_parts, self._floor, self._part_bytes = log_parts, floor, part_bytes or PART_BYTES
        self._rules, self._copying = rules, copying
        self._lagging, self._cut = lagging, cut or lagging
        self._copied, self._origin = copied, origin
        self._refusals = 0
        self.expected: set[str] = set()
        """The tables whose rows the target checks in this attempt: it compares rows, or refuses new rows whose keys
        exist.
        """
        self._sum, self._by_table = Counts(), Counter[str]()
        self._ends: list[int] = []
        """For each part, how many net changes this attempt has made up to the part's end."""

    @property
    def counts(self) -> Counts:
        """Returns the counts of the last attempt."""
        return replace(self._sum, by_table=dict(self._by_table))

    def newer(self) -> Iterable[LogPart]:
        """Returns the changes, except changes that this worker has committed in an earlier run, when it was ahead."""
        floor = self._floor
        if floor is None:
            return self._log_parts()
        return (
            replace(log_part, changes=[_after_floor(floor, batch) for batch in log_part.changes])
            for log_part in self._log_parts()
        )

    def source_table(self, row: RefusedRow) -> TableName | None:
        """Returns the source table that the row comes from; None if no change names the row.

        Changes after the part with the refused change do not count: they may move the row to another table.
        """
        ending = bisect_right(self._ends, row.change) + 1
        tried = islice(parts(self.newer(), self._part_bytes), ending)
        return source_table(row, (batch for part in tried for batch in part.changes))

    def largest_source(self, table: str) -> TableName | None:
        """Returns the source table with the most changes for this target table; None if they cannot be counted."""
        changes = Counter[TableName]()
        with suppress(PidtsError):
            for log_part in self.newer():
                for batch in log_part.changes:
                    if str(batch.table.name) == table:
                        changes[batch.origin] += len(batch)
            return max(changes, key=lambda name: changes[name], default=None)
        return None

    def made_anew(self, refusal: Halted, expecting: WriteComparison) -> bool:
        """Whether the changes are prepared once more, with other rules, after the target has refused them.

        1. The target has compared rows itself. A row differs, or has a unique value that a change needs. So the next
           attempt reads and compares the rows.
        2. The target was asked to refuse new rows whose keys exist, and another program has inserted such a row since
           rows were read. So the next attempt reads rows once more. It overwrites a row that is inserted after that.
        3. See `ApplyRules.after_refusal`.

        If the attempt has failed before it has prepared anything, `expected` still has the tables of the attempt before
        it.
        """
        if self.expected and self._rules.expects:
            expecting.refused(refusal.where.table if refusal.where.table in self.expected else "")
            self._rules = replace(self._rules, expects=False)
            return True
        rules = self._rules.after_refusal(refusal)
        if self.expected and self._rules.inserts:
            self._rules = replace(rules or self._rules, inserts=False)
            return True
        self._refusals += 1
        if rules is None or self._refusals > _TRIES_AFTER_REFUSAL:
            return False
        self._rules = rules
        return True

    def __call__(self, session: TargetSession) -> Iterator[NetChange]:
        self._sum, self._by_table, self.expected, self._ends = Counts(), Counter(), set(), []
        made = 0
        if self._rules.looks_for_locks:
            # The copy has made the rows of these tables equal to the source's rows, so their locks end.
            for table in filter(None, map(self._rules.filters.target_name, self._copied)):
                session.meta.row_locks.forget(self._rules.task, self._rules.source, table)
        is_large = False
        for part in parts(self.newer(), self._part_bytes):
            is_large = is_large or part.size > _LARGE_BYTES
            for change in self._reduced(session, part):
                made += 1
                yield change
            self._ends.append(made)
            del part  # otherwise it would stay in memory until the next part is complete
            if is_large:
                # Arrow keeps freed memory for arrays of the same size, but arrays of the next part have other sizes.
                pa.default_memory_pool().release_unused()

    def _reduced(self, session: TargetSession, part: LogPart) -> Iterator[NetChange]:
        lagging = self._cut if part.after_cut else self._lagging
        if lagging is not None and part.inside is not None:
            lagging = replace(lagging, since=part.inside)
        for change in prepared(session, part.changes, self._rules, self._copying, lagging, self._copied, self._origin):
            self._sum += change.counts
            self._by_table[str(change.table.name)] += change.counts.total
            if change.expected is not None or change.is_new is not None:
                self.expected.add(str(change.table.name))
            yield change


def _after_floor(floor: Floor, batch: ChangeBatch) -> ChangeBatch:
    rows = batch.rows
    if len(batch) <= _FEW and min(rows["lsn"].to_pylist(), default=b"") > floor(batch.origin).to_bytes():
        return batch
    newer = pc.or_(
        pc.is_in(rows["op"], value_set=_READ),
        pc.greater(rows["lsn"].cast(pa.binary()), pa.scalar(floor(batch.origin).to_bytes(), pa.binary())),
    )
    return batch if pc.all(newer).as_py() else replace(batch, rows=rows.filter(newer))
