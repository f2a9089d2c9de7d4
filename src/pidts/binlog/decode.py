"""Decodes raw events of whole transactions into Arrow batches of changes, one per table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, NotRequired, TypeAlias, TypedDict, Unpack

import numpy as np
import numpy.typing as npt

from pidts.binlog import refusals
from pidts.binlog.blocks.event_times import CommitTimes, EventTimes
from pidts.binlog.compressed import inner_event, payload_pieces
from pidts.binlog.event_group_places import LARGEST, EventGroupPlaces
from pidts.binlog.events import Event, EventType, Format
from pidts.binlog.gtid_events import GTID_EVENTS
from pidts.binlog.machine_code import compiled
from pidts.binlog.rows import Binding as PlainBinding
from pidts.binlog.rows import TableRows
from pidts.binlog.rows_event import ROW_EVENTS, RowsEvent, op_of
from pidts.binlog.statements import Control, Query
from pidts.binlog.table_map import TableMap, table_id
from pidts.binlog.walk import LogWalker, iter_raw
from pidts.binlog.xa import XaPrepare
from pidts.model.batch import ChangeBatch
from pidts.model.early_filter import EarlyFilter, EarlyFilterOf, TimesOf
from pidts.model.errors import DecodeError, PidtsError
from pidts.model.lsn import Lsn
from pidts.model.table import Table, TableName
from pidts.model.transaction import CommittedEventGroups

if TYPE_CHECKING:
    from pidts.binlog.kernel.table_rows import CompiledBinding, CompiledRows

_NO_TABLE = 0xFFFFFF
"""The table id of a row event without rows, which only ends a statement."""
BATCH_BYTES = 2**29
"""After this many bytes of rows, a batch ends, since a text column of Arrow has at most 2 GiB."""

_FILE_ENDS = frozenset({EventType.ROTATE, EventType.STOP, EventType.FORMAT_DESCRIPTION})

Rows: TypeAlias = "TableRows | CompiledRows"
Binding: TypeAlias = "PlainBinding | CompiledBinding"
"""Decodes the row events that have the table id of one TABLE_MAP event."""
CountsByTable: TypeAlias = "dict[Rows, tuple[int, int, int]]"
StructureOf = Callable[[TableMap], Table | None]
"""Returns the structure of the rows after a TABLE_MAP event; None if the rows are not wanted."""
Structures = Mapping[TableName, Table] | StructureOf


class LargeSliceError(Exception):
    """Raised if the rows of one table in a slice take more memory than the caller allows."""


class LogFacts(TypedDict):
    """Facts that the bytes of a slice do not contain, and the choice of the wanted rows; see `decode_slice`."""

    format: Format
    log_file: str
    change_no: int
    structures: Structures
    after: NotRequired[Lsn | None]
    offset: NotRequired[int]
    commit: NotRequired[Lsn | None]
    commit_time: NotRequired[int]
    early_filter_of: NotRequired[EarlyFilterOf | None]
    most_bytes: NotRequired[int | None]


def decode_slice(raw: bytes | memoryview, **facts: Unpack[LogFacts]) -> list[ChangeBatch]:
    """Returns the row changes of whole transactions, per table in log order.

    `offset` is the byte of the log file at which `raw` begins, or any earlier byte less than 2 GiB away. Three kinds of
    rows are skipped: rows of tables that are not in `structures`, rows at or before `after`, and rows that a table's
    early filter leaves out. There is one batch for each structure of a table, or several if the rows are too large for
    an Arrow array.

    The rows of a prepared XA transaction are skipped, since the transaction may be rolled back. When it is committed,
    a separate call decodes the events that prepared it. In this call, `commit` is the Lsn of the event that commits the
    transaction; the Lsns of all rows have this position. `commit_time` is the time in that event's header.

    Raises `LargeSliceError` if the rows of a table take `most_bytes` or more: a compressed log may be many times as
    large in memory. While a savepoint is open, this error is not raised, since `decode_stream` would need as much
    memory.
    """
    return _decoded(new_decoder(facts), raw, facts)


def decode_event_groups(raw: bytes, groups: CommittedEventGroups, **facts: Unpack[LogFacts]) -> list[ChangeBatch]:
    """Returns the row changes of XA transactions in the order of `groups`, decoded as `decode_slice` decodes each one.

    `raw` has the events of all groups, one group after the other.
    """
    return _decoded_event_groups(new_decoder(facts), raw, groups, facts)


def event_group_columns(groups: CommittedEventGroups) -> npt.NDArray[np.int64]:
    """Returns `groups.numbers` as an array with a row for each of the numbers that describe a group."""
    return np.frombuffer(groups.numbers, np.int64).reshape(len(groups), -1).T


class KeptDecoder:
    """Decodes slices of one log as `decode_slice` does, and remembers the tables from slice to slice.

    All slices have the same structures and early filters, and none has a `commit` or an `after`. For the first slice of
    a decoder, the tables are in the order in which they first appear. For a later slice, they are in the order of their
    first rows.
    """

    def __init__(self) -> None:
        self._kept: tuple[Format, int, RowDecoder] | None = None
        """A format and a number of failovers, and the decoder that was made for them; None if no decoder is kept."""

    def decode_slice(self, raw: bytes | memoryview, **facts: Unpack[LogFacts]) -> list[ChangeBatch]:
        """Returns the row changes of whole transactions. After an error, the next slice gets a new decoder."""
        return self._keeping(lambda decoder: _decoded(decoder, raw, facts), facts)

    def decode_event_groups(
        self, raw: bytes, groups: CommittedEventGroups, **facts: Unpack[LogFacts]
    ) -> list[ChangeBatch]:
        """Returns the row changes of XA transactions, as the function `decode_event_groups` does."""
        return self._keeping(lambda decoder: _decoded_event_groups(decoder, raw, groups, facts), facts)

    def _keeping(self, decode: Callable[[RowDecoder], list[ChangeBatch]], facts: LogFacts) -> list[ChangeBatch]:
        kept, self._kept = self._kept, None
        form, change_no = facts["format"], facts["change_no"]
        is_same = kept is not None and kept[:2] == (form, change_no)
        decoder = kept[2] if kept is not None and is_same else new_decoder(facts)
        found = decode(decoder)
        if decoder.can_begin_again():
            self._kept = form, change_no, decoder
        return found


def _decoded_event_groups(
    decoder: RowDecoder, raw: bytes, groups: CommittedEventGroups, facts: LogFacts
) -> list[ChangeBatch]:
    decoder.limit(None)
    decoder.follow_event_groups(walker_of(facts), raw, groups)
    return decoder.take(commit_times(groups).of if decoder.asks_for_times else None)


def commit_times(groups: CommittedEventGroups) -> CommitTimes:
    """Returns the times of the groups' changes, which are the times of their commits."""
    _, _, _, commits, times = event_group_columns(groups)
    return CommitTimes(commits, times)


def _decoded(decoder: RowDecoder, raw: bytes | memoryview, facts: LogFacts) -> list[ChangeBatch]:
    decoder.limit(facts.get("most_bytes"))
    decoder.follow(walker_of(facts), raw)
    if not decoder.asks_for_times:
        return decoder.take()
    times = times_of(facts)
    times.add(raw)
    return decoder.take(times.of)


def walker_of(facts: LogFacts) -> LogWalker:
    """Returns a walker that starts before this part of the log."""
    return LogWalker(facts["log_file"], facts.get("offset", 4), facts["format"])


def times_of(facts: LogFacts) -> EventTimes:
    """Returns an object that collects the changes' times: from their events, unless one event commits all changes."""
    return EventTimes(walker_of(facts), None if facts.get("commit") is None else facts.get("commit_time", 0))


def new_decoder(facts: LogFacts, *, is_final: bool = False) -> RowDecoder:
    """Returns the compiled decoder or the plain decoder; the arguments are as for `RowDecoder`."""
    if not compiled():
        return RowDecoder(facts, is_final=is_final)
    from pidts.binlog.kernel.routed import RoutedDecoder  # loads the compiler, so only when needed

    return RoutedDecoder(facts, is_final=is_final)


class RowDecoder:
    """Collects the rows of a stream of events, except rows that the source rolled back to a savepoint."""

    def __init__(self, facts: LogFacts, *, is_final: bool) -> None:
        """`is_final`: nothing in this log is rolled back, so rows may be returned before their transaction ends."""
        structures = facts["structures"]
        self._structure_of = _by_name(structures) if isinstance(structures, Mapping) else structures
        self._change_no, self._mariadb = facts["change_no"], facts["format"].is_mariadb
        self._after, self._commit = facts.get("after"), facts.get("commit")
        self._early_filter_of = facts.get("early_filter_of")
        self._batch_bytes, self._is_limited = BATCH_BYTES, False
        self._is_final = is_final
        self._places = EventGroupPlaces()
        """Numbers the events of a prepared XA transaction, if these are decoded."""
        self._rows: dict[Table, Rows] = {}
        self._early_filters: dict[Table, EarlyFilter] = {}
        self._full: list[ChangeBatch] = []
        self._open_full: list[ChangeBatch] = []
        """Full batches that contain only rows of the open transaction."""
        self._bindings: dict[bytes, Binding | None] = {}
        self._mapped: dict[int, Binding | None] = {}
        self._touched: CountsByTable = {}
        """The tables with rows in the open transaction, each with its state at the beginning of the transaction."""
        self._savepoints: dict[str, CountsByTable] = {}

    def limit(self, most_bytes: int | None) -> None:
        """Makes the next slice raise `LargeSliceError` if the rows of a table take this many bytes; None: no limit."""
        self._batch_bytes, self._is_limited = most_bytes or BATCH_BYTES, most_bytes is not None

    def follow(self, walker: LogWalker, raw: bytes | memoryview) -> None:
        """Reads the next events, in log order. The walker is before the first of them."""
        for _ in self.steps(walker, raw):
            pass

    def follow_event_groups(self, walker: LogWalker, raw: bytes, groups: CommittedEventGroups) -> None:
        """Reads event groups that have prepared XA transactions; the rows' Lsns have the positions of the commits."""
        place, view = 0, memoryview(raw)
        _, sizes, offsets, commits, _ = event_group_columns(groups).tolist()
        for size, offset, commit in zip(sizes, offsets, commits, strict=True):
            self._commit, self._places = replace(groups.commit, offset=commit), EventGroupPlaces()
            self.follow(LogWalker(walker.file, offset, walker.format), view[place : place + size])
            place += size
        self._commit = None

    def steps(self, walker: LogWalker, raw: bytes | memoryview) -> Iterator[None]:
        """Reads the next events as `follow` does; yields after each piece of an event that contains other events."""
        for piece in iter_raw(raw):
            event = walker.feed(piece)
            try:
                yield from self._steps_of(event)
            except PidtsError as error:
                raise refusals.located(error, f"{walker.file}:{event.offset}") from error

    @property
    def size(self) -> int:
        """Returns the size in bytes of all row images that `take` and `take_full` have not returned yet."""
        return sum(rows.size for rows in self._rows.values())

    def _steps_of(self, event: Event) -> Iterator[None]:
        if event.type != EventType.TRANSACTION_PAYLOAD:
            self._feed(event, 0 if self._commit is None else self._places.of(event))
            return
        place = 0
        for piece in payload_pieces(event.body):
            for raw in iter_raw(piece, place):
                inner = inner_event(event.offset, event.log_index, raw)
                if inner.type == EventType.TRANSACTION_PAYLOAD:
                    raise refusals.unknown_event(inner)
                self._feed(inner, place)
                place += len(raw)
            yield

    def can_begin_again(self) -> bool:
        """Whether this decoder can decode another slice. If so, prepares for it: afterwards, no transaction is open."""
        return False

    @property
    def asks_for_times(self) -> bool:
        """Whether any table seen so far has a filter that uses the times of changes."""
        return any(early_filter.dropped_at is not None for early_filter in self._early_filters.values())

    def take(self, times: TimesOf | None = None) -> list[ChangeBatch]:
        """Returns all rows so far; tables are in the order in which they first appeared. `times`: see `take_full`."""
        rest = [rows.take(self._early_filter(table, times)) for table, rows in self._rows.items() if len(rows)]
        return self.take_full(times) + [batch for batch in rest if len(batch)]

    def take_full(self, times: TimesOf | None) -> list[ChangeBatch]:
        """Returns full batches that cannot be rolled back; empty if there are none. `times`: the changes' times."""
        full, self._full = self._full, []
        if not self._early_filters:
            return full
        kept = [early.of(batch) if (early := self._early_filter(batch.table, times)) else batch for batch in full]
        return [batch for batch in kept if len(batch)]

    def _early_filter(self, table: Table, times: TimesOf | None) -> EarlyFilter | None:
        early_filter = self._early_filters.get(table)
        return early_filter if early_filter is None or times is None else early_filter.at(times)

    def _feed(self, event: Event, place: int) -> None:
        kind = event.type
        if kind in ROW_EVENTS:
            self._take_rows(event, place)
        elif kind == EventType.TABLE_MAP:
            self._map(event)
        elif kind in (EventType.QUERY, EventType.QUERY_COMPRESSED):
            self._control(Query.parse(event))
        elif kind in GTID_EVENTS:
            self._begin()
        elif kind == EventType.XID:
            self._end()
        elif kind == EventType.XA_PREPARE:
            if self._commit is None and not XaPrepare.parse(event).one_phase:
                self._roll_back()
            self._end()
        elif kind in _FILE_ENDS:
            # The server crashed before it had written the end of the transaction, so the transaction was never
            # committed.
            self._roll_back()
            self._end()
        elif kind == EventType.INCIDENT:
            raise refusals.incident(event)
        elif kind != EventType.EXECUTE_LOAD_QUERY and not event.may_be_ignored:
            raise refusals.unknown_event(event)

    def _map(self, event: Event) -> None:
        body = bytes(event.body)
        if body not in self._bindings:
            self._bindings[body] = self._bind(body)
        self._mapped[table_id(body)] = self._bindings[body]

    def _bind(self, body: bytes) -> Binding | None:
        table_map = _table_map(body, mariadb=self._mariadb)
        table = self._structure_of(table_map)
        if table is None:
            return None
        if table not in self._rows:
            early_filter = self._early_filter_of(table) if self._early_filter_of is not None else None
            if early_filter is not None:
                self._early_filters[table] = early_filter
            self._rows[table] = self._new_rows(table, early_filter)
        return self._rows[table].bind(table_map)

    def _new_rows(self, table: Table, _: EarlyFilter | None) -> Rows:
        return TableRows(table)

    def _take_rows(self, event: Event, place: int) -> None:
        number = table_id(event.body)
        if number not in self._mapped:
            if number == _NO_TABLE:
                return
            raise DecodeError(
                "no-table-map", f"a row event is for table id {number}, and no table map before it names this table"
            )
        binding = self._mapped[number]
        if binding is None or self._is_unwanted(event, binding.rows.table):
            return
        if self._commit is not None and self._places.end > LARGEST:
            raise refusals.event_group_too_large(binding.rows.table.name)
        first = (self._commit or Lsn(self._change_no, event.log_index, event.offset)).at_row(place)
        skip = 0
        if self._after is not None and first <= self._after:
            if first.at_row(0) != self._after.at_row(0):
                return
            skip = self._after.row - place + 1
        self._touched.setdefault(binding.rows, binding.rows.counts())
        binding.decode(RowsEvent.parse(event), first, skip)
        self._make_room(binding.rows)

    def _is_unwanted(self, event: Event, table: Table) -> bool:
        return table in self._early_filters and op_of(event) in self._early_filters[table].unwanted

    def _make_room(self, rows: Rows) -> None:
        """Ends a batch before it becomes too large, except if the source may still roll back to a savepoint."""
        if rows.size < self._batch_bytes or self._may_go_back:
            return
        if self._is_limited:
            raise LargeSliceError
        batch = rows.take()
        older = self._touched[rows][0] if rows in self._touched else len(batch)
        if older:
            self._full.append(ChangeBatch(batch.table, batch.rows.slice(0, older)))
        if older < len(batch):
            self._open_full.append(ChangeBatch(batch.table, batch.rows.slice(older)))
        if rows in self._touched:
            self._touched[rows] = rows.counts()
        if self._is_final:
            self._full += self._open_full
            self._open_full = []

    @property
    def _may_go_back(self) -> bool:
        return bool(self._savepoints) and not self._is_final

    def _control(self, query: Query) -> None:
        match query.control:
            case Control.BEGIN:
                self._begin()
            case Control.COMMIT:
                self._end()
            case Control.ROLLBACK:
                self._roll_back()
                self._end()
            case Control.SAVEPOINT:
                self._savepoints[query.savepoint] = {rows: rows.counts() for rows in self._touched}
            case Control.ROLLBACK_TO:
                if query.savepoint not in self._savepoints:
                    raise DecodeError("no-savepoint", f"the log rolls back to {query.savepoint}, which it has not set")
                self._back_to(self._savepoints[query.savepoint])

    def _begin(self) -> None:
        self._touched = {}
        self._savepoints = {}

    def _end(self) -> None:
        self._savepoints = {}
        self._full += self._open_full
        self._open_full = []
        for rows in self._touched:
            self._make_room(rows)
        self._full += self._open_full
        self._open_full = []
        self._mapped.clear()
        self._begin()

    def _roll_back(self) -> None:
        self._open_full = []
        self._back_to(self._touched)

    def _back_to(self, counts: CountsByTable) -> None:
        for rows, beginning in self._touched.items():
            rows.back_to(counts.get(rows, beginning))


@lru_cache(maxsize=256)
def _table_map(body: bytes, *, mariadb: bool) -> TableMap:
    """Parses the event's body. Cached, since most transactions have a table map that occurred before."""
    return TableMap.parse(body, mariadb=mariadb)


def _by_name(structures: Mapping[TableName, Table]) -> StructureOf:
    return lambda table_map: structures.get(table_map.name)
