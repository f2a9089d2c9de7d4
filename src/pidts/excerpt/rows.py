"""Turns a part of the log into record batches in log order, one column at a time.

The decoder returns the rows. The data around a row (the transaction, its GTID and its times) is looked up for all rows
at once, by their places in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pidts.binlog import Format, TableMap, decode_slice
from pidts.binlog.decode import Structures
from pidts.excerpt.cut import DecodeRange, LogSelection
from pidts.excerpt.json_columns import image_text
from pidts.excerpt.row_transactions import RowTransactions
from pidts.excerpt.store import Store, came_again
from pidts.model import ChangeBatch, Halted, Lsn, Op, Table
from pidts.relay.refetch import Refetch
from pidts.schema.evolve.known_structures import refined, structure_unknown

_ROWS = 16 << 10
"""The number of rows in one record batch; fewer if the rows are large."""
_BATCH_BYTES = 128 << 20
_OPS = pa.array([*(op.name.lower() for op in Op), "ddl"])
_DDL = len(Op)
_NO_END = 2**62

Numbers = NDArray[np.int64]
TypedImages = Callable[[Table, pa.StructArray, pa.StructType], pa.StructArray]
"""Converts images of a table's rows to values of the type that a typed query expects."""


@dataclass(frozen=True, slots=True)
class QueryView:
    """The columns and rows of the log that a query shows. Each Spark task gets a copy of this object."""

    wanted: LogSelection
    schema: pa.Schema
    source: str
    zone: int
    typed: TypedImages | None
    """The function that makes typed images; None if images are JSON."""
    after: Lsn | None
    upto: Lsn | None = None
    """The range: after `after`, up to and including `upto`. It may begin and end inside a transaction."""

    def holds(self, lsn: Lsn) -> bool:
        """Whether a change at this place is in the query's range."""
        return not ((self.after is not None and lsn <= self.after) or (self.upto is not None and lsn > self.upto))


def record_batches(store: Store, log_part: DecodeRange, view: QueryView) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a log part in the form of the data frame."""
    log_format, raw = store.read(log_part.span)
    changes = _decoded(log_part, view, log_format, raw)
    transactions = RowTransactions(log_part, log_format, raw)
    yield from _Assembly(log_part, view, changes, transactions, came_again(store)).batches()


def row_places(store: Store, log_part: DecodeRange, view: QueryView) -> tuple[int, Numbers]:
    """Returns the number of the log file with a log part's rows, and the byte of each row's event."""
    log_format, raw = store.read(log_part.span)
    parts = [_RowPlaces(batch.rows.column("lsn")).offsets for batch in _decoded(log_part, view, log_format, raw)]
    return _first(log_part).log_index, np.concatenate([*parts, np.array([], np.int64)])


def _decoded(log_part: DecodeRange, view: QueryView, log_format: Format, raw: bytes) -> list[ChangeBatch]:
    return decoded(log_part, log_format, raw, _structure_of(log_part, view))


def decoded(log_part: DecodeRange, log_format: Format, raw: bytes, structures: Structures) -> list[ChangeBatch]:
    """Returns the rows of a log part."""
    return decode_slice(
        raw,
        format=log_format,
        log_file=log_part.file,
        change_no=log_part.begin.change_no,
        structures=structures,
        offset=log_part.begin.offset,
        commit=None if log_part.commit is None else _first(log_part),
    )


def _first(log_part: DecodeRange) -> Lsn:
    """Returns the first Lsn of the log part. The rows of a prepared XA transaction have the place of its commit."""
    commit = log_part.commit
    return commit.xa.at if commit is not None and commit.xa is not None else log_part.begin


def _structure_of(log_part: DecodeRange, view: QueryView) -> Callable[[TableMap], Table | None]:
    tables = frozenset(log_part.tables)

    def structure(table_map: TableMap) -> Table | None:
        name = table_map.name
        if name not in tables or not view.wanted.allow(name):
            return None
        if log_part.history.is_sequence(name, looks_like_one=table_map.may_be_sequence):
            return None
        shown = table_map.to_table()
        if shown is None:
            known = log_part.history.table(name)
            if known is None:
                raise structure_unknown(name, "(none: the log before this place does not show it)")
            return table_map.complete(known)
        try:
            known = log_part.history.table(name)
        except Halted:
            return shown
        return refined(shown, known and table_map.complete(known))

    return structure


class _RowPlaces:
    """The rows of one `ChangeBatch`, or of all statements, with their places in the log."""

    def __init__(self, lsns: pa.Array) -> None:
        data = np.frombuffer(lsns.buffers()[1], np.uint8)[lsns.offset * Lsn.SIZE : (lsns.offset + len(lsns)) * Lsn.SIZE]
        rows = data.reshape(-1, Lsn.SIZE)
        self.offsets: Numbers = np.ascontiguousarray(rows[:, 8:16]).view(">u8")[:, 0].astype(np.int64)
        self.rows: Numbers = np.ascontiguousarray(rows[:, 16:20]).view(">u4")[:, 0].astype(np.int64)


class _Assembly:
    """Sorts all rows of a log part, and makes record batches of them."""

    def __init__(
        self,
        log_part: DecodeRange,
        view: QueryView,
        changes: Sequence[ChangeBatch],
        transactions: RowTransactions,
        again: Sequence[Refetch],
    ) -> None:
        self._log_part, self._view, self._transactions, self._again = log_part, view, transactions, again
        self._changes = changes
        self._statements = list(transactions.statements(view.wanted, view.holds)) if log_part.has_statements else []
        parts = [_RowPlaces(batch.rows.column("lsn")) for batch in changes]
        lsns = [statement.lsn for statement in self._statements]
        offsets = [*(part.offsets for part in parts), np.array([lsn.offset for lsn in lsns], np.int64)]
        rows = [*(part.rows for part in parts), np.array([lsn.row for lsn in lsns], np.int64)]
        self._starts = np.cumsum([0, *map(len, offsets)])
        """The index of each batch's first row among all rows, followed by the index of the first statement."""
        self._offsets, self._rows = np.concatenate(offsets), np.concatenate(rows)

    def _inside(self, order: Numbers) -> NDArray[np.bool_]:
        """Returns a mask of the rows in the range, which may begin and end inside a transaction."""
        first, keep = _first(self._log_part), np.ones(len(order), np.bool_)
        offsets, rows = self._offsets[order], self._rows[order]
        for bound, begins in ((self._view.after, True), (self._view.upto, False)):
            if bound is None:
                continue
            if (bound.change_no, bound.log_index) == (first.change_no, first.log_index):
                is_after = (offsets > bound.offset) | ((offsets == bound.offset) & (rows > bound.row))
                keep &= is_after if begins else ~is_after
            elif begins == (bound > first):
                keep[:] = False
        return keep

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yields the rows, a few thousand at a time."""
        order = np.lexsort((self._rows, self._offsets))
        inside = self._inside(order)
        if not inside.any():
            return
        columns = self._common(order)
        if not inside.all():
            columns = {name: array.filter(pa.array(inside)) for name, array in columns.items()}
            order = order[inside]
        size = sum(batch.rows.nbytes for batch in self._changes) // len(self._offsets) or 1
        step = max(1, min(_ROWS, _BATCH_BYTES // size))
        for begin in range(0, len(order), step):
            chosen = order[begin : begin + step]
            old, new = self._images(chosen, "before"), self._images(chosen, "after")
            arrays = {name: array.slice(begin, step) for name, array in columns.items()} | {"old": old, "new": new}
            yield pa.RecordBatch.from_arrays(
                [arrays[name] for name in self._view.schema.names], schema=self._view.schema
            )

    def _common(self, order: Numbers) -> dict[str, pa.Array]:
        """Returns all columns except the images."""
        transactions, count = self._transactions, len(order)
        offsets = self._offsets[order]
        lsn = _lsn_text(_first(self._log_part), offsets, self._rows[order])
        place = transactions.transaction_of(offsets)
        prev = _lsn_text(_first(self._log_part), transactions.begins[place], np.zeros(count, np.int64))
        if count > 1:
            follows = np.concatenate([[False], place[1:] == place[:-1]])
            prev = pc.if_else(pa.array(follows), pa.concat_arrays([lsn.slice(0, 1), lsn.slice(0, count - 1)]), prev)
        tables = [batch.table.name for batch in self._changes]
        databases = [name.schema for name in tables] + [statement.database or None for statement in self._statements]
        names = [name.name for name in tables] + [statement.table or None for statement in self._statements]
        # All rows of a change batch are of one table; each statement has its own table.
        kind = np.searchsorted(self._starts, order, side="right") - 1
        statements = self._starts[len(tables)]
        kind = pa.array(np.where(order < statements, kind, len(tables) + order - statements))
        ops = [
            *(batch.rows.column("op") for batch in self._changes),
            pa.array([_DDL] * len(self._statements), pa.int8()),
        ]
        return {
            "lsn": lsn,
            "prev_lsn": prev,
            "zone": pa.array(np.full(count, self._view.zone, np.int32)),
            "source": pa.array([self._view.source]).take(pa.array(np.zeros(count, np.int32))),
            "database": pa.array(databases, pa.string()).take(kind),
            "table": pa.array(names, pa.string()).take(kind),
            "op": _OPS.take(pa.concat_arrays(ops).take(pa.array(order))),
            "ts": pa.array(transactions.times(offsets) * 1_000_000, pa.timestamp("us", "UTC")),
            "gtid": pa.array(transactions.gtids, pa.string()).take(pa.array(place)),
            "xid": pa.array(transactions.xids(), pa.int64()).take(pa.array(place)),
            "is_retry": pa.array(are_retries(_first(self._log_part), offsets, self._again)),
        }

    def _images(self, chosen: Numbers, side: str) -> pa.Array:
        """Returns the before or after images (`side`) of the chosen rows. Rows from one batch must be adjacent."""
        parts, places = [], []
        image = self._view.schema.field("old").type
        for number, batch in enumerate(self._changes):
            start, end = self._starts[number : number + 2]
            mine = chosen[(chosen >= start) & (chosen < end)]
            if len(mine):
                rows = batch.rows.slice(int(mine.min() - start), int(mine.max() - mine.min()) + 1)
                parts.append(self._image_column(batch.table, rows, side))
                places.append(np.arange(mine.min(), mine.max() + 1))
        start = self._starts[len(self._changes)]
        mine = chosen[chosen >= start]
        if len(mine):
            texts = [self._statements[place - start].text if side == "after" else None for place in mine]
            parts.append(pa.nulls(len(mine), image) if self._view.typed is not None else pa.array(texts, image))
            places.append(mine)
        if len(parts) == 1 and len(parts[0]) == len(chosen):
            return parts[0]
        all_places = np.concatenate(places)
        sorted_places = np.argsort(all_places)
        found = sorted_places[np.searchsorted(all_places, chosen, sorter=sorted_places)]
        return pa.concat_arrays(parts).take(pa.array(found))

    def _image_column(self, table: Table, rows: pa.RecordBatch, side: str) -> pa.Array:
        if self._view.typed is None:
            return json_images(table, rows, side)
        return self._view.typed(table, rows.column(side), self._view.schema.field("old").type)


def are_retries(first: Lsn, offsets: Numbers, again: Sequence[Refetch]) -> NDArray[np.bool_]:
    """Returns a mask of the rows that the relay received twice. `offsets` has the bytes of their events in one file."""
    found = np.zeros(len(offsets), np.bool_)
    here = first.change_no, first.log_index
    for one in again:
        after, to = (one.after.change_no, one.after.log_index), (one.to.change_no, one.to.log_index)
        if after <= here <= to:
            begins = one.after.offset if after == here else 0
            ends = one.to.offset if to == here else _NO_END
            found |= (offsets >= begins) & (offsets < ends)
    return found


def json_images(table: Table, rows: pa.RecordBatch, side: str) -> pa.Array:
    """Returns the `before` or `after` images as JSON objects, each with the columns that the image has."""
    images = rows.column(side)
    partial = rows.column("partial")
    if partial.null_count == len(partial):
        return image_text(table, images)
    kinds = partial.dictionary_encode()
    codes = kinds.indices.fill_null(-1).to_numpy()
    texts, places = [], []
    for code in np.unique(codes):
        place = np.flatnonzero(codes == code)
        some = images.take(pa.array(place))
        bitmap = None if code < 0 else kinds.dictionary[int(code)].as_py()
        texts.append(image_text(table, some, None if bitmap is None else _held(table, side, bitmap)))
        places.append(place)
    return pa.concat_arrays(texts).take(pa.array(np.argsort(np.concatenate(places))))


def _held(table: Table, side: str, bitmaps: bytes) -> tuple[int, ...]:
    """Returns the numbers of the columns that an image has.

    `bitmaps` has one bitmap for each image: two for an UPDATE (before image, after image), one for an INSERT or a
    DELETE. The length of `bitmaps` shows how many there are. If there is only one, it is used for either `side`: it
    belongs to the only image of the row.
    """
    size = (len(table.columns) + 7) // 8
    bits = int.from_bytes(bitmaps[-size:] if side == "after" else bitmaps[:size], "little")
    return tuple(number for number in range(len(table.columns)) if bits >> number & 1)


def _lsn_text(first: Lsn, offsets: Numbers, rows: Numbers) -> pa.Array:
    offset = pc.utf8_lpad(pa.array(offsets).cast(pa.string()), 12, "0")
    row = pc.utf8_lpad(pa.array(rows).cast(pa.string()), 10, "0")
    return pc.binary_join_element_wise(f"{first.change_no:04}.{first.log_index:010}", offset, row, ".")
