"""Builds a schema change that is carried out as an operator has ordered it.

Whatever runs on the target, the recorded structures follow the source: rows after the change have the structure that it
made there. Where the statement is not understood, the ordered statements define the structure, if they are in the
source's own language. Otherwise the structure stays as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing

from pidts.apply import SchemaChange
from pidts.batch.context import JobContext
from pidts.model import DdlOrder, Halted, OrderKind, Table, TableName
from pidts.schema import Dialect, Ignored, StatementDml, Unknown, apply, classify


def overrides(order: DdlOrder | None) -> bool:
    """Whether the order replaces the statement, so that the statement itself is not run."""
    return order is not None and order.kind in {OrderKind.SKIP, OrderKind.REPLACE}


def unfollowed(
    context: JobContext,
    order: DdlOrder,
    text: str,
    schema: str,
    dialect: Dialect,
    is_ours: Callable[[TableName], bool],
) -> SchemaChange:
    """Returns the ordered change for a statement that cannot be followed."""
    structures: Mapping[TableName, Table | None] = {}
    with closing(context.target.connect()) as session:
        if not session.schema.transactional_ddl:  # the target speaks the language of the source
            structures = _followed(context, order.statements, schema, dialect, is_ours)
    return SchemaChange(statement=None, text=text, before={}, after={}, structures=structures, order=order)


def _followed(
    context: JobContext,
    statements: tuple[str, ...],
    schema: str,
    dialect: Dialect,
    is_ours: Callable[[TableName], bool],
) -> dict[TableName, Table | None]:
    changed: dict[TableName, Table | None] = {}
    for sql in statements:
        statement = classify(sql, schema, dialect=dialect)
        if isinstance(statement, Ignored | StatementDml | Unknown):
            continue
        merged = {**context.structures, **changed}
        known = {name: table for name, table in merged.items() if table is not None}
        try:
            after = apply(statement, known, context.charsets, dialect=dialect)
        except Halted:
            continue  # it concerns the target's own tables
        changed |= {name: table for name, table in after.items() if is_ours(name)}
    return changed
