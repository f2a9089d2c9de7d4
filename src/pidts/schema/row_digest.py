"""Makes SQL that computes a number for a row. For equal rows, every MySQL or MariaDB server computes the same number.

Each value becomes a unique text without a `|`. A number becomes its digits, and a time becomes the text that the server
shows. If a value may have any character, the SHA-256 of its bytes in UTF-8 is used. The texts are joined with `|` and
hashed, and the first 60 bits of the hash are the row's number. The sum of the numbers of all rows is compared. The sum
does not depend on the order of rows, and a row that occurs twice is added twice.

Different rows have different numbers, except with a probability of 2^-60. Equal rows have equal numbers only if both
servers write the values as the same texts. If a value is too large for the server to convert, the row's number is NULL,
and `UNKNOWN` is added to the sum instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256

from pidts.model import Column, Kind, Table
from pidts.model.types import BLOBS, IDENTIFIERS
from pidts.schema.render.definitions import quote, quote_table

UNKNOWN = 10**40
"""This number is added to the sum for each row whose number is NULL: a sum of at least this value proves nothing."""

_CHARSETS = frozenset({"utf8mb4", "utf8mb3", "utf8", "ascii", "latin1", "ucs2", "utf16", "utf16le", "utf32"})
"""The charsets whose characters are all in UTF-8. In other charsets, two texts could both become a question mark."""
_BYTES = frozenset({Kind.BINARY, Kind.VARBINARY, *BLOBS})
_SHOWN = frozenset({Kind.DECIMAL, Kind.DATE, Kind.TIME, Kind.DATETIME, Kind.TIMESTAMP})
_HASHED = IDENTIFIERS | {Kind.JSON}
_SHORT_YEAR = 2
_DIGITS = 15


def sum_query(table: Table, where: str, *, floats: bool, constants: Mapping[str, str] | None = None) -> str | None:
    """Returns a query for the number of rows and the sum of their numbers; None if a column has no unique text.

    `floats`: whether the server with which the rows are compared writes floating point numbers as this server does. If
    not, a table with a FLOAT or DOUBLE has no sum, and the result is None. `constants`: the texts that the other server
    has in further columns, after the table's own columns.
    """
    texts = [_text(column, floats=floats) for column in table.columns]
    if None in texts:
        return None
    values = [
        f"IF({quote(column.name)} IS NULL, '-', {text})" for column, text in zip(table.columns, texts, strict=True)
    ]
    values += [f"'{sha256(text.encode()).hexdigest()}'" for text in (constants or {}).values()]
    joined = ", '|', ".join(values)
    row = f"CONCAT({joined})" if len(values) > 1 else values[0]
    number = f"CAST(CONV(LEFT(SHA2({row}, 256), {_DIGITS}), 16, 10) AS UNSIGNED)"
    return f"SELECT COUNT(*), SUM(IFNULL({number}, {UNKNOWN})) FROM {quote_table(table.name)} {where}".rstrip()


def _text(column: Column, *, floats: bool) -> str | None:
    name, kind = quote(column.name), column.type
    if kind.is_integer or (kind.kind is Kind.YEAR and kind.length != _SHORT_YEAR):
        return f"{name} + 0"  # the addition removes the zeros of ZEROFILL
    if kind.kind is Kind.BIT:
        return f"CAST({name} + 0 AS SIGNED)"
    if kind.kind in _SHOWN:
        return f"CAST({name} AS CHAR)"
    if kind.kind in {Kind.FLOAT, Kind.DOUBLE}:
        # The addition gives -0.0 the text of 0.0: servers treat the two as equal, and MariaDB writes 0.0 for both.
        return f"{name} + 0e0" if floats else None
    if kind.kind in _HASHED:
        return f"SHA2(CAST({name} AS CHAR CHARACTER SET utf8mb4), 256)"
    if kind.kind in _BYTES:
        return f"SHA2({name}, 256)"
    if kind.is_text and (kind.charset or "utf8mb4") in _CHARSETS:
        return f"SHA2(CONVERT({name} USING utf8mb4), 256)"
    return None
