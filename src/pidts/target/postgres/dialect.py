"""Translates names, literals, types and defaults of a MySQL table to PostgreSQL's SQL."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from pidts.model import Column, ColumnType, Halted, Kind, Table, TableName, Where
from pidts.model.advice import REJOIN
from pidts.model.types import DATED
from pidts.schema.literals import BytesLiteral, CurrentTime, Expression, Number, TextLiteral, parse_default
from pidts.schema.statement_time import StatementTime, moment_text

MAX_NAME = 63
_SYSTEM_COLUMNS = frozenset({"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"})
_SIMPLE = {
    Kind.FLOAT: "real",
    Kind.DOUBLE: "double precision",
    Kind.YEAR: "smallint",
    Kind.DATE: "date",
    Kind.ENUM: "text",
    Kind.SET: "text[]",
    Kind.JSON: "jsonb",
    Kind.VECTOR: "real[]",
    Kind.UUID: "uuid",
    Kind.INET4: "inet",
    Kind.INET6: "inet",
}
_INTEGER = {
    Kind.TINYINT: ("smallint", "smallint"),
    Kind.SMALLINT: ("smallint", "integer"),
    Kind.MEDIUMINT: ("integer", "integer"),
    Kind.INT: ("integer", "bigint"),
    Kind.BIGINT: ("bigint", "numeric(20)"),
}
_RENAME = f"Change this name on the source. If the task has begun: {REJOIN}"
_ROUTE = (
    "Write a route that gives the table another name on the target (docs/reference/rules.md#where-rows-go-routes), or "
    f"change this name on the source. If the task has begun: {REJOIN}"
)


def identifier(name: str, todo: str = _RENAME) -> str:
    """Quotes a name for a statement. Raises if PostgreSQL would shorten the name, since two names could become one."""
    size = len(name.encode())
    if not name or "\0" in name or size > MAX_NAME:
        raise Halted(
            "identifier-too-long" if size > MAX_NAME else "bad-identifier",
            f"PostgreSQL allows names of 1 to {MAX_NAME} bytes without NUL, and {name!r} has {size} bytes",
            todo=todo,
        )
    return '"' + name.replace('"', '""') + '"'


def new_column(name: str) -> str:
    """Quotes the name of a column that is created. Raises if it is the name of a system column."""
    if name in _SYSTEM_COLUMNS:
        what = f"PostgreSQL allows no column {name}, since each table has a system column of this name"
        raise Halted("bad-identifier", what, todo=_RENAME)
    return identifier(name)


def new_schema(name: str) -> str:
    """Quotes the name of a schema that is created. Raises if PostgreSQL reserves the name."""
    if name.startswith("pg_"):
        what = f"PostgreSQL allows no schema {name}, since names that begin with pg_ are its own"
        todo = f"Write a route that gives the tables of {name} another schema on the target"
        raise Halted("bad-identifier", what, todo=todo)
    return identifier(name)


def qualified(name: TableName) -> str:
    """Returns a table's name with its schema, quoted."""
    return f"{identifier(name.schema, _ROUTE)}.{identifier(name.name, _ROUTE)}"


def literal(text: str) -> str:
    """Returns a string constant (`standard_conforming_strings` is on in every session)."""
    if "\0" in text:
        raise Halted(
            "nul-in-text",
            f"PostgreSQL cannot store NUL in text: {text!r}",
            todo="Remove NUL from the text on the source, or give the column a binary type. If the task has begun: "
            f"{REJOIN}",
        )
    return "'" + text.replace("'", "''") + "'"


def type_name(kind: ColumnType) -> str:
    """Returns the type that the task file chooses, or else a type that can store every value of the MySQL type."""
    if kind.chosen:
        return kind.chosen
    if kind.kind in _INTEGER:
        return _INTEGER[kind.kind][kind.unsigned]
    if kind.kind is Kind.DECIMAL:
        return f"numeric({kind.precision or 10},{kind.scale or 0})"
    if kind.kind is Kind.BIT:
        return "boolean" if (kind.length or 1) == 1 else f"bit({kind.length})"
    if kind.kind is Kind.TIME:
        return f"interval({kind.fsp})"
    if kind.kind is Kind.DATETIME:
        return f"timestamp({kind.fsp})"
    if kind.kind is Kind.TIMESTAMP:
        return f"timestamptz({kind.fsp})"
    if kind.kind in (Kind.CHAR, Kind.VARCHAR) and kind.length is not None:
        return f"{kind.kind}({max(kind.length, 1)})"
    if kind.kind in _SIMPLE:
        return _SIMPLE[kind.kind]
    return "bytea" if kind.is_bytes else "text"


def is_nullable(table: Table, column: Column) -> bool:
    """Whether a column may be NULL on PostgreSQL.

    Date columns may be NULL, for zero and partial dates, unless the task refuses such dates. Columns of the identity
    are never NULL.
    """
    if column.name in table.identity:
        return False
    return column.nullable or (column.type.kind in DATED and not column.type.refuses_unreal)


def label_check(column: Column, expression: str) -> str | None:
    """Returns the condition for the values of an enum: its labels, and '' for MySQL's index 0; None for other types."""
    if column.type.kind is not Kind.ENUM:
        return None
    return f"{expression} IN ({', '.join(map(literal, dict.fromkeys(('', *column.type.labels))))})"


def default_clause(column: Column) -> tuple[str | None, str | None]:
    """Returns the default in PostgreSQL's SQL, and a note if PostgreSQL has no such default; either may be None."""
    parsed = parse_default(column.default)
    if parsed is None:
        return None, None
    if not isinstance(parsed, Expression) and (text := _constant(column.type, parsed)) is not None:
        return text, None
    return None, f"column {column.name}: default {column.default} has no equivalent on PostgreSQL and was left out"


def _constant(kind: ColumnType, value: CurrentTime | TextLiteral | BytesLiteral | Number) -> str | None:
    if isinstance(value, BytesLiteral) and kind.kind is Kind.BIT:
        return _bits(kind, int.from_bytes(value.value))
    if isinstance(value, BytesLiteral) and kind.kind is Kind.GEOMETRY and kind.chosen:
        return None
    if isinstance(value, BytesLiteral):
        return literal("\\x" + value.value.hex()) if kind.is_bytes and kind.kind is not Kind.VECTOR else None
    if isinstance(value, CurrentTime):
        if kind.kind is Kind.TIMESTAMP:
            return f"CURRENT_TIMESTAMP({value.fsp})"
        return f"LOCALTIMESTAMP({value.fsp})" if kind.kind is Kind.DATETIME else None
    text = value.value
    if kind.kind is Kind.BIT:
        return _bits(kind, int(text)) if text.isdigit() else None
    if kind.chosen == "boolean":
        return {"0": "false", "1": "true"}.get(text)
    if kind.kind is Kind.SET and kind.chosen == "text":
        return literal(text)
    if kind.kind in DATED:
        return literal(text) if isinstance(value, TextLiteral) and _is_moment(text) else None
    if kind.kind is Kind.SET:
        return literal(array(text.split(",") if text else []))
    if kind.is_bytes or "\0" in text:
        return literal("") if kind.is_bytes and not text and kind.kind is not Kind.VECTOR else None
    if isinstance(value, Number) and not (kind.is_text or kind.kind is Kind.TIME):
        return text
    return literal(text)


def is_left_out(column: Column) -> bool:
    """Whether PostgreSQL cannot store the default. False for dates: a date that it cannot store becomes NULL."""
    is_constant = not isinstance(parse_default(column.default), CurrentTime | Expression | None)
    return is_constant and column.type.kind not in DATED and default_clause(column)[0] is None


def implicit_default(column: Column, executed_at: StatementTime) -> str | None:
    """Returns MySQL's value for existing rows in a new column; None if it is NULL, or PostgreSQL has no such value."""
    if (filled := executed_at.filling(column)) is not None:
        return literal(moment_text(filled) + ("Z" if column.type.kind is Kind.TIMESTAMP else ""))
    if parse_default(column.default) is not None:
        return default_clause(column)[0]
    kind = column.type
    if column.nullable or kind.kind in DATED:
        return None
    if kind.kind is Kind.BIT:
        return _bits(kind, 0)
    if kind.chosen == "boolean":
        return "false"
    if kind.is_integer or kind.kind in (Kind.DECIMAL, Kind.FLOAT, Kind.DOUBLE, Kind.YEAR):
        return "0"
    if kind.kind is Kind.ENUM:
        return literal(kind.labels[0]) if kind.labels else literal("")
    special = {
        Kind.SET: "" if kind.chosen == "text" else "{}",
        Kind.TIME: "00:00:00",
        Kind.JSON: "null",
        Kind.VECTOR: "{}",
        Kind.UUID: "00000000-0000-0000-0000-000000000000",
        Kind.INET4: "0.0.0.0",  # noqa: S104 - a value, no address to listen on
        Kind.INET6: "::",
    }
    if kind.kind is Kind.BINARY:
        return literal("\\x" + "00" * (kind.length or 1))
    return literal(special.get(kind.kind, ""))


def array(items: Iterable[str | None]) -> str:
    """Returns the text form of an array."""
    quoted = ("NULL" if item is None else '"' + item.replace("\\", "\\\\").replace('"', '\\"') + '"' for item in items)
    return "{" + ",".join(quoted) + "}"


def _bits(kind: ColumnType, number: int) -> str:
    width = kind.length or 1
    return ("true" if number else "false") if width == 1 else f"B'{number:0{width}b}'"


def _is_moment(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def refuse(table: Table, code: str, what: str, todo: str) -> Halted:
    """Returns the error for a table that PostgreSQL cannot represent."""
    return Halted(code, what, where=Where(table=str(table.name)), todo=todo)
