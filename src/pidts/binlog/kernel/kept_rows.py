"""Reads all columns of the rows that a filter wants.

For a table with a filter, the first pass reads only the filter's columns. Most of a row's bytes are in other columns,
which are never read for a dropped row.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np

from pidts.binlog import refusals, rows
from pidts.binlog.jit import address
from pidts.binlog.kernel import arrays, images
from pidts.binlog.kernel import layout as at
from pidts.binlog.kernel.buffers import Memory
from pidts.binlog.kernel.call import Call
from pidts.binlog.rows_event import RowsEvent, all_columns
from pidts.binlog.table_map import TableMap
from pidts.model.batch import ChangeBatch
from pidts.model.early_filter import EarlyFilter, KeptRows
from pidts.model.errors import Halted, PidtsError, Where
from pidts.model.event import Op
from pidts.model.lsn import Lsn
from pidts.model.table import TableName

_RESERVE = 1.1


def whole(
    skimmed: ChangeBatch, memory: Memory, early_filter: EarlyFilter | None, maps: Mapping[int, TableMap]
) -> ChangeBatch:
    """Returns the rows that the early filter keeps, with all columns. `skimmed` and `memory` have all rows.

    `maps`: the table maps, by the address of the program that reads all columns.
    """
    kept = None if early_filter is None else early_filter.kept(skimmed)
    count = len(skimmed) if kept is None else kept.count
    if not count:
        return ChangeBatch(skimmed.table, skimmed.rows.slice(0, 0))
    full, call = Memory(skimmed.table), Call()
    full.take_places(memory, count)
    bits, first = _bits(kept, len(skimmed))
    arguments = address(full.state), address(memory.state), address(bits), first, address(call.block)
    while result := images.read_again.ctypes(*arguments):
        if not call.help(result, full, count / max(full.rows, 1) * _RESERVE, memory.size):
            raise _explained(skimmed, memory, int(call.block[at.DONE // 8]), maps)
    partial = skimmed.rows.column("partial") if skimmed.is_partial else None
    return arrays.batch(skimmed.table, full, partial if partial is None or kept is None else kept.of(partial))


def _bits(kept: KeptRows | None, rows: int) -> tuple[Any, int]:
    """Returns bits, one for each row (1: wanted), and the index of the first bit."""
    if kept is None:
        return np.full((rows + 7) // 8, 0xFF, np.uint8), 0
    return kept.mask.buffers()[1], kept.mask.offset


def rows_too_large(name: TableName) -> Halted:
    """Returns the error for Arrow's limit of 2 GiB for texts."""
    return Halted(
        "rows-too-large",
        "the values of a column take more than 2 GiB in one batch",
        where=Where(table=str(name)),
        todo="Leave the table out of the task, or make the transactions with savepoints on the source smaller",
    )


def _explained(skimmed: ChangeBatch, memory: Memory, row: int, maps: Mapping[int, TableMap]) -> PidtsError:
    """Reads a row again with plain code, and returns the error that this raises."""
    place = int(np.searchsorted(memory.first_rows, row, "right")) - 1
    event: Any = memory.events[at.EVENT * place : at.EVENT * (place + 1)].view(np.int64)
    data, begin, first, _, present, _, program = event.tolist()
    ends: Any = memory.ends.view(np.uint32)
    begin, end = int(ends[row - 1]) if row > first else begin, int(ends[row])
    width, op = len(skimmed.table.columns), Op(int(event[at.OP // 8]))
    presences = [all_columns(width)] * (2 if op is Op.UPDATE else 1)
    if present:
        step = (width + 7) // 8
        bits = ctypes.string_at(present, step * len(presences))
        presences = [int.from_bytes(bits[place : place + step], "little") for place in range(0, len(bits), step)]
    lsn = Lsn.from_bytes(skimmed.rows.column("lsn")[row].as_py())
    scratch = rows.TableRows(skimmed.table)
    event = RowsEvent(op, width, tuple(presences), ctypes.string_at(data + begin, end - begin))
    try:
        scratch.bind(maps[program]).decode(event, lsn, 0)
        scratch.take()
    except PidtsError as error:
        return refusals.located(error, str(lsn))
    return rows_too_large(skimmed.table.name)
