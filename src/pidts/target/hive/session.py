"""A session with a warehouse that also keeps the record of what is published."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pidts.model import Lsn, OfSource, Table, TableName, record_text
from pidts.target.hive.record import PUBLICATION_TABLES, PublicationRecord
from pidts.target.hive.state import hive_type
from pidts.target.iceberg.connection import mapped
from pidts.target.iceberg.meta import IcebergMeta
from pidts.target.iceberg.schema import IcebergSchema
from pidts.target.iceberg.session import IcebergSession


class HiveSession(IcebergSession):
    """Made by `HiveTarget.connect`."""

    def __init__(self, warehouse: str, catalog: str, meta_schema: str, *, refuses_unreal: bool = False) -> None:
        super().__init__(warehouse, catalog, meta_schema, refuses_unreal=refuses_unreal)
        self.meta = HiveMeta(self)
        self.schema = HiveSchema(self.tables, self._snapshot)
        self.published = PublicationRecord(self)

    def changed_at(self, task: str, source: str) -> dict[TableName, Lsn]:
        """Returns the place at which the structure of each of the source's tables has changed last."""
        sql = "SELECT table_schema, table_name, lsn FROM pidts_meta.structure WHERE task = %s AND source = %s"
        rows, _ = self.run(sql, (task, record_text(OfSource(source))))
        return {TableName(schema, name): Lsn.parse(lsn) for schema, name, lsn in rows}

    @contextmanager
    def one_moment(self) -> Iterator[None]:
        """Lets all that the block reads be of the same moment; the block writes nothing, and nobody waits for it."""
        with mapped():
            self._driver.execute("BEGIN")
        try:
            yield
        finally:
            with mapped():
                self._driver.execute("ROLLBACK")


class HiveMeta(IcebergMeta):
    """The records of a warehouse, and those of what is published."""

    def prepare(self) -> None:
        """Creates the tables that are missing."""
        super().prepare()
        with self._connection.transaction():
            for sql in PUBLICATION_TABLES:
                self._connection.run(sql, ())


class HiveSchema(IcebergSchema):
    """The structures of a warehouse; the types are those of the published tables."""

    def column_types(self, table: Table) -> tuple[str, ...]:
        """Returns the types that readers of the published table see."""
        return tuple(hive_type(column.type) for column in table.columns)
