"""Maps the source's column types to Iceberg types, and converts values in both directions.

| source | Iceberg | why |
|---|---|---|
| whole numbers, year | int, long; decimal(20, 0) for bigint unsigned | no value is lost |
| decimal | decimal(p, s); string beyond 38 digits | Iceberg's decimals end at 38 digits |
| bit(1), bit(2..63), bit(64) | boolean, long, decimal(20, 0) | numbers, as the source shows them |
| time | string | its range is -838 to 838 hours, and the range of Iceberg's time is 0 to 24 hours |
| datetime, timestamp | timestamp, timestamptz | |
| bytes, geometry, vector | binary | |
| everything else | string | |

A zero or partial date becomes NULL.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pidts.model import ColumnType, Kind
from pidts.model.types import DATED
from pidts.target.text import combined, unreal

_WIDE = pa.decimal128(20, 0)
_MOST_DIGITS = 38
_LONG_BITS = 63
_TIME = r"^(?P<sign>-?)(?P<hours>\d+):(?P<minutes>\d\d):(?P<seconds>\d\d)(?:\.(?P<fraction>\d+))?$"

Unreal = Callable[[int], None]
"""A function that is called with the number of zero and partial dates."""


def stored_type(kind: ColumnType) -> pa.DataType:
    """Returns the Arrow type of a column in the table's files."""
    plain = kind.arrow
    if pa.types.is_integer(plain):
        if kind.kind is Kind.BIT:
            bits = kind.length or 1
            return pa.bool_() if bits == 1 else pa.int64() if bits <= _LONG_BITS else _WIDE
        if plain == pa.uint64():
            return _WIDE
        return pa.int64() if plain.bit_width == 64 or (plain == pa.uint32() and kind.kind is Kind.INT) else pa.int32()
    if kind.kind is Kind.DECIMAL:
        return plain if plain.precision <= _MOST_DIGITS else pa.string()
    return pa.string() if kind.kind is Kind.TIME else plain


def encode(kind: ColumnType, column: pa.ChunkedArray | pa.Array, on_unreal: Unreal) -> pa.Array:
    """Converts the source's values to the values that data files have."""
    values, goal = combined(column), stored_type(kind)
    if kind.kind in DATED and (mask := unreal(values)) is not None:
        on_unreal(int(pc.sum(mask).as_py()))
        values = pc.if_else(mask, pa.scalar(None, values.type), values)
    if kind.kind is Kind.TIME:
        return _time_text(values, kind.fsp)
    if kind.kind is Kind.DECIMAL and goal == pa.string():
        return pa.array([None if each is None else format(each, "f") for each in values.to_pylist()], goal)
    return values if values.type == goal else values.cast(goal)


def decode(kind: ColumnType, column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Converts the values of data files to the source's values."""
    values, goal = combined(column), kind.arrow
    if kind.kind is Kind.TIME:
        return _times(values)
    if kind.kind is Kind.DECIMAL and values.type == pa.string():
        return pa.array([None if each is None else Decimal(each) for each in values.to_pylist()], goal)
    return values if values.type == goal else values.cast(goal)


def scalar(kind: ColumnType, value: Any) -> pa.Scalar:
    """Converts one value of a key to the value that data files have."""
    if isinstance(value, pa.Scalar):
        value = value.as_py()
    plain = kind.arrow
    if pa.types.is_temporal(plain) and isinstance(value, int):
        number = pa.int32() if pa.types.is_date32(plain) else pa.int64()
        return encode(kind, pa.array([value], number).view(plain), lambda _: None)[0]
    return encode(kind, pa.array([value], plain), lambda _: None)[0]


def _time_text(values: pa.Array, fsp: int) -> pa.Array:
    numbers = values.cast(pa.int64())
    size = pc.abs(numbers)
    seconds = pc.divide(size, 1_000_000)

    def digits(number: pa.Array, width: int) -> pa.Array:
        return pc.utf8_lpad(number.cast(pa.string()), width, "0")

    minutes = pc.divide(seconds, 60)
    parts = [
        pc.if_else(pc.less(numbers, 0), "-", ""),
        digits(pc.divide(minutes, 60), 2),
        ":",
        digits(pc.subtract(minutes, pc.multiply(pc.divide(minutes, 60), 60)), 2),
        ":",
        digits(pc.subtract(seconds, pc.multiply(minutes, 60)), 2),
    ]
    fraction = pc.subtract(size, pc.multiply(seconds, 1_000_000))
    if fsp or pc.any(pc.greater(fraction, 0)).as_py():
        parts += [".", digits(fraction, 6)]
    return pc.binary_join_element_wise(*parts, "")


def _times(texts: pa.Array) -> pa.Array:
    found = pc.extract_regex(texts, pattern=_TIME)
    if found.null_count > texts.null_count:
        raise ValueError("a column of times contains a text that is not a time")
    part = {field.name: found.field(place) for place, field in enumerate(found.type)}

    def number(name: str) -> np.ndarray:
        text = pc.fill_null(part[name], "0")
        return pc.if_else(pc.equal(text, ""), "0", text).cast(pa.int64()).to_numpy(zero_copy_only=False)

    fraction = pc.utf8_rpad(pc.fill_null(part["fraction"], ""), 6, "0").cast(pa.int64()).to_numpy(zero_copy_only=False)
    total = ((number("hours") * 60 + number("minutes")) * 60 + number("seconds")) * 1_000_000 + fraction
    negative = pc.fill_null(pc.equal(part["sign"], "-"), fill_value=False).to_numpy(zero_copy_only=False)
    mask = texts.is_null().to_numpy(zero_copy_only=False)
    return pa.array(np.where(negative, -total, total), pa.int64(), mask=mask).view(pa.duration("us"))
