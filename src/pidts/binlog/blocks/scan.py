"""Scans blocks of events: ordinary transactions in compiled code, all others with the reference classes.

A `LogWalker` and a `TransactionScanner` follow the log, one event at a time. With this module, their caller can skip
many neighbouring events at once (`OrdinaryEvents`). Both then have the same state as if they had read every event, so
the caller may feed them the next event at any time.

The skipped events may begin between two transactions. They may also begin inside a transaction, if all its earlier
events were skipped, too: none of them was fed to the walker and the scanner.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pidts.binlog.blocks import ordinary as o
from pidts.binlog.blocks.gtid_text import GTID_ROOM
from pidts.binlog.crc import crc32
from pidts.binlog.events import CHECKSUM_SIZE, HEADER, HEADER_SIZE, is_artificial
from pidts.binlog.jit import address
from pidts.binlog.kernel.payloads import MOST, UnpackedTransactions
from pidts.binlog.rows_event import ROW_EVENTS
from pidts.binlog.scan import OpenTransaction, TransactionScanner, held_back
from pidts.binlog.table_map import table_name
from pidts.binlog.walk import LogWalker
from pidts.model.errors import DecodeError
from pidts.model.lsn import Lsn
from pidts.model.table import TableName
from pidts.model.transaction import Transaction, Xa, XaStep

_LINES = 8192
_TEXT = 1 << 19
_LIST = 1 << 16
_TABLES = 1 << 10
_KEY_AT = HEADER_SIZE + 8
_NOTHING_UNPACKED = UnpackedTransactions.none()
_FEW_UNPACKED = 4
"""The number of compressed transactions that are decompressed together at first. If all were used, the next number is
doubled.
"""


@dataclass(frozen=True, slots=True)
class OrdinaryEvents:
    """Neighbouring ordinary events, and the transactions that end in them; valid until the next call of `run`."""

    end: int
    """The first byte of the block after these events."""
    events: int
    previous: Lsn
    """The Lsn of the last transaction before these events."""
    change_no: int
    log_index: int
    lines: Any
    """A row per transaction, with columns named `L_...` in `pidts.binlog.blocks.ordinary`."""
    texts: Any
    """The texts of GTIDs; a line has the place of its GTID. An XA transaction's name follows the GTID of its step."""
    lists: Any
    """The tables of transactions, as indexes of `names`; a line has the place and the number of its tables."""
    names: Sequence[TableName]
    steps: int
    """The number of transactions that are steps of XA transactions."""

    @property
    def ends(self) -> Any:
        """Returns, for each transaction, the first byte of the log file after it."""
        return self.lines[:, o.L_END].copy()

    @property
    def begins(self) -> Any:
        """Returns, for each transaction, its first byte in the log file."""
        return self.lines[:, o.L_BEGIN].copy()

    @property
    def block_ends(self) -> list[int]:
        """Returns, for each transaction, the first byte of the block after it."""
        ends: list[int] = self.lines[:, o.L_BLOCK_END].tolist()
        return ends

    @property
    def last(self) -> Lsn:
        """Returns the Lsn of the last transaction."""
        return Lsn(self.change_no, self.log_index, int(self.lines[-1, o.L_END]))

    def last_begin(self, first: int) -> int | None:
        """Returns the byte of the block with which the last transaction begins; None if it began in an earlier block.

        `first` is the byte of the block at which these ordinary events begin.
        """
        if not len(self.lines):
            return None
        line = self.lines[-1]
        begin = int(line[o.L_BLOCK_END] - (line[o.L_END] - line[o.L_BEGIN]))
        return begin if begin >= first else None

    @property
    def gtids(self) -> list[str]:
        """Returns the GTID of each transaction."""
        if not len(self.lines):
            return []
        text = self.texts[: self.lines[-1, o.L_GTID] + self.lines[-1, o.L_GTID_SIZE]].tobytes().decode("ascii")
        places = self.lines[:, [o.L_GTID, o.L_GTID_SIZE]].tolist()
        return [text[at : at + size] for at, size in places]

    def transactions(self) -> Iterator[Transaction]:
        """Yields the transactions one by one, as the scanner would return them."""
        previous, change_no, log_index = self.previous, self.change_no, self.log_index
        tables: dict[bytes, tuple[TableName, ...]] = {}
        for place, (line, gtid) in enumerate(zip(self.lines.tolist(), self.gtids, strict=True)):
            lsn = Lsn(change_no, log_index, line[o.L_END])
            if line[o.L_STEP]:
                yield self.step(place, previous)
                previous = lsn
                continue
            numbers = self.lists[line[o.L_TABLES] : line[o.L_TABLES] + line[o.L_TABLE_COUNT]]
            if (key := numbers.tobytes()) not in tables:
                tables[key] = tuple(self.names[number] for number in numbers)
            follows = (change_no, log_index, line[o.L_BEGIN]) == (
                previous.change_no,
                previous.log_index,
                previous.offset,
            )
            yield Transaction(
                lsn=lsn,
                prev_lsn=previous,
                begin=previous if follows else Lsn(change_no, log_index, line[o.L_BEGIN]),
                gtid=gtid,
                timestamp=line[o.L_TIMESTAMP],
                row_events=line[o.L_ROWS],
                tables=tables[key],
            )
            previous = lsn

    def step(self, place: int, previous: Lsn) -> Transaction:
        """Returns the step of an XA transaction with this index; `previous` is the Lsn of the transaction before it."""
        line = self.lines[place].tolist()
        lsn = Lsn(self.change_no, self.log_index, line[o.L_END])
        begin, gtid = replace(lsn, offset=line[o.L_BEGIN]), line[o.L_GTID]
        numbers = self.lists[line[o.L_TABLES] : line[o.L_TABLES] + line[o.L_TABLE_COUNT]]
        found = Transaction(
            lsn=lsn,
            prev_lsn=previous,
            begin=previous if begin == previous else begin,
            gtid=self.texts[gtid : gtid + line[o.L_GTID_SIZE]].tobytes().decode("ascii"),
            timestamp=line[o.L_TIMESTAMP],
            row_events=line[o.L_ROWS],
            tables=tuple(self.names[number] for number in numbers),
        )
        xa = Xa(step=XaStep(line[o.L_STEP]), xid=self.xid(place), at=replace(lsn, offset=line[o.L_AT]))
        return held_back(found, xa)

    def xid(self, place: int) -> str:
        """Returns the name of the XA transaction to which the step with this index belongs."""
        line = self.lines[place]
        at = int(line[o.L_GTID] + line[o.L_GTID_SIZE])
        return str(self.texts[at : at + int(line[o.L_XID_SIZE])].tobytes().decode("ascii"))


class _LongEvent:
    """An event that is too long for memory; its checksum is computed piece by piece."""

    def __init__(self, kind: int, timestamp: int, offset: int, size: int, *, checksum: bool) -> None:
        self.kind, self.timestamp, self.offset, self.size = kind, timestamp, offset, size
        self.fed = self.computed = 0
        self._summed = size - CHECKSUM_SIZE if checksum else 0
        self._tail = b""

    def feed(self, piece: memoryview) -> None:
        """Adds the next bytes."""
        summed = max(0, min(len(piece), self._summed - self.fed))
        if summed:
            self.computed = crc32(piece[:summed], self.computed)
        if self._summed:
            self._tail += piece[summed : summed + CHECKSUM_SIZE]
        self.fed += len(piece)

    @property
    def stored(self) -> int:
        """Returns the checksum at the event's end; 0 if there is none."""
        return int.from_bytes(self._tail[:CHECKSUM_SIZE], "little")


class BlockScan:
    """Skips ordinary events for one walker and one scanner."""

    def __init__(self, walker: LogWalker, scanner: TransactionScanner, *, takes_steps: bool = False) -> None:
        """`takes_steps`: steps of XA transactions are read like ordinary transactions."""
        self._walker, self.scanner = walker, scanner
        self._names: list[TableName] = []
        self._keys: list[bytes] = []
        self._state = np.zeros(o.STATE_SIZE, np.int64)
        self._lines = np.zeros((_LINES, o.LINE), np.int64)
        self._texts = np.zeros(_TEXT, np.uint8)
        self._gtid = np.zeros(GTID_ROOM, np.uint8)
        self._plain = o.plain_charsets()
        self._long: _LongEvent | None = None
        self._unpacked, self._most_unpacked = _NOTHING_UNPACKED, _FEW_UNPACKED
        self._give(o.LINES, self._lines, o.LINE_ROOM)
        self._give(o.TEXTS, self._texts, o.TEXT_ROOM)
        self._give(o.GTID, self._gtid)
        self._give(o.CHARSETS, self._plain)
        self._state[o.STEPS] = takes_steps
        self._met, self._tables, self._lists = (np.zeros(0, kind) for kind in (np.int64, np.uint32, np.uint32))
        self._make_room(_TABLES)

    def run(self, block: memoryview, at: int, limit: int) -> OrdinaryEvents | None:
        """Skips ordinary events from byte `at` of the block on. Returns None if the first event is not ordinary.

        The skipped events end before the first event that is not ordinary, after the first transaction that ends at or
        after byte `limit`, or when there is no more room for results.
        """
        if not self._begin(limit):
            return None
        state, where = self._state, address(block)
        previous = self.scanner.previous
        state[o.UNPACKED_COUNT], self._unpacked = 0, _NOTHING_UNPACKED
        while (reason := o.scan(state, where, at, len(block))) in (o.UNKNOWN_TABLE, o.PACKED):
            at = int(state[o.STOPPED])
            if not (self._unpack(block, at) if reason == o.PACKED else self._learn(self._names_at(block, at))):
                break
        if len(self._unpacked) and self._unpacked.entries[-1, 0] >= state[o.STOPPED]:
            self._most_unpacked = _FEW_UNPACKED
        if not state[o.EVENTS]:
            return None
        self._end()
        return OrdinaryEvents(
            end=int(state[o.STOPPED]),
            events=int(state[o.EVENTS]),
            previous=previous,
            change_no=self.scanner.change_no,
            log_index=self._walker.log_index,
            lines=self._lines[: state[o.LINE_COUNT]],
            texts=self._texts,
            lists=self._lists,
            names=self._names,
            steps=int(state[o.STEP_COUNT]),
        )

    def begin_long(self, head: memoryview) -> bool:
        """Whether an event with the header `head` may be fed in pieces here; if so, prepares for the pieces."""
        if len(head) < HEADER_SIZE or not self._begin(0) or not self._state[o.OPEN]:
            return False
        timestamp, kind, _, size, log_pos, flags = HEADER.unpack_from(head)
        offset = o.place(int(self._state[o.OFFSET]), log_pos, size)
        if kind not in ROW_EVENTS or is_artificial(kind, flags, log_pos) or offset < self._state[o.OFFSET]:
            return False
        if offset + size >= o.LAST_OFFSET or size < HEADER_SIZE + CHECKSUM_SIZE:
            return False
        self._long = _LongEvent(kind, timestamp, offset, size, checksum=bool(self._state[o.CHECKSUMS]))
        return True

    def feed_long(self, piece: memoryview, *, last: bool) -> None:
        """Adds the next piece of the long event. After the last piece, checks the checksum and counts the event."""
        event = self._long
        if event is None:
            raise AssertionError("no long event has begun")
        event.feed(piece)
        if not last:
            return
        self._long = None
        self._walker.check(event.kind, (event.size, event.stored), (event.fed, event.computed))
        state = self._state
        state[o.ROW_COUNT] += 1
        state[o.OFFSET] = event.offset + event.size
        state[o.TIMESTAMP] = event.timestamp or state[o.TIMESTAMP]
        self._end()

    def _begin(self, limit: int) -> bool:
        """Loads the state from the walker and the scanner; returns whether events may be skipped here."""
        walker, scanner, state = self._walker, self.scanner, self._state
        log_format = walker.format
        if log_format is None or not scanner.may_skip:
            return False
        previous, here = scanner.previous, (scanner.change_no, walker.log_index)
        same_file = (previous.change_no, previous.log_index) == here
        if not same_file and (previous.change_no, previous.log_index) > here:
            return False
        state[o.OPEN] = scanner.in_transaction
        state[o.OFFSET], state[o.TIMESTAMP] = walker.offset, scanner.timestamp
        state[o.PREVIOUS] = previous.offset if same_file else -1
        state[o.CHECKSUMS], state[o.LIMIT] = log_format.checksum, limit
        for place in (o.EVENTS, o.LINE_COUNT, o.TEXT_SIZE, o.LIST_SIZE, o.STEP_COUNT):
            state[place] = 0
        return True

    def _end(self) -> None:
        """Sets the walker and the scanner to the place where the skipped events have ended."""
        state, walker, scanner = self._state, self._walker, self.scanner
        walker.offset = int(state[o.OFFSET])
        here, timestamp = (scanner.change_no, walker.log_index), int(state[o.TIMESTAMP])
        if state[o.LINE_COUNT]:
            scanner.skip_to(Lsn(*here, int(state[o.PREVIOUS])), timestamp)
        if state[o.OPEN]:
            tables = tuple(self._names[number] for number in self._tables[: state[o.TABLE_COUNT]])
            opened = OpenTransaction(bool(state[o.EXPLICIT]), int(state[o.ROW_COUNT]), tables)
            gtid = self._gtid[: state[o.GTID_SIZE]].tobytes().decode("ascii")
            scanner.skip_into(Lsn(*here, int(state[o.BEGIN])), gtid, timestamp, opened)

    def _unpack(self, block: memoryview, at: int) -> bool:
        """Decompresses the transactions from byte `at` of the block on.

        If all of them are used, the next call decompresses twice as many. Returns False if the first transaction has to
        be decompressed by itself.
        """
        tail = CHECKSUM_SIZE if self._state[o.CHECKSUMS] else 0
        self._unpacked, state = UnpackedTransactions.of(block, at, tail, self._most_unpacked), self._state
        self._most_unpacked = min(2 * self._most_unpacked, MOST)
        entries = self._unpacked.entries
        state[o.UNPACKED], state[o.UNPACKED_COUNT], state[o.UNPACKED_NEXT] = address(entries), len(entries), 0
        return len(entries) > 0 and int(entries[0, 0]) == at

    def _names_at(self, block: memoryview, at: int) -> memoryview:
        """Returns the bytes that begin with the names of the unknown table at which the scan has stopped."""
        inner_at = int(self._state[o.INNER_AT])
        if inner_at < 0:
            return block[at + _KEY_AT :]
        return self._unpacked.events(at)[inner_at + _KEY_AT :]

    def _learn(self, rest: memoryview) -> bool:
        """Assigns a number to the table whose names come next in the block; returns False for malformed names."""
        where = address(rest)
        key = bytes(rest[: o.key_size(where, where + len(rest))])
        try:
            name = table_name(bytes(8) + key)
        except DecodeError:
            return False
        self._names.append(name)
        self._keys.append(key)
        if 2 * len(self._keys) > len(self._slots) or self._ends[len(self._keys) - 1] + len(key) > len(self._arena):
            self._make_room(2 * len(self._slots))
        else:
            self._enter(len(self._keys) - 1)
        return True

    def _make_room(self, slots: int) -> None:
        """Makes room for `slots` / 2 tables. Known tables keep their numbers, so earlier results stay valid."""
        count = slots // 2
        self._slots = np.zeros(slots, np.uint32)
        self._ends = np.zeros(count + 1, np.int64)
        self._arena = np.zeros(max(64 * count, 2 * sum(map(len, self._keys))), np.uint8)
        self._met = _longer(self._met, count)
        self._tables = _longer(self._tables, count)
        self._lists = _longer(self._lists, _LIST + count)
        self._give(o.SLOTS, self._slots)
        self._give(o.NAME_ENDS, self._ends)
        self._give(o.NAMES, self._arena)
        self._give(o.MET, self._met)
        self._give(o.TABLES, self._tables)
        self._give(o.LISTS, self._lists, o.LIST_ROOM)
        self._state[o.SLOT_MASK] = slots - 1
        for number in range(len(self._keys)):
            self._enter(number)

    def _enter(self, number: int) -> None:
        key = self._keys[number]
        begin = int(self._ends[number])
        end = begin + len(key)
        self._arena[begin:end] = np.frombuffer(key, np.uint8)
        self._ends[number + 1] = end
        slot = o.hash_of(address(key), len(key)) & len(self._slots) - 1
        while self._slots[slot]:
            slot = slot + 1 & len(self._slots) - 1
        self._slots[slot] = number + 1

    def _give(self, place: int, array: Any, room: int | None = None) -> None:
        """Stores an array's address in the state for compiled code, and its length if `room` names a place for it."""
        self._state[place] = array.ctypes.data
        if room is not None:
            self._state[room] = len(array)


def _longer(array: Any, size: int) -> Any:
    longer = np.zeros(size, array.dtype)
    longer[: len(array)] = array
    return longer
