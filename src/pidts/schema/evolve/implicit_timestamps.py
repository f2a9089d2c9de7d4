"""The defaults that older servers give to TIMESTAMP columns by themselves.

Without `explicit_defaults_for_timestamp` a TIMESTAMP column that takes no NULL and has no default of its own gets one:
the current time if it is the table's first TIMESTAMP column, else the zero date.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace

from pidts.model.table import Column
from pidts.model.types import Kind
from pidts.schema.dialect import Dialect

ZERO = "'0000-00-00 00:00:00'"


def with_implicit_defaults(columns: Sequence[Column], defined: Container[str], dialect: Dialect) -> tuple[Column, ...]:
    """`defined` names the columns that the statement defines; the others keep what they have."""
    if dialect.explicit_timestamp:
        return tuple(columns)
    first = next((column for column in columns if column.type.kind is Kind.TIMESTAMP), None)
    return tuple(
        replace(column, default=_now(column) if column is first else ZERO)
        if column.name in defined and _needs_default(column)
        else column
        for column in columns
    )


def _needs_default(column: Column) -> bool:
    return column.type.kind is Kind.TIMESTAMP and not (column.nullable or column.default or column.generated)


def _now(column: Column) -> str:
    return f"current_timestamp({column.type.fsp})" if column.type.fsp else "current_timestamp"
