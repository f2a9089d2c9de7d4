"""Decodes the part of a batch that a pointer (`pidts.batch.pointers`) names.

The results are blobs: each has one table's changes for one worker.

The driver and a Spark job use the same function. A long batch is never in memory as a whole: each attempt of each
worker reads it from the log. Decoding is many times faster than writing to any target. So each worker decodes the whole
batch and keeps only its own changes. Nothing is stored on disk, nothing passes through the JVM, and an interrupted
worker begins again independently of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Final, TypeVar, TypeVarTuple

import pyarrow as pa
import structlog

from pidts.batch.blobs import Blob
from pidts.batch.context import JobContext
from pidts.batch.copy.staging import is_absent, staged_rows
from pidts.batch.log_parts import LogPart
from pidts.batch.pointers import Pointer
from pidts.batch.relay_events import log_format
from pidts.batch.returned import only_removed
from pidts.binlog import (
    KeptDecoder,
    LargeSliceError,
    LogFacts,
    decode_event_groups,
    decode_slice,
    decode_stream,
    whole_events,
)
from pidts.binlog.decode import Structures, event_group_columns
from pidts.model import (
    ChangeBatch,
    CommittedEventGroups,
    ConfigError,
    EarlyFilter,
    Extent,
    Halted,
    Lsn,
    Op,
    Table,
    Where,
    byte_size,
)
from pidts.model.zone_notes import NOTES, only_notes
from pidts.plan import LogSlice
from pidts.reduce import with_whole_keys
from pidts.relay import RelayReader

_log = structlog.get_logger(__name__)

AT_ONCE = 16 << 20
"""Up to this size, a slice is decoded in memory. A larger slice is always a single transaction."""
_DECODED_BYTES = 64 << 20
"""The most bytes that one table's rows may have in a slice that is decoded in memory. Rows of a compressed log may be
hundreds of times as large as the log. A slice with more rows is decoded piece by piece.
"""
READ_BYTES = 4 << 20
"""The number of bytes of the log that are read at once if a slice is larger than `AT_ONCE`."""
Ruled = TypeVar("Ruled")
LookedAt = TypeVarTuple("LookedAt")
_NOTHING: Final = object()
_GAPS = 64 << 10
"""One call reads several prepared groups if it reads at most their size plus this number of bytes between them."""
_BLOB_BYTES = 8 << 20
"""The most bytes that one blob may have. While Spark shuffles a blob, the JVM needs several times its size."""


class SliceReader:
    """Reads slices of one relay and decodes them. Only one thread may use a reader."""

    def __init__(self, relay: RelayReader) -> None:
        self.relay = relay
        self.cuts_slices = True
        """Whether a slice whose rows are too large is decoded piece by piece. If not, `LargeSliceError` is raised."""
        self._kept = KeptDecoder()
        self._made_for: tuple[object, object] = _NOTHING, _NOTHING
        """The structures and the rules that the decoder knows."""

    def rows(self, context: JobContext, piece: LogSlice, facts: LogFacts) -> list[ChangeBatch]:
        """Returns the rows of a slice that is small enough to be decoded in memory.

        Raises `LargeSliceError` if the rows are too large. Slices with gaps and prepared groups are decoded in any
        case, since they cannot be decoded piece by piece.
        """
        if piece.groups is not None:
            raw = read_event_groups(self.relay, piece.groups)
            facts = {**facts, "commit": None}
            decode = self._decoder(context).decode_event_groups if _takes_all(piece) else decode_event_groups
            return decode(raw, piece.groups, **facts)
        raw = read_at_once(self.relay, piece)
        facts = {**facts, "most_bytes": None if piece.gaps else _DECODED_BYTES}
        return (self._decoder(context).decode_slice if _takes_all(piece) else decode_slice)(raw, **facts)

    def _decoder(self, context: JobContext) -> KeptDecoder:
        structures, rules = self._made_for
        if structures is not context.structures or rules is not context.rules:
            self._kept, self._made_for = KeptDecoder(), (context.structures, context.rules)
        return self._kept


def decode(context: JobContext, pointer: Pointer, slices: SliceReader | None = None) -> Iterator[Blob]:
    """Yields the blobs of the rows that a pointer names. A caller with many pointers passes one reader for all."""
    if pointer.log is not None:
        first = Blob.first_order(pointer.log.number)
        batches = chain.from_iterable(decode_log(context, pointer.log, slices))
        for place, batch in enumerate(chain.from_iterable(map(_cut, batches))):
            yield from _deal(context, batch, first + place)
    elif pointer.write is not None:
        name = pointer.write.table
        table = context.structures[name]
        target_table = context.rules.target_table(table)
        upstream = context.rules.upstream(table)
        for rows in staged_rows(context.staging, pointer.write):
            for batch in (
                absent(target_table, rows) if is_absent(rows) else copied(target_table, context.rules.rows(table, rows))
            ):
                yield from _deal(context, replace(batch, upstream=upstream), Blob.COPIED)


def decode_for(
    context: JobContext, slices: Sequence[LogSlice], worker: int, *, in_whole_transactions: bool
) -> Iterator[LogPart]:
    """Yields the changes of one worker in log order.

    `in_whole_transactions`: only a slice that is one large transaction is cut. A smaller slice may have many
    transactions, and is then one part, however large its rows are.
    """
    for piece in slices:
        is_large, found = piece.extent.size > AT_ONCE, decode_log(context, piece)
        if not is_large and in_whole_transactions:
            found = iter([list(chain.from_iterable(found))])
        for batches, is_cut in _with_cut(found):
            mine = (context.dealt(batch)[worker] for batch in batches)
            inside = piece.begin if is_large or is_cut else None
            yield LogPart([batch for batch in mine if batch is not None], inside)


def _with_cut(found: Iterator[list[ChangeBatch]]) -> Iterator[tuple[list[ChangeBatch], bool]]:
    """Yields each list, and True if there are several lists: then a list may end inside a transaction."""
    last, is_cut = next(found, None), False
    for following in found:
        if last is not None:
            yield last, True
        last, is_cut = following, True
    if last is not None:
        yield last, is_cut


def decode_log(context: JobContext, piece: LogSlice, slices: SliceReader | None = None) -> Iterator[list[ChangeBatch]]:
    """Yields the changes of all tables in a slice. The lists are in log order."""
    if slices is None:
        with closing(RelayReader(context.relay, context.source.source_id)) as own:
            yield from decode_log(context, piece, SliceReader(own))
        return
    slices.relay.renew()
    for batches in decode_raw(context, slices, piece):
        if piece.has_notes:
            yield only_notes(batches)
            continue
        found = [with_whole_keys(_ruled(context, batch.table, context.rules.passed)(batch)) for batch in batches]
        yield only_removed(found) if piece.is_returned else found


def decode_raw(context: JobContext, slices: SliceReader, piece: LogSlice) -> Iterator[list[ChangeBatch]]:
    """Yields the changes that the filters take, before mappings and routes are applied."""
    extent, facts = piece.extent, log_facts(context, slices.relay, piece)
    if extent.size <= AT_ONCE:
        try:
            found = slices.rows(context, piece, facts)
        except LargeSliceError:
            if not slices.cuts_slices:
                raise
            _log.debug("the rows of a part of the log are decoded piece by piece", bytes=extent.size)
        else:
            yield found
            return
    yield from decode_stream(lambda: whole_events(slices.relay.chunks(extent, READ_BYTES)), **facts)


def read_at_once(relay: RelayReader, piece: LogSlice) -> bytes:
    """Returns the bytes of a slice without its gaps. Only slices that fit into memory have gaps."""
    return b"".join(map(relay.read, piece.parts)) if piece.gaps else relay.read(piece.extent)


def read_event_groups(relay: RelayReader, groups: CommittedEventGroups) -> bytes:
    """Returns the bytes of prepared groups, one after the other."""
    offsets, sizes, *_ = event_group_columns(groups)
    ends = offsets + sizes
    first, last, segment = int(offsets.min()), int(ends.max()), groups.segment
    if last - first > 2 * int(sizes.sum()) + _GAPS:
        places = zip(offsets.tolist(), sizes.tolist(), strict=True)
        return b"".join(relay.read(Extent(segment, offset, size)) for offset, size in places)
    # Other events are between the groups, but the groups are near each other.
    raw = memoryview(relay.read(Extent(segment, first, last - first)))
    places = zip((offsets - first).tolist(), (ends - first).tolist(), strict=True)
    return b"".join([raw[begin:end] for begin, end in places])


def log_facts(context: JobContext, relay: RelayReader, piece: LogSlice) -> LogFacts:
    """Returns what the decoder has to know about a slice besides its bytes."""
    return {
        "format": log_format(relay.format(piece.extent.segment)),
        "log_file": piece.begin.position(relay.log_base).file,
        "change_no": piece.begin.change_no,
        "structures": _structures(context, piece),
        "offset": piece.begin.offset,
        "commit": None if piece.groups is None else piece.groups.commit,
        "commit_time": 0 if piece.groups is None else piece.groups.commit_time,
        "early_filter_of": partial(_early_filter, context),
    }


def _takes_all(piece: LogSlice) -> bool:
    """Whether a slice is decoded for all tables, not only for some."""
    return piece.only is None and not piece.without and not piece.has_notes


def _structures(context: JobContext, piece: LogSlice) -> Structures:
    """Returns the structures of the tables whose rows are taken from a slice."""
    if piece.has_notes:
        return {name: NOTES.renamed(name) for name in piece.only or ()}
    if _takes_all(piece):
        return context.structures
    return lambda found: context.structures.get(found.name) if piece.carries(found.name) else None


def _early_filter(context: JobContext, table: Table) -> EarlyFilter | None:
    """Returns the filter that decoding applies to the table's changes; None if all changes are taken."""
    early_filter = context.rules.early_filter(table)
    if early_filter is None:
        return None
    at = None if early_filter.dropped_at is None else _ruled(context, table, early_filter.dropped_at)
    return replace(early_filter, dropped=_ruled(context, table, early_filter.dropped), dropped_at=at)


def _ruled(context: JobContext, table: Table, rule: Callable[[*LookedAt], Ruled]) -> Callable[[*LookedAt], Ruled]:
    """Returns a function that applies the rule, and halts the table if the rule does not fit its structure."""

    def halting(*arguments: *LookedAt) -> Ruled:
        try:
            return rule(*arguments)
        except ConfigError as error:  # the structure in the log does not fit a rule
            where = Where(source=context.source.source_id, table=str(table.name))
            raise Halted(error.code, error.what, where=where, todo=error.todo) from None

    return halting


def copied(table: Table, rows: pa.Table) -> Iterator[ChangeBatch]:
    """Yields rows of a full copy as changes."""
    for batch in rows.to_batches():
        yield _read(table, Op.COPY, after=batch.columns)


def absent(table: Table, keys: pa.Table) -> Iterator[ChangeBatch]:
    """Yields changes for rows that the source does not have; their images have only the key."""
    for batch in keys.to_batches():
        known = dict(zip(batch.schema.names, batch.columns, strict=True))
        before = [known.get(field.name, pa.nulls(batch.num_rows, field.type)) for field in table.arrow]
        yield _read(table, Op.ABSENT, before=before)


def _read(
    table: Table, op: Op, *, before: Sequence[pa.Array] | None = None, after: Sequence[pa.Array] | None = None
) -> ChangeBatch:
    """Returns changes that are not from the log. Such changes precede the logged ones, so their Lsn is not used."""
    count, fields = len((before or after or [[]])[0]), list(table.arrow)
    images = (
        pa.nulls(count, pa.struct(fields)) if columns is None else pa.StructArray.from_arrays(columns, fields=fields)
        for columns in (before, after)
    )
    lsns = pa.array([Lsn(0, 0, 0).to_bytes()] * count, pa.binary(Lsn.SIZE))
    return ChangeBatch.of(table, lsns, pa.array([int(op)] * count, pa.int8()), *images)


def _cut(batch: ChangeBatch) -> Iterator[ChangeBatch]:
    count = -(-byte_size(batch.rows) // _BLOB_BYTES)
    if count <= 1:
        yield batch
        return
    size = -(-len(batch) // count)
    for first in range(0, len(batch), size):
        yield replace(batch, rows=batch.rows.slice(first, size))


def _deal(context: JobContext, batch: ChangeBatch, order: int) -> Iterator[Blob]:
    for worker, part in enumerate(context.dealt(batch)):
        if part is not None and len(part):
            yield Blob(worker, order, part)
