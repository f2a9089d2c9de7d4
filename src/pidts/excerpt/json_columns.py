"""Converts whole columns to text with Arrow's kernels: TIME for a data frame, and every value for JSON.

The forms are the same as in `json_value`, which takes one value at a time. Numbers are JSON numbers, but DECIMAL is
text, so that no digit is lost. Dates and times are ISO text, a TIMESTAMP in UTC with a final `Z`. Text is text, JSON
the text of its document. Bytes are base64. A date that does not exist in the calendar has the server's form.
"""

from __future__ import annotations

import json
from base64 import b64encode

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pidts.binlog.row_values import python_values
from pidts.model import ColumnType, Kind, Table, calendar
from pidts.model.column_text import decimal_text, duration_text

_NO_TEXT = pa.scalar(None, pa.string())
_NO_FRACTION = r"\.0+$"
_SPECIAL = r'["\\\x00-\x1f]'
_CONTROL = r"[\x00-\x1f]"
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}


def image_text(table: Table, images: pa.StructArray, columns: tuple[int, ...] | None = None) -> pa.Array:
    """Returns each row as a JSON object with some or all of its columns; null if there is no image."""
    chosen = range(len(table.columns)) if columns is None else columns
    pieces: list[pa.Scalar | pa.Array] = []
    for place in chosen:
        column = table.columns[place]
        pieces.append(pa.scalar(f"{', ' if pieces else '{'}{json.dumps(column.name, ensure_ascii=False)}: "))
        pieces.append(value_text(images.field(place), column.type).fill_null("null"))
    if not pieces:
        return pc.if_else(images.is_valid(), "{}", _NO_TEXT)
    text = pc.binary_join_element_wise(*pieces, pa.scalar("}"), "")
    return text if images.null_count == 0 else pc.if_else(images.is_valid(), text, _NO_TEXT)


def value_text(array: pa.Array, kind: ColumnType) -> pa.Array:
    """Returns each value as JSON; null if it is NULL."""
    match kind.kind:
        case Kind.FLOAT | Kind.DOUBLE:
            return _float(array)
        case Kind.DECIMAL:
            return _quoted(decimal_text(array))
        case Kind.DATE | Kind.DATETIME | Kind.TIMESTAMP:
            return _quoted(_moment(array, kind.kind))
        case Kind.TIME:
            return _quoted(clock_text(array))
        case Kind.VECTOR:
            numbers = vectors(array)
            texts = pa.ListArray.from_arrays(numbers.offsets, _float(numbers.values))
            return pc.if_else(
                array.is_valid(), pc.binary_join_element_wise("[", pc.binary_join(texts, ", "), "]", ""), _NO_TEXT
            )
    if kind.is_bytes:
        return _quoted(_base64(array))
    return array.cast(pa.string()) if pa.types.is_integer(array.type) else _quoted(_escaped(array))


def clock_text(array: pa.Array) -> pa.Array:
    """Returns each TIME as text: `[-]hh:mm:ss[.ffffff]`."""
    return pc.replace_substring_regex(duration_text(array), _NO_FRACTION, "")


def vectors(array: pa.Array) -> pa.ListArray:
    """Returns each VECTOR as a list of its numbers; an empty list for NULL."""
    _, offsets, data = array.buffers()
    bounds = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    first, last = int(bounds[0]), int(bounds[-1])
    values = np.frombuffer(data, np.uint8)[first:last].view("<f4") if last > first else np.array([], np.float32)
    return pa.ListArray.from_arrays(pa.array((bounds - first) // 4, pa.int32()), pa.array(values, pa.float32()))


def _float(array: pa.Array) -> pa.Array:
    text = array.cast(pa.string())
    return pc.if_else(pc.match_substring_regex(text, r"[.e]"), text, pc.binary_join_element_wise(text, ".0", ""))


def _moment(array: pa.Array, kind: Kind) -> pa.Array:
    numbers = array.cast(pa.int32() if kind is Kind.DATE else pa.int64())
    first = calendar.FIRST_REAL_DAY if kind is Kind.DATE else calendar.FIRST_REAL_MICROSECOND
    unreal = pc.less(numbers, pa.scalar(first, numbers.type))
    real = pc.if_else(unreal, pa.scalar(None, numbers.type), numbers) if pc.any(unreal).as_py() else numbers
    if kind is Kind.DATE:
        text = real.cast(pa.date32()).cast(pa.string())
    else:
        text = pc.replace_substring(real.cast(pa.timestamp("us")).cast(pa.string()), " ", "T", max_replacements=1)
        text = pc.replace_substring_regex(text, _NO_FRACTION, "")
        if kind is Kind.TIMESTAMP:
            text = pc.binary_join_element_wise(text, "Z", "")
    if real is numbers:
        return text
    mask = unreal.fill_null(False)  # noqa: FBT003 - the value
    return pc.replace_with_mask(text, mask, pa.array(python_values(array.filter(mask), kind), pa.string()))


def _escaped(array: pa.Array) -> pa.Array:
    """Escapes text as in a JSON string, and adds no quotes."""
    if not pc.any(pc.match_substring_regex(array, _SPECIAL)).as_py():
        return array
    array = pc.replace_substring(pc.replace_substring(array, "\\", "\\\\"), '"', '\\"')
    if pc.any(pc.match_substring_regex(array, _CONTROL)).as_py():
        for code in range(0x20):
            character = chr(code)
            array = pc.replace_substring(array, character, _SHORT.get(character, f"\\u{code:04x}"))
    return array


def _base64(array: pa.Array) -> pa.Array:
    return pa.array([None if value is None else b64encode(value) for value in array.to_pylist()], pa.binary()).cast(
        pa.string()
    )


def _quoted(text: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', text, '"', "")
