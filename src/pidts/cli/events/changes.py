"""Decodes the raw events of transactions into changes, in log order. A large transaction is decoded in pieces."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from pidts.binlog.decode import decode_slice
from pidts.binlog.row_values import Row, rows_of
from pidts.binlog.scan import TransactionScanner
from pidts.binlog.walk import LogWalker, iter_raw
from pidts.binlog.xa import PreparedEventGroups
from pidts.cli.events.group import EventChunk, OtherStatement, TransactionEvents
from pidts.cli.events.structures import Structures
from pidts.excerpt.blocks import LogInput
from pidts.excerpt.range import LogRange, RangeFilter
from pidts.excerpt.statements import shown_statements
from pidts.model import (
    ChangeBatch,
    DataChange,
    DecodeError,
    Lsn,
    SchemaEvent,
    Table,
    TableName,
    Transaction,
    xa_not_received,
)
from pidts.model.transaction import XaStep
from pidts.rules import AllowList
from pidts.schema import Dialect

_ROWS = 2048
"""The most rows of a batch that are Python objects at the same time."""
_WRAP = 2**32


@dataclass(frozen=True, slots=True)
class Change:
    """A change event. For a row, `table` is the structure with which the row was decoded."""

    event: DataChange | SchemaEvent
    table: Table | None = None


def changes_of(
    transaction: Transaction,
    own: TransactionEvents,
    prepared: TransactionEvents | None,
    structures: Structures,
    wanted: LogRange,
    tables: AllowList,
    zone: int,
) -> Iterator[Change]:
    """Yields a transaction's changes within the range. `prepared` has the events of a prepared XA transaction."""
    group = prepared or own
    dialect = Dialect.of(group.format.server_version)
    at = transaction.xa.at if prepared and transaction.xa else None
    statements = (
        (at or found.lsn, found.timestamp, found)
        for found in group.statements
        if wanted.holds(at or found.lsn) and shown_statements(found.query, at or found.lsn, dialect, tables)
    )
    has_rows = any(map(tables, transaction.tables))
    rows = _rows(transaction, group, structures, commit=prepared is not None) if has_rows else iter(())
    # The first change follows the event before the transaction, even if the server has not sent that event.
    previous = transaction.begin
    for lsn, timestamp, what in heapq.merge(statements, rows, key=itemgetter(0)):
        if not wanted.holds(lsn):
            previous = lsn
            continue
        place: dict[str, Any] = {
            "lsn": lsn,
            "prev_lsn": previous,
            "source_zone_id": zone,
            "timestamp": timestamp,
            "gtid": transaction.gtid,
        }
        if isinstance(what, OtherStatement):
            yield Change(SchemaEvent(**place, schema=what.query.schema, statement=what.query.sql))
        else:
            table, old, new = what
            yield Change(DataChange(**place, table=table.name, old_data=old, new_data=new), table)
        previous = lsn


def _rows(
    transaction: Transaction, group: TransactionEvents, structures: Structures, *, commit: bool
) -> Iterator[tuple[Any, ...]]:
    at = transaction.xa.at if commit and transaction.xa else None
    for chunk in group.chunks(whole=commit):
        batches = _decoded(chunk, group, structures, at)
        streams = [_of_batch(batch, chunk, transaction, timed=at is None) for batch in batches]
        yield from heapq.merge(*streams, key=itemgetter(0)) if len(streams) > 1 else (streams[0] if streams else ())


def _decoded(
    chunk: EventChunk, group: TransactionEvents, structures: Structures, commit: Lsn | None
) -> list[ChangeBatch]:
    while True:
        try:
            return decode_slice(
                chunk.raw,
                format=group.format,
                log_file=group.file,
                change_no=group.change_no,
                structures=structures.of,
                offset=chunk.offset,
                commit=commit,
            )
        except DecodeError as error:
            # The structure is older or newer than these rows. Another structure is tried, at last a structure with
            # numbers in place of the columns' names.
            schema, _, name = error.where.table.partition(".")
            if error.code != "structure-mismatch" or not structures.contradict(TableName(schema, name)):
                raise


def _of_batch(
    batch: ChangeBatch, chunk: EventChunk, transaction: Transaction, *, timed: bool
) -> Iterator[tuple[Lsn, int, tuple[Table, Row | None, Row | None]]]:
    for begin in range(0, len(batch), _ROWS):
        for lsn, old, new in rows_of(ChangeBatch(batch.table, batch.rows.slice(begin, _ROWS))):
            time = chunk.times.get(lsn.offset % _WRAP, 0) if timed else 0
            yield lsn, time or transaction.timestamp, (batch.table, old, new)


def read_events(
    log: LogInput,
    wanted: LogRange,
    tables: AllowList,
    structures: Structures,
    *,
    zone: int,
    say: Callable[[str], None],
) -> Generator[Change]:
    """Yields all changes of these tables in the range, in log order."""
    change_no = wanted.start.change_no if isinstance(wanted.start, Lsn) else 0
    cut = RangeFilter(wanted)
    open_at = ""
    prepared: PreparedEventGroups[TransactionEvents] = PreparedEventGroups()
    for found in _transactions(log, change_no):
        if isinstance(found, str):
            open_at = found
            continue
        # A prepared XA transaction changes no structure: servers refuse schema changes in it.
        structures.enter(*found)
        transaction, prepared_rows = prepared.settle(*found)
        if cut.takes(transaction):
            if prepared_rows is None and transaction.xa is not None and transaction.xa.step is XaStep.COMMIT:
                raise xa_not_received(transaction)
            yield from changes_of(transaction, found[1], prepared_rows, structures, wanted, tables, zone)
        if cut.ended:
            return
    if open_at:
        say(f"the log ends inside a transaction, which begins at {open_at} and is left out")


def _transactions(log: LogInput, change_no: int) -> Generator[tuple[Transaction, TransactionEvents] | str]:
    """Yields each transaction with its raw events. If the last transaction is incomplete, yields only its place."""
    walker = LogWalker()
    scanner: TransactionScanner | None = None
    group: TransactionEvents | None = None
    for block in log.blocks():
        if block.begins is not None:
            walker = LogWalker(block.begins.file, block.begins.offset)
            scanner = scanner or TransactionScanner(change_no, Lsn.at(block.begins, change_no))
        for raw in iter_raw(block.data):
            file = walker.file
            event = walker.feed(raw)
            scanner = scanner or TransactionScanner(change_no, Lsn(change_no, event.log_index, event.offset))
            if not scanner.in_transaction:
                # As in a relay, a transaction's `prev_lsn` is the end of the event before the transaction, wherever the
                # reading of the log began.
                scanner.empty_entry()
            transaction = scanner.feed(event)
            if walker.format is None or event.is_artificial:
                continue
            if scanner.in_transaction or transaction is not None:
                group = group or TransactionEvents(file, walker.format, change_no)
                group.add(raw, event)
            else:
                group = None
            if transaction is not None and group is not None:
                yield transaction, group
                group = None
    if group is not None:
        yield group.place
