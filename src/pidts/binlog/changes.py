"""Single changes for people and programs: what a slice's batches say, one event at a time, DDL included."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import partial
from typing import Any

import pyarrow as pa

from pidts.binlog import refusals
from pidts.binlog.compressed import payload_events
from pidts.binlog.decode import RowDecoder
from pidts.binlog.events import Event, EventType, Format
from pidts.binlog.gtid_events import GTID_EVENTS, GtidEvent
from pidts.binlog.scan import TransactionScanner
from pidts.binlog.statements import Control, Query
from pidts.binlog.walk import LogWalker, iter_raw
from pidts.model import calendar
from pidts.model.batch import ChangeBatch
from pidts.model.errors import PidtsError
from pidts.model.event import DataChange, SchemaEvent
from pidts.model.lsn import Lsn
from pidts.model.table import Table, TableName
from pidts.model.transaction import Transaction
from pidts.model.types import Kind

Row = dict[str, Any]


def changes(
    raw: bytes | memoryview,
    *,
    format: Format,  # noqa: A002
    log_file: str,
    change_no: int,
    structures: Mapping[TableName, Table],
    prev_lsn: Lsn,
    zone: int,
    after: Lsn | None = None,
    offset: int = 4,
) -> Iterator[DataChange | SchemaEvent]:
    """The changes of whole transactions in log order; `prev_lsn` is the Lsn of the transaction before the first.

    Values are plain Python; a date that no calendar has is text. A statement's Lsn is its event's first byte, as a
    row's is.
    """
    walker = LogWalker(log_file, offset, format)
    scanner = TransactionScanner(change_no, prev_lsn)
    decoder = RowDecoder(structures, change_no, after)
    found = _Found(change_no)
    for piece in iter_raw(raw):
        event = walker.feed(piece)
        try:
            transaction = scanner.feed(event)
            decoder.feed(event)
            found.look_at(event)
            if transaction is not None:
                yield from _chained(transaction, found, decoder.take(), zone, after)
                found = _Found(change_no)
        except PidtsError as error:
            raise refusals.located(error, f"{walker.file}:{event.offset}") from error


@dataclass(slots=True)
class _Found:
    """What a transaction has besides rows: its statements, and the time of each of its events."""

    change_no: int
    times: dict[int, int] = field(default_factory=dict)
    statements: list[tuple[Lsn, Query]] = field(default_factory=list)
    silent: bool = False

    def look_at(self, event: Event) -> None:
        self.times[event.offset] = event.timestamp
        if event.type == EventType.TRANSACTION_PAYLOAD:
            for place, inner in payload_events(event):
                self._look_at(inner, place)
        else:
            self._look_at(event, 0)

    def _look_at(self, event: Event, place: int) -> None:
        if event.type in GTID_EVENTS:
            gtid = GtidEvent.parse(event)
            self.silent = gtid.start_alter or gtid.rollback_alter
        elif event.type in (EventType.QUERY, EventType.QUERY_COMPRESSED, EventType.EXECUTE_LOAD_QUERY):
            query = Query.parse(event)
            if query.control is Control.NONE and not self.silent:
                self.statements.append((Lsn(self.change_no, event.log_index, event.offset, place), query))


def _chained(
    transaction: Transaction, found: _Found, batches: list[ChangeBatch], zone: int, after: Lsn | None
) -> Iterator[DataChange | SchemaEvent]:
    statements = [(lsn, query) for lsn, query in found.statements if after is None or lsn > after]
    rows = [(lsn, (batch.table.name, old, new)) for batch in batches for lsn, old, new in _rows(batch)]
    previous = transaction.prev_lsn
    entries: list[tuple[Lsn, Any]] = [*statements, *rows]
    for lsn, what in sorted(entries, key=lambda entry: entry[0]):
        place: dict[str, Any] = {
            "lsn": lsn,
            "prev_lsn": previous,
            "source_zone_id": zone,
            "timestamp": found.times.get(lsn.offset, transaction.timestamp),
            "gtid": transaction.gtid,
        }
        if isinstance(what, Query):
            yield SchemaEvent(**place, schema=what.schema, statement=what.sql)
        else:
            table, old, new = what
            yield DataChange(**place, table=table, old_data=old, new_data=new)
        previous = lsn


def _rows(batch: ChangeBatch) -> Iterator[tuple[Lsn, Row | None, Row | None]]:
    lsns = [Lsn.from_bytes(lsn) for lsn in batch.rows.column("lsn").to_pylist()]
    old = _images(batch.table, batch.rows.column("before"))
    new = _images(batch.table, batch.rows.column("after"))
    yield from zip(lsns, old, new, strict=True)


def _images(table: Table, images: pa.StructArray) -> list[Row | None]:
    names = [column.name for column in table.columns]
    columns = [python_values(images.field(place), column.type.kind) for place, column in enumerate(table.columns)]
    present = images.is_valid().to_pylist()
    if not columns:
        return [None] * len(present)
    rows = zip(*columns, strict=True)
    return [dict(zip(names, row, strict=True)) if there else None for there, row in zip(present, rows, strict=True)]


def python_values(array: pa.Array, kind: Kind) -> list[Any]:
    """An Arrow column of a batch as Python values."""
    if kind is Kind.DATE:
        return _each(array.cast(pa.int32()), _date)
    if kind is Kind.DATETIME:
        return _each(array.cast(pa.int64()), partial(_moment, zone=None))
    if kind is Kind.TIMESTAMP:
        return _each(array.cast(pa.int64()), partial(_moment, zone=UTC))
    return list(array.to_pylist())


def _each(array: pa.Array, convert: Callable[[int], Any]) -> list[Any]:
    return [None if value is None else convert(value) for value in array.to_pylist()]


def _date(day: int) -> date | str:
    year, month, day_of_month = calendar.fields(day)
    if day >= calendar.FIRST_REAL_DAY:
        return date(year, month, day_of_month)
    return f"{year:04}-{month:02}-{day_of_month:02}"


def _moment(microseconds: int, zone: tzinfo | None) -> datetime | str:
    day, time = calendar.split(microseconds)
    real = _date(day)
    since_midnight = timedelta(microseconds=time)
    if isinstance(real, date):
        return datetime(real.year, real.month, real.day, tzinfo=zone) + since_midnight
    seconds, fraction = divmod(time, 1_000_000)
    minutes, second = divmod(seconds, 60)
    text = f"{real} {minutes // 60:02}:{minutes % 60:02}:{second:02}"
    return f"{text}.{fraction:06}" if fraction else text
