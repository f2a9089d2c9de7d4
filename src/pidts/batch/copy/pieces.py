"""Cuts the planner's copy requests into pieces, and stores the combined result of each request for the planner."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TypeAlias

from pidts.batch.context import JobContext
from pidts.batch.copy.load_task import FetchedPiece, RequestedChunk, at
from pidts.batch.copy.staging import stage
from pidts.copy import Range, highest, ranges
from pidts.model import Halted, Table, Where
from pidts.model.advice import RESYNC
from pidts.plan import ChunkRequest, Phase, StagedChunk
from pidts.plan.copy.state import KeyValues
from pidts.source import Session, StructureChanged, connect, log_end, query, server_info

_BURST_SECONDS = 2.0
"""A piece may have at most the rows that the rate allows in this number of seconds."""
_LEAST_ROWS = 100
_ALIKE = 1.5
_AT_A_TIME = 4
_LOCK_SECONDS = 5
_MOST_PER_THREAD = 4

Ahead: TypeAlias = dict[tuple[Table, KeyValues | None, KeyValues | None], "Future[tuple[int, list[Range]]]"]
"""The boundaries of ranges of about the same size, found in advance."""


@dataclass(frozen=True, slots=True)
class CutRequest:
    """A request and its pieces."""

    request: ChunkRequest
    pieces: tuple[RequestedChunk, ...]
    upto: KeyValues | None
    result: StagedChunk | None = None
    """The result of the request if there is nothing to read, otherwise None."""

    def store_result(self, context: JobContext, fetched: Sequence[FetchedPiece]) -> None:
        """Sums up the results of the pieces to the result of the request, and stores it for the planner."""
        if self.result is not None:
            stage(context.staging, self.result)
            return
        last, largest = self.pieces[-1], max(fetched, key=lambda one: one.rows)
        chunk = StagedChunk(
            request=self.request,
            high=max(one.high for one in fetched),
            low=min(one.low for one in fetched),
            rows=sum(one.rows for one in fetched),
            last_key=None,
            upto=self.upto,
            is_last=True,
            altered=any(one.altered for one in fetched),
            waiting=sum(one.waiting for one in fetched),
            bytes=largest.bytes,
            largest=largest.rows,
            seconds=largest.seconds,
        )
        if last.range is not None:
            chunk = replace(chunk, last_key=_plain(last.range.upto), is_last=last.range.is_last)
        elif fetched[-1].last_key:
            chunk = replace(chunk, last_key=(fetched[-1].last_key,), is_last=False)
        stage(context.staging, chunk, [name for one in fetched for name in (one.file, one.absent) if name])


class RequestCutter:
    """Cuts requests, and finds the boundaries for the next request of the same table in advance."""

    def __init__(self) -> None:
        self._ahead: Ahead = {}
        self._pool = ThreadPoolExecutor(_AT_A_TIME, thread_name_prefix="boundaries")

    def close(self) -> None:
        """Stops all searches: their results are no longer needed."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def cut(
        self,
        context: JobContext,
        requests: Sequence[ChunkRequest],
        batch: int,
        most: int | None,
    ) -> list[CutRequest]:
        """Cuts all requests into pieces with at most about `most` rows in all. `batch`: see `RequestedChunk`."""
        ahead, self._ahead = self._ahead, {}
        each = None if most is None else max(_LEAST_ROWS, most // len(requests))

        with closing(_SourceConnections(context)) as connections:

            def cut(request: ChunkRequest) -> CutRequest:
                with connections.one() as source:
                    return _cut(context, source, request, batch, each, ahead)

            return [cut(requests[0])] if len(requests) == 1 else list(self._pool.map(cut, requests))

    def look_ahead(self, context: JobContext, cuts: Sequence[CutRequest]) -> None:
        """Begins to search for the boundaries of later pieces while the pieces of `cuts` are read."""
        for cut in cuts:
            part = cut.pieces[-1].range if cut.pieces else None
            if part is None or part.is_last:
                continue
            table, after, upto = context.structures[cut.request.table], _plain(part.upto), cut.upto
            # The next request may be larger than this one. So boundaries are found for as many pieces as a request can
            # have.
            most = max(len(cut.pieces), _MOST_PER_THREAD * context.copy_threads)
            task = self._pool.submit(_boundaries, context, table, after, upto, cut.pieces[0].limit, most)
            self._ahead[table, after, upto] = task


def _cut(
    context: JobContext,
    source: _SourceConnection,
    request: ChunkRequest,
    batch: int,
    most: int | None,
    ahead: Ahead,
) -> CutRequest:
    table = context.structures[request.table]
    if not request.whole and not table.identity:
        raise Halted(
            "no-key",
            "the table has lost the key by which its rows were being copied",
            where=Where(source=context.source.source_id, table=str(table.name)),
            todo=f"Copy the table again: {RESYNC}",
        )
    if request.whole or request.phase is not Phase.ROWS:
        limit = request.limit * request.parts
        return CutRequest(
            request, (RequestedChunk(request, batch, limit if most is None else min(limit, most)),), request.upto
        )
    least = context.target.piece_rows  # the fewest rows of a piece
    limit = request.limit if most is None else min(request.limit, most, max(least, most // request.parts))
    parts = request.parts if most is None else max(1, min(request.parts, most // limit))
    known = ahead.get((table, request.after, request.upto))
    try:
        return _by_keys(source, table, request, batch, limit, parts, known)
    except StructureChanged:
        return CutRequest(request, (), request.upto, source.nothing(request, altered=True))


def _boundaries(
    context: JobContext, table: Table, after: KeyValues | None, upto: KeyValues | None, limit: int, parts: int
) -> tuple[int, list[Range]]:
    with closing(_SourceConnection(context)) as source:
        return limit, ranges(source.session, table, after, upto, limit, parts)


class _SourceConnection:
    """A connection to the source, opened when it is first needed."""

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._session: Session | None = None

    @property
    def session(self) -> Session:
        if self._session is None:
            self._session = connect(self._context.source)
            # A schema change on the source may wait for other sessions, and readings wait for the schema change.
            # Batches and the end of the run wait for readings, so a reading must not wait for long.
            query(self._session, f"SET SESSION lock_wait_timeout = {_LOCK_SECONDS}")
        return self._session

    def close(self) -> None:
        if self._session is not None:
            self._session.close()

    def nothing(self, request: ChunkRequest, *, altered: bool = False) -> StagedChunk:
        """Returns the result if nothing is read: the table is empty or, with `altered`, its structure has changed."""
        here = log_end(self.session)
        (high,) = at(self._context, server_info(self.session).identity, here)
        return StagedChunk(request, high, 0, None, request.upto, is_last=not altered, altered=altered, low=high)


class _SourceConnections:
    """Connections to the source for several threads: a thread takes a free connection, or opens another."""

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._free: list[_SourceConnection] = []
        self._is_closed = False

    @contextmanager
    def one(self) -> Iterator[_SourceConnection]:
        """Lends a connection to one thread until the block ends. An error in the block closes the connection."""
        try:
            source = self._free.pop()
        except IndexError:
            source = _SourceConnection(self._context)
        try:
            yield source
        except BaseException:
            source.close()
            raise
        self._free.append(source)
        if self._is_closed:
            self.close()

    def close(self) -> None:
        """Closes all free connections; a connection that is still in use is closed after its use."""
        self._is_closed = True
        while self._free:
            with suppress(IndexError):  # another thread has taken the last one
                self._free.pop().close()


def _by_keys(
    source: _SourceConnection,
    table: Table,
    request: ChunkRequest,
    batch: int,
    limit: int,
    parts: int,
    known: Future[tuple[int, list[Range]]] | None,
) -> CutRequest:
    upto = request.upto
    if upto is None:
        upto = _plain(highest(source.session, table))
        if upto is None:
            return CutRequest(request, (), None, source.nothing(request))
    found = _looked_up(known, limit, parts) or ranges(source.session, table, request.after, upto, limit, parts)
    return CutRequest(request, tuple(RequestedChunk(request, batch, limit, one) for one in found), upto)


def _looked_up(known: Future[tuple[int, list[Range]]] | None, limit: int, parts: int) -> list[Range]:
    """Returns ranges of about `limit` rows that were found in advance, if there are enough of them."""
    if known is None:
        return []
    try:
        size, found = known.result()
    except Exception:  # noqa: BLE001 - the next search meets the error again, and reports it
        return []
    fits = limit / _ALIKE <= size <= limit * _ALIKE and (len(found) >= parts or found[-1].is_last)
    return found[:parts] if fits else []


def _plain(key: Sequence[object] | None) -> KeyValues | None:
    return None if key is None else tuple(key)


class RowRateLimit:
    """Limits the number of rows that are read in a second."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._free_at = clock, 0.0

    def most(self, rate: int) -> int | None:
        """Returns how many rows one piece may have if `rate` rows per second may be read; 0 and None: no limit."""
        return max(_LEAST_ROWS, int(rate * _BURST_SECONDS)) if rate else None

    def wait(self) -> float:
        """Returns the seconds until the rate allows more rows to be read."""
        return max(0.0, self._free_at - self._clock())

    def now(self) -> float:
        """Returns the current time, for `took`."""
        return self._clock()

    def took(self, rows: int, rate: int, began: float) -> None:
        """Notes that this many rows were read since `began`, while `rate` rows per second were allowed."""
        if rate:
            self._free_at = max(self._free_at, began) + rows / rate
