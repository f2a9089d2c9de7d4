"""One connection to MySQL, MariaDB or TiDB, as a session of a target (`pidts.apply.port`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pymysql.connections import Connection

from pidts.binlog.machine_code import compiled
from pidts.model import Column, Table, TableName
from pidts.reduce import NetChange
from pidts.target.mysql.connection import MySqlConnection, SessionSettings
from pidts.target.mysql.dialect import qualified
from pidts.target.mysql.loader import Loader
from pidts.target.mysql.marked_statement import run_marked
from pidts.target.mysql.meta import MySqlMeta
from pidts.target.mysql.prepared_tables import PreparedTables
from pidts.target.mysql.reader import FEW, Reader
from pidts.target.mysql.row_events.writer import EventWriter
from pidts.target.mysql.schema import MySqlSchema
from pidts.target.mysql.shape import InformationSchema, shape_of
from pidts.target.mysql.writer import Writer


class MySqlSession(MySqlConnection):
    """A session with MySQL, MariaDB or TiDB; made by `MySqlTarget.connect`."""

    def __init__(self, connection: Connection[Any], settings: SessionSettings) -> None:
        super().__init__(connection, settings)
        self.meta = MySqlMeta(self)
        self.schema = MySqlSchema(self)
        self._prepared = PreparedTables(self.server, self.schema.shape)
        self._events = EventWriter(
            self.server,
            self.pipeline,
            lambda name: shape_of(
                name, InformationSchema(self.rows, tidb=self.server.tidb).table(name), self.server.dialect
            ),
            self.schema.fingerprint,
            is_off=bool(settings.zone) or settings.locks_gaps,
        )
        self._writer = Writer(self.server, self._prepared, self.pipeline, self.warnings, self._events, self._read_near)
        self._other_types: set[TableName] = set()
        """Tables whose values do not have the text form of the source's columns."""
        self._primary: dict[TableName, tuple[Table, bool]] = {}
        """For each table, its last structure, and whether its identity is the target's primary key."""
        self._loader = Loader(self.server, self._prepared, self._writer, self.pipeline, self.warnings)

    def commit(self) -> None:
        """Commits the transaction, then removes old tombstones."""
        super().commit()
        self.meta.tombstones.prune()

    def rollback(self) -> None:
        """Rolls the transaction back; works on a dead session, too."""
        self.meta.tombstones.forget()
        super().rollback()

    def write(self, change: NetChange) -> None:
        """Writes a change in the open transaction. Small statements are queued."""
        self.mark()
        self._writer.write(change)

    def can_expect(self, table: Table) -> bool:  # noqa: ARG002 - the same for all tables
        """Returns False: the caller has to read and compare the existing rows."""
        return False

    def refuses_known_keys(self, table: Table) -> bool:  # noqa: ARG002 - the same for all tables
        """Whether a plain INSERT refuses a row whose key already exists.

        Some transactions of TiDB check keys only later. Every identity has a unique key on the target: a table without
        this key is refused.
        """
        return not self.server.tidb

    def load(self, table: Table, rows: pa.Table) -> bool:
        """Loads all rows in the open transaction, or no row. Returns False if the target already has one of them."""
        self.mark()
        return self._loader.load(table, rows)

    def clear(self, name: TableName) -> None:
        """Removes all rows of a table by DELETE, since TRUNCATE would commit."""
        self.mark()
        self.pipeline.now(f"DELETE FROM {qualified(name)}".encode(), str(name))

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
        """Returns rows, sorted as the server sorts the identities."""
        reader = Reader(self._query, self._many, table)
        by_key = lock and keys is not None and keys.num_rows > FEW and self._has_primary(table)
        return reader.read(keys=keys, after=after, limit=limit, lock=lock, only=only, by_key=by_key)

    def compared(self, table: Table, keys: pa.Table) -> pa.Table:
        """Returns keys with each text replaced by a digest of its weights under the target column's collation."""
        there = self.schema.structure(table.name)
        collations = {column.name: column.type.collation or "" for column in (there.columns if there else ())}
        return Reader(self._query, self._many, table).compared(keys, collations)

    def equal_keys(self, table: Table, keys: pa.Table, others: pa.Table) -> list[int]:
        """Returns the indexes at which `keys` and `others` are equal by the collations of the target's table."""
        return Reader(self._query, self._many, table).equal_keys(keys, others)

    def many(self, sql: str, values: Sequence[Any], columns: Sequence[Column]) -> list[tuple[Any, ...]]:
        """Returns the rows of a SELECT that may have many rows of whole numbers and texts; text is in utf8mb4."""
        statement = self.pipeline.text(sql, values)
        table = Table(TableName("", "many rows"), tuple(columns))
        found = self._many(statement, table) if compiled() else None
        if found is not None:
            return list(zip(*(column.to_pylist() for column in found.columns), strict=True))
        numbers = [column.type.is_integer for column in columns]
        return [
            tuple(int(value) if is_number else value for value, is_number in zip(row, numbers, strict=True))
            for row in self._query(statement, "")
        ]

    def count(self, name: TableName) -> int:
        """Counts the rows exactly."""
        return int(self.rows(f"SELECT COUNT(*) FROM {qualified(name)}")[0][0])

    def execute(self, sql: str, origin: str = "") -> None:
        """Runs one DDL statement, which commits by itself."""
        if self.zone:
            run_marked(self, sql, origin or self.zone)
        else:
            self.pipeline.now(sql.encode())
        self._prepared.forget()
        self._events.forget()
        self._primary.clear()
        self.schema.forget()

    def _ended(self) -> None:
        super()._ended()
        self.schema.forget_ahead()

    def _has_primary(self, table: Table) -> bool:
        known = self._primary.get(table.name)
        if known is not None and (known[0] is table or known[0] == table):
            return known[1]
        there = self.schema.structure(table.name)
        keys = there.keys if there else ()
        found = any(key.primary and _lower(key.columns) == _lower(table.identity) for key in keys)
        self._primary[table.name] = table, found
        return found

    def _read_near(self, table: Table, keys: pa.Table, most: int) -> pa.Table:
        """Returns and locks at most this many rows with these keys."""
        return Reader(self._query, self._many, table).near(keys, most)

    def _query(self, sql: bytes, table: str) -> Sequence[tuple[Any, ...]]:
        return self.pipeline.now(sql, table).rows

    def _many(self, sql: bytes, table: Table) -> pa.Table | None:
        from pidts.target.mysql.many_rows import many_rows  # the compiler is loaded only for many rows

        if table.name in self._other_types:
            return None
        found = self.pipeline.rows(sql, lambda answer: many_rows(answer, table), str(table.name))
        if found is None:
            self._other_types.add(table.name)
        return found


def _lower(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(name.lower() for name in names)
