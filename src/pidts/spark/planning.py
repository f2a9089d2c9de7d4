"""Plans the next batch from the current contents of the relay and the staging folder."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pidts.batch.copy.staging import staged_chunk
from pidts.batch.transaction_classifier import TransactionClassifier
from pidts.ddl.planner_signals import Signals, kept_of, stamp_of
from pidts.model import LogEntry, Lsn, TableName
from pidts.plan import Limits, PlanState, RelevanceKind, next_state
from pidts.plan.continuity import UpToBreak
from pidts.relay import RelayReader
from pidts.relay.refetch import Signature

_FEW = 1024
"""The largest number of log entries that a plan keeps in memory until its batch is done."""
_NEVER = -1
_AGAIN_SECONDS, _READING_SECONDS = 1.0, 0.005
"""The intervals at which a plan is made although nothing new has arrived: usually, and while the copy reads."""


@dataclass(frozen=True, slots=True)
class _Idle:
    """A part of the log, directly after a state, without changes for the task. No plan has to read it again."""

    state: PlanState
    to: Lsn
    """The end of the idle log."""
    count: int
    size: int
    """The number of transactions in the idle log, and the number of their bytes."""
    cut: Signature
    """The relay's `last_cut` when this log was read."""


class Planner:
    """Plans the batches of one run, each from the state that is committed on the target."""

    def __init__(
        self, relay: RelayReader, staging: Path, limits: Limits, classifier: TransactionClassifier, goal: Lsn | None
    ) -> None:
        self._relay, self._staging, self._signals = relay, staging, Signals(staging)
        self._limits, self._classifier, self._goal = limits, classifier, goal
        self._seen: tuple[PlanState, frozenset[Lsn], frozenset[TableName]] | None = None
        self._received: Lsn | None = None
        """The relay's end when it was last read."""
        self._whole: PlanState | None = None
        """The last planned state, if there is nothing to do after it before the relay or the staging folder changes."""
        self._stamp: tuple[tuple[int, int], int] = (_NEVER, _NEVER), _NEVER
        self._planned = 0.0
        self._read: tuple[Lsn, list[LogEntry], Signature] | None = None
        """The place after which the last plan has read, the first entries there, and the relay's `last_cut` then."""
        self._idle: _Idle | None = None
        """The log that the last plans have read, if none of them found anything to do."""

    def next(self, state: PlanState) -> PlanState | None:
        """Plans the next batch: returns the state after it; None if there is nothing to do.

        If there is nothing new since the last call, a new plan is made only at intervals.
        """
        now = time.monotonic()
        patience = _READING_SECONDS if state.open_requests else _AGAIN_SECONDS
        is_early = now < self._planned + patience
        before, stamp = self._stamp, (self._relay.stamp, stamp_of(self._staging))
        if is_early and stamp == before and (state is self._whole or (self._seen and self._seen[0] is state)):
            return None
        done = self._signals.done(state.dues)
        # The staging folder does not exist before a file is put into it. Trying to open a missing file takes longer
        # than the rest of this method.
        kept = kept_of(self._staging) if stamp[1] else frozenset()
        known = state, done, kept
        self._stamp = stamp
        is_longer = stamp[0][1] > before[0][1]
        has_news = (is_early and is_longer) or self._has_news()
        if is_early and not has_news and known == self._seen:
            return None
        self._seen, self._planned, self._whole = known, now, None
        if self._is_still_idle(state, kept):
            return None
        return self._plan(state, done, kept)

    def _has_news(self) -> bool:
        """Whether the relay has received anything since the last call.

        The call also makes the reader find a new segment of the relay, even an empty one. Before the reader has found
        it, `stamp` does not show that the segment grows.
        """
        before, self._received = self._received, self._relay.received
        return self._received != before

    def _is_still_idle(self, state: PlanState, kept: frozenset[TableName]) -> bool:
        """Whether `next_state` would find nothing to do, since the task takes nothing from any entry after this state.

        Reads only entries that no earlier plan has read. Otherwise, while the source is busy with other tables, a plan
        for each new entry would read up to `Limits.idle_entries` entries again.
        """
        idle, self._idle = self._idle, None
        if idle is None or idle.state is not state or kept or idle.cut != self._relay.last_cut:
            return False
        entries = UpToBreak(self._relay.entries(idle.to, joined=True, most=self._limits.joined))
        to, count, size = idle.to, idle.count, idle.size
        for entry in entries:
            is_full = count + entry.count > self._limits.transactions
            if is_full or entry.lacks_rows or self._classifier(entry).kind is not RelevanceKind.NOTHING:
                return False
            to, count, size = entry.transaction.lsn, count + entry.count, size + entry.read_bytes
        if entries.broken is not None or self._moves_without_work(state, to, count, size):
            return False
        self._idle = _Idle(state, to, count, size, idle.cut)
        return True

    def _moves_without_work(self, state: PlanState, to: Lsn, count: int, size: int) -> bool:
        """Whether `next_state` moves the position to this place although there is nothing to apply."""
        is_goal = self._goal is not None and state.lsn < self._goal <= to
        return is_goal or count >= self._limits.idle_entries or size >= self._limits.idle_bytes

    def _plan(self, state: PlanState, done: frozenset[Lsn], kept: frozenset[TableName]) -> PlanState | None:
        staged = {
            request.table: chunk
            for request in state.open_requests
            if (chunk := staged_chunk(self._staging, request)) is not None
        }
        read: list[UpToBreak] = []
        self._read, walked = None, _ReadEntries()

        def log(at: Lsn, to: Lsn | None) -> Iterable[LogEntry]:
            read.append(UpToBreak(self._relay.entries(at, to, joined=True, most=self._limits.joined)))
            if self._read is not None or at != state.lsn or to is not None:
                return read[-1]
            walked.cut = self._relay.last_cut
            self._read = at, walked.first, walked.cut
            return walked.over(read[-1])

        halted = self._signals.halted(state.dues)
        after = next_state(state, log, staged, self._limits, self._classifier, self._goal, done, halted, kept)
        broken = next((entries.broken for entries in read if entries.broken is not None), None)
        if after is None:
            self._read = None
            if broken is not None:
                raise broken
            if not (state.copy or state.held or state.due or kept):
                self._idle = _Idle(state, walked.to or state.lsn, walked.count, walked.size, walked.cut)
        elif broken is None and not kept and self._has_all(after):
            self._whole = after
        return after

    def _has_all(self, after: PlanState) -> bool:
        """Whether the state's plan has read the whole relay, and the state has no copy, held table or due change."""
        found = self._read[1] if self._read is not None else []
        is_whole = 0 < len(found) < _FEW and found[-1].transaction.lsn == after.lsn
        return is_whole and not (after.copy or after.held or after.due)

    def entries(self, at: Lsn, to: Lsn | None) -> Iterable[LogEntry]:
        """Returns the relay's entries between two places. Entries that the last plan has read are not read again.

        Entries in the relay do not change, unless the relay is cut back.
        """
        known = self._read
        if known is not None and known[0] == at and known[2] == self._relay.last_cut:
            for place, entry in enumerate(known[1], 1):
                if entry.transaction.lsn == to:
                    return known[1][:place]
        return self._relay.entries(at, to, joined=True)


class _ReadEntries:
    """The entries that one plan has read from the relay."""

    def __init__(self) -> None:
        self.first: list[LogEntry] = []
        """The first `_FEW` of these entries."""
        self.to: Lsn | None = None
        """The end of the last entry that was read."""
        self.count = self.size = 0
        """The number of transactions in the entries that were read, and the number of their bytes."""
        self.cut: Signature = None
        """The relay's `last_cut` before this reading."""

    def over(self, entries: Iterable[LogEntry]) -> Iterator[LogEntry]:
        """Yields the entries, and notes each entry before it is used."""
        for entry in entries:
            if len(self.first) < _FEW:
                self.first.append(entry)
            self.to = entry.transaction.lsn
            self.count += entry.count
            self.size += entry.read_bytes
            yield entry
