"""Parses the default of a column. All spellings of a default that servers accept have the same result."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from dataclasses import replace

from pidts.model.table import Column
from pidts.model.types import BLOBS, FRACTIONS, TEXTS, ColumnType, Kind
from pidts.schema.dialect import Dialect
from pidts.schema.parse.lexer import Lexeme
from pidts.schema.parse.token_cursor import TokenCursor

_NOW = ("CURRENT_TIMESTAMP", "NOW", "LOCALTIME", "LOCALTIMESTAMP")
_WITHOUT_PARENTHESES = ("CURRENT_DATE", "CURRENT_TIME", "CURRENT_USER", "CURRENT_ROLE", "UTC_DATE", "UTC_TIMESTAMP")
_TYPED = ("DATE", "TIME", "TIMESTAMP")
_ODBC = {"D": "DATE", "T": "TIME", "TS": "TIMESTAMP"}
"""The words in `{d '2020-01-02'}`, which means the same as `DATE'2020-01-02'`."""
_ZEROS = {
    Kind.DATE: "'0000-00-00'",
    Kind.TIME: "'00:00:00'",
    Kind.DATETIME: "'0000-00-00 00:00:00'",
    Kind.TIMESTAMP: "'0000-00-00 00:00:00'",
    Kind.YEAR: "0000",
}
_WITHOUT_DEFAULT = frozenset({*TEXTS, *BLOBS, Kind.GEOMETRY})
_MOMENTS = (Kind.DATETIME, Kind.TIMESTAMP)
_CLOCK = re.compile(r"current_timestamp(?:\((\d)\))?")
ZERO = "'0000-00-00 00:00:00'"


def literal(text: str) -> str:
    """Returns a text as SQL, for a session with backslash escapes."""
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def parse_default(cursor: TokenCursor) -> str | None:
    """Parses the value after DEFAULT; None for NULL."""
    start = cursor.peek()
    if cursor.take("NULL"):
        return None
    if word := cursor.take_any("TRUE", "FALSE"):
        return "1" if word == "TRUE" else "0"
    if start.word in _NOW:
        return parse_now(cursor)
    if start.lexeme is Lexeme.TEXT:
        return literal(cursor.text())
    if start.lexeme is Lexeme.BYTES:
        return cursor.next().text
    if start.lexeme is Lexeme.NUMBER or cursor.at_sign("-") or cursor.at_sign("+"):
        return _number(cursor)
    if cursor.at_sign("("):
        return _in_parentheses(cursor)
    return _expression(cursor)


def _in_parentheses(cursor: TokenCursor) -> str:
    """Returns a literal without its parentheses, which some servers demand for some types; any other text unchanged."""
    signs = 1 if cursor.peek(1).text == "-" and cursor.peek(2).lexeme is Lexeme.NUMBER else 0
    inner, following = cursor.peek(1 + signs), cursor.peek(2 + signs)
    text = cursor.skip_parentheses()
    if following.lexeme is not Lexeme.SIGN or following.text != ")":
        return text
    if inner.lexeme is Lexeme.TEXT:
        return literal(inner.text)
    return "-" * signs + inner.text if inner.lexeme in (Lexeme.NUMBER, Lexeme.BYTES) else text


def parse_now(cursor: TokenCursor) -> str:
    """Returns `current_timestamp` with the number of fractional digits that the statement has."""
    if not cursor.take_any(*_NOW):
        raise cursor.surprise("CURRENT_TIMESTAMP")
    digits = 0
    if cursor.take_sign("(") and not cursor.take_sign(")"):
        digits = cursor.number()
        cursor.expect_sign(")")
    return _now(digits)


def _number(cursor: TokenCursor) -> str:
    negative = cursor.take_sign("-")
    if not negative:
        cursor.take_sign("+")
    if cursor.peek().lexeme is not Lexeme.NUMBER:
        raise cursor.surprise("a number")
    return ("-" if negative else "") + cursor.next().text


def _expression(cursor: TokenCursor) -> str:
    """Parses an expression that MariaDB accepts without parentheses, or a text with a charset (`_latin1'x'`)."""
    if cursor.take_sign("{"):
        word = cursor.take_any(*_ODBC)
        if not word:
            raise cursor.surprise("a default")
        text = literal(cursor.text())
        cursor.expect_sign("}")
        return _ODBC[word] + text
    start, following = cursor.peek(), cursor.peek(1)
    if cursor.take("NEXT", "VALUE", "FOR"):
        cursor.table_name()
        return cursor.since(start)
    if not start.word:
        raise cursor.surprise("a default")
    if following.lexeme is Lexeme.TEXT and (start.text.startswith("_") or start.word in _TYPED):
        cursor.next()
        cursor.text()
    elif following.lexeme is Lexeme.BYTES and start.text.startswith("_"):
        cursor.next()
        cursor.next()
    elif following.lexeme is Lexeme.SIGN and following.text == "(":
        cursor.next()
        cursor.skip_parentheses()
    elif start.word in _WITHOUT_PARENTHESES:
        cursor.next()
    else:
        raise cursor.surprise("a default")
    return cursor.since(start)


def in_primary_key(column: Column, dialect: Dialect) -> Column:
    """Returns the column as NOT NULL. If it allowed NULL, MySQL before 5.7 makes the type's zero its default."""
    if not column.nullable:
        return column
    column = replace(column, nullable=False)
    gives_zero = not dialect.mariadb and dialect.version < (5, 7, 0)
    if not gives_zero or column.default is not None or column.auto_increment:
        return column
    return replace(column, default=_zero(column))


def _zero(column: Column) -> str | None:
    kind = column.type
    if kind.kind in _WITHOUT_DEFAULT:
        return None
    if kind.is_integer or kind.kind in FRACTIONS:
        return "0"
    if kind.kind is Kind.BIT:
        return "b'0'"
    if kind.kind is Kind.ENUM:
        return literal(kind.labels[0])
    return _ZEROS.get(kind.kind, "''")


def with_implicit_defaults(columns: Sequence[Column], defined: Container[str], dialect: Dialect) -> tuple[Column, ...]:
    """Returns the columns with the defaults that older servers add to TIMESTAMP columns.

    Without `explicit_defaults_for_timestamp`, a TIMESTAMP column that is NOT NULL gets a default, unless it has one.
    For the table's first TIMESTAMP column, this is the current time, and for all others the zero date. `defined` has
    the names of the columns that the statement defines; all other columns keep their defaults.
    """
    if dialect.explicit_timestamp:
        return tuple(columns)
    first = next((column for column in columns if column.type.kind is Kind.TIMESTAMP), None)
    return tuple(
        replace(column, default=_now(column.type.fsp) if column is first else ZERO)
        if column.name in defined and _needs_default(column)
        else column
        for column in columns
    )


def _needs_default(column: Column) -> bool:
    return column.type.kind is Kind.TIMESTAMP and not (column.nullable or column.default or column.generated)


def with_stored_digits(default: str | None, kind: ColumnType) -> str | None:
    """Returns a default that is the current time with the digits that MariaDB stores with it; others unchanged.

    In a `DATETIME(6)`, MariaDB takes `CURRENT_TIMESTAMP` for `CURRENT_TIMESTAMP(6)`. MySQL refuses a default with other
    digits than the column has.
    """
    if default is None or kind.kind not in _MOMENTS or not (found := _CLOCK.fullmatch(default)):
        return default
    return _now(min(int(found[1] or kind.fsp), kind.fsp))


def _now(digits: int) -> str:
    return f"current_timestamp({digits})" if digits else "current_timestamp"
