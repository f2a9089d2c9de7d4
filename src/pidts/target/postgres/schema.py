"""The structures of PostgreSQL's tables, and the statements that change them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

from pidts.model import Halted, RenderedChange, Table, TableName, Where
from pidts.model.type_map import GEOMETRY, TypeMap
from pidts.schema import AlterTable, Statement
from pidts.schema.statement_time import UNKNOWN_TIME, StatementTime
from pidts.target.meta_schema import USUAL
from pidts.target.postgres import alter
from pidts.target.postgres.connection import PostgresConnection
from pidts.target.postgres.create import create_table, finish_table
from pidts.target.postgres.dialect import identifier, qualified, type_name
from pidts.target.postgres.divergent_rows import doubts
from pidts.target.postgres.generated import computed_otherwise
from pidts.target.postgres.shape import PgTable, read_shape, unique_keys
from pidts.target.server_schema import ServerSchema


class PostgresSchema(ServerSchema[PgTable]):
    """The structures and the schema changes of one session."""

    transactional_ddl = True
    holds_unreal_dates = False

    def __init__(self, connection: PostgresConnection, types: TypeMap) -> None:
        self._connection, self._types = connection, types
        super().__init__(
            lambda name: read_shape(connection.rows, name), lambda name: unique_keys(connection.rows, name)
        )

    def fingerprint(self, name: TableName) -> str | None:
        """Returns the exact structure as text; None if there is no such table."""
        shape = self.shape(name)
        return repr(shape) if shape else None

    def misfits(self, table: Table) -> list[str] | None:
        """Returns why rows of this structure do not fit the server's table; None if there is no such table."""
        shape = self.shape(table.name)
        return None if shape is None else self.problems(table, shape)

    def problems(self, table: Table, shape: PgTable) -> list[str]:
        """Returns why rows of this structure do not fit a table of this shape.

        One reason is a generated column of the table that PostgreSQL may compute differently from the source.
        """
        return [*shape.misfits(table), *self._computed_otherwise(table, shape)]

    def write_obstacles(self, name: TableName) -> list[str]:
        """Returns the texts of `misfits` on foreign keys and triggers, which only a write would start."""
        shape = self.shape(name)
        return [] if shape is None else shape.write_obstacles()

    def computed_otherwise(self, table: Table) -> list[str]:
        """Returns the texts of `misfits` on columns that the target may compute differently from the source."""
        shape = self.shape(table.name)
        return [] if shape is None else self._computed_otherwise(table, shape)

    def _computed_otherwise(self, table: Table, shape: PgTable) -> list[str]:
        if not any(column.generated for column in shape.columns):
            return []
        return computed_otherwise(self._typed(table), shape, lambda sql: self._connection.pipeline.now(sql).rows)

    def column_types(self, table: Table) -> tuple[str, ...]:
        """Returns the types that the type mapping gives to the columns."""
        return tuple(type_name(column.type) for column in self._typed(table).columns)

    def create_statements(self, table: Table, *, before_copy: bool = False) -> RenderedChange:
        """Returns the statements that create the schema and the table; before a copy, with the primary key only."""
        return create_table(self._typed(table), with_keys=not before_copy)

    def finish_statements(self, table: Table) -> RenderedChange:
        """Returns the statements for keys and counters that the target's table lacks now."""
        shape = self.shape(table.name)
        if shape is None:
            return RenderedChange(())
        unfinished = self._connection.run(
            "SELECT 1 FROM pidts_meta.unfinished WHERE relation = %s::regclass", (qualified(table.name),)
        )[0]
        return finish_table(table, shape, self._sequence, keys=bool(unfinished), meta=self._connection.named(USUAL))

    def ddl_statements(
        self,
        statement: Statement,
        before: Mapping[TableName, Table | None],
        after: Mapping[TableName, Table | None],
        executed_at: StatementTime = UNKNOWN_TIME,
    ) -> RenderedChange:
        """Returns PostgreSQL's statements for a statement of the source.

        Indexes and constraints may have other names on the target than on the source; the statements use the target's.
        """
        before, after = self._all_typed(before), self._all_typed(after)
        found = {name: shape for name in {*before, *after} if (shape := self.shape(name)) is not None}
        try:
            if isinstance(statement, AlterTable):
                old, new = before.get(statement.table), next((t for t in after.values() if t is not None), None)
                if old is not None and new is not None:
                    self._demand_no_doubts(statement, old, new, executed_at)
            return alter.render(statement, before, after, found, executed_at)
        except Halted as error:
            if error.code == "ddl-not-translatable":
                error.instead = alter.render(statement, before, after, found, executed_at, is_draft=True).statements
            raise

    def _all_typed(self, tables: Mapping[TableName, Table | None]) -> dict[TableName, Table | None]:
        return {name: None if table is None else self._typed(table) for name, table in tables.items()}

    def _typed(self, table: Table) -> Table:
        """Returns the table with the types that the task file chooses, with their names on this server."""
        table = self._types.of(table)
        shapes = [column for column in table.columns if column.type.chosen == GEOMETRY]
        if not shapes:
            return table
        if not self._geometry:
            raise Halted(
                "type-not-possible",
                f"pidts.types chooses postgis for column {shapes[0].name}, and this database has no such extension",
                where=Where(table=str(table.name)),
                todo="Run CREATE EXTENSION postgis in the target's database. Or choose no type for the column in "
                "pidts.types: the column becomes bytea",
            )
        columns = (
            replace(one, type=replace(one.type, chosen=self._geometry)) if one in shapes else one
            for one in table.columns
        )
        return replace(table, columns=tuple(columns))

    @cached_property
    def _geometry(self) -> str:
        """Returns PostGIS's type with its schema; empty if there is none."""
        rows = self._connection.rows(
            "SELECT n.nspname::text FROM pg_catalog.pg_extension e JOIN pg_catalog.pg_namespace n "
            "ON n.oid = e.extnamespace WHERE e.extname = 'postgis'",
            (),
        )
        return f"{identifier(rows[0][0])}.geometry" if rows else ""

    def _demand_no_doubts(self, statement: AlterTable, old: Table, new: Table, executed_at: StatementTime) -> None:
        for condition, refusal in doubts(statement, old, new, self.shape(statement.table), executed_at):
            if self._connection.rows(f"SELECT 1 FROM {qualified(statement.table)} WHERE {condition} LIMIT 1", ()):
                raise refusal

    def _sequence(self, table: str, column: str) -> str | None:
        ((name,),) = self._connection.rows("SELECT pg_catalog.pg_get_serial_sequence(%s, %s)", (table, column))
        return None if name is None else str(name)
