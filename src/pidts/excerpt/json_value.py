"""The JSON form of a value of each type; `docs/reference/events.md` shows all forms.

`json_columns` makes the same forms for whole columns; tests compare the two.
"""

from __future__ import annotations

import base64
import struct
from contextlib import suppress
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from pidts.model import ColumnType, Kind

_SHORTEST = 9
"""The number of digits that are always enough to distinguish a FLOAT from its neighbours."""


def json_value(value: Any, kind: ColumnType | None = None) -> Any:
    """Returns the JSON form of a value. Without `kind`, a FLOAT has the digits of the DOUBLE with the same value."""
    match value:
        case datetime():
            text = value.replace(tzinfo=None).isoformat()
            return text if value.tzinfo is None else f"{text}Z"
        case date():
            return value.isoformat()
        case timedelta():
            return clock(value)
        case Decimal():
            return format(value, "f")
        case bytes():
            if kind is not None and kind.kind is Kind.VECTOR and len(value) % 4 == 0:
                return [_short(number) for (number,) in struct.iter_unpack("<f", value)]
            return base64.b64encode(value).decode("ascii")
        case float() if kind is not None and kind.kind is Kind.FLOAT:
            return _short(value)
    return value


def clock(value: timedelta) -> str:
    """Returns a TIME as text: `[-]hh:mm:ss[.ffffff]`."""
    us = abs(value) // timedelta(microseconds=1)
    seconds, us = divmod(us, 1_000_000)
    fraction = f".{us:06}" if us else ""
    sign = "-" if value < timedelta(0) else ""
    return f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{fraction}"


def _short(value: float) -> float:
    """Returns the number with the fewest digits that becomes the same FLOAT (of four bytes)."""
    stored = struct.pack("<f", value)
    for digits in range(1, _SHORTEST):
        short = float(f"{value:.{digits}g}")
        # The largest numbers, rounded up, do not fit into four bytes; `pack` then raises.
        with suppress(OverflowError):
            if struct.pack("<f", short) == stored:
                return short
    return float(f"{value:.{_SHORTEST}g}")
