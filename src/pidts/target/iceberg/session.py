"""One connection to a warehouse, as a session of a target (`pidts.apply.port`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import pyarrow as pa

from pidts.model import Table, TableName, Transient, Where
from pidts.model.errors import named
from pidts.reduce import NetChange
from pidts.target.fit import gone, unfit
from pidts.target.iceberg.catalog import Catalog
from pidts.target.iceberg.connection import CatalogConnection
from pidts.target.iceberg.meta import IcebergMeta
from pidts.target.iceberg.metadata_file import MetadataFile
from pidts.target.iceberg.open_table import OpenTable
from pidts.target.iceberg.publish import prepare, publish
from pidts.target.iceberg.schema import IcebergSchema, misfits, run_statement
from pidts.target.unreal_dates import note_unreal

_LOADED_BYTES = 128 << 20
"""If a table without a key gets more bytes of rows, its rows are written to files before the transaction ends."""

_STORES_NULL = "Set pidts.zero-dates: null, and start the task again"


class IcebergSession(CatalogConnection):
    """A session with a warehouse; made by `IcebergTarget.connect`."""

    def __init__(self, warehouse: str, catalog: str, meta_schema: str, *, refuses_unreal: bool, files: str) -> None:
        super().__init__(warehouse, catalog, meta_schema, files)
        self.meta = IcebergMeta(self)
        self.tables = Catalog(self)
        self.schema = IcebergSchema(self.tables, self._snapshot)
        self._on_unreal = partial(note_unreal, refuses=refuses_unreal, todo=_STORES_NULL)
        self._open: dict[TableName, OpenTable] = {}
        """The tables that the open transaction has written to."""
        self._loading: dict[TableName, OpenTable] = {}
        """The tables that the open transaction has only cleared or loaded, without the database's lock."""

    def commit(self) -> None:
        """Writes the files of all changed tables, commits, and then removes old files and old tombstones."""
        self.demand_open()
        for table in self._loading.values():
            prepare(table)
        self._settle()
        super().commit()
        self._forget()
        self.tables.remove_files()
        self.meta.tombstones.prune()

    def rollback(self) -> None:
        """Undoes the transaction. No reader finds the files that it has written."""
        self.meta.tombstones.forget()
        self.tables.forget()
        self._forget()
        super().rollback()

    def close(self) -> None:
        """Rolls back the transaction and closes the connection."""
        self._forget()
        super().close()

    def write(self, change: NetChange) -> None:
        """Writes a change in the open transaction."""
        self._opened(change.table).write(change)

    def can_expect(self, table: Table) -> bool:  # noqa: ARG002 - the same for all tables
        """Returns False: the caller reads the rows and compares them."""
        return False

    def refuses_known_keys(self, table: Table) -> bool:  # noqa: ARG002 - the same for all tables
        """Returns False: a warehouse has no keys that could refuse a row."""
        return False

    def load(self, table: Table, rows: pa.Table) -> bool:
        """Loads rows. Returns False and loads none if the table has one of the keys, or a key occurs twice."""
        self.demand_open()
        if self.owns_database:
            return self._opened(table).load(table, rows)
        found = self._loaded(table.name)
        self._demand_fit(table, found.base)
        if not found.load(table, rows):
            return False
        if not table.identity and sum(each.rows.nbytes for each in found.written) > _LOADED_BYTES:
            prepare(found)
        return True

    def own_database(self) -> None:
        """Locks the database, and opens the current state of the tables into which rows were loaded before."""
        super().own_database()
        while self._loading and self.owns_database:
            name, table = self._loading.popitem()
            table.demand_files()
            base = self._snapshot(name)
            if base is None:
                raise gone(name)
            if _shape_of(base) != _shape_of(table.base):
                raise Transient(
                    "target-busy", "the table's structure has changed meanwhile", where=Where(table=str(name))
                )
            self._open[name] = table if base.location == table.base.location else table.rebased(base)

    def clear(self, name: TableName) -> None:
        """Removes all rows of a table; without the database's lock, all rows that exist when the transaction ends."""
        self.demand_open()
        (self._writable(name) if self.owns_database else self._loaded(name)).clear()

    def read_rows(
        self,
        table: Table,
        *,
        keys: pa.Table | None = None,
        after: Sequence[object] | None = None,
        limit: int | None = None,
        lock: bool = False,
        only: Mapping[str, str] | None = None,
    ) -> pa.Table:
        """Returns committed rows and the transaction's own rows, ordered by identity."""
        if lock:
            self.own_database()
        return self._with_columns(table).read(table, keys=keys, after=after, limit=limit, only=only)

    def read_portions(self, table: Table) -> Iterator[pa.Table]:
        """Yields all rows of the current snapshot in parts that fit into memory, in any order."""
        yield from self._with_columns(table).portions(table)

    def compared(self, table: Table, keys: pa.Table) -> pa.Table:  # noqa: ARG002 - the interface has it
        """Returns the keys unchanged: texts in files have no collation, so only texts with the same bytes are equal."""
        return keys

    def equal_keys(self, table: Table, keys: pa.Table, others: pa.Table) -> list[int]:  # noqa: ARG002 - the interface has it
        """Returns the indexes at which `keys` and `others` have the same bytes."""
        pairs = zip(keys.to_pylist(), others.to_pylist(), strict=True)
        return [place for place, (one, other) in enumerate(pairs) if one == other]

    def count(self, name: TableName) -> int:
        """Counts the rows by the row counts in the files' metadata."""
        return self._known(name).rows

    def execute(self, sql: str, origin: str = "") -> None:  # noqa: ARG002 - no task reads a warehouse
        """Executes one statement of `schema`, in the open transaction or in a transaction of its own."""
        with self.transaction():
            self.own_database()
            run_statement(sql, self.files, self.tables, self._writable, self._settle)

    def _snapshot(self, name: TableName) -> MetadataFile | None:
        if name in self._open:
            return self._open[name].base
        location = self.tables.location(name)
        return None if location is None else MetadataFile.read(name, location)

    def _known(self, name: TableName) -> OpenTable:
        return self._open.get(name) or self._loading.get(name) or self._readable(name)

    def _with_columns(self, table: Table) -> OpenTable:
        """Returns the target's table for reading. Raises if it lacks a column of `table`."""
        found = self._known(table.name)
        have = {column.name for column in found.base.table.columns}
        if missing := [column.name for column in table.columns if column.name not in have]:
            raise unfit(table.name, [f"it lacks {named('column', missing)}"])
        return found

    def _readable(self, name: TableName) -> OpenTable:
        found = self._snapshot(name)
        if found is None:
            raise gone(name)
        return OpenTable(found, self._on_unreal)

    def _loaded(self, name: TableName) -> OpenTable:
        """Opens a table for rows that are loaded into it without the database's lock."""
        if name not in self._loading:
            self._loading[name] = self._readable(name)
        return self._loading[name]

    def _writable(self, name: TableName) -> OpenTable:
        """Opens a table for writing. The database is locked first, so the metadata that is read stays current."""
        self.own_database()
        if name not in self._open:
            self._open[name] = self._readable(name)
        return self._open[name]

    def _opened(self, table: Table) -> OpenTable:
        self.demand_open()
        found = self._writable(table.name)
        self._demand_fit(table, found.base)
        return found

    def _demand_fit(self, table: Table, base: MetadataFile) -> None:
        if problems := misfits(table, base.table):
            raise unfit(table.name, problems)

    def _settle(self) -> None:
        """Writes the changes so far as snapshots, which readers find in the catalog after the commit."""
        if self._loading:
            self.own_database()
        for name, table in self._open.items():
            if table.is_changed:
                self.tables.replace(name, table.base.location, publish(table, self._notes(table)))
        self._open.clear()

    def _notes(self, table: OpenTable) -> dict[str, str]:
        """Returns the checkpoint for a snapshot's summary.

        This is the checkpoint that the transaction saves, or else the checkpoint in the previous snapshot's summary.
        """
        saved = self.meta.checkpoints.saved
        if saved is None:
            current = table.base.metadata.current_snapshot()
            known = {} if current is None or current.summary is None else current.summary.additional_properties
            return {name: text for name, text in known.items() if name.startswith("pidts.")}
        return {
            "pidts.task": saved.task,
            "pidts.source": saved.source,
            "pidts.worker": str(saved.worker),
            "pidts.lsn": str(saved.lsn),
            "pidts.gtid": saved.gtid,
            "pidts.epoch": str(saved.epoch),
        }

    def _forget(self) -> None:
        self._open.clear()
        self._loading.clear()
        self.meta.checkpoints.saved = None


def _shape_of(base: MetadataFile) -> tuple[object, int]:
    """Returns the ids of the table and of its schema: ids of columns have no meaning in another schema."""
    return base.metadata.table_uuid, base.metadata.current_schema_id
