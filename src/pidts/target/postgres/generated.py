"""Decides which generated columns of the source PostgreSQL computes itself, in schema changes and in existing tables.

A new generated column is also generated on the target if both servers certainly compute the same value for every
possible row (`computed`). If this is certain only for the existing rows (`fills`), PostgreSQL computes their values
when it adds the column. After that, the column is a plain column.

If the definition of a generated column changes, or the type of a column that it reads, PostgreSQL cannot keep it
generated. The column becomes a plain column (`made_plain`), keeps its values, and gets the source's values from then
on.

For a generated column of an existing table, PiDTS translates the source's expression anew. The column is accepted if
PostgreSQL prints its expression in the same way as the new expression (`computed_otherwise`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pidts.model import Column, Kind, Table
from pidts.model.advice import RESYNC
from pidts.model.types import INTEGER_BITS
from pidts.schema import AddColumn, AlterTable, ChangeColumn, ModifyColumn
from pidts.schema.computed import mentions
from pidts.target.arithmetic import Exact, exact
from pidts.target.difference import difference
from pidts.target.postgres import expressions
from pidts.target.postgres.dialect import identifier, literal, qualified, type_name
from pidts.target.postgres.shape import PgTable

_BYTES = {Kind.TEXT: 1 << 16, Kind.MEDIUMTEXT: 1 << 24, Kind.LONGTEXT: 1 << 32}
_WHOLE = frozenset({"smallint", "integer", "bigint", "numeric"})
_TEXTS = frozenset({"text", "character varying"})


@dataclass(frozen=True, slots=True)
class Fill:
    """The expression by which PostgreSQL computes one column."""

    column: Column
    sql: str
    """The value, converted to the column's type."""
    misfit: str
    """The condition for a value that does not fit into the source's column. The source has cut off such a value."""


def computed(statement: AlterTable, before: Table, after: Table, found: PgTable | None) -> frozenset[str]:
    """Returns the added columns that the target itself computes.

    The statement must add each column that the expression reads, or leave it unchanged. In the second case, the
    target's column must have the type that the expression assumes.
    """
    if found is None:
        return frozenset()
    change = difference(statement, before, after)
    kept = {new.name for old, new in change.kept if old == new}
    there = {column.name for column in found.columns}
    new = {column.name for column in change.added if not column.generated and column.name not in there}
    return frozenset(
        column.name
        for column in change.added
        if column.generated
        and column.name not in there
        and expressions.computed(after, column) is not None
        and all(
            name in new or (name in kept and _has_its_type(after, name, found))
            for name in expressions.read_columns(after, column)
        )
    )


def computed_otherwise(table: Table, found: PgTable, rows: Callable[[str], list[tuple[Any, ...]]]) -> list[str]:
    """Returns a text for `misfits` for each column that the target may compute differently from the source.

    PostgreSQL's planner prints both expressions: if the texts are equal, the results are equal for each row. The
    planner does not read the table, and works in a read-only transaction.
    """
    names = {column.name for column in table.columns}
    here = [column for column in found.columns if column.generated and column.name in names]
    asked: dict[str, tuple[str, str]] = {}
    for column in here:
        source = table.column(column.name)
        made = expressions.computed(table, source)
        if (
            made is not None
            and column.expression
            and column.not_null is not source.nullable
            and all(
                _has_its_type(table, name, found) for name in (source.name, *expressions.read_columns(table, source))
            )
        ):
            asked[column.name] = (f"({column.expression})", f"({made})")
    alike: set[str] = set()
    if asked:
        parts = ", ".join(part for pair in asked.values() for part in pair)
        ((plan,),) = rows(
            f"EXPLAIN (VERBOSE, COSTS OFF, FORMAT JSON) SELECT {parts} FROM {qualified(found.name)} WHERE false"
        )
        written = (json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]["Output"]
        alike = {name for name, ours, theirs in zip(asked, written[::2], written[1::2], strict=True) if ours == theirs}
    return [
        f"column {column.name} is generated on the target, and its values may differ from the source's: ALTER TABLE "
        f"{qualified(found.name)} ALTER COLUMN {identifier(column.name)} DROP EXPRESSION makes it a plain column. "
        "Stop every task that writes to the table first. Its rows keep their values. If the "
        f"source has other values, copy the table again: {RESYNC}"
        for column in here
        if column.name not in alike
    ]


def _has_its_type(table: Table, name: str, found: PgTable) -> bool:
    """Whether a column has the type that it would get if it were created now."""
    column = found.column(name)
    return column is not None and column.type == _written_type(type_name(table.column(name).type))


def _written_type(name: str) -> str:
    """Returns a type's name as the catalog shows it."""
    base, opening, size = name.partition("(")
    long = {"varchar": "character varying", "char": "character"}.get(base, base)
    if base == "numeric" and size and "," not in size:
        size = f"{size[:-1]},0)"
    return f"{long}{opening}{size}" + (" without time zone" if base == "timestamp" else "")


def made_plain(statement: AlterTable, before: Table, after: Table, found: PgTable | None) -> list[str]:
    """Returns the target's generated columns that become plain columns, with their names before the change."""
    if found is None or not (here := [column.name for column in found.columns if column.generated]):
        return []
    change = difference(statement, before, after)
    same = {old.name.lower() for old, new in change.kept if old == new and old.computed == new.computed}
    said = {
        (action.old if isinstance(action, ChangeColumn) else action.column.name).lower()
        for action in statement.actions
        if isinstance(action, ModifyColumn | ChangeColumn)
    } - same
    doubtful = {old.name for old, new in change.kept if expressions.computed(after, new) is None}
    touched = [one.name for one in change.dropped] + [old.name for old, new in change.kept if old.type != new.type]
    expression = {column.name: column.computed for column in before.columns}
    return [
        name
        for name in here
        if name.lower() in said
        or name in doubtful
        or any(not expression.get(name) or mentions(expression[name], one) for one in touched if one != name)
    ]


def fills(statement: AlterTable, before: Table, after: Table, found: PgTable | None) -> Iterator[Fill]:
    """Yields the expressions of the added columns that PostgreSQL computes once, for the existing rows."""
    bases = {column.name: column.base for column in found.columns} if found is not None else {}
    made = computed(statement, before, after, found)
    for action in statement.actions:
        if not isinstance(action, AddColumn):
            continue
        column = next((one for one in after.columns if one.name.lower() == action.column.name.lower()), action.column)
        value = exact(action.computed, column, before, after)
        if (
            value is None
            or column.name in {*bases, *made}
            or any(bases.get(name) not in _TEXTS | _WHOLE for name in value.columns())
        ):
            continue
        if any((bases[name] in _TEXTS) is not value.is_text for name in value.columns()):
            continue
        yield Fill(column, *(_text if value.is_text else _number)(value, column))


def _number(value: Exact, column: Column) -> tuple[str, str]:
    scale = column.type.scale or 0
    sql = f"round({_written(value)}, {scale})"
    if column.type.kind is Kind.DECIMAL:
        most = 10 ** ((column.type.precision or 10) - scale)
        least, above = (0 if column.type.unsigned else f"-{most}::numeric"), f"{most}::numeric"
        misfit = f"{sql} < {least} OR {sql} >= {above}" if column.type.unsigned else f"abs({sql}) >= {above}"
    else:
        bits = INTEGER_BITS[column.type.kind]
        low, high = (0, 2**bits) if column.type.unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1))
        misfit = f"{sql} < ({low})::numeric OR {sql} >= {high}::numeric"
    return f"{sql}::{type_name(column.type)}", misfit


def _text(value: Exact, column: Column) -> tuple[str, str]:
    sql, kind = _written(value), column.type
    most = f"char_length({sql}) > {kind.length}" if kind.length else f"octet_length({sql}) >= {_BYTES[kind.kind]}"
    return f"({sql})::{type_name(kind)}", most


def _written(value: Exact) -> str:
    parts = [_written(part) for part in value.parts]
    match value.kind:
        case "column":
            return f"{identifier(value.value)}::{'text' if value.is_text else 'numeric'}"
        case "number":
            return f"{value.value.rstrip('.')}::numeric"
        case "text":
            return f"{literal(value.value)}::text"
        case "negative":
            return f"(- {parts[0]})"
        case "concat":
            return f"({' || '.join(parts)})"
        case "first":
            return f"coalesce({', '.join(parts)})"
        case _:
            return f"({f' {value.kind} '.join(parts)})"
