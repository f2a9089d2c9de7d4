"""The rows of one table, as compiled code writes them. `rows.TableRows` is the plain version, with the same results."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pyarrow as pa

from pidts.binlog import rows
from pidts.binlog.jit import address
from pidts.binlog.kernel import arrays, images
from pidts.binlog.kernel import layout as at
from pidts.binlog.kernel.buffers import Memory
from pidts.binlog.kernel.call import Call
from pidts.binlog.kernel.program import known_program
from pidts.binlog.rows_event import RowsEvent
from pidts.binlog.table_map import TableMap
from pidts.model.batch import ChangeBatch
from pidts.model.early_filter import EarlyFilter
from pidts.model.errors import Halted, Where
from pidts.model.lsn import Lsn
from pidts.model.table import Table

_PREFIX = struct.Struct(">IIQ")
RowCounts = tuple[int, int, int]


class CompiledRows:
    """Rows that will become one `ChangeBatch`.

    If only plain code can read a row, this row and all later rows go into a `TableRows`, so that rows keep their order.
    """

    __slots__ = ("memory", "plain", "table")

    def __init__(self, table: Table, early_filter: EarlyFilter | None) -> None:
        self.table = table
        self.memory = Memory(table)
        if early_filter is not None:
            self.memory.state[at.UNWANTED // 8] = sum(1 << op for op in early_filter.unwanted)
        self.plain: rows.TableRows | None = None

    def __len__(self) -> int:
        return self.memory.rows + (0 if self.plain is None else len(self.plain))

    @property
    def size(self) -> int:
        """Returns the size in bytes of all images so far."""
        return self.memory.size + (0 if self.plain is None else self.plain.size)

    def bind(self, table_map: TableMap) -> CompiledBinding:
        """Returns the reader of the row events after a TABLE_MAP event."""
        return CompiledBinding(table_map, self)

    def counts(self) -> RowCounts:
        """Returns a point for `back_to`: the number of rows, and the numbers of images in plain code's lists."""
        before, after = (0, 0) if self.plain is None else self.plain.counts()[1:]
        return len(self), before, after

    def back_to(self, counts: RowCounts) -> None:
        """Drops the rows since this point, which the source has rolled back."""
        count, before, after = counts
        compiled = self.memory.rows
        if self.plain is not None:
            self.plain.back_to((max(count - compiled, 0), before, after))
        if count < compiled:
            self.memory.back_to(count)

    def take(self, early_filter: EarlyFilter | None = None) -> ChangeBatch:
        """Returns the rows so far as one batch, except rows that an early filter leaves out; a new batch begins."""
        batch = arrays.batch(self.table, self.memory, self.memory.partial())
        if early_filter is not None:
            batch = early_filter.of(batch)
        self.memory.clear()
        if self.plain is None:
            return batch
        later, self.plain = self.plain.take(early_filter), None
        self.memory.state[at.PLAIN // 8] = 0
        if not len(batch) or not len(later):
            return batch if len(batch) else later
        joined = pa.Table.from_batches([batch.rows, later.rows]).combine_chunks()
        return ChangeBatch(self.table, joined.to_batches()[0])


class CompiledBinding:
    """Decodes the row events that have the table id of one TABLE_MAP event."""

    __slots__ = ("_plain", "_table_map", "program", "rows")

    def __init__(self, table_map: TableMap, into: CompiledRows) -> None:
        rows.check_structure(into.table, table_map)
        self.rows = into
        self._table_map = table_map
        self.program: Any = known_program(into.table, table_map.wires)
        self._plain: rows.Binding | None = None

    def decode(self, event: RowsEvent, first: Lsn, skip: int) -> None:
        """Appends the event's rows, numbered from `first`; the first `skip` rows are read and dropped."""
        into = self.rows
        rows.check_event(into.table, event)
        if self.program is None or event.has_diffs or into.plain is not None:
            self._decode_plainly(event, first, skip)
            return
        call = Call()
        call.block[at.PREFIX // 8 : at.PREFIX // 8 + 2].view(np.uint8)[:] = np.frombuffer(
            _PREFIX.pack(first.change_no, first.log_index, first.offset), np.uint8
        )
        sizes = [(presence.bit_count() + 7) // 8 for presence in event.present]
        bitmaps, bits = sizes[0] << 16 | sizes[-1], 0
        if (partial := event.partial) is not None:
            call.block[at.PRESENCE // 8], bits = into.memory.presences.entered(partial, bitmaps)
        while result := images.read_rows.ctypes(
            address(into.memory.state),
            address(self.program),
            address(event.images),
            len(event.images),
            int(event.op),
            bits,
            bitmaps,
            first.row,
            skip,
            address(call.block),
        ):
            if not call.help(result, into.memory):
                self._explain(event, first, skip)
        into.memory.add_size(len(event.images))

    def _explain(self, event: RowsEvent, first: Lsn, skip: int) -> None:
        """Raises the error at which the compiled code has stopped: plain code reads the event again, and raises it.

        If plain code raises no error, the event's values would fit into a batch of their own, but not into this batch
        after its earlier rows. Then this method raises `rows-too-large`.
        """
        scratch = rows.TableRows(self.rows.table)
        scratch.bind(self._table_map).decode(event, first, skip)
        scratch.take()
        raise Halted(
            "rows-too-large",
            "the values of a column take more than 2 GiB in one batch",
            where=Where(table=str(self.rows.table.name)),
            todo="Leave the table out of the task, or make the transactions with savepoints on the source smaller",
        )

    def _decode_plainly(self, event: RowsEvent, first: Lsn, skip: int) -> None:
        into = self.rows
        if into.plain is None:
            into.plain = rows.TableRows(into.table)
            into.memory.state[at.PLAIN // 8] = 1
        if self._plain is None or self._plain.rows is not into.plain:
            self._plain = into.plain.bind(self._table_map)
        self._plain.decode(event, first, skip)
