"""Shows values of a row in messages, as text of bounded length."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pidts.model import calendar
from pidts.model.errors import plain_value

SHOWN_COLUMNS = 8
"""The most columns that a text shows."""
_WIDTH = 60


def shown_row(row: pa.Table) -> str:
    """Returns the first columns of a single row as `name=value, ...`."""
    names = row.column_names[:SHOWN_COLUMNS]
    return ", ".join(f"{name}={value_text(_beginning(row[name])):.{_WIDTH}}" for name in names)


def shown_rows(rows: pa.Table) -> list[str]:
    """Returns, for each row, the text that `shown_row` returns."""
    names = rows.column_names[:SHOWN_COLUMNS]
    columns = [[f"{name}={text:.{_WIDTH}}" for text in _texts(rows[name])] for name in names]
    return [", ".join(texts) for texts in zip(*columns, strict=True)]


def _beginning(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Cuts values to the part that is shown before they become texts: a value may have a gigabyte."""
    kind = values.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return pc.binary_slice(values, 0, _WIDTH)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return pc.utf8_slice_codeunits(values, 0, _WIDTH)
    return values


def _texts(values: pa.ChunkedArray) -> list[str]:
    kind = values.type
    if pa.types.is_integer(kind) or pa.types.is_string(kind):  # usual keys are converted all at once
        return list(map(plain_value, values.to_pylist()))
    return [value_text(values.slice(place, 1)) for place in range(len(values))]


def value_text(values: pa.Array | pa.ChunkedArray) -> str:
    """Returns the text of a single value, which may be a zero or partial date that Python cannot represent."""
    kind, value = values.type, values[0]
    if value.is_valid and pa.types.is_date(kind):
        return calendar.text(value.cast(pa.int32()).as_py(), is_date=True)
    if value.is_valid and pa.types.is_timestamp(kind):
        return calendar.text(value.cast(pa.timestamp("us")).cast(pa.int64()).as_py(), is_date=False)
    shown = value.as_py()
    if value.is_valid and pa.types.is_duration(kind):
        return _time(value.cast(pa.duration("us")).cast(pa.int64()).as_py())
    if value.is_valid and pa.types.is_float32(kind):
        return str(np.float32(shown))  # servers print the shortest text of a number
    if isinstance(shown, bytes):
        return f"0x{shown.hex().upper()}" if shown else "''"
    return plain_value(shown)


def _time(microseconds: int) -> str:
    """Returns a TIME as the servers print it: it may be negative, and longer than a day."""
    seconds, rest = divmod(abs(microseconds), 1_000_000)
    text = f"{'-' if microseconds < 0 else ''}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{text}.{rest:06}".rstrip("0") if rest else text
