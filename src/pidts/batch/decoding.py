"""From a pointer to blobs, each one table's changes for one worker.

The same function whether the driver runs it or a Spark job does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pyarrow as pa

from pidts.batch.blobs import Blob
from pidts.batch.context import JobContext
from pidts.batch.log import log_format
from pidts.batch.pointers import Pointer
from pidts.batch.staging import stage, staged_rows
from pidts.binlog import Told, decode_slice, decode_stream, whole_events
from pidts.copy import Chunk, read_chunk
from pidts.model import ChangeBatch, Halted, Lsn, Op, Table, Transient, Where
from pidts.plan import LogSlice
from pidts.reduce import buckets
from pidts.relay import RelayReader

_PARTS = 1 << 32
"""More than the batches that one slice can have: a blob's place in its batch is the slice's, then its own."""
_AT_ONCE = 64 << 20
"""A slice is larger only where a single transaction is; then it is not held in memory as a whole."""


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
