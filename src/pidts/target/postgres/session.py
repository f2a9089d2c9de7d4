"""One connection to PostgreSQL, as a session of a target (`pidts.apply.port`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import psycopg
import pyarrow as pa

from pidts.model import Table, TableName
from pidts.model.type_map import TypeMap
from pidts.reduce import NetChange
from pidts.target.fit import gone
from pidts.target.postgres.connection import PostgresConnection
from pidts.target.postgres.dialect import qualified
from pidts.target.postgres.loader import Loader
from pidts.target.postgres.meta import PostgresMeta
from pidts.target.postgres.reader import compared_sql, read_rows
from pidts.target.postgres.schema import PostgresSchema
from pidts.target.postgres.shape import PgTable
from pidts.target.postgres.writer import SchemaChanges, Writer
from pidts.target.unreal_dates import note_unreal

_STORES_NULL = "Set pidts.zero-dates: null, allow NULL in the target's column, and start the task again"


class PostgresSession(PostgresConnection):
    """A session with PostgreSQL; made by `PostgresTarget.connect`."""

    def __init__(
        self,
        connection: psycopg.Connection,
        *,
        meta_schema: str,
        types: TypeMap,
        changes: SchemaChanges,
    ) -> None:
        super().__init__(connection, meta_schema=meta_schema)
        self.meta = PostgresMeta(self)
        self.schema = PostgresSchema(self, types)
        on_unreal = partial(note_unreal, refuses=types.refuses_unreal, todo=_STORES_NULL)
        self._changes, self._has_changed = changes, False
        self._writer = Writer(self.pipeline, self.schema.shape, self.schema.problems, on_unreal, self._changes)
        self._loader = Loader(self.pipeline, self._writer, on_unreal)
        self._shapes: dict[TableName, tuple[Table, PgTable]] = {}
        """For each table, its last structure and its shape, since reading the shape takes several round trips."""

    def commit(self) -> None:
        """Commits the transaction, then removes old tombstones."""
        super().commit()
        if self._has_changed:  # all sessions make their statements again, for the new structure
            self._changes.count += 1
            self._has_changed = False
        self.meta.tombstones.prune()

    def rollback(self) -> None:
        """Rolls the transaction back; works on a dead session, too."""
        self.meta.tombstones.forget()
        super().rollback()

    def write(self, change: NetChange) -> None:
        """Writes a change in the open transaction."""
        self._writer.write(change)

    def can_expect(self, table: Table) -> bool:
        """Whether the server can compare the table's rows with expected rows."""
        return self._writer.can_expect(table)

    def refuses_known_keys(self, table: Table) -> bool:
        """Whether a plain INSERT refuses each row whose key exists. False if inheriting tables may have the key."""
        return self._writer.can_expect(table)

    def load(self, table: Table, rows: pa.Table) -> bool:
        """Loads all rows in the open transaction, or no row. Returns False if the target already has one of them."""
        return self._loader.load(table, rows)

    def clear(self, name: TableName) -> None:
        """Removes all rows of a table by DELETE, since TRUNCATE would block readers."""
        self.pipeline.later(f"DELETE FROM {qualified(name)}", table=str(name))

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
        """Returns rows. If no transaction is open, this method begins one and commits it."""
        shape = self._shape(table)
        if self.in_transaction():
            self.pipeline.flush()
            return read_rows(self.driver, table, shape, keys=keys, after=after, limit=limit, lock=lock, only=only)
        with self.transaction():
            self.pipeline.flush()
            return read_rows(self.driver, table, shape, keys=keys, after=after, limit=limit, lock=lock, only=only)

    def compared(self, table: Table, keys: pa.Table) -> pa.Table:
        """Returns keys with each text in its column's form: two spellings of one uuid have the same form."""
        texts = [name for name in table.identity if table.column(name).type.is_text]
        self.pipeline.flush()
        rows = self.pipeline.now(compared_sql(table, self._shape(table), keys, texts)).rows if keys.num_rows else []
        columns = [
            pa.array([row[texts.index(name)] for row in rows], pa.string()) if name in texts else keys[name]
            for name in table.identity
        ]
        return pa.table(columns, names=list(table.identity))

    def equal_keys(self, table: Table, keys: pa.Table, others: pa.Table) -> list[int]:
        """Returns the indexes at which `compared` gives `keys` and `others` the same form."""
        pairs = zip(*(self.compared(table, each).to_pylist() for each in (keys, others)), strict=True)
        return [place for place, (one, other) in enumerate(pairs) if one == other]

    def count(self, name: TableName) -> int:
        """Counts the rows exactly. Only for this query, the server may scan the table."""
        self.pipeline.later("SET enable_seqscan = on")
        answer = self.pipeline.now(f"SELECT count(*) FROM {qualified(name)}")
        self.pipeline.later("SET enable_seqscan = off")
        self.pipeline.flush()
        return int(answer.rows[0][0])

    def execute(self, sql: str, origin: str = "") -> None:  # noqa: ARG002 - no task reads this server's log
        """Executes one DDL statement, without parameters."""
        self.pipeline.now(sql)
        self._changes.count += 1
        self._has_changed = True
        self._writer.forget()
        self._shapes.clear()
        self.schema.forget()

    def _shape(self, table: Table) -> PgTable:
        known = self._shapes.get(table.name)
        if known is not None and (known[0] is table or known[0] == table):
            return known[1]
        shape = self.schema.shape(table.name)
        if shape is None:
            raise gone(table.name)
        self._shapes[table.name] = table, shape
        return shape
