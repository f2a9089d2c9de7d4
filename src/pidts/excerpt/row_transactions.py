"""Finds what a part of a log contains besides rows: GTIDs, ids and times of the rows' transactions, and statements."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pidts.binlog import Event, EventType, Format, LogWalker, Query, TransactionScanner, iter_raw
from pidts.binlog.compressed import payload_events
from pidts.binlog.event_group_places import EventGroupPlaces
from pidts.binlog.events import HEADER_SIZE
from pidts.binlog.statements import Control
from pidts.binlog.transactions import TransactionReader
from pidts.excerpt.cut import DecodeRange, LogSelection
from pidts.model import Lsn, Transaction

_QUERIES = frozenset({EventType.QUERY, EventType.QUERY_COMPRESSED, EventType.EXECUTE_LOAD_QUERY})

Numbers = NDArray[np.int64]
_HEADER = np.dtype(
    [("time", "<u4"), ("kind", "u1"), ("server", "<u4"), ("size", "<u4"), ("end", "<u4"), ("flags", "<u2")]
)
_SIZE = struct.Struct("<I")
_SIZE_AT = 9
_WRAP = 2**32


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement that is shown as a row."""

    lsn: Lsn
    database: str
    table: str
    text: str


class RowTransactions:
    """Finds the transactions and times of many rows of one log part at once, and the statements of the log part."""

    def __init__(self, log_part: DecodeRange, log_format: Format, raw: bytes) -> None:
        self._log_part, self._format, self._raw = log_part, log_format, memoryview(raw)
        self._events = EventPlaces(self._raw, log_part.begin.offset)
        self.gtids: list[str | None] = []
        """The GTID of each transaction; None for a transaction without one."""
        self.begins = self.ends = np.array([], np.int64)
        """The bytes in the log file at which each transaction begins and ends."""
        self._with_statements: list[Transaction] = []
        if log_part.commit is not None:
            self.begins, self.ends = self._take(log_part.commit)
        else:
            self._scan()

    def _scan(self) -> None:
        log_part = self._log_part
        walker = LogWalker(log_part.file, log_part.begin.offset, self._format)
        reader = TransactionReader(walker, TransactionScanner(log_part.begin.change_no, log_part.begin))
        places = [(self.begins, self.ends)]
        for found in reader.read(self._raw):
            if not isinstance(found.what, Transaction):
                places.append((found.what.begins, found.what.ends))
                self.gtids += [gtid or None for gtid in found.what.gtids]
            elif not found.what.is_empty:
                places.append(self._take(found.what))
        self.begins, self.ends = map(np.concatenate, zip(*places, strict=True))

    def _take(self, transaction: Transaction) -> tuple[Numbers, Numbers]:
        self.gtids.append(transaction.gtid or None)
        if transaction.ddl is not None:
            self._with_statements.append(transaction)
        return np.array([transaction.begin.offset], np.int64), np.array([transaction.lsn.offset], np.int64)

    def transaction_of(self, offsets: Numbers) -> Numbers:
        """Returns the index of each row's transaction; `offsets` are the places of the rows' events."""
        if self._log_part.commit is not None:
            return np.zeros(len(offsets), np.int64)
        return np.searchsorted(self.ends, offsets, side="right").astype(np.int64)

    def times(self, offsets: Numbers) -> Numbers:
        """Returns the times at which the events at these bytes of the log were executed, in seconds since 1970."""
        if self._log_part.commit is not None:
            return np.full(len(offsets), self._log_part.commit.timestamp, np.int64)
        return self._events.times(offsets)

    def xids(self) -> list[int | None]:
        """Returns the XID that ends each transaction, also inside a compressed event; None if another event ends it."""
        if self._log_part.commit is not None:
            return [None]
        events = self._events
        last = np.searchsorted(events.offsets, self.ends) - 1
        numbers: list[int | None] = events.numbers(last).tolist()
        for place in np.flatnonzero(events.kinds[last] != EventType.XID).tolist():
            event = int(last[place])
            packed = events.kinds[event] == EventType.TRANSACTION_PAYLOAD
            numbers[place] = self._packed_xid(int(events.at[event])) if packed else None
        return numbers

    def _packed_xid(self, at: int) -> int | None:
        (event,) = self._walk(slice(at, at + int.from_bytes(self._raw[at + 9 : at + 13], "little")), 0)
        *_, (_, last) = payload_events(event)
        return int.from_bytes(last.body[:8], "little", signed=True) if last.type == EventType.XID else None

    def statements(self, wanted: LogSelection, holds: Callable[[Lsn], bool]) -> Iterator[Statement]:
        """Yields the statements that the query shows and that are in the query's range."""
        for transaction in self._with_statements:
            commit = transaction.xa if transaction is self._log_part.commit else None
            begin = self._log_part.begin.offset if commit else transaction.begin.offset
            part = slice(None) if commit else self._events.between(begin, transaction.lsn.offset)
            places = EventGroupPlaces()
            for event in self._walk(part, begin):
                first = places.of(event)
                for place, query in _queries(event):
                    if commit is not None:
                        lsn = commit.at.at_row(first)
                    else:
                        lsn = Lsn(transaction.lsn.change_no, event.log_index, event.offset, place)
                    if holds(lsn) and (found := wanted.shown(query, lsn)):
                        (name,) = found[0].tables if len(found[0].tables) == 1 else (None,)
                        schema, table = (name.schema, name.name) if name else (query.schema, "")
                        yield Statement(lsn, schema, table, query.sql)

    def _walk(self, part: slice, offset: int) -> Iterator[Event]:
        walker = LogWalker(self._log_part.file, offset, self._format)
        yield from map(walker.feed, iter_raw(self._raw[part]))


def _queries(event: Event) -> Iterator[tuple[int, Query]]:
    events = payload_events(event) if event.type == EventType.TRANSACTION_PAYLOAD else [(0, event)]
    for place, inner in events:
        if inner.type in _QUERIES and (query := Query.parse(inner)).control is Control.NONE:
            yield place, query


class EventPlaces:
    """The times of a log part's events, and the place of each event in the log part's bytes and in the log.

    The difference between an event's two places varies, since the server does not send all events of a log file to
    replicas. All arrays have one element more than there are events: the last place is the one after the last event.
    """

    def __init__(self, raw: memoryview, begin: int) -> None:
        """`begin` is the place of the first event in its log file."""
        places, at = [], 0
        while at < len(raw):
            places.append(at)
            at += _SIZE.unpack_from(raw, at + _SIZE_AT)[0]
        self._bytes = np.frombuffer(raw, np.uint8)
        self.at: Numbers = np.array([*places, len(raw)], np.int64)
        heads: Any = self._bytes[self.at[:-1, None] + np.arange(HEADER_SIZE)].view(_HEADER)[:, 0]
        self.kinds = np.append(heads["kind"].astype(np.int64), 0)
        self.seconds = np.append(heads["time"].astype(np.int64), 0)
        self.offsets = _offsets(heads["end"].astype(np.int64), heads["size"].astype(np.int64), begin)

    def times(self, offsets: Numbers) -> Numbers:
        """Returns the times at which the events at these places in the log were executed, in seconds since 1970."""
        found: Numbers = self.seconds[np.searchsorted(self.offsets, offsets)]
        return found

    def between(self, begin: int, end: int) -> slice:
        """Returns the part of the log part's bytes that lies between two places in the log."""
        first, last = np.searchsorted(self.offsets, [begin, end])
        return slice(int(self.at[first]), int(self.at[last]))

    def numbers(self, events: Numbers) -> Numbers:
        """Returns the first eight bytes of these events' bodies: in an XID event, this is the XID."""
        places = np.minimum(self.at[events] + HEADER_SIZE, len(self._bytes) - 8)
        found: Numbers = self._bytes[places[:, None] + np.arange(8)].view("<i8")[:, 0]
        return found


def _offsets(ends: Numbers, sizes: Numbers, begin: int) -> Numbers:
    """Returns the place in the log file at which each event begins.

    An event's header contains the low 32 bits of the place where the event ends. It contains 0 if the event directly
    follows the previous event.
    """
    for event in np.flatnonzero(ends == 0):
        ends[event] = (ends[event - 1] if event else begin) + sizes[event]
    steps = np.diff(np.concatenate([[begin], ends])) % _WRAP
    behind = begin + np.cumsum(steps)
    return np.concatenate([behind - sizes, behind[-1:] if len(behind) else [begin]])
