"""Encodes many ordinary index records at once, in compiled code; `pidts.relay.segments.index` is the specification."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from pidts.binlog.blocks import ordinary as o
from pidts.binlog.blocks.gtid_text import before_number
from pidts.binlog.blocks.scan import OrdinaryEvents
from pidts.binlog.crc import crc32_at
from pidts.binlog.jit import address, copy, inline, jit, load32, load64, store8, store16, store32, store64
from pidts.model import Lsn, TableName
from pidts.relay.segments.index import ENTRY_FIXED_SIZE, ENTRY_RECORD, FRAME_SIZE, Entries, encode_name

_LEAST = FRAME_SIZE + ENTRY_FIXED_SIZE + 2 + 4
"""The size of the smallest record, which has neither a GTID nor tables."""

_FEW = 64
"""For up to this many transactions at once, the encoder writes the ranges of consecutive GTIDs into an array that it
keeps. For more transactions, it makes a new array.
"""

# The indexes of the numbers that the encoder gets in addition to the numbers of the `OrdinaryEvents`.
(_CHANGE_NO, _LOG_INDEX, _EXTENT, _BASE, _PREV_CHANGE_NO, _PREV_LOG_INDEX, _PREV_OFFSET) = range(7)


class EntryEncoder:
    """Encodes the records of neighbouring ordinary transactions. Caches the encoded names of tables."""

    def __init__(self) -> None:
        self._names: Sequence[TableName] = ()
        self._encoded = bytearray()
        self._ends, self._sizes = np.zeros(1, np.int64), np.zeros(0, np.int64)
        self._names_at = 0, 0
        """The addresses of the encoded names and of their ends."""
        self._texts: Any = None
        self._lists: Any = None
        self._texts_at = 0, 0
        """The addresses of the two arrays of the last `OrdinaryEvents`; the next ones mostly use the same arrays."""
        self._gtid_ranges = np.empty((_FEW, 4), np.int64)
        self._gtid_ranges_at = self._gtid_ranges.ctypes.data

    def encode(self, run: OrdinaryEvents, begin: int, base: int) -> Entries:
        """Returns the records of the transactions in `run`, of which there is at least one.

        The first transaction's events begin at byte `begin` of the segment. The first byte of the block in which the
        transactions were found is at byte `base` of the segment.
        """
        self._learn(run.names)
        if run.texts is not self._texts or run.lists is not self._lists:
            self._texts, self._lists = run.texts, run.lists
            self._texts_at = run.texts.ctypes.data, run.lists.ctypes.data
        lines, change_no = run.lines, run.change_no
        last = lines[-1].tolist()
        listed = run.lists[: last[o.L_TABLES] + last[o.L_TABLE_COUNT]]
        room = len(lines) * _LEAST + last[o.L_GTID] + last[o.L_GTID_SIZE] + int(self._sizes[listed].sum())
        frames, gtid_ranges, gtid_ranges_at = np.empty(room, np.uint8), self._gtid_ranges, self._gtid_ranges_at
        if len(lines) > _FEW:
            gtid_ranges = np.empty((len(lines), 4), np.int64)
            gtid_ranges_at = gtid_ranges.ctypes.data
        previous = run.previous
        numbers = np.array(
            [change_no, run.log_index, begin, base, previous.change_no, previous.log_index, previous.offset], np.int64
        )
        count = _encode(
            numbers,
            (address(lines), len(lines)),
            self._texts_at,
            self._names_at,
            (frames.ctypes.data, gtid_ranges_at),
        )
        return Entries(
            frames.data,
            Lsn(change_no, run.log_index, last[o.L_END]),
            base + last[o.L_BLOCK_END],
            tuple(_texts(run.texts, gtid_ranges[:count])),
        )

    def _learn(self, names: Sequence[TableName]) -> None:
        if names is not self._names:
            self._names, self._encoded, self._ends = names, bytearray(), np.zeros(1, np.int64)
        known = len(self._ends) - 1
        if len(names) == known:
            return
        ends = []
        for name in names[known:]:
            self._encoded += encode_name(name)
            ends.append(len(self._encoded))
        self._ends = np.concatenate([self._ends, np.array(ends, np.int64)])
        self._sizes = self._ends[1:] - self._ends[:-1]
        self._names_at = address(self._encoded), self._ends.ctypes.data


def _texts(texts: Any, gtid_ranges: Any) -> Iterator[tuple[str, int, int]]:
    for at, size, first, last in gtid_ranges.tolist():
        yield texts[at : at + size].tobytes().decode("ascii"), first, last


@inline
def _put_lsn(at: int, change_no: int, log_index: int, offset: int) -> int:
    store32(at, change_no)
    store32(at + 4, log_index)
    store64(at + 8, offset)
    return at + 16


@jit
def _encode(numbers: Any, lines: Any, texts: Any, names: Any, targets: Any) -> int:
    """Writes all records; returns the number of ranges of consecutive GTIDs."""
    change_no, log_index, begin, base = numbers[_CHANGE_NO], numbers[_LOG_INDEX], numbers[_EXTENT], numbers[_BASE]
    prev_change_no, prev_log_index = numbers[_PREV_CHANGE_NO], numbers[_PREV_LOG_INDEX]
    prev_offset = numbers[_PREV_OFFSET]
    line, count = lines
    gtids, lists = texts
    encoded, ends = names
    target, gtid_ranges = targets
    found, prefix_at, prefix_size, reached = 0, 0, -1, 0
    for _ in range(count):
        payload = target + FRAME_SIZE
        end, behind = load64(line + 8 * o.L_END), base + load64(line + 8 * o.L_BLOCK_END)
        store8(payload, ENTRY_RECORD)
        at = _put_lsn(payload + 1, change_no, log_index, end)
        at = _put_lsn(at, prev_change_no, prev_log_index, prev_offset)
        at = _put_lsn(at, change_no, log_index, load64(line + 8 * o.L_BEGIN))
        store32(at, load64(line + 8 * o.L_TIMESTAMP))
        store32(at + 4, load64(line + 8 * o.L_ROWS))
        store64(at + 8, begin)
        store64(at + 16, behind - begin)
        store8(at + 24, 0)
        gtid, size = gtids + load64(line + 8 * o.L_GTID), load64(line + 8 * o.L_GTID_SIZE)
        store16(at + 25, size)
        copy(at + 27, gtid, size)
        block = at + 27 + size
        at = block + 4
        listed = lists + 4 * load64(line + 8 * o.L_TABLES)
        for place in range(load64(line + 8 * o.L_TABLE_COUNT)):
            number = load32(listed + 4 * place)
            name, name_end = load64(ends + 8 * number), load64(ends + 8 * number + 8)
            copy(at, encoded + name, name_end - name)
            at += name_end - name
        store32(block, at - block - 4)
        store32(target, at - payload)
        store32(target + 4, crc32_at(payload, at - payload, 0))
        store32(target + 8, crc32_at(target, 8, 0))
        if size:
            prefix, number = before_number(gtid, size), load64(line + 8 * o.L_NUMBER)
            if not (prefix == prefix_size and number == reached + 1 and o.same(gtid, prefix_at, prefix)):
                prefix_at, prefix_size = gtid, prefix
                gtid_range = gtid_ranges + 32 * found
                found += 1
                store64(gtid_range, gtid - gtids)
                store64(gtid_range + 8, prefix)
                store64(gtid_range + 16, number)
            reached = number
            store64(gtid_ranges + 32 * found - 8, number)
        prev_change_no, prev_log_index, prev_offset, begin = change_no, log_index, end, behind
        target = at
        line += 8 * o.LINE
    return found
