"""From raw events of whole transactions to Arrow batches of changes, one per table."""

from __future__ import annotations

from collections.abc import Mapping

from pidts.binlog import refusals
from pidts.binlog.compressed import payload_events
from pidts.binlog.events import Event, EventType, Format
from pidts.binlog.gtid_events import GTID_EVENTS
from pidts.binlog.rows import ROW_EVENTS, Binding, RowsEvent, TableRows
from pidts.binlog.statements import Control, Query
from pidts.binlog.table_map import TableMap, table_id, table_name
from pidts.binlog.walk import LogWalker, iter_raw
from pidts.model.batch import ChangeBatch
from pidts.model.errors import DecodeError, PidtsError
from pidts.model.lsn import Lsn
from pidts.model.table import Table, TableName

_NO_TABLE = 0xFFFFFF
"""The table id of a row event without rows, which only ends a statement."""
_BATCH_BYTES = 2**29
"""Row bytes after which a table's next changes go into another batch: Arrow's text columns end at 2 GiB."""

Mark = dict[TableName, tuple[int, int, int]]


def decode_slice(
    raw: bytes | memoryview,
    *,
    format: Format,  # noqa: A002
    log_file: str,
    change_no: int,
    structures: Mapping[TableName, Table],
    after: Lsn | None = None,
    offset: int = 4,
) -> list[ChangeBatch]:
    """The row changes of whole transactions, per table in log order.

    `offset` is the byte of the log file at which `raw` begins (or any before it, less than 2 GiB away). Tables that
    are not in `structures` are passed over. Rows at or before `after` are left out. A table has one batch, unless its
    rows are larger than an Arrow array can be.
    """
    walker = LogWalker(log_file, offset, format)
    decoder = RowDecoder(structures, change_no, after)
    for piece in iter_raw(raw):
        event = walker.feed(piece)
        try:
            decoder.feed(event)
        except PidtsError as error:
            raise refusals.located(error, f"{walker.file}:{event.offset}") from error
    return decoder.take()


class RowDecoder:
    """Collects the rows of a stream of events; what the source rolled back to a savepoint is not among them."""

    def __init__(self, structures: Mapping[TableName, Table], change_no: int, after: Lsn | None = None) -> None:
        self._structures = structures
        self._change_no = change_no
        self._after = after
        self._rows: dict[TableName, TableRows] = {}
        self._full: list[ChangeBatch] = []
        self._bindings: dict[bytes, Binding | None] = {}
        self._mapped: dict[int, Binding | None] = {}
        self._touched: Mark = {}
        """Tables with rows in the open transaction, as they were when it began."""
        self._savepoints: dict[str, Mark] = {}
        self._split = False
        """Whether some rows of the open transaction have left in a full batch."""

    def feed(self, event: Event) -> None:
        """The next event, in log order."""
        if event.type == EventType.TRANSACTION_PAYLOAD:
            for place, inner in payload_events(event):
                if inner.type == EventType.TRANSACTION_PAYLOAD:
                    raise refusals.unknown_event(inner)
                self._feed(inner, place)
        else:
            self._feed(event, 0)

    def take(self) -> list[ChangeBatch]:
        """All rows so far; tables in the order in which they first appeared."""
        batches = self._full + [rows.take() for rows in self._rows.values() if rows.ops]
        self._full = []
        return batches

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
            if self._touched and not refusals.is_one_phase(event):
                raise refusals.prepared_xa()
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
        name = table_name(body)
        table = self._structures.get(name)
        if table is None:
            return None
        if name not in self._rows:
            self._rows[name] = TableRows(table)
        return Binding(TableMap.parse(body), self._rows[name])

    def _take_rows(self, event: Event, place: int) -> None:
        number = table_id(event.body)
        if number not in self._mapped:
            if number == _NO_TABLE:
                return
            raise DecodeError("no-table-map", f"a row event is about table id {number}, which nothing has named")
        binding = self._mapped[number]
        if binding is None:
            return
        first = Lsn(self._change_no, event.log_index, event.offset, place)
        skip = 0
        if self._after is not None and first <= self._after:
            if first.at_row(0) != self._after.at_row(0):
                return
            skip = self._after.row - place + 1
        self._touched.setdefault(binding.rows.table.name, binding.rows.mark())
        binding.decode(RowsEvent.parse(event), first, skip)
        self._make_room(binding.rows)

    def _make_room(self, rows: TableRows) -> None:
        """Ends a batch before it is too large, but not where the source may still go back to a savepoint."""
        if rows.size >= _BATCH_BYTES and not self._savepoints:
            self._full.append(rows.take())
            self._touched[rows.table.name] = rows.mark()
            self._split = True

    def _control(self, query: Query) -> None:
        match query.control:
            case Control.BEGIN:
                self._begin()
            case Control.COMMIT:
                self._end()
            case Control.ROLLBACK:
                if self._split:
                    raise refusals.rollback_of_too_much()
                self._back_to(self._touched)
                self._end()
            case Control.SAVEPOINT:
                self._savepoints[query.savepoint] = self._mark()
            case Control.ROLLBACK_TO:
                if query.savepoint not in self._savepoints:
                    raise DecodeError("no-savepoint", f"the log goes back to {query.savepoint}, which it has not set")
                self._back_to(self._savepoints[query.savepoint])

    def _begin(self) -> None:
        self._touched = {}
        self._savepoints = {}
        self._split = False

    def _end(self) -> None:
        self._savepoints = {}
        for name in self._touched:
            self._make_room(self._rows[name])
        self._mapped.clear()
        self._begin()

    def _mark(self) -> Mark:
        return {name: self._rows[name].mark() for name in self._touched}

    def _back_to(self, mark: Mark) -> None:
        for name, beginning in self._touched.items():
            self._rows[name].back_to(mark.get(name, beginning))
