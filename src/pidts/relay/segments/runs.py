"""Joins neighbouring ordinary transactions to one entry, in compiled code.

The planner examines every entry several times, which takes longer in Python than writing a row to the target. So if
many small transactions follow each other, their records are joined to one entry.

A record is joined to the previous record only under these conditions: it names that record as its predecessor, and
begins at its end, in the log and in the segment; it has rows of the same tables and nothing else that matters to a plan
(no statement, no step of an XA transaction); its GTID is the next one. The checksums of a joined record are verified,
too. Any other record begins a new entry, so the reader's check that entries follow each other still finds every
irregularity.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from pidts.binlog.blocks.gtid_text import before_number
from pidts.binlog.blocks.ordinary import same
from pidts.binlog.crc import crc32_at
from pidts.binlog.jit import address, inline, jit, load8, load16, load32, load64
from pidts.model import Extent, LogEntry, Lsn, Transaction
from pidts.relay.segments.index import ENTRY_FIXED_SIZE, ENTRY_RECORD, FRAME_SIZE, LsnKey, decode_entry, payloads

_MOST = 1000
_BYTES = 1 << 20
"""The most bytes of one joined entry; a single transaction may be larger. A batch may exceed its limits by one entry. A
joined entry must not look like one large transaction, which a batch may cut into parts.
"""
_KEY, _PREV, _BEGIN, _TIMESTAMP, _ROWS, _OFFSET, _SIZE, _FLAGS = 1, 17, 33, 49, 53, 57, 65, 73

Stops = tuple[LsnKey, LsnKey]
Most = tuple[int, int]
"""The most transactions of one joined entry, and the most row events."""
_ANY: Most = 1 << 62, 1 << 62

(_COUNT, _BEHIND, _END, _TIME, _ALL_ROWS, _ALL_BYTES, _FIRST_NUMBER, _LAST_NUMBER, _FIELDS) = range(9)


@dataclass(frozen=True, slots=True)
class Joined:
    """The joined records of at least two transactions."""

    first: bytes
    """The payload of the first record."""
    key: LsnKey
    """The Lsn of the last record, as a sort key."""
    behind: int
    """The byte of the index where the next record begins."""
    count: int
    timestamp: int
    row_events: int
    size: int
    numbers: tuple[int, int]
    """The numbers of the first and the last GTID."""
    ends: bytes
    """The end of each transaction, as in `LogEntry`."""

    def entry(self, segment: int, previous: Lsn) -> LogEntry:
        """Returns one entry for all these transactions, with their GTIDs as a set."""
        entry = decode_entry(self.first, segment, previous)
        first, what = entry.transaction.gtid, entry.transaction
        gtid = first
        if first:
            prefix = first[: len(first) - len(str(self.numbers[0]))]
            # A MariaDB GTID set names only the last transaction, which stands for all earlier ones, too.
            gtid = f"{first}-{self.numbers[1]}" if ":" in first else f"{prefix}{self.numbers[1]}"
        transaction = Transaction(
            lsn=Lsn(*self.key),
            prev_lsn=what.prev_lsn,
            begin=what.begin,
            gtid=gtid,
            timestamp=self.timestamp or what.timestamp,
            row_events=self.row_events,
            tables=what.tables,
        )
        extent = Extent(segment, entry.extent.offset, self.size)
        return LogEntry(transaction, extent, count=self.count, ends=self.ends, first_timestamp=what.timestamp)


def joined_payloads(data: bytes, stops: Stops, most: Most | None = None) -> Iterator[tuple[int, bytes | Joined]]:
    """Yields the same as `payloads`, but neighbouring ordinary transactions are joined.

    Transactions up to one of the places `stops` are not joined with transactions after it.
    """
    at = 0
    while True:
        run = _joined(data, at, stops, most or _ANY) if len(data) - at > FRAME_SIZE else None
        if run is not None:
            at = run.behind
            yield at, run
            continue
        found = next(payloads(data, at), None)
        if found is None:
            return
        at = found[0]
        yield found


def _joined(data: bytes, at: int, stops: Stops, most: Most) -> Joined | None:
    found, ends = np.empty(_FIELDS, np.int64), np.empty(_MOST, np.int64)
    begin = address(data)
    count = _run(begin + at, begin + len(data), stops[0], stops[1], *most, found, ends)
    if count < 2:
        return None
    numbers = found.tolist()
    payload = at + FRAME_SIZE
    first = data[payload : payload + int.from_bytes(data[at : at + 4], "little")]
    change_no = int.from_bytes(first[_KEY : _KEY + 4], "little")
    log_index = int.from_bytes(first[_KEY + 4 : _KEY + 8], "little")
    key, behind = (change_no, log_index, numbers[_END]), numbers[_BEHIND] - begin
    gtids = numbers[_FIRST_NUMBER], numbers[_LAST_NUMBER]
    return Joined(
        first,
        key,
        behind,
        count,
        numbers[_TIME],
        numbers[_ALL_ROWS],
        numbers[_ALL_BYTES],
        gtids,
        ends[:count].tobytes(),
    )


@inline
def _payload(at: int, end: int) -> Any:
    """Returns the payload size of an intact record of an ordinary transaction; otherwise 0."""
    if end - at < FRAME_SIZE or crc32_at(at, 8, 0) != load32(at + 8):
        return 0
    size, payload = load32(at), at + FRAME_SIZE
    if size < ENTRY_FIXED_SIZE + 6 or end - payload < size or crc32_at(payload, size, 0) != load32(at + 4):
        return 0
    if load8(payload) != ENTRY_RECORD or load8(payload + _FLAGS) != 0 or load32(payload + _ROWS) == 0:
        return 0
    return size


@inline
def _number(at: int, end: int) -> int:
    number = 0
    while at < end:
        number = number * 10 + load8(at) - 48
        at += 1
    return number


@inline
def _is_at(payload: int, place: int, change_no: int, log_index: int, offset: int) -> Any:
    at = payload + place
    return load32(at) == change_no and load32(at + 4) == log_index and load64(at + 8) == offset


@inline
def _crosses(stop: Any, change_no: int, log_index: int, last: int, now: int) -> Any:
    return stop[0] == change_no and stop[1] == log_index and last <= stop[2] < now


@jit
def _run(at: int, end: int, stop: Any, other_stop: Any, most: int, most_rows: int, found: Any, ends: Any) -> int:
    size = _payload(at, end)
    if size == 0:
        return 0
    first = at + FRAME_SIZE
    change_no, log_index, last = load32(first + _KEY), load32(first + _KEY + 4), load64(first + _KEY + 8)
    gtid_size = load16(first + ENTRY_FIXED_SIZE)
    gtid = first + ENTRY_FIXED_SIZE + 2
    prefix = before_number(gtid, gtid_size)
    number = _number(gtid + prefix, gtid + gtid_size)
    tables, tables_size = gtid + gtid_size, size - ENTRY_FIXED_SIZE - 2 - gtid_size
    begin, extent_end = load64(first + _OFFSET), load64(first + _OFFSET) + load64(first + _SIZE)
    found[_FIRST_NUMBER] = number
    ends[0] = last
    timestamp, rows, count = load32(first + _TIMESTAMP), load32(first + _ROWS), 1
    at = first + size
    while count < min(most, _MOST):
        size = _payload(at, end)
        if size == 0:
            break
        payload = at + FRAME_SIZE
        if rows + load32(payload + _ROWS) > most_rows:
            break
        if not (
            _is_at(payload, _PREV, change_no, log_index, last) and _is_at(payload, _BEGIN, change_no, log_index, last)
        ):
            break
        now = load64(payload + _KEY + 8)
        if not _is_at(payload, _KEY, change_no, log_index, now) or now <= last:
            break
        if _crosses(stop, change_no, log_index, last, now) or _crosses(other_stop, change_no, log_index, last, now):
            break
        if load64(payload + _OFFSET) != extent_end or extent_end + load64(payload + _SIZE) - begin > _BYTES:
            break
        other_size = load16(payload + ENTRY_FIXED_SIZE)
        other = payload + ENTRY_FIXED_SIZE + 2
        if size - ENTRY_FIXED_SIZE - 2 - other_size != tables_size or not same(other + other_size, tables, tables_size):
            break
        if before_number(other, other_size) != prefix or not same(other, gtid, prefix):
            break
        if gtid_size:
            if _number(other + prefix, other + other_size) != number + 1:
                break
            number += 1
        elif other_size:
            break
        timestamp = load32(payload + _TIMESTAMP) or timestamp
        rows += load32(payload + _ROWS)
        extent_end += load64(payload + _SIZE)
        last = now
        ends[count] = now
        count += 1
        at = payload + size
    found[_COUNT], found[_BEHIND], found[_END], found[_TIME] = count, at, last, timestamp
    found[_ALL_ROWS], found[_ALL_BYTES], found[_LAST_NUMBER] = rows, extent_end - begin, number
    return count
