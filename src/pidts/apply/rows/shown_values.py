"""Shows values of a row in messages, as text of bounded length."""

from __future__ import annotations

import pyarrow as pa

from pidts.model import calendar

_SHOWN = 8
_WIDTH = 60


def shown_row(row: pa.Table) -> str:
    """Returns the first columns of a single row as `name=value, ...`."""
    names = row.column_names[:_SHOWN]
    return ", ".join(f"{name}={value_text(row[name]):.{_WIDTH}}" for name in names)


def value_text(values: pa.Array | pa.ChunkedArray) -> str:
    """Returns the text of a single value; Python cannot represent a date that is in no calendar."""
    kind, value = values.type, values[0]
    if value.is_valid and pa.types.is_date(kind):
        return calendar.text(value.cast(pa.int32()).as_py(), is_date=True)
    if value.is_valid and pa.types.is_timestamp(kind):
        return calendar.text(value.cast(pa.timestamp("us")).cast(pa.int64()).as_py(), is_date=False)
    shown = value.as_py()
    return repr(shown) if isinstance(shown, str | bytes) else str(shown)
