"""Decides which tables are read next, and how many rows of each.

A chunk should take half a second and little memory, however large its rows are. So each chunk determines the size of
the next one. A Spark job reads for a few seconds. Changes in the log wait for the job, but a shorter job would spend
more time on its start than on its rows. If nobody waits for changes in the log, the job is longer. Many small tables
share one job. Only a few large tables are read at a time, so that tables are finished one after the other.

Large tables without a key come last, because a single task reads such a table, and all others would wait for it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from pidts.model import Lsn, TableName
from pidts.plan.copy.state import MOST_REREADS, ChunkRequest, CopyState, Phase, StagedChunk
from pidts.plan.limits import Limits

_CHUNK_SECONDS = 0.5
_CHUNK_BYTES = 16 << 20
_GROWTH = 8
_WAITING_GROWTH = 2
"""A waiting request has at most this many times the rows of the table's last request.

If the window of a request is too long, its rows are read again by requests of half its size.
"""
_ENOUGH_ROWS = 10_000
"""A chunk of fewer rows than this is not faster: most of its time is the round trip."""
_UNKNOWN_ROWS = 2_000
"""The number of rows of a first chunk if the length of rows is not known."""
_CHUNKS_PER_SLOT = 8
_CHUNKS_ALONE = 24
_LEAST_WEIGHT = 1 / 16
"""The cost of a table with almost no rows, counted in chunks."""
_UNKNOWN_WEIGHT = 1 / 4
_MOST_REQUESTS = 256
"""The largest number of tables that are read in one batch. Any number of tables may be finished besides. Each batch
takes time for every table that is not copied yet, so few batches are best.
"""
_JOB_SECONDS = 3.0
_SLOW_ROWS = 500
"""The least number of rows of a request if the rate is limited. Fewer rows would not be worth the request's cost."""


def next_limit(chunk: StagedChunk, limits: Limits) -> int:
    """Returns how many rows the table's next chunks have."""
    asked = chunk.request.limit
    if chunk.largest * 2 < asked:  # a short last chunk does not show how fast rows are read
        return asked
    by_time = chunk.largest * _CHUNK_SECONDS / max(chunk.seconds, 1e-3)
    by_bytes = chunk.largest * _CHUNK_BYTES / max(chunk.bytes, 1)
    growth = _WAITING_GROWTH if chunk.request.waits else _GROWTH
    wanted = min(max(by_time, asked / 2, _ENOUGH_ROWS), asked * growth, limits.most_rows)
    return max(1, int(min(max(wanted, limits.least_rows), by_bytes)))


def slower(state: CopyState, request: ChunkRequest, limits: Limits) -> CopyState:
    """Returns the table's state with smaller requests: these have fewer rows and shorter windows."""
    return replace(state, limit=max(min(limits.least_rows, request.limit), request.limit // 2))


def _rows(state: CopyState, limits: Limits) -> int:
    if state.limit:
        return state.limit
    known = _CHUNK_BYTES // state.row_bytes if state.row_bytes else _UNKNOWN_ROWS
    return max(1, min(limits.chunk_rows, known))


@dataclass(frozen=True, slots=True)
class _Share:
    name: TableName
    weight: float
    """The cost of the table's first chunk, counted in chunks of usual size."""
    wanted: int
    """How many chunks are left to read, as far as it is known."""


def ask(
    copy: Mapping[TableName, CopyState], limits: Limits, held: Collection[TableName], lsn: Lsn
) -> dict[TableName, CopyState]:
    """Returns the tables that are read next, each with its request."""
    copy = dict(copy)
    slots = (_CHUNKS_PER_SLOT if limits.follows else _CHUNKS_ALONE) * limits.threads
    for share, parts in _parts(_chosen(copy, limits, held, lsn, slots), slots, limits):
        state = copy[share.name]
        request = _request(share.name, state, parts, limits, lsn)
        copy[share.name] = replace(state, reads=state.reads + 1, reading=request)
    return copy


def _request(name: TableName, state: CopyState, parts: int, limits: Limits, lsn: Lsn) -> ChunkRequest:
    if state.phase is Phase.FINISH:
        return ChunkRequest(name, state.reads, state.after, None, 0, phase=state.phase, mode=state.mode)
    if state.phase is Phase.REREAD:
        limit = min(MOST_REREADS, _rows(state, limits))
        return ChunkRequest(name, state.reads, state.after, (str(lsn),), limit, phase=state.phase, mode=state.mode)
    whole = state.keyless
    # A request that repeats an earlier one has a single chunk: all rows that the earlier request may have loaded have
    # to be in memory.
    again = state.reads > state.settled
    alone = whole or again or state.waits or state.phase is not Phase.ROWS or not state.limit
    count = 1 if alone else min(parts, state.parts or parts)
    limit = _rows(state, limits)
    return ChunkRequest(
        name, state.reads, state.after, state.upto, limit, count, state.phase, state.mode, whole, state.waits
    )


def _chosen(
    copy: Mapping[TableName, CopyState], limits: Limits, held: Collection[TableName], lsn: Lsn, slots: int
) -> list[_Share]:
    opened = [
        (_rank(state, limits), _share(name, state, limits, slots))
        for name, state in copy.items()
        if not state.done and name not in held and (state.since is None or state.since <= lsn)
    ]
    opened.sort(key=lambda one: one[0])
    most = _MOST_REQUESTS
    if limits.rate is not None:
        most = max(1, min(most, int(limits.rate * _JOB_SECONDS) // _SLOW_ROWS))
    first = opened[0][0] if opened else 0
    chosen: list[_Share] = []
    spent, large, read = 0.0, 0, 0
    for rank, share in opened:
        if read >= most or (chosen and spent + share.weight > slots) or (rank == _LAST and first != _LAST):
            break
        if share.wanted > 1:
            large += 1
            if large > limits.chunks:
                continue
        spent += share.weight
        read += copy[share.name].phase is not Phase.FINISH
        chosen.append(share)
    return chosen


_LAST = 2
_LAST_PHASES = (Phase.REREAD, Phase.FINISH)


def _rank(state: CopyState, limits: Limits) -> int:
    if state.phase in _LAST_PHASES:
        return 0
    small = 0 < state.estimate <= 2 * limits.chunk_rows
    return _LAST if state.keyless and not small else 1


def _share(name: TableName, state: CopyState, limits: Limits, slots: int) -> _Share:
    if state.phase in _LAST_PHASES:
        return _Share(name, _LEAST_WEIGHT, 1)
    limit = _rows(state, limits)
    if not state.limit or state.keyless:
        left = state.estimate or int(limit * _UNKNOWN_WEIGHT)
        return _Share(name, max(_LEAST_WEIGHT, min(1.0, left / limit)), 1)
    # An estimate may be wrong by half, so some rows are always assumed to be left.
    left = max(state.estimate - state.rows, state.estimate // 10) if state.estimate else slots * limit
    return _Share(name, max(_LEAST_WEIGHT, min(1.0, left / limit)), max(1, -(-left // limit)))


def _parts(shares: list[_Share], slots: int, limits: Limits) -> list[tuple[_Share, int]]:
    """Divides the job's remaining slots among the tables with many rows left."""
    spare = slots - sum(share.weight for share in shares)
    wanted = sum(share.wanted for share in shares if share.wanted > 1)
    if limits.rate is not None:
        spare = min(spare, _CHUNKS_PER_SLOT)
    return [
        (share, 1 + (min(share.wanted * 2, int(max(0.0, spare) * share.wanted / wanted)) if share.wanted > 1 else 0))
        for share in shares
    ]
