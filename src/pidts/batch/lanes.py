"""The work inside a batch: the same two functions whether the driver runs them or a Spark job does.

`decode` turns a pointer into blobs, each one table's changes for one worker; `apply` takes all blobs of one worker,
reduces them and commits them with that worker's checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from pidts.apply import Committer, Outcome
from pidts.batch.context import JobContext
from pidts.batch.log import log_format
from pidts.batch.staging import stage, staged_rows
from pidts.batch.workers import Commit
from pidts.binlog import Told, decode_slice, decode_stream, whole_events
from pidts.copy import Chunk, read_chunk
from pidts.model import ChangeBatch, Extent, Halted, Lsn, Op, Table, Transient, Where
from pidts.plan import BatchPlan, ChunkRequest, LogSlice
from pidts.reduce import Counts, buckets, net_changes
from pidts.relay import RelayReader

_TABLE = b"pidts.table"
_PARTS = 1 << 32
"""More than the batches that one slice can have: a blob's place in its batch is the slice's, then its own."""
_AT_ONCE = 64 << 20
"""A slice is larger only where a single transaction is; then it is not held in memory as a whole."""


@dataclass(frozen=True, slots=True)
class Pointer:
    """One thing for one Spark task to do; exactly one field is set, or none: then it only wakes every worker."""

    log: LogSlice | None = None
    write: ChunkRequest | None = None
    read: ChunkRequest | None = None

    def to_json(self) -> str:
        """One text: what a pointer is inside a data frame."""
        data: dict[str, object] = {}
        if self.log:
            extent = self.log.extent
            data["log"] = [extent.segment, extent.offset, extent.size, str(self.log.begin), self.log.number]
            if self.log.commit:
                data["commit"] = str(self.log.commit)
        if self.write:
            data["write"] = self.write.to_json()
        if self.read:
            data["read"] = self.read.to_json()
        return json.dumps(data)

    @classmethod
    def from_json(cls, text: str) -> Pointer:
        """The inverse of `to_json`."""
        data = json.loads(text)
        log = None
        if "log" in data:
            segment, offset, size, begin, number = data["log"]
            commit = Lsn.parse(data["commit"]) if "commit" in data else None
            log = LogSlice(Extent(segment, offset, size), Lsn.parse(begin), number, commit)
        write, read = (ChunkRequest.from_json(data[name]) if name in data else None for name in ("write", "read"))
        return cls(log, write, read)


@dataclass(frozen=True, slots=True)
class Blob:
    """Changes of one table for one worker; `order` is their place in the batch."""

    worker: int
    order: int
    changes: ChangeBatch

    def pack(self) -> bytes:
        """As Arrow IPC with the table's structure beside it: what crosses Spark's shuffle instead of rows."""
        batch = self.changes
        table = json.dumps(batch.table.to_json()).encode()
        schema = batch.rows.schema.with_metadata({_TABLE: table})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema) as writer:
            writer.write_batch(batch.rows.replace_schema_metadata({_TABLE: table}))
        return bytes(sink.getvalue())

    @classmethod
    def unpack(cls, worker: int, order: int, data: bytes) -> Blob:
        """The inverse of `pack`."""
        with pa.ipc.open_stream(data) as reader:
            table = Table.from_json(json.loads(reader.schema.metadata[_TABLE]))
            rows = reader.read_next_batch().replace_schema_metadata(None)
        return cls(worker, order, ChangeBatch(table, rows))


def pointers(plan: BatchPlan) -> list[Pointer]:
    """All there is to do in a batch, the empty pointer first: every worker has a checkpoint to move."""
    return [
        Pointer(),
        *(Pointer(log=piece) for piece in plan.log),
        *(Pointer(write=request) for request in plan.write),
        *(Pointer(read=request) for request in plan.read),
    ]


def decode(context: JobContext, pointer: Pointer) -> Iterator[Blob]:
    """Read what a pointer points at."""
    if pointer.log is not None:
        first = (1 + pointer.log.number) * _PARTS
        for part, batch in enumerate(_decode_log(context, pointer.log)):
            _check_whole(batch)
            yield from _deal(context.workers, batch, first + part)
    elif pointer.write is not None:
        table = context.structures[pointer.write.table]
        for batch in copied(table, staged_rows(context.staging, pointer.write)):
            yield from _deal(context.workers, batch, 0)
    elif pointer.read is not None:
        request = pointer.read
        table = context.structures[request.table]
        chunk = read_chunk(context.source, table, request.after, request.limit, upto=request.upto)
        _check_origin(context, chunk)
        stage(context.staging, request, chunk, Lsn.at(chunk.high, context.change_no))


def _check_whole(batch: ChangeBatch) -> None:
    """A row that is told in part cannot be written yet; NULL instead of what is missing would be wrong."""
    if batch.is_partial:
        first = Lsn.from_bytes(batch.rows["lsn"].filter(batch.rows["partial"].is_valid())[0].as_py())
        raise Halted(
            "partial-row-image",
            "rows are not told in full",
            where=Where(table=str(batch.table.name), position=str(first)),
            todo="Run SET GLOBAL binlog_row_image=FULL on the source, let its sessions reconnect, and copy the table "
            "again",
        )


def _check_origin(context: JobContext, chunk: Chunk) -> None:
    """A chunk's window is measured in the log that the relay holds; another server's position says nothing there."""
    with closing(RelayReader(context.relay, context.source.source_id)) as relay:
        origin = relay.origin
    if origin is None or (chunk.server, context.change_no) != (origin.server, origin.change_no):
        what = f"rows were read from {chunk.server}, while the log comes from {origin.server if origin else 'nowhere'}"
        raise Transient("source-moved", what, where=context.source.where)


def _decode_log(context: JobContext, piece: LogSlice) -> Iterator[ChangeBatch]:
    extent = piece.extent
    with closing(RelayReader(context.relay, context.source.source_id)) as relay:
        told: Told = {
            "format": log_format(relay.format(extent.segment)),
            "log_file": piece.begin.position(relay.log_base).file,
            "change_no": piece.begin.change_no,
            "structures": context.structures,
            "offset": piece.begin.offset,
            "commit": piece.commit,
        }
        if extent.size <= _AT_ONCE:
            yield from decode_slice(relay.read(extent), **told)
        else:
            yield from decode_stream(lambda: whole_events(relay.chunks(extent)), **told)


def copied(table: Table, rows: pa.Table) -> Iterator[ChangeBatch]:
    """Rows of a full copy as changes. Their Lsn is never asked for: they come before all changes of their batch."""
    fields = list(table.arrow)
    lsn = Lsn(0, 0, 0).to_bytes()
    for batch in rows.to_batches():
        count = batch.num_rows
        yield ChangeBatch.of(
            table,
            pa.array([lsn] * count, pa.binary(Lsn.SIZE)),
            pa.array([int(Op.COPY)] * count, pa.int8()),
            pa.nulls(count, pa.struct(fields)),
            pa.StructArray.from_arrays(batch.columns, fields=fields),
        )


def _deal(workers: int, batch: ChangeBatch, order: int) -> Iterator[Blob]:
    for worker, part in enumerate(buckets(batch, workers)):
        if part is not None and len(part):
            yield Blob(worker, order, part)


def apply(committer: Committer, commit: Commit, worker: int, blobs: Iterable[Blob]) -> Counts:
    """Make one worker's part of the batch visible on the target, with its checkpoint, in one transaction."""
    before, after = commit.before[worker], commit.after[worker]
    ordered = sorted(blobs, key=lambda blob: blob.order)
    changes = net_changes(_behind(before.lsn, [blob.changes for blob in ordered]))
    outcome = committer.commit(worker, before.lsn, after, changes)
    if outcome is Outcome.ALREADY:
        return Counts()
    return sum((change.counts for change in changes), Counts())


def _behind(lsn: Lsn, batches: Sequence[ChangeBatch]) -> list[ChangeBatch]:
    """Without the changes that this worker has committed in an earlier run, when it was ahead of the others."""
    kept = []
    for batch in batches:
        rows = batch.rows
        newer = pc.or_(
            pc.equal(rows["op"], int(Op.COPY)),
            pc.greater(rows["lsn"].cast(pa.binary()), pa.scalar(lsn.to_bytes(), pa.binary())),
        )
        kept.append(batch if pc.all(newer).as_py() else ChangeBatch(batch.table, rows.filter(newer)))
    return kept
