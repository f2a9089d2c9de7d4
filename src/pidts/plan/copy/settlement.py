"""Settles requests whose rows were read, once the log has passed their windows: then their rows count as copied.

A request is settled if its whole window is in the batch and its table is not held. If batches carry the changes of only
one zone, a request may be kept for a later batch (`pidts.plan.copy.state`). All other requests are read again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from pidts.model import Halted, Lsn, TableName, Where
from pidts.model.advice import RESYNC
from pidts.plan.copy.requests import next_limit, slower
from pidts.plan.copy.state import ChunkRequest, CopyMode, CopyState, Phase, StagedChunk
from pidts.plan.limits import Limits
from pidts.plan.state import HeldTables

_ONE_PIECE_BYTES = 8 << 20
"""A batch with more log than this may be reduced and written in several parts."""

Touched = Callable[[TableName, Lsn, Lsn], bool]
"""Whether the log has rows of a table after one place, up to another place."""


@dataclass(slots=True)
class Settlement:
    """Settles requests while a batch is planned; the batch's log has `size` bytes."""

    copy: dict[TableName, CopyState]
    begin: Lsn
    end: Lsn
    size: int
    held: Collection[TableName]
    limits: Limits
    keeps: bool
    """Whether requests may be kept, because batches carry only one zone's changes and no schema change follows."""
    settled: list[ChunkRequest] = field(default_factory=list)
    written: list[ChunkRequest] = field(default_factory=list)
    settled_early: list[HeldTables] = field(default_factory=list)
    """Tables without a key that were settled at a place before the batch's end."""
    _names: set[TableName] = field(default_factory=set)

    def settle(self, staged: Mapping[TableName, StagedChunk], touched: Touched) -> None:
        """Settles all chunks that can be settled."""
        for name, chunk in staged.items():
            before = self.copy.get(name)
            if before is None or name in self.held or chunk.request.phase is not before.phase:
                continue
            if chunk.request.phase is Phase.FINISH:
                # If a past part of the log is sent again, all of its keys were read before this batch.
                again = replace(before, phase=Phase.REREAD, sends_again=False)
                after = replace(before, done=True) if chunk.is_last else again
                self._done(name, after, chunk)
            elif chunk.high > self.end and self.keeps and not chunk.altered:
                self._keep(name, before, chunk, touched)
            elif chunk.waiting and not chunk.altered and self.size > self.limits.copy_bytes:
                # A request of the same size would take the same time, and the source would write as much log again in
                # this time. So the next request is smaller, even if the batch ends before the window does.
                self.copy[name] = slower(before, chunk.request, self.limits)
            elif chunk.high <= self.end:
                self._settle(name, before, chunk, touched)
        for name, state in self.copy.items():
            if state.ahead != (ahead := self._is_ahead(name, state)):
                self.copy[name] = replace(state, ahead=ahead)

    def _keep(self, name: TableName, before: CopyState, chunk: StagedChunk, touched: Touched) -> None:
        """Keeps a request whose window ends after this batch, or drops it if it could not be settled later."""
        request, low = chunk.request, chunk.low
        if not request.may_be_kept:
            self.copy[name] = replace(before, waits=True)
        elif low is not None and (self.end <= low or not touched(name, max(low, self.begin), self.end)):
            upto = chunk.upto if request.phase is Phase.ROWS else before.upto
            self.copy[name] = replace(before, kept=request, upto=upto)
        else:
            self.copy[name] = slower(replace(before, waits=True), request, self.limits)

    def _was_changed(self, name: TableName, chunk: StagedChunk, touched: Touched) -> bool:
        """Whether the part of the window in this batch may change rows after they were read.

        False if this batch has the whole window: the batch then reduces the rows together with all their changes.
        """
        is_whole = chunk.low is None or self.begin <= chunk.low
        return not is_whole and touched(name, self.begin, chunk.high)

    def _settle(self, name: TableName, before: CopyState, chunk: StagedChunk, touched: Touched) -> None:
        request = chunk.request
        if chunk.altered:
            # The batch has the log up to the reading of the chunk. After its first row, the batch has no schema change.
            # So no statement in the log has changed the table's structure.
            raise Halted(
                "changed-outside-log",
                "the table's structure was changed without a statement in the log",
                where=Where(table=str(name), position=str(chunk.high)),
                todo=f"Make the same change on the target, then copy the table again: {RESYNC}",
            )
        if request.whole:
            low = chunk.low if chunk.low is not None else chunk.high
            if not touched(name, max(low, self.begin), chunk.high):
                after = replace(before, rows=chunk.rows, since=chunk.high, phase=Phase.FINISH)
                self._done(name, after, chunk)
                if chunk.high < self.end:
                    self.settled_early.append(HeldTables(frozenset({name}), chunk.high))
        elif self._was_changed(name, chunk, touched):
            self.copy[name] = slower(before, request, self.limits)
        else:
            if chunk.waiting:
                self.written.append(request)
            self._done(name, self._further(before, chunk), chunk)

    def _further(self, before: CopyState, chunk: StagedChunk) -> CopyState:
        after = replace(
            before,
            after=chunk.last_key if chunk.last_key is not None else before.after,
            upto=chunk.upto,
            limit=next_limit(chunk, self.limits),
            # All waiting rows are in memory, so the number of chunks grows only step by step.
            parts=min(self.limits.threads, 2 * chunk.request.parts) if chunk.waiting else 0,
        )
        if chunk.request.phase is Phase.ROWS:
            after = replace(after, rows=before.rows + chunk.rows)
        if chunk.is_last:
            extras = before.mode in (CopyMode.REPAIR, CopyMode.OWN) and before.phase is Phase.ROWS
            # The place up to which recorded keys were read.
            reread = {Phase.REREAD: chunk.request.upto, Phase.EXTRAS: (str(Lsn(0, 0, 0)),)}.get(before.phase)
            after = replace(after, after=reread, upto=None, phase=Phase.EXTRAS if extras else Phase.FINISH)
        return replace(after, sends_again=False) if _has_read_the_range(before) else after

    def _done(self, name: TableName, after: CopyState, chunk: StagedChunk) -> None:
        # Requests before the first waiting request were dropped. Rows that these requests have loaded are ahead until
        # all rows are read.
        is_mixed = after.waits and after.phase is Phase.ROWS
        self.copy[name] = after if is_mixed else replace(after, settled=after.reads)
        self.settled.append(chunk.request)
        if chunk.request.phase is Phase.ROWS:
            self._names.add(name)

    def _is_ahead(self, name: TableName, state: CopyState) -> bool:
        if state.done or state.keyless or state.mode is not CopyMode.NEW:
            return False
        if state.reads > state.settled:
            return state.phase is Phase.ROWS
        return name in self._names and self.size > _ONE_PIECE_BYTES


def _has_read_the_range(state: CopyState) -> bool:
    """Whether all keys of a past part of the log that is sent again were read before the request that is settled now.

    These keys are recorded at places before all places of the log, so they are read before keys that a batch records.
    The rows of these keys must not count as wrong (`CopyState.is_read`) until the end of the copy. Otherwise batches
    would go on removing other rows and recording their keys, as long as the source changes these rows.
    """
    place = state.after[0] if state.after else None
    return state.sends_again and state.phase is not Phase.ROWS and place is not None and Lsn.parse(place).log_index > 0
