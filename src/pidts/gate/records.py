"""Makes the records of a datacenter, in the order of the log, and then gives them their numbers (`id` and `tid`).

The records are an Arrow table with one row for each record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pidts.gate.json_text import image, quoted
from pidts.gate.value_text import TEXT, printed
from pidts.model import ChangeBatch, LogEntry, Lsn, Op
from pidts.model.early_filter import TimesOf
from pidts.reduce.column_presence import column_presence
from pidts.target.mysql.datacenter import Numbers

_OPTYPES = {Op.INSERT: "INSERT", Op.UPDATE: "UPDATE", Op.DELETE: "DELETE"}
_PIECE_BYTES = 4 << 20
"""The number of bytes of Arrow data that are turned into JSON at once."""
_LSN = f"S{Lsn.SIZE}"
_PLACE = np.dtype([("change_no", ">u4"), ("log_index", ">u4"), ("offset", ">u8"), ("row", ">u4")])
"""The parts of an Lsn's bytes, as a type of numpy."""
_FIRST_MOMENT = 1_000_000
"""The first microsecond that a TIMESTAMP of the datacenter can hold."""
_FIELDS = ("lsn", "dbname", "tablename", "create_time", "optype", "data")
_MOMENT = pa.timestamp("us", "UTC")

_Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class SchemaRecord:
    """The record of a schema change."""

    optype: str
    dbname: str
    tablename: str
    data: str
    """JSON; empty for TRUNCATE."""


def of_rows(batches: Iterable[ChangeBatch], times: TimesOf, zone: str) -> pa.Table | None:
    """Returns the records of row changes in the order of the log; None if there are none."""
    pieces = [_of_piece(piece, times, zone) for batch in batches for piece in _pieces(batch)]
    if not pieces:
        return None
    table = pa.concat_tables(pieces)
    if len(pieces) == 1:
        return table
    return table.take(pc.sort_indices(table["lsn"].combine_chunks()))


def of_schema_change(records: Sequence[SchemaRecord], lsn: Lsn, time: int) -> pa.Table | None:
    """Returns the records of one statement as a table; None if there are none.

    The Lsn of the records is the place where the statement begins. `time` is in seconds since 1970.
    """
    if not records:
        return None
    count = len(records)
    columns = [
        pa.array([lsn.to_bytes()] * count, pa.binary()),
        pa.array([one.dbname for one in records]),
        pa.array([one.tablename for one in records]),
        _moments(pa.array([time * 1_000_000] * count, pa.int64())),
        pa.array([one.optype for one in records]),
        pa.array([one.data for one in records], TEXT),
    ]
    return pa.table(columns, names=list(_FIELDS))


@dataclass(frozen=True, slots=True)
class Numbering:
    """Gives records their `id` and `tid`.

    `id` grows by one with each record, `tid` with each transaction that has records. The numbers depend only on the
    previous numbers and on the log. So if a log part is read again after a crash, its records get the same numbers.
    """

    last: Numbers
    open_transaction: bytes = b""
    """The end (an Lsn as bytes) of the transaction whose records were numbered last; empty at the start of a batch. The
    next records may belong to this transaction.
    """

    def of(
        self, records: pa.Table, ends: npt.NDArray[np.bytes_], instance_of: Callable[[int], str]
    ) -> tuple[pa.Table, Numbering]:
        """Returns the rows of `transfer_data`, and the numbering after them.

        `ends` are the Lsns at which the transactions end. `instance_of` returns the server that wrote a part of the
        log. All these records come from one server, since no slice extends over a failover.
        """
        instance = instance_of(Lsn.from_bytes(records["lsn"][0].as_py()).change_no)
        lsns = _lsns(records["lsn"])
        own = ends[np.searchsorted(ends, lsns, side="left")]
        begins = np.empty(len(own), np.bool_)
        begins[0], begins[1:] = own[0] != np.array(self.open_transaction, _LSN), own[1:] != own[:-1]
        ids = self.last.id + 1 + np.arange(len(own), dtype=np.uint64)
        tids = np.uint64(self.last.tid) + np.cumsum(begins).astype(np.uint64)
        rows = pa.table(
            {
                "id": pa.array(ids.astype(np.uint64)),
                "tid": pa.array(tids),
                "dbname": records["dbname"],
                "tablename": records["tablename"],
                "create_time": records["create_time"],
                "instance_name": pa.array([instance] * len(own)),
                "optype": records["optype"],
                "data": records["data"],
            }
        )
        return rows, replace(self, last=Numbers(int(ids[-1]), int(tids[-1])), open_transaction=bytes(own[-1]))


def transaction_ends(entries: Sequence[LogEntry]) -> npt.NDArray[np.bytes_]:
    """Returns the ends of the transactions, as `Numbering.of` needs them. One entry may stand for many transactions."""
    ends = np.zeros(sum(entry.count for entry in entries), _PLACE)
    at = 0
    for entry in entries:
        mine, last = ends[at : at + entry.count], entry.transaction.lsn
        mine["change_no"], mine["log_index"] = last.change_no, last.log_index
        mine["offset"] = np.frombuffer(entry.ends, np.int64) if entry.ends else last.offset
        at += entry.count
    return ends.view(_LSN)


def _lsns(values: pa.ChunkedArray) -> npt.NDArray[np.bytes_]:
    """Returns the Lsns as an array of numpy.

    All Lsns have the same number of bytes, so the array is the column's buffer.
    """
    column = values.combine_chunks().cast(pa.binary(Lsn.SIZE))
    begin = column.offset * Lsn.SIZE
    return np.frombuffer(column.buffers()[1], np.uint8)[begin : begin + len(column) * Lsn.SIZE].view(_LSN)


def _pieces(batch: ChangeBatch) -> Iterator[ChangeBatch]:
    count = max(1, -(-batch.rows.nbytes // _PIECE_BYTES))
    size = -(-len(batch) // count)
    for first in range(0, len(batch), size or 1):
        yield replace(batch, rows=batch.rows.slice(first, size))


def _of_piece(batch: ChangeBatch, times: TimesOf, zone: str) -> pa.Table:
    rows, name, count = batch.rows, batch.origin, len(batch)
    ops = rows.column("op")
    columns = [
        rows.column("lsn").cast(pa.binary()),
        pa.array([name.schema] * count),
        pa.array([name.name] * count),
        _moments(times(rows.column("lsn"))),
        pa.array(list(_OPTYPES.values())).take(pc.subtract(ops, pa.scalar(int(Op.INSERT), pa.int8()))),
        _documents(batch, zone),
    ]
    return pa.table(columns, names=list(_FIELDS))


def _moments(microseconds: pa.Array) -> pa.Array:
    return pc.max_element_wise(microseconds, pa.scalar(_FIRST_MOMENT, pa.int64())).cast(_MOMENT)


def _documents(batch: ChangeBatch, zone: str) -> pa.Array:
    """Returns `{"OLD":[...],"NEW":[...]}`, with the images that each change has."""
    ops = batch.rows.column("op").to_numpy(zero_copy_only=False)
    has_old, has_new = ops != Op.INSERT, ops != Op.DELETE
    presence = column_presence(batch) if batch.is_partial else None
    old = _images(batch, "before", has_old, None if presence is None else presence.before, zone)
    new = _images(batch, "after", has_new, None if presence is None else presence.after, zone)
    heads = pa.array(np.where(has_old, '{"OLD":', '{"NEW":'), TEXT)
    between = pa.array(np.where(has_old & has_new, ',"NEW":', ""), TEXT)
    return pc.binary_join_element_wise(heads, old, between, new, pa.scalar("}", TEXT), pa.scalar("", TEXT))


def _images(batch: ChangeBatch, side: str, there: _Mask, held: npt.NDArray[np.bool_] | None, zone: str) -> pa.Array:
    """Returns the before or after images (`side`), without columns that the log lacks; empty if there is no image."""
    count = len(batch)
    if not there.any():
        return pa.array([""] * count, TEXT)
    columns = batch.rows.column(side).flatten()
    texts = [quoted(printed(batch.table.columns[place].type, column, zone)) for place, column in enumerate(columns)]
    names = [column.name for column in batch.table.columns]
    if held is None:
        whole = image(names, texts, count)
    else:
        whole = pa.array([""] * count, TEXT)
        for pattern in np.unique(held[there], axis=0):
            chosen = [place for place, is_held in enumerate(pattern) if is_held]
            mine = pa.array(there & (held == pattern).all(axis=1))
            whole = pc.if_else(mine, image([names[at] for at in chosen], [texts[at] for at in chosen], count), whole)
    return whole if there.all() else pc.if_else(pa.array(there), whole, pa.scalar("", TEXT))
