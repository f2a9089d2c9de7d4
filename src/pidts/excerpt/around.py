"""The surroundings of a stretch's rows: transactions, their GTIDs, ids and times, and the statements among them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pidts.binlog import Event, EventType, Format, LogWalker, Query, TransactionScanner, iter_raw
from pidts.binlog.compressed import payload_events
from pidts.binlog.places import EventPlaces
from pidts.binlog.statements import Control
from pidts.binlog.transactions import TransactionReader
from pidts.excerpt.cut import Stretch, Wanted
from pidts.model import Lsn, Transaction

_QUERIES = frozenset({EventType.QUERY, EventType.QUERY_COMPRESSED, EventType.EXECUTE_LOAD_QUERY})

Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement that is shown as a row."""

    lsn: Lsn
    database: str
    table: str
    text: str


class Around:
    """Answers for many rows at once."""

    def __init__(self, stretch: Stretch, log_format: Format, raw: bytes) -> None:
        self._stretch, self._format, self._raw = stretch, log_format, memoryview(raw)
        self._events = EventPlaces(self._raw, stretch.begin.offset)
        self.gtids: list[str | None] = []
        """The GTID of each transaction, None for one that has none."""
        self.begins = self.ends = np.array([], np.int64)
        """The places in the log file where each transaction begins and ends."""
        self._told: list[Transaction] = []
        """The transactions with statements."""
        if stretch.commit is not None:
            self.begins, self.ends = self._take(stretch.commit)
        else:
            self._scan()

    def _scan(self) -> None:
        stretch = self._stretch
        walker = LogWalker(stretch.file, stretch.begin.offset, self._format)
        reader = TransactionReader(walker, TransactionScanner(stretch.begin.change_no, stretch.begin))
        places = [(self.begins, self.ends)]
        for found in reader.read(self._raw):
            if not isinstance(found.what, Transaction):
                places.append((found.what.begins, found.what.ends))
                self.gtids += [gtid or None for gtid in found.what.gtids]
            elif not found.what.is_mark:
                places.append(self._take(found.what))
        self.begins, self.ends = map(np.concatenate, zip(*places, strict=True))

    def _take(self, transaction: Transaction) -> tuple[Numbers, Numbers]:
        self.gtids.append(transaction.gtid or None)
        if transaction.ddl is not None:
            self._told.append(transaction)
        return np.array([transaction.begin.offset], np.int64), np.array([transaction.lsn.offset], np.int64)

    def transaction_of(self, offsets: Numbers) -> Numbers:
        """The number of each row's transaction."""
        if self._stretch.commit is not None:
            return np.zeros(len(offsets), np.int64)
        return np.searchsorted(self.ends, offsets, side="right").astype(np.int64)

    def times(self, offsets: Numbers) -> Numbers:
        """Returns when the event at each place was executed, in seconds since 1970."""
        if self._stretch.commit is not None:
            return np.full(len(offsets), self._stretch.commit.timestamp, np.int64)
        return self._events.times(offsets)

    def xids(self) -> list[int | None]:
        """The number in the XID event at each transaction's end, which may be packed with the rest."""
        if self._stretch.commit is not None:
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

    def statements(self, wanted: Wanted, holds: Callable[[Lsn], bool]) -> Iterator[Statement]:
        """Yields the statements that are shown, as far as they are in the range."""
        for transaction in self._told:
            commit = transaction.xa if transaction is self._stretch.commit else None
            begin = self._stretch.begin.offset if commit else transaction.begin.offset
            part = slice(None) if commit else self._events.between(begin, transaction.lsn.offset)
            for event in self._walk(part, begin):
                for place, query in _queries(event):
                    if commit is not None:
                        lsn = commit.at.at_row(event.offset - begin)
                    else:
                        lsn = Lsn(transaction.lsn.change_no, event.log_index, event.offset, place)
                    if holds(lsn) and (found := wanted.shown(query, lsn)):
                        (name,) = found[0].tables if len(found[0].tables) == 1 else (None,)
                        schema, table = (name.schema, name.name) if name else (query.schema, "")
                        yield Statement(lsn, schema, table, query.sql)

    def _walk(self, part: slice, offset: int) -> Iterator[Event]:
        walker = LogWalker(self._stretch.file, offset, self._format)
        yield from map(walker.feed, iter_raw(self._raw[part]))


def _queries(event: Event) -> Iterator[tuple[int, Query]]:
    events = payload_events(event) if event.type == EventType.TRANSACTION_PAYLOAD else [(0, event)]
    for place, inner in events:
        if inner.type in _QUERIES and (query := Query.parse(inner)).control is Control.NONE:
            yield place, query
