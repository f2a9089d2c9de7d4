"""Loads chunks of a full copy from the source to the target: the work of a thread of the driver, or of a Spark task.

The process that has read a chunk also loads it, in a separate transaction (`pidts.apply.load`). While one chunk is
loaded, the next chunk is read. If the work is interrupted, there are these cases:

1. While the chunk is read, or before the load's COMMIT: nothing happened. Spark runs the Spark task again, or the
   request ends with the run. In both cases the rows of the request are read again.
2. After the COMMIT, before the request is settled: the chunk's rows are on the target, but no record says so. The next
   reader of the chunk (another attempt of this Spark task, or the next run) finds the rows there. Then the rows that it
   has read wait for the batch that settles the request. That batch has the log of everything that has happened since:
   it removes a row that was deleted in between, and changes a row that was changed.
3. Spark has started the Spark task a second time, and the first attempt continues although it was assumed dead. As long
   as the request is not settled, case 2 applies to the rows that the first attempt loads. Once the request is settled,
   the checkpoints on the target are of a later batch, and the load is refused.
4. While COMMIT is under way and the answer is lost: the next attempt sees whether the rows are there.

A table without a key is loaded as a whole, by the first attempt that reaches it. All later attempts find the result of
that attempt, and return it.

In four cases, rows must not be loaded ahead of the log, and wait for the batch that settles their request:

1. The table is under repair, so it already has rows.
2. Other batches are applied before the batch that settles the request (`ChunkRequest.waits`).
3. The table has a version column, so the target has to be asked for each row which version is newer.
4. The target refuses rows for another reason.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from itertools import count
from typing import TypeVar

import pyarrow as pa
import structlog

from pidts.apply import Retry, Target, TargetSession
from pidts.apply.load import LoadRequest, load_chunk, load_whole
from pidts.apply.merge.recorded_tables import identifies_own_rows, removes_extra_rows
from pidts.batch.context import JobContext
from pidts.batch.copy.extra_rows import absent_keys, read_extra_rows
from pidts.batch.copy.rereads import forget_settled, recorded_keys
from pidts.batch.copy.staging import keep, marked_absent
from pidts.binlog.machine_code import compiled
from pidts.copy import Chunk, Range, read_keys, read_range, read_snapshot
from pidts.model import Column, ColumnType, Halted, Kind, Lsn, Position, Table, TableName, Transient, Where
from pidts.plan import ChunkRequest, CopyMode, Phase
from pidts.prefetch import ahead
from pidts.relay import RelayReader
from pidts.rules import merged
from pidts.text_rows.cells import Cells

_log = structlog.get_logger(__name__)

_INCURABLE = frozenset({"chunk-too-late", "source-moved"})
"""Errors that would happen again in a second attempt within the same batch."""

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class RequestedChunk:
    """One chunk of a request, called a *piece*."""

    request: ChunkRequest
    batch: int
    """The number of the batch that asks for the chunk: the last batch that was committed on the target."""
    limit: int
    """How many rows the chunk is expected to have. At most this many of the target's keys are checked."""
    range: Range | None = None
    """The range of the chunk's rows; None if the chunk is not defined by keys of the source."""


@dataclass(frozen=True, slots=True)
class FetchedPiece:
    """The result of reading and loading a piece."""

    low: Lsn
    high: Lsn
    rows: int = 0
    file: str = ""
    """The file with the piece's staged rows; empty if the rows are on the target, or there are none."""
    waiting: int = 0
    bytes: int = 0
    reading: float = 0.0
    """The seconds that reading the piece took."""
    seconds: float = 0.0
    """The seconds that the whole piece took, without the time that does not depend on the piece's size."""
    altered: bool = False
    last_key: str = ""
    """The last key that was read on the target, or the place of the last recorded key; empty if there are no more."""
    absent: str = ""
    """The file with the keys whose rows have to be removed, since the source lacks them; empty if there are none."""

    def to_json(self) -> str:
        """Returns the result as one text, which the Spark task sends to the driver."""
        seconds = {"reading": round(self.reading, 4), "seconds": round(self.seconds, 4)}
        return json.dumps(asdict(self) | {"low": str(self.low), "high": str(self.high), **seconds})

    @classmethod
    def from_json(cls, text: str) -> FetchedPiece:
        """The inverse of `to_json`."""
        data = json.loads(text)
        return cls(**data | {"low": Lsn.parse(data["low"]), "high": Lsn.parse(data["high"])})


def carry_out(
    context: JobContext,
    pieces: Iterable[RequestedChunk],
    streamed: Callable[[ChunkRequest, int], object] = lambda _, __: None,
) -> Iterator[FetchedPiece]:
    """Reads and loads each piece; rows that must not be loaded are stored for the batch that settles the request.

    A table without a key is one piece, however large it is: `streamed` gets the number of its rows so far.
    """
    warm()
    for piece, chunk in ahead((piece, _read(context, piece)) for piece in pieces):
        table = context.structures[piece.request.table]
        if chunk is not None:
            yield _chunk(context, piece, table, chunk)
            continue
        began = time.monotonic()
        phased = _reread if piece.request.phase is Phase.REREAD else _extras
        work = partial(_whole, streamed=partial(streamed, piece.request)) if piece.request.whole else phased
        fetched = _again(partial(work, context, piece, table))
        yield replace(fetched, seconds=time.monotonic() - began)


@dataclass(frozen=True, slots=True)
class _Read:
    chunk: Chunk
    seconds: float


def _read(context: JobContext, piece: RequestedChunk) -> _Read | None:
    """Reads the rows of a range in advance. Returns None for any other piece: it is read only when it is loaded."""
    part = piece.range
    if part is None:
        return None
    began = time.monotonic()
    chunk = _again(lambda: read_range(context.source, context.structures[piece.request.table], part))
    return _Read(chunk, time.monotonic() - began)


@cache
def warm() -> None:
    """Loads the compiled code once in each process, before the time of the process's first chunk is measured."""
    if compiled():
        table = Table(TableName("s", "t"), (Column("v", ColumnType(Kind.VARCHAR, length=9, charset="latin1")),))
        cells = Cells(table, Where())
        cells.take_row(b"\1a")
        cells.table()


def at(context: JobContext, server: str, *places: Position) -> list[Lsn]:
    """Returns the Lsns of places in the source's log; raises unless the relay has the log of this server."""
    with closing(RelayReader(context.relay, context.source.source_id)) as relay:
        origin = relay.origin
    if origin is None or (server, context.change_no) != (origin.server, origin.change_no):
        what = f"rows were read from {server}, but the log comes from {origin.server if origin else 'no server yet'}"
        raise Transient("source-moved", what, where=context.source.where)
    return [Lsn.at(place, context.change_no) for place in places]


def _chunk(context: JobContext, piece: RequestedChunk, table: Table, read: _Read) -> FetchedPiece:
    request, chunk, reading = piece.request, read.chunk, read.seconds
    low, high = at(context, chunk.server, chunk.low, chunk.high)
    rows = chunk.rows
    fetched = FetchedPiece(
        low, high, rows.num_rows, bytes=rows.nbytes, reading=reading, seconds=reading, altered=chunk.altered
    )
    if chunk.altered or not rows.num_rows:
        return fetched
    if not waits_for_batch(context, request):
        try:
            is_loaded, loading = _again(lambda: _load(context, piece, table, low, rows))
            fetched = replace(fetched, seconds=reading + loading)
            if is_loaded:
                return fetched
        except Halted as error:
            # The rows may already have the columns of a later schema change. If there is no such change, the batch that
            # settles the request gets the same error, and stops the task.
            _log.info("a chunk waits for the batch that settles it", table=str(table.name), cause=str(error))
    return replace(fetched, file=keep(context.staging, request, rows), waiting=rows.num_rows)


def waits_for_batch(context: JobContext, request: ChunkRequest) -> bool:
    """Whether rows that are read for a request are not loaded at once: the batch that settles it writes them."""
    if request.mode is not CopyMode.NEW or request.waits:
        return True
    return context.writing.guards(context.structures[request.table])


def _load(context: JobContext, piece: RequestedChunk, table: Table, low: Lsn, rows: pa.Table) -> tuple[bool, float]:
    """Returns whether the rows are on the target now, and the seconds that loading took after connecting."""
    rules = context.rules
    with _session(context, rules.target_table(table)) as session:
        began = time.monotonic()
        is_loaded = load_chunk(
            session, _asked(context, piece, low), rules.target_table(table), [rules.rows(table, rows)]
        )
        return is_loaded, time.monotonic() - began


def _asked(context: JobContext, piece: RequestedChunk, low: Lsn) -> LoadRequest:
    return LoadRequest(context.task, context.source.source_id, context.epoch, piece.batch, low)


@dataclass(frozen=True, slots=True)
class _OpenSession:
    """A session that stays open, with the tables whose structures it has read."""

    target: Target
    epoch: int
    tables: Mapping[TableName, Table]
    session: TargetSession

    def serves(self, context: JobContext, table: Table) -> bool:
        known = self.tables.get(table.name, table)
        return (self.target, self.epoch, known) == (context.target, context.epoch, table)


class _ThreadSession(threading.local):
    session: _OpenSession | None = None


_kept = _ThreadSession()
"""Each thread has its own session, since several sources of a task may copy in one process at the same time."""


@contextmanager
def _session(context: JobContext, table: Table) -> Iterator[TargetSession]:
    """Yields a session that stays open for the thread's next chunk, since opening takes as long as loading a chunk."""
    kept, _kept.session = _kept.session, None
    if kept is not None and not kept.serves(context, table):
        kept.session.close()
        kept = None
    if kept is None:
        kept = _OpenSession(context.target, context.epoch, {}, context.target.connect())
    try:
        yield kept.session
    except BaseException:
        kept.session.close()
        raise
    _kept.session = replace(kept, tables={**kept.tables, table.name: table})


def close_kept() -> None:
    """Closes the session that this thread has kept open for its next chunk."""
    kept, _kept.session = _kept.session, None
    if kept is not None:
        kept.session.close()


def _whole(context: JobContext, piece: RequestedChunk, table: Table, streamed: Callable[[int], object]) -> FetchedPiece:
    """Loads a table without a key, in one transaction that first removes the rows of an earlier request."""
    rules, target_table = context.rules, context.rules.target_table(table)
    with read_snapshot(context.source, table) as snapshot, _session(context, target_table) as session:
        low, high = at(context, snapshot.server, snapshot.low, snapshot.high)
        if snapshot.altered:
            return FetchedPiece(low, high, altered=True)
        counted = _CountedRows(snapshot.batches, streamed)

        def result() -> str:
            return FetchedPiece(low, high, counted.rows, bytes=counted.most_bytes).to_json()

        rows = (rules.rows(table, batch) for batch in counted)
        answer = load_whole(session, _asked(context, piece, low), target_table, rows, result)
    if answer is None:
        raise Halted(
            "copied-rows-collide",
            "two rows of the source have the same unique value on the target, or another program writes to the table "
            "there",
            where=Where(source=context.source.source_id, table=str(table.name)),
            todo="Compare the unique keys and collations of both tables, and correct what differs",
        )
    return FetchedPiece.from_json(answer)


class _CountedRows:
    """Yields rows and counts them, without a rate limit: other tables and both servers wait for these rows."""

    def __init__(self, batches: Iterable[pa.Table], streamed: Callable[[int], object]) -> None:
        self._batches, self._streamed = batches, streamed
        self.rows = self.most_bytes = 0

    def __iter__(self) -> Iterator[pa.Table]:
        for batch in self._batches:
            self.rows += batch.num_rows
            self.most_bytes = max(self.most_bytes, batch.nbytes)
            yield batch
            self._streamed(self.rows)


def _extras(context: JobContext, piece: RequestedChunk, table: Table) -> FetchedPiece:
    request = piece.request
    with closing(context.target.connect()) as session:
        rules, source, target_table = context.rules, context.source.source_id, context.rules.target_name(table.name)
        read = partial(read_extra_rows, context.source, session, table, limit=piece.limit)
        # Before rows are removed, the transaction asks once more whether other tables have rows in the target table:
        # such tables may have joined meanwhile.
        if request.mode is not CopyMode.OWN:
            found = read(request.after, target_table=table.renamed(target_table))
            is_alone = target_table not in merged(rules, context.structures) and (
                found.absent.num_rows == 0
                or removes_extra_rows(session, target_table, context.task, source, context.writing.into_zone)
            )
        elif is_alone := identifies_own_rows(session, rules, context.task, source, table.name):
            own = dict(rules.routes.destination(table.name).extracted)
            found = read(request.after, target_table=rules.target_table(table), own=own)
        else:
            found = replace(read(None, target_table=table.renamed(target_table)), last_key="")
    low, high = at(context, found.server, found.low, found.high)
    absent = found.absent if is_alone else found.absent.slice(0, 0)
    name = keep(context.staging, request, marked_absent(absent)) if absent.num_rows else ""
    return FetchedPiece(
        low, high, found.rows, absent=name, waiting=absent.num_rows, altered=found.altered, last_key=found.last_key
    )


def _reread(context: JobContext, piece: RequestedChunk, table: Table) -> FetchedPiece:
    """Reads rows by recorded keys. The batch that settles the keys writes the rows, since it may record more keys."""
    request = piece.request
    with closing(context.target.connect()) as session:
        forget_settled(session, context.task, context.source.source_id, context.epoch, request)
        keys, last, is_more = recorded_keys(session, context.task, context.source.source_id, table, request)
        chunk = read_keys(context.source, table, keys, whole=True)
        gone = keys.slice(0, 0) if chunk.altered else _gone(context, session, request, table, keys, chunk.rows)
    low, high = at(context, chunk.server, chunk.low, chunk.high)
    rows = chunk.rows
    return FetchedPiece(
        low,
        high,
        rows.num_rows,
        keep(context.staging, request, rows) if rows.num_rows else "",
        rows.num_rows + gone.num_rows,
        bytes=rows.nbytes,
        altered=chunk.altered,
        last_key=last if is_more else "",
        absent=keep(context.staging, request, marked_absent(gone)) if gone.num_rows else "",
    )


def _gone(
    context: JobContext, session: TargetSession, request: ChunkRequest, table: Table, keys: pa.Table, rows: pa.Table
) -> pa.Table:
    """Returns the keys that the source does not have, if the target's rows with these keys belong to this table."""
    rules, task, source = context.rules, context.task, context.source.source_id
    target_name, found = rules.target_name(table.name), rows.select(keys.column_names)
    if request.mode is CopyMode.REPAIR:
        gone = absent_keys(session, table.renamed(target_name), keys, found)
        is_alone = target_name not in merged(rules, context.structures) and (
            gone.num_rows == 0 or removes_extra_rows(session, target_name, task, source, context.writing.into_zone)
        )
        return gone if is_alone else gone.slice(0, 0)
    if request.mode is CopyMode.OWN and identifies_own_rows(session, rules, task, source, table.name):
        target_table, own = rules.target_table(table), rules.routes.destination(table.name).extracted
        for name, value in own:
            kind = target_table.column(name).type.arrow
            keys, found = (
                one.append_column(name, pa.repeat(pa.scalar(value, kind), len(one))) for one in (keys, found)
            )
        return absent_keys(session, target_table, keys, found)
    return keys.slice(0, 0)


def _again(work: Callable[[], Answer]) -> Answer:
    """Repeats the work after errors, until the time for attempts runs out."""
    retry, began = Retry(), time.monotonic()
    for attempt in count(1):
        try:
            return work()
        except Transient as error:
            if error.code in _INCURABLE or retry.is_over(attempt, time.monotonic() - began):
                raise
            _log.info("a chunk is tried again", code=error.code, cause=str(error))
        time.sleep(retry.pause(attempt))
    raise AssertionError  # never reached: the loop returns or raises
