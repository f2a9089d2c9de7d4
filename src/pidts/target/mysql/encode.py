"""Converts Arrow columns to SQL text, a whole column at a time; the buffer of the joined columns is the VALUES list."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pidts.model import Column, Halted, Kind
from pidts.model.column_text import decimal_text, duration_text
from pidts.model.types import DATED
from pidts.target.json_decimals import reads_documents, with_decimals
from pidts.target.text import combined, exact_float_text, moment_text, text_of

_BYTES = pa.large_binary()
FEW = 64
"""The largest number of values that are written one by one: for so few values, calls of Arrow take longer."""
ESCAPES = ((b"\\", b"\\\\"), (b"'", b"\\'"))
"""The bytes that could end a literal, each with its escape. No byte of a longer UTF-8 character equals a quote."""
_NOTHING = pa.scalar(b"", _BYTES)
_NUMBERS = frozenset({Kind.BIT, Kind.DECIMAL, Kind.FLOAT, Kind.DOUBLE})
_QUOTE_FREE = DATED | {Kind.YEAR, Kind.TIME}


def literals(column: Column, values: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Returns each value as a literal; a NULL stays a missing value."""
    data = plain(column, values)
    if is_number(column):
        return data
    if column.type.kind not in _QUOTE_FREE:
        data = escaped(data, ESCAPES)
    return wrapped(data, b"_binary'" if column.type.is_bytes else b"'", b"'")


def stored_literals(column: Column, found: Column | None, values: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Returns each value as the SQL that writes it to the target's column (`found`); a NULL stays a missing value."""
    texts = literals(column, values)
    return with_decimals(texts, values, quoted) if reads_documents(column, found) else texts


def quoted(text: bytes, before: bytes = b"'") -> bytes:
    """Returns a text as a literal; `before` is the literal's beginning."""
    for byte, written in ESCAPES:
        text = text.replace(byte, written)
    return before + text + b"'"


def plain(column: Column, values: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Returns each value as the text that the server reads, without quotes and escapes; bytes are unchanged."""
    data = combined(values)
    kind = column.type.kind
    if column.type.is_integer or kind is Kind.BIT:
        if len(data) <= FEW:
            return pa.array([None if one is None else b"%d" % one for one in data.to_pylist()], _BYTES)
        return data.cast(pa.string()).cast(_BYTES)
    if kind is Kind.DECIMAL:
        return decimal_text(data).cast(_BYTES)
    if kind in (Kind.FLOAT, Kind.DOUBLE):
        return exact_float_text(data).cast(_BYTES)
    if kind is Kind.YEAR:
        return pc.utf8_lpad(data.cast(pa.string()), 4, "0").cast(_BYTES)
    if kind in DATED:
        return moment_text(data).cast(_BYTES)
    if kind is Kind.TIME:
        return duration_text(data).cast(_BYTES)
    return data.cast(_BYTES)


def is_number(column: Column) -> bool:
    """Whether the column's values are written without quotes."""
    return column.type.is_integer or column.type.kind in _NUMBERS


def tuples(columns: Sequence[pa.Array], ending: bytes = b"),") -> pa.Array:
    """Returns `(1,'a',NULL),` for each row."""
    return wrapped(joined(columns, b","), b"(", ending)


def joined(columns: Sequence[pa.Array], separator: bytes) -> pa.Array:
    """Joins the columns of each row with a separator, and returns the joined rows."""
    if len(columns[0]) <= FEW:
        rows = zip(*(column.to_pylist() for column in columns), strict=True)
        return pa.array([separator.join([b"NULL" if one is None else one for one in row]) for row in rows], _BYTES)
    return pc.binary_join_element_wise(
        *columns, pa.scalar(separator, _BYTES), null_handling="replace", null_replacement=b"NULL"
    )


def wrapped(values: pa.Array, before: bytes, after: bytes) -> pa.Array:
    """Puts bytes before and after each value."""
    if len(values) <= FEW:
        return pa.array([None if one is None else before + one + after for one in values.to_pylist()], _BYTES)
    return pc.binary_join_element_wise(pa.scalar(before, _BYTES), values, pa.scalar(after, _BYTES), _NOTHING)


def escaped(data: pa.Array, meanings: Iterable[tuple[bytes, bytes]]) -> pa.Array:
    """Returns large binaries with some bytes replaced, in the order of `meanings`.

    If a backslash is replaced, it has to come first, since the replacements of other bytes contain backslashes. The
    function first searches for each byte: a search is far quicker than a replacement that finds nothing.
    """
    text = bytes(text_of(data))
    for byte, written in meanings:
        if byte in text:
            data = pc.replace_substring(data, pattern=byte, replacement=written)
    return data


@dataclass(frozen=True, slots=True)
class StatementLimits:
    """The largest number of rows and bytes of one statement."""

    rows: int
    size: int
    """The number of bytes above which a statement is divided, if it has several rows."""
    packet: int
    """The number of bytes above which the server refuses a statement."""


_LARGEST_PACKET = 2**30


def _larger_packet(size: int) -> str:
    """Returns the advice for a row of this size. The server's limit is a multiple of 1,024 bytes, at most 1 GiB."""
    if size > _LARGEST_PACKET:
        return "No server takes a row of more than 1 GiB: make the row smaller on the source, or leave the table out"
    wanted = max(1024, 1 << (size - 1).bit_length())
    return f"Run SET GLOBAL max_allowed_packet = {wanted} on the target, and start the task again"


def demand_fits(size: int, limits: StatementLimits) -> None:
    """Raises if the server would refuse a statement of this size."""
    if size > limits.packet:
        raise Halted(
            "row-too-large",
            f"a row takes {size} bytes as SQL, and the target's max_allowed_packet is {limits.packet}",
            todo=_larger_packet(size),
        )


def statements(
    head: bytes, rows: pa.Array, tail: bytes, limits: StatementLimits, *, cut: int
) -> Iterator[tuple[bytes, int, int]]:
    """Yields statements over consecutive rows, each with its range of rows.

    The last `cut` bytes of a row's text are the separator, which a statement's last row does not have.
    """
    if len(rows) == 0:
        return
    _, offsets, data = rows.buffers()
    places = np.frombuffer(offsets, np.int64)[rows.offset : rows.offset + len(rows) + 1]
    text = memoryview(data)
    room = limits.size - len(head) - len(tail)
    first = 0
    while first < len(rows):
        fits = int(np.searchsorted(places, places[first] + room, side="right")) - 1
        last = max(first + 1, min(first + limits.rows, fits, len(rows)))
        size = int(places[last] - places[first]) + len(head) + len(tail)
        demand_fits(size, limits)
        yield head + bytes(text[int(places[first]) : int(places[last]) - cut]) + tail, first, last
        first = last
