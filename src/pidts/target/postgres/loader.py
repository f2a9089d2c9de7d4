"""Loads new rows into PostgreSQL by binary COPY after a savepoint. The next rows are encoded while the server works.

If the server already has one of the rows, the whole COPY fails. COPY cannot convert values, for example to an enum type
of the target, or from a number to a boolean. Tables with columns that need this are written by INSERT.
"""

from __future__ import annotations

from functools import partial
from itertools import chain

import pyarrow as pa

from pidts.model import Table
from pidts.prefetch import ahead
from pidts.target.postgres.encode.binary import Wire, wire
from pidts.target.postgres.encode.block import HEADER, TRAILER, block
from pidts.target.postgres.encode.columns import UnrealDates
from pidts.target.postgres.errors import StatementRefused
from pidts.target.postgres.statement_pipeline import StatementPipeline
from pidts.target.postgres.statements import Statements
from pidts.target.postgres.writer import Writer, explained, of_row, portions

_THERE = frozenset({"23505", "23P01"})
"""The SQLSTATEs of a row whose values another row already has in a unique key or an EXCLUDE constraint."""
_ROWS = 32_000


class _NotEncodable(Exception):
    """Raised if a value cannot be written in COPY's format."""


class Loader:
    """Loads the rows of one session."""

    def __init__(self, pipeline: StatementPipeline, writer: Writer, on_unreal: UnrealDates) -> None:
        self._pipeline, self._writer, self._on_unreal = pipeline, writer, on_unreal

    def load(self, table: Table, rows: pa.Table) -> bool:
        """Loads all rows, or no row. Returns False if the target already has one of them."""
        if not rows.num_rows:
            return True
        plan = self._writer.plan(table)
        self._pipeline.later("SAVEPOINT pidts_load", table=str(table.name))
        try:
            try:
                self._copy(plan, rows)
            except _NotEncodable:
                self._back(table)
                self._writer.insert(table, rows)
            self._writer.demand_nothing_fires(table)
            self._pipeline.now("RELEASE SAVEPOINT pidts_load", table=str(table.name))
        except StatementRefused as error:
            if error.sqlstate not in _THERE:
                raise
        else:
            return True
        self._back(table)
        return False

    def _copy(self, plan: Statements, rows: pa.Table) -> None:
        chosen = rows.select(list(plan.written))
        blocks = ahead(self._block(plan, part) for part in portions(chosen, _ROWS))
        self._pipeline.copy(
            plan.copy,
            chain((memoryview(HEADER),), blocks, (memoryview(TRAILER),)),
            table=str(plan.table.name),
            explain=partial(explained, plan.table, chosen),
        )

    def _block(self, plan: Statements, rows: pa.Table) -> memoryview:
        with of_row(plan.table, rows):
            return block([self._wire(plan, name, rows[name]) for name in rows.column_names])

    def _wire(self, plan: Statements, name: str, values: pa.ChunkedArray) -> tuple[pa.Array, Wire]:
        form = plan.forms[name]
        data = form.real(values, plan.table, self._on_unreal)
        written = wire(form, data)
        if written is None:
            raise _NotEncodable
        return data, written

    def _back(self, table: Table) -> None:
        self._pipeline.now("ROLLBACK TO SAVEPOINT pidts_load", table=str(table.name))
