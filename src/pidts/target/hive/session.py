"""A session with a warehouse that also keeps records of published states, and changes that wait for publication."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from pidts.model import DdlJournal, Lsn, SourceTablesKey, Table, TableName, record_text
from pidts.reduce import NetChange
from pidts.target.hive.change_record import CHANGE_RECORDS
from pidts.target.hive.changes import WaitingChanges, truncated_row
from pidts.target.hive.places import NEW_WAREHOUSE_ID, WAREHOUSE_ID
from pidts.target.hive.record import PUBLICATION_TABLES, PublicationRecord
from pidts.target.hive.state import hive_type
from pidts.target.iceberg.connection import mapped
from pidts.target.iceberg.meta import IcebergMeta
from pidts.target.iceberg.schema import IcebergSchema, truncations
from pidts.target.iceberg.session import IcebergSession
from pidts.target.meta import JournalRecord
from pidts.target.meta_schema import Run


class HiveSession(IcebergSession):
    """A session with a warehouse whose tables are published; made by `HiveTarget.connect`."""

    def __init__(
        self,
        warehouse: str,
        catalog: str,
        meta_schema: str,
        *,
        refuses_unreal: bool,
        keeps_changes: bool,
        files: str,
    ) -> None:
        super().__init__(warehouse, catalog, meta_schema, refuses_unreal=refuses_unreal, files=files)
        self._journal = NotedJournal(self.run)
        self.meta = HiveMeta(self)
        self.meta.journal = self._journal
        self.schema = HiveSchema(self.tables, self._snapshot)
        self.published = PublicationRecord(self)
        self.waiting = WaitingChanges(self)
        self._keeps_changes = keeps_changes

    def write(self, change: NetChange) -> None:
        """Writes a net change in the open transaction, and adds the log's own changes to the change table."""
        super().write(change)
        for each in change.logged:
            self.waiting.add(each)

    def commit(self) -> None:
        """Commits rows, checkpoint and waiting changes, all at once."""
        self.demand_open()
        if self._keeps_changes:
            self._add_truncations()
        self.waiting.write()
        # If COMMIT had no answer, the files may be recorded, so they stay. The next publication removes files without a
        # record.
        self.waiting.forget(is_undone=False)
        super().commit()

    def rollback(self) -> None:
        """Undoes the transaction, and removes the files that it has written; no reader has seen them."""
        super().rollback()
        self.waiting.forget(is_undone=True)
        self._journal.saved.clear()

    def close(self) -> None:
        """Rolls back the transaction and closes the connection."""
        super().close()
        self.waiting.forget(is_undone=True)
        self._journal.saved.clear()

    def changed_at(self, task: str, source: str) -> dict[TableName, Lsn]:
        """Returns, for each table of the source, the Lsn of the last change of its structure."""
        sql = "SELECT table_schema, table_name, lsn FROM pidts_meta.structure WHERE task = %s AND source = %s"
        rows, _ = self.run(sql, (task, record_text(SourceTablesKey(source))))
        return {TableName(schema, name): Lsn.parse(lsn) for schema, name, lsn in rows}

    @contextmanager
    def one_moment(self) -> Iterator[None]:
        """Lets all reads of the block see the same state of the database. The block's writes are rolled back."""
        with mapped():
            self._driver.execute("BEGIN")
        try:
            yield
        finally:
            with mapped():
                self._driver.execute("ROLLBACK")

    def _add_truncations(self) -> None:
        """Adds the open transaction's TRUNCATEs to the change tables. The transaction's journal names them."""
        for journal in self._journal.saved:
            for name, time in truncations(journal.rendered):
                if (table := self.schema.structure(name)) is not None:
                    row = truncated_row(table, journal.source, journal.lsn, time)
                    self.waiting.add_rows(journal.task, name, row)
        self._journal.saved.clear()


class NotedJournal(JournalRecord):
    """The journal of schema changes, which also remembers the entries that the open transaction has written."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.saved: list[DdlJournal] = []

    def write(self, journal: DdlJournal) -> None:
        """Inserts or overwrites the record of a schema change."""
        super().write(journal)
        self.saved.append(journal)


class HiveMeta(IcebergMeta):
    """The records of a warehouse and of its published tables."""

    def prepare(self) -> None:
        """Creates the tables that are missing."""
        super().prepare()
        with self._connection.transaction():
            for sql in (*PUBLICATION_TABLES, *CHANGE_RECORDS, WAREHOUSE_ID):
                self._connection.run(sql, ())
            self._connection.run(NEW_WAREHOUSE_ID, (uuid.uuid4().hex[:12],))


class HiveSchema(IcebergSchema):
    """The structures of a warehouse, with the types of the published tables."""

    def column_types(self, table: Table) -> tuple[str, ...]:
        """Returns the types that readers of the published table see."""
        return tuple(hive_type(column.type) for column in table.columns)
