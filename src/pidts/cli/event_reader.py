"""From a log to its change events, with the best structure that is known for each table at each place of the log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from pidts.binlog.changes import changes
from pidts.binlog.compressed import payload_events
from pidts.binlog.events import Event, EventType
from pidts.binlog.scan import TransactionScanner
from pidts.binlog.table_map import TableMap
from pidts.binlog.walk import LogWalker
from pidts.cli.event_input import LogInput
from pidts.cli.event_range import EventRange, missed
from pidts.cli.event_structures import Structures
from pidts.model import DataChange, DecodeError, Lsn, SchemaEvent, Table, TableName, Transaction
from pidts.schema import classify

Change = DataChange | SchemaEvent


def read_events(log: LogInput, wanted: EventRange, *, zone: int, say: Callable[[str], None]) -> Iterator[Change]:
    """All changes of the range, in log order."""
    change_no = wanted.start.change_no if isinstance(wanted.start, Lsn) else 0
    structures = Structures(log.server, wanted.tables, say)
    walker = LogWalker()
    scanner: TransactionScanner | None = None
    pending: list[tuple[bytes | memoryview, Event]] = []
    goals = wanted.goals()
    for piece in log.pieces():
        if piece.begins is not None:
            walker = LogWalker(piece.begins.file, piece.begins.offset)
            scanner = scanner or TransactionScanner(change_no, Lsn.at(piece.begins, change_no))
        for raw in piece.events:
            file = walker.file
            event = walker.feed(raw)
            scanner = scanner or TransactionScanner(change_no, Lsn(change_no, event.log_index, event.offset))
            transaction = scanner.feed(event)
            if scanner.in_transaction or transaction is not None:
                pending.append((raw, event))
            else:
                pending.clear()
            if transaction is None:
                continue
            if wanted.ends_before(transaction):
                return
            if not wanted.begins_before(transaction) and not wanted.lacks(transaction):
                yield from _shown(_Piece(walker, file, transaction, pending), structures, wanted, zone)
            structures.passed(transaction, walker.format.server_version if walker.format else "")
            pending.clear()
            if goals and not (goals := missed(goals, transaction.gtid)):
                return


@dataclass(frozen=True, slots=True)
class _Piece:
    """One transaction with its raw events."""

    walker: LogWalker
    file: str
    transaction: Transaction
    pending: list[tuple[bytes | memoryview, Event]]

    def decode(self, structures: Mapping[TableName, Table], change_no: int, zone: int) -> list[Change]:
        assert self.walker.format is not None, "a log begins with its format"  # noqa: S101 - the server's and file's rule
        return list(
            changes(
                b"".join(raw for raw, _ in self.pending),
                format=self.walker.format,
                log_file=self.file,
                change_no=change_no,
                structures=structures,
                prev_lsn=self.transaction.prev_lsn,
                zone=zone,
                offset=self.pending[0][1].offset,
            )
        )


def _shown(piece: _Piece, structures: Structures, wanted: EventRange, zone: int) -> Iterator[Change]:
    change_no = piece.transaction.lsn.change_no
    maps = list(_table_maps(event for _, event in piece.pending))
    known = {table_map.name: structures.at(table_map) for table_map in maps if wanted.tables(table_map.name)}
    while True:
        try:
            found = piece.decode(known, change_no, zone)
            break
        except DecodeError as error:
            # The structure is of another time: the columns are there, their names are not known.
            misfit = [table_map for table_map in maps if str(table_map.name) == error.where.table]
            if error.code != "structure-mismatch" or not misfit or misfit[0].name not in known:
                raise
            unnamed = structures.unnamed(misfit[0])
            if known[unnamed.name] == unnamed:
                raise
            known[unnamed.name] = unnamed
    for change in found:
        if wanted.shows(change.lsn) and (isinstance(change, DataChange) or _is_wanted(change, wanted)):
            yield change


def _is_wanted(event: SchemaEvent, wanted: EventRange) -> bool:
    """A statement of one of the tables; without a choice of tables, any on a schema that is not the server's own."""
    names = classify(event.statement, event.schema).tables
    if names or wanted.tables.do_tables:
        return any(map(wanted.tables, names))
    return not event.schema or wanted.tables.takes_schema(event.schema)


def _table_maps(events: Iterator[Event]) -> Iterator[TableMap]:
    for event in events:
        if event.type == EventType.TABLE_MAP:
            yield TableMap.parse(event.body)
        elif event.type == EventType.TRANSACTION_PAYLOAD:
            yield from _table_maps(inner for _, inner in payload_events(event))
