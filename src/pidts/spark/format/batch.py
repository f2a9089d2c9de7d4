"""The batch reader of `format("binlog")`: it finds the transactions, then Spark tasks decode them in parallel.

A server's log is read twice: first to find the transactions, then by the tasks, each of which reads a part of the log.
Nothing is stored between the two readings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pidts.binlog import Event, EventType, LogWalker, TableMap, iter_raw, table_name
from pidts.binlog.compressed import payload_events
from pidts.excerpt.blocks import FileInput, LogBlock, server_blocks
from pidts.excerpt.cut import DecodeRange, LogCutter, pieces, resolved
from pidts.excerpt.plan import Offset, StreamPlan
from pidts.excerpt.range import LogRange, Point, RangeFilter
from pidts.excerpt.rows import QueryView
from pidts.excerpt.server_tables import LastFile, ServerTables, schema_changes
from pidts.excerpt.start_file import begin_of
from pidts.excerpt.store import FileStore, RelayStore, ServerStore, Store
from pidts.model import ConfigError, Lsn, Position, Table, TableName
from pidts.relay import RelayReader
from pidts.relay.structures import dialect_at, history_at
from pidts.rules import AllowList
from pidts.schema import Dialect
from pidts.schema.evolve.known_structures import KnownStructures, refined
from pidts.source import SourceConfig, connect, log_end
from pidts.spark.format.column_types import view_of
from pidts.spark.format.log_places import first_in_relay, last_in_relay
from pidts.spark.format.options import EARLIEST, LATEST, BinlogOptions
from pidts.spark.format.partitions import BinlogPartition, TaskReader, dealt

_KIND_AT = 4
_OF_STRUCTURES = frozenset({EventType.FORMAT_DESCRIPTION, EventType.TABLE_MAP, EventType.TRANSACTION_PAYLOAD})
"""The types of events from which the structures of later rows are read."""


class BinlogReader(DataSourceReader):
    """Plans a read. For every action on the data frame, Spark runs this reader in a new process."""

    def __init__(self, options: BinlogOptions, schema: StructType) -> None:
        self._options, self._schema = options, schema

    def __reduce__(self) -> tuple[type[TaskReader], tuple[()]]:
        """Makes Spark send its tasks a `TaskReader`, since tasks need none of this object's fields."""
        return TaskReader, ()

    def partitions(self) -> Sequence[InputPartition]:
        """Returns the parts of the log. If there are none, returns one empty part, since Spark needs at least one."""
        options = self._options
        if options.relay is not None:
            store, view, log_parts = self._of_relay(RelayStore(options.relay, options.source_id))
        else:
            store, view, log_parts = self._scanned()
        return dealt(store, view, log_parts, options.partition_bytes) or [BinlogPartition(store, view, ())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Decodes a partition's rows in a Spark task."""
        return TaskReader().read(partition)

    def _of_relay(self, store: RelayStore) -> tuple[Store, QueryView, Iterator[DecodeRange]]:
        options = self._options
        reader = RelayReader(store.relay, store.source_id)
        change_no = reader.origin.change_no if reader.origin else 0
        start = first_in_relay(reader, options.start or EARLIEST, change_no=change_no)
        end = last_in_relay(reader, options.end or LATEST, change_no=change_no)
        view = view_of(options, self._schema, dialect_at(reader, start))
        offset = Offset(start, "", history_at(reader, start))
        plan = StreamPlan(reader, store, view)
        return store, view, plan.log_parts(offset, end, options.partition_bytes)

    def _scanned(self) -> tuple[Store, QueryView, Iterator[DecodeRange]]:
        options = self._options
        known = ServerTables.read(options.schema_from, options.allow) if options.schema_from else None
        copy = LastFile()
        if options.server is not None:
            store: Store = ServerStore(options.server)
            blocks = server_blocks(options.server, _begin_of(options.server, options.start))
        else:
            store, blocks = FileStore(), copy.watch(FileInput(options.paths, _silent).blocks())
        cutter: LogCutter | None = None
        view = view_of(options, self._schema, known.reading.dialect if known else Dialect())
        found: list[DecodeRange] = []
        cut = RangeFilter(LogRange(_point(options.start), _point(options.end)))
        for piece, version in pieces(blocks):
            if cutter is None:
                view = view_of(options, self._schema, known.reading.dialect if known else Dialect.of(version))
                cutter = LogCutter(view.wanted, options.partition_bytes)
            if cut.takes(piece.transaction):
                found += cutter.take(piece)
            else:
                cutter.pass_by(piece)
            if cut.ended and known is None:
                break
        if cutter is None:
            return store, view, iter(())
        found += cutter.close()
        changes, dialect = cutter.changes, view.wanted.dialect
        if known is None:
            at_start = KnownStructures(complete=False)
        elif options.server is not None:
            at_start = known.before(changes, 0, dialect)
        else:
            behind = schema_changes(known.blocks_from(copy), 0)
            last = changes[-1].lsn if changes else Lsn(0, 0, 0)
            changes += (change for change in behind if change.lsn > last)
            at_start = known.reading.history.before(changes, dialect)
        return store, view, resolved(found, changes, at_start, dialect)


def table_now(options: BinlogOptions, name: TableName) -> Table:
    """Returns the table's current structure, or the last structure that the relay or the files have."""
    if options.schema_from is not None:
        only = AllowList(do_tables=((name.schema, name.name),))
        found = ServerTables.read(options.schema_from, only).reading.history.table(name)
    elif options.relay is not None:
        with closing(RelayReader(options.relay, options.source_id)) as reader:
            received = reader.received
            found = history_at(reader, received).table(name) if received else None
    else:
        found = _last_structure(FileInput(options.paths, _silent).blocks(), name)
    if found is None:
        todo = "Check the name in `tables`; for log files give `schema-from`, the URL of a server that has the table"
        raise ConfigError("unknown-table", f"the columns of {name} are not known", todo=todo)
    return found


def _last_structure(blocks: Iterator[LogBlock], name: TableName) -> Table | None:
    """Returns the last structure in the log itself, from table maps or statements; None if the log does not show it."""
    maps = _Maps(name)
    history = KnownStructures(complete=False)
    for piece, version in pieces(maps.watch(blocks)):
        history = history.after(piece.transaction, Dialect.of(version))
    known, seen = history.tables.get(name), maps.last()
    if seen is None:
        return known
    shown = seen.to_table()
    completed = known and seen.complete(known)
    return completed if shown is None else refined(shown, completed)


class _Maps:
    """Remembers the table maps of one table."""

    def __init__(self, name: TableName) -> None:
        self._name = name
        self._walker = LogWalker()
        self._last = b""

    def watch(self, blocks: Iterator[LogBlock]) -> Iterator[LogBlock]:
        """Yields the blocks of files unchanged, and remembers their table maps."""
        for block in blocks:
            if block.begins is not None:
                self._walker = LogWalker(block.begins.file, block.begins.offset)
            at = block.offset
            for raw in iter_raw(block.data):
                if raw[_KIND_AT] in _OF_STRUCTURES:
                    self._walker.offset = at
                    self._look_at(self._walker.feed(raw))
                at += len(raw)
            yield block

    def _look_at(self, event: Event) -> None:
        packed = event.type == EventType.TRANSACTION_PAYLOAD
        for inner in (each for _, each in payload_events(event)) if packed else (event,):
            if inner.type == EventType.TABLE_MAP and table_name(inner.body) == self._name:
                self._last = bytes(inner.body)

    def last(self) -> TableMap | None:
        """Returns the last table map; None if there was none."""
        if not self._last:
            return None
        is_mariadb = self._walker.format is not None and self._walker.format.is_mariadb
        return TableMap.parse(self._last, mariadb=is_mariadb)


def _begin_of(server: SourceConfig, start: Point | str | None) -> Position:
    if start == LATEST:
        with closing(connect(server)) as session:
            return log_end(session)
    return begin_of(server, _point(start))


def _point(point: Point | str | None) -> Point | None:
    return None if isinstance(point, str) else point


def _silent(_: str) -> None:
    """Ignores the message that a server is still writing a file, since the read ends at the file's current end."""
