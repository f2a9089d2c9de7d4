"""Converts a column's values to another type as the source's ALTER does, if the result is certain.

The source does not write the converted values to its log. If they depend on the source's arithmetic, time zone or
modes, this module returns no values, and the schema change halts.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from pidts.model import ColumnType, Kind
from pidts.model.types import LOB_BYTES

_EVERY_CHARACTER = frozenset({"utf8mb4", "utf16", "utf16le", "utf32", "gb18030"})
_BASIC_PLANE = frozenset({"utf8", "utf8mb3", "ucs2"})
_BEYOND_IT = "[\\x{10000}-\\x{10FFFF}]"
_CODECS = {"latin1": "cp1252", "ascii": "ascii"}
"""Charsets, each with the name of its codec in Python. No codec has a character that the charset lacks."""
_FIRST_YEAR, _LAST_YEAR = 1901, 2155


def converted(values: pa.Array, before: ColumnType, after: ColumnType) -> pa.Array | None:
    """Returns the values that a column has on the source after a change of its type; None if only the source knows."""
    try:
        found = _cast(values, before, after)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    return found if found is not None and _within(found, after) else None


def _cast(values: pa.Array, before: ColumnType, after: ColumnType) -> pa.Array | None:
    numbers = before.is_integer or before.kind in (Kind.DECIMAL, Kind.YEAR, Kind.BIT)
    if before.is_text and after.is_text:
        return _texts(values, after)
    if before.is_bytes and after.is_bytes:
        return _padded(values, after) if after.kind is Kind.BINARY else values.cast(after.arrow)
    if before.kind is Kind.DECIMAL and (after.kind is Kind.DECIMAL or after.is_integer):
        # The source rounds halves away from zero.
        return pc.round(values, after.scale or 0, "half_towards_infinity").cast(after.arrow)
    if before.kind is after.kind or (numbers and (after.is_integer or after.kind in (Kind.DECIMAL, Kind.BIT))):
        return values.cast(after.arrow)
    if numbers and after.kind is Kind.YEAR:
        years = pc.and_(pc.greater_equal(values, _FIRST_YEAR), pc.less_equal(values, _LAST_YEAR))
        return values.cast(after.arrow) if pc.all(years).as_py() in (True, None) else None
    if before.is_integer and after.kind is Kind.DOUBLE and after.scale is None:
        return values.cast(after.arrow, safe=False)  # rounds to the nearest double, as C does
    if before.kind is Kind.FLOAT and after.kind is Kind.DOUBLE:
        return values.cast(after.arrow)
    # If the new type has labels, MariaDB takes a number for the index of a label, and MySQL for the label itself.
    if before.is_integer and not before.may_have_zeros and after.is_text and not after.labels:
        return values.cast(pa.string())
    if (before.kind, after.kind) == (Kind.DATE, Kind.DATETIME):
        return values.cast(after.arrow)
    return None


def _texts(values: pa.Array, after: ColumnType) -> pa.Array:
    if after.kind is Kind.CHAR:
        values = pc.utf8_rtrim(values, " ")  # CHAR loses trailing spaces
    if after.kind is Kind.SET:
        place = {label: number for number, label in enumerate(after.labels)}
        texts = pc.unique(values).to_pylist()
        ordered = {
            text: ",".join(sorted(text.split(","), key=lambda one: place.get(one, 0))) if text else text
            for text in texts
        }
        if any(text != new for text, new in ordered.items()):
            values = pa.array([ordered[text] for text in values.to_pylist()], pa.string())
    return values.cast(after.arrow)


def _padded(values: pa.Array, after: ColumnType) -> pa.Array:
    size = after.length or 0
    if pc.min(pc.binary_length(values)).as_py() in (None, size):
        return values.cast(after.arrow)
    return pa.array([None if one is None else one.ljust(size, b"\0") for one in values.to_pylist()], after.arrow)


def keeps_letters(values: pa.Array, before: ColumnType, after: ColumnType) -> bool:
    """Whether the new charset has all characters of the values and labels. The source stores all others as `?`."""
    had, has = before.charset, after.charset
    if had == has or had is None or has is None or has in _EVERY_CHARACTER or not before.is_text:
        return True
    texts = (pc.unique(values), pa.array(after.labels, pa.string()))
    if has in _BASIC_PLANE:
        is_free = not any(pc.any(pc.match_substring_regex(each, _BEYOND_IT)).as_py() for each in texts)
        return had not in _EVERY_CHARACTER or is_free
    if has == "swe7":
        return False
    try:
        for each in texts:
            "".join(text or "" for text in each.to_pylist()).encode(_CODECS.get(has, "ascii"))
    except UnicodeEncodeError:
        return False
    return True


def _within(values: pa.Array, kind: ColumnType) -> bool:
    if kind.is_text and kind.labels:
        allowed = {*kind.labels, ""}
        texts = [text for text in pc.unique(values).to_pylist() if text]
        if kind.kind is Kind.SET:  # the labels of a value are in the order of the type
            return all(text == ",".join(one for one in kind.labels if one in text.split(",")) for text in texts)
        return allowed.issuperset(texts)
    if kind.kind in LOB_BYTES:
        is_plain = kind.is_bytes or (kind.charset or "").startswith("utf8")
        size = pc.max(pc.binary_length(values) if is_plain else pc.multiply(pc.utf8_length(values), 4)).as_py() or 0
        return bool(size <= LOB_BYTES[kind.kind])
    if kind.unsigned and kind.kind in (Kind.DECIMAL, Kind.FLOAT, Kind.DOUBLE):
        least = pc.min(values).as_py()
        return least is None or bool(least >= 0)
    if (kind.is_text or kind.is_bytes) and kind.length is not None:
        size = pc.max(pc.utf8_length(values) if kind.is_text else pc.binary_length(values)).as_py() or 0
        shortest = pc.min(pc.binary_length(values)).as_py()
        is_short = kind.kind is Kind.BINARY and shortest is not None and shortest < kind.length
        return bool(size <= kind.length) and not is_short
    if kind.kind is Kind.MEDIUMINT:
        least, most = pc.min_max(values).as_py().values()
        low, high = (0, 2**24 - 1) if kind.unsigned else (-(2**23), 2**23 - 1)
        return least is None or (least >= low and most <= high)
    if kind.kind is Kind.BIT and kind.length:
        return bool((pc.max(values).as_py() or 0) < 1 << kind.length)
    if kind.kind in (Kind.TIME, Kind.DATETIME, Kind.TIMESTAMP):
        step = 10 ** (6 - kind.fsp)
        numbers = values.cast(pa.int64())
        return bool(pc.all(pc.equal(pc.multiply(pc.divide(numbers, step), step), numbers)).as_py() in (True, None))
    return True


def surely_fits(before: ColumnType, after: ColumnType) -> bool:
    """Whether every value of a type stays unchanged under another type."""
    if before == after:
        return True
    same = replace(before, collation=after.collation, charset=after.charset, labels=after.labels, length=after.length)
    longer = (after.length or 0) >= (before.length or 0) or after.is_integer
    return (
        same == after
        and longer
        and after.labels[: len(before.labels)] == before.labels
        and after.kind is not Kind.BINARY
        and (after.kind not in LOB_BYTES or before.charset == after.charset)
    )


def widens(before: pa.DataType, after: pa.DataType) -> bool:
    """Whether Iceberg can read values that a file has in the type `before` as the type `after`."""
    if pa.types.is_decimal(before) and pa.types.is_decimal(after):
        return bool(before.scale == after.scale and before.precision <= after.precision)
    return (before, after) in ((pa.int32(), pa.int64()), (pa.float32(), pa.float64()))
