"""Joins the records of several successive transactions in the relay's index to one entry, in compiled code.

The planner examines every entry several times. In Python, this takes longer than writing a row to the target. So the
records of many successive small transactions are joined to one entry. This module joins ordinary transactions with each
other, and steps of XA transactions with each other.

A record is joined to the previous record only under these conditions:

- It names the previous record as its predecessor, and begins where that record ends, in the log and in the segment.
- It has rows of the same tables, and no statement.
- The number in its GTID is the next number.
- Its checksums are right.

Any other record begins a new entry. So the reader, which checks that entries follow each other, still finds every gap.

An ordinary transaction and a step of an XA transaction are never in one entry. The rows of an XA COMMIT are not at the
COMMIT's place in the log, but in the event group that prepared the transaction. The COMMIT's record names this group.

An entry of XA steps begins with a COMMIT. The time of an entry is the time of its first transaction, and a PREPARE
applies nothing. So if an entry began with a PREPARE, its time could be much earlier than the first change that it
applies. Two kinds of records may follow: COMMITs of groups in the same segment and log file, and steps that have
nothing to apply (PREPARE, ROLLBACK). If the rows of a COMMIT are unknown, its record is not joined, since the task
halts there.
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
from pidts.model import CommittedEventGroups, Extent, LogEntry, Lsn, Transaction, XaStep
from pidts.model.transaction import GROUP_NUMBERS
from pidts.relay.segments.index import (
    ENTRY_FIXED_SIZE,
    ENTRY_RECORD,
    FRAME_SIZE,
    HAS_PREPARED,
    HAS_XA,
    PREPARED_SIZE,
    XA_FIXED_SIZE,
    LsnKey,
    decode_entry,
    payloads,
)

_MOST = 1000
_BYTES = 1 << 20
"""The largest size of a joined entry in bytes; a single transaction may be larger. The limit is small for two reasons:
a batch may exceed its limits by one entry, and a large entry would look like one large transaction, which a batch may
cut into parts.
"""
_KEY, _PREV, _BEGIN, _TIMESTAMP, _ROWS, _OFFSET, _SIZE, _FLAGS = 1, 17, 33, 49, 53, 57, 65, 73
_XA_AT, _XA_AT_OFFSET = 1, 9
"""Offsets in the step of a record: of the Lsn of the step's event, and of the byte in this Lsn."""
_GROUP_SEGMENT, _GROUP_OFFSET, _GROUP_SIZE, _GROUP_FILE, _GROUP_BEGIN = 0, 4, 12, 20, 28
"""The offsets of a prepared group's numbers, from the first of these numbers on."""
_COMMITTED = HAS_XA | HAS_PREPARED
_COMMIT = int(XaStep.COMMIT)
_OTHER, _PLAIN, _XA_COMMIT, _XA_STEP = range(4)
"""The kinds of records: one that is not joined, an ordinary transaction, an XA COMMIT with rows, another step."""

Stops = tuple[LsnKey, LsnKey]
Most = tuple[int, int]
"""The most transactions and the most row events that one joined entry may have."""
_ANY: Most = 1 << 62, 1 << 62

(_COUNT, _BEHIND, _END, _TIME, _ALL_ROWS, _ALL_BYTES, _FIRST_NUMBER, _LAST_NUMBER, _GROUPS, _FIELDS) = range(10)


@dataclass(frozen=True, slots=True)
class JoinedTransactions:
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
    groups: bytes
    """The prepared groups, as in `CommittedEventGroups`; empty for ordinary transactions."""

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
        extent, groups = Extent(segment, entry.extent.offset, self.size), None
        if self.groups and entry.prepared is not None and what.xa is not None:
            groups = CommittedEventGroups(entry.prepared.segment, entry.prepared.begin, what.xa.at, self.groups)
        return LogEntry(
            transaction,
            extent,
            count=self.count,
            ends=self.ends,
            first_timestamp=what.timestamp,
            joined_groups=groups,
        )


def joined_payloads(
    data: bytes, stops: Stops, most: Most | None = None
) -> Iterator[tuple[int, bytes | JoinedTransactions]]:
    """Yields the same as `payloads`, but neighbouring ordinary transactions are joined.

    A transaction before one of the places `stops` is not joined with a transaction after it. `most` limits the
    transactions and the row events of one entry; None: no limit.
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


def _joined(data: bytes, at: int, stops: Stops, most: Most) -> JoinedTransactions | None:
    found, ends = np.empty(_FIELDS, np.int64), np.empty(_MOST, np.int64)
    groups = np.empty((_MOST, GROUP_NUMBERS), np.int64)
    begin = address(data)
    count = _run(begin + at, begin + len(data), stops, *most, found, ends, groups)
    if count < 2:
        return None
    numbers = found.tolist()
    payload = at + FRAME_SIZE
    first = data[payload : payload + int.from_bytes(data[at : at + 4], "little")]
    change_no = int.from_bytes(first[_KEY : _KEY + 4], "little")
    log_index = int.from_bytes(first[_KEY + 4 : _KEY + 8], "little")
    key, behind = (change_no, log_index, numbers[_END]), numbers[_BEHIND] - begin
    gtids = numbers[_FIRST_NUMBER], numbers[_LAST_NUMBER]
    return JoinedTransactions(
        first,
        key,
        behind,
        count,
        numbers[_TIME],
        numbers[_ALL_ROWS],
        numbers[_ALL_BYTES],
        gtids,
        ends[:count].tobytes(),
        groups[: numbers[_GROUPS]].tobytes(),
    )


@inline
def _payload(at: int, end: int) -> Any:
    """Returns the size of the payload if an intact record of a transaction is at `at`; 0 if not."""
    if end - at < FRAME_SIZE or crc32_at(at, 8, 0) != load32(at + 8):
        return 0
    size, payload = load32(at), at + FRAME_SIZE
    if size < ENTRY_FIXED_SIZE + 6 or end - payload < size or crc32_at(payload, size, 0) != load32(at + 4):
        return 0
    return size if load8(payload) == ENTRY_RECORD else 0


@inline
def _step_at(payload: int) -> Any:
    """Returns the address of the XA step in a record without a statement; the record's end if it has no step."""
    tables = payload + ENTRY_FIXED_SIZE + 2 + load16(payload + ENTRY_FIXED_SIZE)
    return tables + 4 + load32(tables)


@jit
def _kind(payload: int, size: int) -> int:
    """Returns the kind of an intact record."""
    flags, rows = load8(payload + _FLAGS), load32(payload + _ROWS)
    if flags not in (0, HAS_XA, _COMMITTED) or load16(payload + ENTRY_FIXED_SIZE) > size - ENTRY_FIXED_SIZE - 6:
        return _OTHER
    step = _step_at(payload)
    rest = payload + size - step
    if flags == 0:
        return _PLAIN if rows and rest == 0 else _OTHER
    if rest < XA_FIXED_SIZE:
        return _OTHER
    if flags == HAS_XA:
        return _XA_STEP if rows == 0 and load8(step) != _COMMIT else _OTHER
    is_whole = rest >= XA_FIXED_SIZE + PREPARED_SIZE and load8(step) == _COMMIT and rows != 0
    return _XA_COMMIT if is_whole else _OTHER


@inline
def _is_like(payload: int, size: int, first: int, first_size: int) -> Any:
    """Whether two COMMITs are in the same log file, and their groups in the same log file and segment."""
    one, other = _step_at(payload) + _XA_AT, _step_at(first) + _XA_AT
    group, first_group = payload + size - PREPARED_SIZE, first + first_size - PREPARED_SIZE
    return (
        load64(one) == load64(other)
        and load32(group + _GROUP_SEGMENT) == load32(first_group + _GROUP_SEGMENT)
        and load64(group + _GROUP_FILE) == load64(first_group + _GROUP_FILE)
    )


@inline
def _put_group(payload: int, size: int, groups: Any, place: int) -> None:
    group = payload + size - PREPARED_SIZE
    groups[place, 0], groups[place, 1] = load64(group + _GROUP_OFFSET), load64(group + _GROUP_SIZE)
    groups[place, 2] = load64(group + _GROUP_BEGIN)
    groups[place, 3] = load64(_step_at(payload) + _XA_AT_OFFSET)
    groups[place, 4] = load32(payload + _TIMESTAMP)


@inline
def _tables_size(payload: int, gtid_size: int) -> Any:
    """Returns the size of the tables' names and of the number before them."""
    return 4 + load32(payload + ENTRY_FIXED_SIZE + 2 + gtid_size)


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


@inline
def _follows(payload: int, first: int, last: int, stop: Any, other_stop: Any) -> Any:
    """Whether a record follows the record that ends at byte `last` of the log file, with no stop between the two."""
    change_no, log_index, now = load32(first + _KEY), load32(first + _KEY + 4), load64(payload + _KEY + 8)
    return (
        _is_at(payload, _PREV, change_no, log_index, last)
        and _is_at(payload, _BEGIN, change_no, log_index, last)
        and _is_at(payload, _KEY, change_no, log_index, now)
        and now > last
        and not _crosses(stop, change_no, log_index, last, now)
        and not _crosses(other_stop, change_no, log_index, last, now)
    )


@inline
def _has_gtid(payload: int, gtid: int, prefix: int, number: int) -> Any:
    """Whether a GTID consists of another GTID's first `prefix` bytes and this number.

    If the number is negative: whether the GTID is empty.
    """
    size, other = load16(payload + ENTRY_FIXED_SIZE), payload + ENTRY_FIXED_SIZE + 2
    if number < 0:
        return size == 0
    is_alike = before_number(other, size) == prefix and same(other, gtid, prefix)
    return is_alike and _number(other + prefix, other + size) == number


@inline
def _has_tables(payload: int, tables: int, size: int) -> Any:
    """Whether a record names the same tables: `tables` and `size` are the place and the size of their encoded list."""
    gtid_size = load16(payload + ENTRY_FIXED_SIZE)
    return _tables_size(payload, gtid_size) == size and same(payload + ENTRY_FIXED_SIZE + 2 + gtid_size, tables, size)


@jit
def _run(at: int, end: int, stops: Any, most: int, most_rows: int, found: Any, ends: Any, groups: Any) -> int:
    size = _payload(at, end)
    if size == 0:
        return 0
    first, first_size, kind = at + FRAME_SIZE, size, _kind(at + FRAME_SIZE, size)
    if kind not in (_PLAIN, _XA_COMMIT):
        return 0
    gtid_size, gtid = load16(first + ENTRY_FIXED_SIZE), first + ENTRY_FIXED_SIZE + 2
    prefix = before_number(gtid, gtid_size)
    number = _number(gtid + prefix, gtid + gtid_size)
    tables, tables_size = gtid + gtid_size, _tables_size(first, gtid_size)
    last, begin = load64(first + _KEY + 8), load64(first + _OFFSET)
    extent_end = begin + load64(first + _SIZE)
    found[_FIRST_NUMBER] = number
    ends[0] = last
    timestamp, rows, count = load32(first + _TIMESTAMP), load32(first + _ROWS), 1
    group_count = group_bytes = 0
    if kind == _XA_COMMIT:
        _put_group(first, size, groups, 0)
        group_count, group_bytes = 1, groups[0, 1]
        if group_bytes > _BYTES:
            return 0
    at = first + size
    while count < min(most, _MOST):
        size = _payload(at, end)
        payload = at + FRAME_SIZE
        this = _kind(payload, size) if size else _OTHER
        if this != kind and (kind == _PLAIN or this != _XA_STEP):
            break
        if rows + load32(payload + _ROWS) > most_rows or not _follows(payload, first, last, stops[0], stops[1]):
            break
        if load64(payload + _OFFSET) != extent_end or extent_end + load64(payload + _SIZE) - begin > _BYTES:
            break
        if not _has_gtid(payload, gtid, prefix, number + 1 if gtid_size else -1):
            break
        if this != _XA_STEP and not _has_tables(payload, tables, tables_size):
            break
        if this == _XA_COMMIT:
            group_bytes += load64(payload + size - PREPARED_SIZE + _GROUP_SIZE)
            if group_bytes > _BYTES or not _is_like(payload, size, first, first_size):
                break
            _put_group(payload, size, groups, group_count)
            group_count += 1
        number += 1
        timestamp = load32(payload + _TIMESTAMP) or timestamp
        rows += load32(payload + _ROWS)
        extent_end += load64(payload + _SIZE)
        last = ends[count] = load64(payload + _KEY + 8)
        count += 1
        at = payload + size
    found[_COUNT], found[_BEHIND], found[_END], found[_TIME] = count, at, last, timestamp
    found[_ALL_ROWS], found[_ALL_BYTES], found[_LAST_NUMBER] = rows, extent_end - begin, number
    found[_GROUPS] = group_count
    return count
