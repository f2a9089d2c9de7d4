"""Net changes into PostgreSQL: COPY into a staging table, then one DELETE and one INSERT for the whole batch.

Staging tables are temporary, one pair for each table and connection, emptied by every COMMIT. Their columns have the
target's own types, so that keys are compared without casts and an index is used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import psycopg
import pyarrow as pa

from pidts.model import Column, Halted, Table, TableName, Where
from pidts.reduce import NetChange
from pidts.target.postgres.dialect import identifier, qualified
from pidts.target.postgres.encode import UnrealDates, encode, nul_in_text, stage_type, stage_value, to_csv
from pidts.target.postgres.errors import Refused, mapped
from pidts.target.postgres.shape import PgColumn, PgTable

_NUL_STATES = ("22021", "22P05")


@dataclass(frozen=True, slots=True)
class _Plan:
    """Everything about writing one table that does not depend on the rows."""

    table: Table
    shape: PgTable
    keys_stage: str
    rows_stage: str
    delete: str
    upsert: str


class Writer:
    """Belongs to one session and lives as long as its connection."""

    def __init__(
        self, connection: psycopg.Connection, shape: Callable[[TableName], PgTable | None], on_unreal: UnrealDates
    ) -> None:
        self._connection, self._shape, self._on_unreal = connection, shape, on_unreal
        self._plans: dict[TableName, _Plan] = {}
        self._numbers = 0
        self._new: set[TableName] = set()
        self._filled: set[str] = set()

    def write(self, change: NetChange) -> None:
        """Deletes first, so that a value may move from one row to another."""
        plan = self._plan(change.table)
        if change.deletes.num_rows:
            self._fill(plan, plan.keys_stage, change.deletes)
            self._execute(plan, plan.delete)
        if change.upserts.num_rows:
            self._fill(plan, plan.rows_stage, change.upserts)
            self._execute(plan, plan.upsert)

    def stage_keys(self, table: Table, keys: pa.Table) -> str:
        """Put identities where a query can join them; the name of that place."""
        plan = self._plan(table)
        self._fill(plan, plan.keys_stage, keys)
        return plan.keys_stage

    def committed(self) -> None:
        """COMMIT has emptied the staging tables."""
        self._new.clear()
        self._filled.clear()

    def rolled_back(self) -> None:
        """Staging tables made in that transaction are gone with it."""
        for name in self._new:
            self._plans.pop(name, None)
        self.committed()

    def forget(self) -> None:
        """After DDL; the temporary tables stay unused until the connection ends."""
        self._plans.clear()

    def _plan(self, table: Table) -> _Plan:
        known = self._plans.get(table.name)
        if known is not None and (known.table is table or known.table == table):
            return known
        shape = self._shape(table.name)
        problems = ["there is no such table"] if shape is None else shape.misfits(table)
        if not table.identity:
            problems.append("its rows cannot be told apart: no primary key and no unique key without NULL")
        if shape is None or problems:
            raise Halted(
                "target-shape",
                f"the target's table does not fit: {'; '.join(problems)}",
                where=Where(table=str(table.name)),
                todo="Change the target's table to what the source has, or drop it and copy it anew",
            )
        plan = self._made(table, shape)
        self._plans[table.name] = plan
        self._new.add(table.name)
        return plan

    def _made(self, table: Table, shape: PgTable) -> _Plan:
        self._numbers += 1
        keys_stage, rows_stage = f"pg_temp.pidts_keys_{self._numbers}", f"pg_temp.pidts_rows_{self._numbers}"
        identity = [table.column(name) for name in table.identity]
        target = qualified(table.name)
        for stage, columns in ((keys_stage, identity), (rows_stage, list(table.columns))):
            body = ", ".join(
                f"{identifier(column.name)} {stage_type(column, _of(shape, column))}" for column in columns
            )
            with mapped(str(table.name)):
                self._connection.execute(
                    f"CREATE TEMPORARY TABLE {stage.removeprefix('pg_temp.')} ({body}) ON COMMIT DELETE ROWS"
                )
        match = " AND ".join(f"t.{identifier(c.name)} = {stage_value(c, _of(shape, c))}" for c in identity)
        names = ", ".join(identifier(column.name) for column in table.columns)
        values = ", ".join(stage_value(column, _of(shape, column)) for column in table.columns)
        settable = [identifier(c.name) for c in table.columns if not _of(shape, c).always_identity]
        updates = ", ".join(f"{name} = EXCLUDED.{name}" for name in settable)
        conflict = f"({', '.join(map(identifier, table.identity))}) DO " + (
            f"UPDATE SET {updates}" if updates else "NOTHING"
        )
        return _Plan(
            table,
            shape,
            keys_stage,
            rows_stage,
            f"DELETE FROM {target} t USING {keys_stage} s WHERE {match}",
            f"INSERT INTO {target} ({names}) OVERRIDING SYSTEM VALUE "
            f"SELECT {values} FROM {rows_stage} s ON CONFLICT {conflict}",
        )

    def _fill(self, plan: _Plan, stage: str, rows: pa.Table) -> None:
        if stage in self._filled:
            self._execute(plan, f"DELETE FROM {stage}")
        self._filled.add(stage)
        columns = [plan.table.column(name) for name in rows.column_names]
        encoded = [encode(c, rows[c.name], _of(plan.shape, c), plan.table, self._on_unreal) for c in columns]
        names = ", ".join(identifier(column.name) for column in columns)
        data = to_csv(encoded, rows.column_names)
        try:
            with (
                mapped(str(plan.table.name)),
                self._connection.cursor() as cursor,
                cursor.copy(f"COPY {stage} ({names}) FROM STDIN (FORMAT csv)") as copy,
            ):
                copy.write(memoryview(data))
        except Refused as error:
            found = nul_in_text(plan.table, rows) if error.sqlstate in _NUL_STATES else None
            raise found or error from error

    def _execute(self, plan: _Plan, sql: str) -> None:
        with mapped(str(plan.table.name)):
            self._connection.execute(sql)


def _of(shape: PgTable, column: Column) -> PgColumn:
    found = shape.column(column.name)
    if found is None:
        raise KeyError(column.name)
    return found
