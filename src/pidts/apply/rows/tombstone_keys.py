"""Converts keys and versions of deleted rows to the texts under which targets keep them."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pidts.model import Column, Lsn, Tombstone
from pidts.reduce.key_numbers import chunkless

_NULL = "\\N"
"""The text for NULL. No value has this text, since a backslash in a value is doubled."""
_LSN = np.dtype([("change", ">u4"), ("log", ">u4"), ("offset", ">u8"), ("row", ">u4")])
_WIDTHS = {"change": 4, "log": 10, "offset": 12, "row": 10}
"""The parts of an Lsn's bytes, and the number of digits that each part has in the text."""
_LONGEST = 180
"""The most characters of a text: a key of old servers has at most 191."""


def key_texts(keys: pa.Table) -> pa.StringArray:
    """Returns one text per key: its values one after the other, or their digest if they are long or cannot be printed.

    A bar after the last value keeps the value's trailing spaces, which collations would ignore. After several values,
    two more bars follow: stored tombstones have this form.
    """
    if not keys.num_rows:
        return pa.array([], pa.string())
    columns = [value_texts(values) for values in chunkless(keys, keys.column_names)]
    texts = pc.binary_join_element_wise(*columns, "||" if len(columns) > 1 else "", "|")
    is_usual = pc.and_(pc.ascii_is_printable(texts), pc.less_equal(pc.binary_length(texts), _LONGEST))
    if pc.all(is_usual).as_py():
        return texts
    return pa.array(map(_short, texts.to_pylist()), pa.string())


def row_texts(rows: pa.Table) -> list[str]:
    """Returns one text per row. Two rows have the same text only if all of their values are equal, NULL included."""
    columns = [value_texts(values).fill_null(_NULL) for values in chunkless(rows, rows.column_names)]
    joined = pc.binary_join_element_wise(*columns, "|", "|") if len(columns) > 1 else columns[0]
    texts: list[str] = joined.to_pylist()
    return texts


def version_texts(versions: pa.Array) -> pa.StringArray:
    """Returns the versions as exact texts, which do not depend on settings of a session."""
    return _number(versions).cast(pa.string())


def lsn_texts(lsns: pa.FixedSizeBinaryArray) -> pa.StringArray:
    """Returns the text of each Lsn, as `str` returns it."""
    _, data = lsns.buffers()
    numbers = np.frombuffer(data, np.uint8)[lsns.offset * Lsn.SIZE : (lsns.offset + len(lsns)) * Lsn.SIZE].view(_LSN)
    parts = [
        pc.utf8_lpad(pa.array(numbers[name].astype("u8")).cast(pa.string()), _WIDTHS[name], "0") for name in _WIDTHS
    ]
    return pc.binary_join_element_wise(*parts, ".")


def versions_of(column: Column, tombstones: Sequence[Tombstone]) -> pa.Array:
    """Returns the versions of tombstones as values of the version column; the inverse of `version_texts`."""
    arrow = column.type.arrow
    texts = pa.array([tombstone.version for tombstone in tombstones], pa.string())
    if pa.types.is_date(arrow):
        return texts.cast(pa.int32()).view(arrow)
    if pa.types.is_timestamp(arrow):
        return texts.cast(pa.int64()).view(arrow)
    return texts.cast(arrow)


def _short(text: str) -> str:
    if len(text) <= _LONGEST and text.isprintable():
        return text
    return "sha256:" + sha256(text.encode()).hexdigest()


def value_texts(values: pa.Array) -> pa.Array:
    """Returns the values as texts with bars and backslashes escaped. The text of NULL is NULL.

    So texts that are joined by bars stay different, as for ('a|', 'b') and ('a', '|b').
    """
    if pa.types.is_binary(values.type):
        return pa.array([value if value is None else value.hex() for value in values.to_pylist()], pa.string())
    if pa.types.is_string(values.type):
        return pc.replace_substring(pc.replace_substring(values, "\\", "\\\\"), "|", "\\|")
    return _number(values).cast(pa.string())


def _number(values: pa.Array) -> pa.Array:
    kind = values.type
    if pa.types.is_date(kind):
        return values.cast(pa.int32())
    return values.cast(pa.int64()) if pa.types.is_timestamp(kind) or pa.types.is_duration(kind) else values
