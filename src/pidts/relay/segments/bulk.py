"""Encodes many index records at once, in compiled code: of ordinary transactions and of steps of XA transactions.

`pidts.relay.segments.index` is the specification.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from pidts.binlog.blocks import ordinary as o
from pidts.binlog.blocks.gtid_text import before_number
from pidts.binlog.blocks.scan import OrdinaryEvents
from pidts.binlog.crc import crc32_at
from pidts.binlog.jit import address, copy, inline, jit, load32, load64, store8, store16, store32, store64
from pidts.binlog.xa import PreparedEventGroups
from pidts.model import Lsn, PreparedExtent, TableName, XaStep
from pidts.relay.segments.index import (
    ENTRY_FIXED_SIZE,
    ENTRY_RECORD,
    FRAME_SIZE,
    HAS_PREPARED,
    HAS_XA,
    PREPARED_SIZE,
    XA_FIXED_SIZE,
    Entries,
    encode_name,
)
from pidts.relay.segments.steps import ALONE, NO_GROUP, SettledGroups, settled_steps

_LEAST = FRAME_SIZE + ENTRY_FIXED_SIZE + 2 + 4
"""The size of the smallest record, which has neither a GTID nor tables."""
_STEP = XA_FIXED_SIZE + 2 + 4 + 1 + PREPARED_SIZE
"""The largest number of bytes that a step of an XA transaction adds to a record, besides the name and the tables."""
_NO_STEPS = SettledGroups(None, b"", None, (), ())
_PREPARE = int(XaStep.PREPARE)

_FEW = 64
"""Up to this many transactions at once, the encoder writes the ranges of consecutive GTIDs into an array that it keeps.
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
        """The addresses of the two arrays of the last `OrdinaryEvents`; the next object mostly has the same arrays."""
        self._gtid_ranges = np.empty((_FEW, 4), np.int64)
        self._gtid_ranges_at = self._gtid_ranges.ctypes.data

    def encode(
        self, run: OrdinaryEvents, begin: int, base: int, segment: int, undecided: PreparedEventGroups[PreparedExtent]
    ) -> Entries:
        """Returns the records of the transactions in `run`, which has at least one transaction.

        `begin` is the place in the segment where the first transaction's events begin. `base` is the place where the
        block of `run` begins. `undecided` has the XA transactions that are undecided before `run`. The method changes
        `undecided` to the transactions that are undecided after `run`.
        """
        self._learn(run.names)
        if run.texts is not self._texts or run.lists is not self._lists:
            self._texts, self._lists = run.texts, run.lists
            self._texts_at = run.texts.ctypes.data, run.lists.ctypes.data
        lines, change_no = run.lines, run.change_no
        last = lines[-1].tolist()
        listed = run.lists[: last[o.L_TABLES] + last[o.L_TABLE_COUNT]]
        room = len(lines) * _LEAST + last[o.L_GTID] + last[o.L_GTID_SIZE] + int(self._sizes[listed].sum())
        settled, steps = _NO_STEPS, (0, 0, 0, segment)
        if run.steps:
            settled = settled_steps(run, begin, base, segment, undecided)
            steps = settled.matches.ctypes.data, address(settled.payloads), settled.ends.ctypes.data, segment
            room += len(lines) * _STEP + last[o.L_XID_SIZE] + int(self._sizes[listed].sum()) + len(settled.payloads)
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
            steps,
            (frames.ctypes.data, gtid_ranges_at),
        )
        if run.steps:
            frames = frames[: _size_of(frames.ctypes.data, len(lines))]
        return Entries(
            frames.data,
            Lsn(change_no, run.log_index, last[o.L_END]),
            base + last[o.L_BLOCK_END],
            tuple(_texts(run.texts, gtid_ranges[:count])),
            run.steps > 0,
            settled.decided,
            settled.undecided,
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


@inline
def _put_facts(at: int, line: int, rows: int, begin: int, end: int) -> int:
    """Writes the time, the number of row events, and the place in the segment; returns the address after them."""
    store32(at, load64(line + 8 * o.L_TIMESTAMP))
    store32(at + 4, rows)
    store64(at + 8, begin)
    store64(at + 16, end - begin)
    return at + 24


@inline
def _put_tables(at: int, line: int, lists: int, names: Any) -> int:
    """Writes the names of the line's tables, or no names if there is no line (0); returns the address after them."""
    encoded, ends = names
    block = at
    at += 4
    if line == 0:
        store32(block, 0)
        return at
    listed = lists + 4 * load64(line + 8 * o.L_TABLES)
    for place in range(load64(line + 8 * o.L_TABLE_COUNT)):
        number = load32(listed + 4 * place)
        name, name_end = load64(ends + 8 * number), load64(ends + 8 * number + 8)
        copy(at, encoded + name, name_end - name)
        at += name_end - name
    store32(block, at - block - 4)
    return at


@inline
def _put_step(at: int, line: int, change_no: int, log_index: int, gtids: int, lists: int, names: Any) -> int:
    """Writes the step of an XA transaction; returns the address after it."""
    step, size = load64(line + 8 * o.L_STEP), load64(line + 8 * o.L_XID_SIZE)
    store8(at, step)
    at = _put_lsn(at + 1, change_no, log_index, load64(line + 8 * o.L_AT))
    store64(at, load64(line + 8 * o.L_ROWS) if step == _PREPARE else 0)
    store16(at + 8, size)
    copy(at + 10, gtids + load64(line + 8 * o.L_GTID) + load64(line + 8 * o.L_GTID_SIZE), size)
    at += 10 + size
    at = _put_tables(at, line if step == _PREPARE else 0, lists, names)
    store8(at, 0)
    return at + 1


@inline
def _put_group(at: int, group: int, first: Any, change_no: int, log_index: int, segment: int) -> int:
    """Writes the place of the event group that the line `group` describes; returns the address after it.

    `first` has the first line of the block, and two places in the segment: where the events of the first line begin,
    and where the block begins.
    """
    line, begin, base = first
    if group != line:
        begin = base + load64(group - 8 * o.LINE + 8 * o.L_BLOCK_END)
    store32(at, segment)
    store64(at + 4, begin)
    store64(at + 12, base + load64(group + 8 * o.L_BLOCK_END) - begin)
    return _put_lsn(at + 20, change_no, log_index, load64(group + 8 * o.L_BEGIN))


@jit
def _size_of(frames: int, count: int) -> int:
    at = frames
    for _ in range(count):
        at += FRAME_SIZE + load32(at)
    return at - frames


@jit
def _encode(numbers: Any, lines: Any, texts: Any, names: Any, steps: Any, targets: Any) -> int:
    """Writes all records; returns the number of ranges of consecutive GTIDs."""
    change_no, log_index, begin, base = numbers[_CHANGE_NO], numbers[_LOG_INDEX], numbers[_EXTENT], numbers[_BASE]
    prev_change_no, prev_log_index = numbers[_PREV_CHANGE_NO], numbers[_PREV_LOG_INDEX]
    prev_offset = numbers[_PREV_OFFSET]
    line, count = lines
    first = line, begin, base
    gtids, lists = texts
    matches, payloads, payload_ends, segment = steps
    target, gtid_ranges = targets
    found, prefix_at, prefix_size, reached = 0, 0, -1, 0
    for place in range(count):
        payload = target + FRAME_SIZE
        end, behind = load64(line + 8 * o.L_END), base + load64(line + 8 * o.L_BLOCK_END)
        gtid, size = gtids + load64(line + 8 * o.L_GTID), load64(line + 8 * o.L_GTID_SIZE)
        match = load64(matches + 8 * place) if matches else NO_GROUP
        if match < NO_GROUP:
            made = payload_ends + 8 * (ALONE - match)
            at = payload + load64(made + 8) - load64(made)
            copy(payload, payloads + load64(made), at - payload)
        else:
            step = load64(line + 8 * o.L_STEP)
            source = lines[0] + match * (8 * o.LINE) if match >= 0 else line
            store8(payload, ENTRY_RECORD)
            at = _put_lsn(payload + 1, change_no, log_index, end)
            at = _put_lsn(at, prev_change_no, prev_log_index, prev_offset)
            at = _put_lsn(at, change_no, log_index, load64(line + 8 * o.L_BEGIN))
            has_rows = step == 0 or match >= 0
            at = _put_facts(at, line, load64(source + 8 * o.L_ROWS) if has_rows else 0, begin, behind)
            store8(at, 0 if step == 0 else HAS_XA | HAS_PREPARED if match >= 0 else HAS_XA)
            store16(at + 1, size)
            copy(at + 3, gtid, size)
            at = _put_tables(at + 3 + size, source if has_rows else 0, lists, names)
            if step:
                at = _put_step(at, line, change_no, log_index, gtids, lists, names)
            if match >= 0:
                at = _put_group(at, source, first, change_no, log_index, segment)
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
