"""Decides, from a relay's index, where the next batch of a Spark stream ends, and what the batch's Spark tasks read.

A batch ends at a transaction's end. An offset contains the place in the log and the tables' structures at this place.
So a stream can continue from an offset alone, even with a new relay. Two given offsets always have the same rows
between them.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from pidts.excerpt.cut import DecodeRange, LogCutter, LogSelection, PlacedTransaction, resolved
from pidts.excerpt.rows import QueryView, row_places
from pidts.excerpt.store import RelayStore, Span
from pidts.model import Halted, LogEntry, Lsn, Position, Table, TableName, Where
from pidts.model.transaction import xa_not_received
from pidts.relay import RelayReader
from pidts.rules import AllowList
from pidts.schema.evolve.known_structures import KnownStructures

_IDLE_BYTES = 16 << 20
"""After this many bytes of log without rows for the query, the query's offset moves on."""


@dataclass(frozen=True, slots=True)
class Offset:
    """A place in a Spark stream. The stream has read everything before this place."""

    lsn: Lsn
    server: str
    history: KnownStructures | None
    """The tables' structures; None if they were not needed yet, at the very beginning of a query."""

    def to_json(self) -> dict[str, Any]:
        """Returns the offset in the form that Spark stores."""
        data: dict[str, Any] = {"lsn": str(self.lsn), "server": self.server}
        if self.history is not None:
            data["structures"] = _packed(_Identity(self.history))
        return data

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Offset:
        """Returns the offset from the form that Spark stores."""
        text = data.get("structures")
        return cls(Lsn.parse(data["lsn"]), data["server"], _unpacked(text) if text else None)


class _Identity:
    """A history as a key of a cache. It is compared by identity, so that the same object is packed only once."""

    def __init__(self, history: KnownStructures) -> None:
        self.history = history

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and self.history is other.history

    def __hash__(self) -> int:
        return id(self.history)


@lru_cache(maxsize=8)
def _packed(known: _Identity) -> str:
    text = json.dumps(known.history.to_json(), separators=(",", ":")).encode()
    return base64.b64encode(zlib.compress(text)).decode("ascii")


@lru_cache(maxsize=8)
def _unpacked(text: str) -> KnownStructures:
    return KnownStructures.from_json(json.loads(zlib.decompress(base64.b64decode(text))))


def only(history: KnownStructures, allow: AllowList) -> KnownStructures:
    """Returns the part of a history about the query's tables, which is all that an offset needs."""

    def mine(name: TableName) -> bool:
        return allow(name)

    return replace(
        history,
        tables={name: table for name, table in history.tables.items() if mine(name)},
        unknown={name: text for name, text in history.unknown.items() if mine(name)},
        turns=tuple(
            replace(
                turn,
                tables={name: known for name, known in turn.tables.items() if mine(name)},
                sequences=None if turn.sequences is None else frozenset(filter(mine, turn.sequences)),
            )
            for turn in history.turns
        ),
        sequences=frozenset(filter(mine, history.sequences)),
    )


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """The limits of one batch."""

    rows: int | None
    size: int | None
    goal: Lsn | None


@dataclass(frozen=True, slots=True)
class TypedTable:
    """The table of a typed query, in which the images are not JSON."""

    name: TableName
    fits: Callable[[Table], bool]
    """Returns whether a table's rows have exactly the type that the query expects."""


class StreamPlan:
    """Finds where the batches of a stream end in a relay, and which log parts the Spark tasks decode."""

    def __init__(
        self, reader: RelayReader, store: RelayStore, view: QueryView, typed: TypedTable | None = None
    ) -> None:
        self._reader, self._store, self._view, self._typed = reader, store, view, typed
        self._files: dict[int, str] = {}
        self._passed: tuple[Lsn, _State] | None = None
        """If the last search found nothing: the offset at which it began, and the place up to which it searched."""

    def next(self, start: Offset, limits: ReadLimits) -> Offset | None:
        """Returns the end of the batch that begins at `start`; None if there are no changes for it yet."""
        state = _State.of(start)
        if self._passed is not None and self._passed[0] == start.lsn:
            state = self._passed[1]
        found: list[PlacedTransaction] = []
        size = row_events = 0
        before = state
        for entry in self._reader.entries(state.lsn):
            transaction = entry.transaction
            if limits.goal is not None and transaction.lsn > limits.goal:
                break
            if not self._check_structure(state, entry, alone=not found):
                break
            if self._view.wanted.takes(transaction):
                size += entry.read_bytes
                row_events += transaction.row_events
                is_full = (limits.size is not None and size > limits.size) or (
                    limits.rows is not None and row_events > limits.rows
                )
                if found and is_full:
                    break
                found.append(self._piece(entry))
            state = state.after(entry, self._view.wanted)
        if found and limits.rows is not None and (kept := self._within(before, found, limits.rows)) < len(found):
            return self._offset_at(before, found[kept - 1].transaction.lsn)
        if found or state.passed >= _IDLE_BYTES or (limits.goal is not None and state.lsn > start.lsn):
            self._passed = None
            return state.offset(start.server)
        self._passed = (start.lsn, state)
        return None

    def _offset_at(self, state: _State, end: Lsn) -> Offset:
        for entry in self._reader.entries(state.lsn):
            if entry.transaction.lsn > end:
                break
            state = state.after(entry, self._view.wanted)
        return state.offset(state.server)

    def log_parts(self, start: Offset, end: Lsn, size: int) -> Iterator[DecodeRange]:
        """Yields the log parts that the Spark tasks of a batch decode, in log order."""
        cutter = LogCutter(self._view.wanted, size)
        found: list[DecodeRange] = []
        for entry in self._reader.entries(start.lsn):
            if entry.transaction.lsn > end:
                break
            if not entry.transaction.is_empty:
                found += cutter.take(self._piece(entry))
        found += cutter.close()
        return resolved(found, cutter.changes, _known(start), self._view.wanted.dialect)

    def _piece(self, entry: LogEntry) -> PlacedTransaction:
        if entry.lacks_rows:
            raise xa_not_received(entry.transaction)
        extent, begin = entry.extent, entry.transaction.begin
        if entry.prepared is not None:
            extent, begin = entry.prepared, entry.prepared.begin
        if extent.segment not in self._files:
            position: Position | None = self._reader.position(begin)
            self._files[extent.segment] = position.file if position else f"log.{begin.log_index:06}"
        span = Span(str(extent.segment), extent.offset, extent.size)
        file = self._files[extent.segment]
        return PlacedTransaction(entry.transaction, file, begin, span, is_commit=entry.prepared is not None)

    def _within(self, state: _State, found: list[PlacedTransaction], rows: int) -> int:
        """Returns how many of the first transactions together have at most `rows` rows; at least 1.

        Decodes the rows to count them, since the relay's index counts only row events.
        """
        cutter = LogCutter(self._view.wanted, 4 << 20)
        log_parts = [*(log_part for piece in found for log_part in cutter.take(piece)), *cutter.close()]
        lsns = (piece.transaction.lsn for piece in found)
        ends = np.array([lsn.log_index * _FILE + lsn.offset for lsn in lsns], np.int64)
        counts = np.zeros(len(found) + 1, np.int64)
        for log_part in resolved(log_parts, cutter.changes, state.history, self._view.wanted.dialect):
            log_index, offsets = row_places(self._store, log_part, self._view)
            np.add.at(counts, np.searchsorted(ends, log_index * _FILE + offsets, side="right"), 1)
            if counts.sum() > rows:
                break
        return max(1, int(np.searchsorted(np.cumsum(counts), rows, side="right")))

    def _check_structure(self, state: _State, entry: LogEntry, *, alone: bool) -> bool:
        """Returns False if this entry changes the typed table, so that the batch has to end before the entry.

        Raises if the batch begins with the entry (`alone`): the query cannot show the rows after the change.
        """
        typed = self._typed
        if typed is None or entry.transaction.ddl is None:
            return True
        before = _table(state.history, typed.name)
        after = _table(state.history.after(entry.transaction, self._view.wanted.dialect), typed.name)
        if after is None or before is None or not typed.fits(before) or typed.fits(after):
            return True
        if not alone:
            return False
        statement = (entry.transaction.ddl or "")[:200]
        what = f"after this statement, the table's columns differ from those of this typed query: {statement}"
        todo = (
            "The query has read all rows before this statement. Call `load()` again, which uses the table's present "
            "columns. Then start the query with the same checkpoint: it continues at this statement"
        )
        place = str(entry.transaction.prev_lsn)
        where = Where(source=self._view.source, position=place, table=str(typed.name))
        raise Halted("typed-structure-changed", what, where=where, todo=todo)


_FILE = 1 << 40
"""More bytes than any log file has: a file's number times this, plus a place in the file, is a unique number."""


@dataclass(frozen=True, slots=True)
class _State:
    """The place up to which the log was searched."""

    lsn: Lsn
    server: str
    history: KnownStructures
    passed: int = 0

    @classmethod
    def of(cls, offset: Offset) -> _State:
        return cls(offset.lsn, offset.server, _known(offset))

    def after(self, entry: LogEntry, wanted: LogSelection) -> _State:
        transaction = entry.transaction
        history = self.history if transaction.ddl is None else self.history.after(transaction, wanted.dialect)
        if history is not self.history:
            history = only(history, wanted.allow)
        return _State(transaction.lsn, self.server, history, self.passed + entry.extent.size)

    def offset(self, server: str) -> Offset:
        return Offset(self.lsn, server, self.history)


def _known(offset: Offset) -> KnownStructures:
    if offset.history is None:
        raise AssertionError("the structures are not known yet")
    return offset.history


def _table(history: KnownStructures, name: TableName) -> Any:
    try:
        return history.table(name)
    except Halted:
        return None
