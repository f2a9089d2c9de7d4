"""Encodes Arrow columns as the cells of row images, a whole column at a time, as MariaDB writes them to its log.

A cell has the same bytes as in the log of a server whose table has exactly this column. The cells of a column are one
binary array, or two: a text column has an array of the lengths and an array of the texts. A NULL has no bytes: only the
row's bitmap shows it.

`cells` returns None if a value cannot be encoded here, such as a zero date, or a text beyond ASCII in a latin1 column.
The caller then writes these rows as SQL.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pidts.binlog.wire import WireType
from pidts.model import Column, ColumnType, Kind, calendar
from pidts.model.types import LOB_BYTES
from pidts.target.text import combined

Bytes: TypeAlias = npt.NDArray[np.uint8]
Numbers: TypeAlias = npt.NDArray[np.int64]
Cells: TypeAlias = list[pa.Array]

_BYTES = pa.large_binary()
_INTEGERS = {
    Kind.TINYINT: (WireType.TINY, 1),
    Kind.SMALLINT: (WireType.SHORT, 2),
    Kind.MEDIUMINT: (WireType.INT24, 3),
    Kind.INT: (WireType.LONG, 4),
    Kind.BIGINT: (WireType.LONGLONG, 8),
}
_CHARACTER_BYTES = {"latin1": 1, "ascii": 1, "utf8": 3, "utf8mb3": 3, "utf8mb4": 4}
_UTF8 = frozenset({"utf8", "utf8mb3", "utf8mb4"})
_MOST_DIGITS = 38
_GROUP = 9
_GROUP_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
"""At index n, the number of bytes for a group of n decimal digits."""
_DAY, _SECOND = 86_400_000_000, 1_000_000
_DATETIME_ZERO = 1 << 39
_TIME_ZERO = 1 << 23
_LAST_TIMESTAMP = (1 << 31) - 1
_MOST_SETS = 1000


@dataclass(frozen=True, slots=True)
class CellType:
    """The encoding of one column: what a table map says about it, and the function that makes its cells."""

    wire: WireType
    metadata: bytes
    cells: Callable[[pa.Array], Cells | None]
    """Returns the cells of the values; None if one of them cannot be encoded."""


def cell_type(column: Column) -> CellType | None:
    """Returns the encoding of a column; None if this module cannot encode the column."""
    kind = column.type
    if kind.kind in _INTEGERS:
        wire, width = _INTEGERS[kind.kind]
        return CellType(wire, b"", partial(_little, width=width))
    if kind.kind in _MADE:
        return _MADE[kind.kind](kind)
    if kind.kind in LOB_BYTES:
        width = (LOB_BYTES[kind.kind].bit_length() + 7) // 8
        most = LOB_BYTES[kind.kind]
        if kind.is_bytes or kind.charset in _CHARACTER_BYTES:
            return CellType(WireType.BLOB, bytes([width]), partial(_text, kind, width, most))
    return None


def fixed(matrix: Bytes, like: pa.Array | None = None) -> pa.Array:
    """Returns the rows of a matrix of bytes as binaries; a row is missing if the value of `like` is NULL."""
    count, width = matrix.shape
    offsets = pa.py_buffer(np.arange(0, (count + 1) * width, width, dtype=np.int64) if width else bytes(8 * count + 8))
    made = pa.Array.from_buffers(_BYTES, count, [None, offsets, pa.py_buffer(np.ascontiguousarray(matrix))])
    return made if like is None or not like.null_count else pc.if_else(like.is_valid(), made, pa.scalar(None, _BYTES))


def _numbers(values: pa.Array, kind: pa.DataType) -> Numbers:
    """Returns the values as numbers, 0 for NULL."""
    if values.type != kind:
        values = values.view(kind) if pa.types.is_temporal(values.type) else values.cast(kind)
    found: Numbers = pc.fill_null(values, 0).to_numpy() if values.null_count else values.to_numpy()
    return found


def _little(values: pa.Array, *, width: int) -> Cells:
    numbers = _numbers(values, values.type)
    whole = np.ascontiguousarray(numbers).astype(numbers.dtype.newbyteorder("<"), copy=False)
    return [fixed(whole.view(np.uint8).reshape(len(whole), numbers.dtype.itemsize)[:, :width], values)]


def _float(kind: ColumnType) -> CellType:
    is_double = kind.kind is Kind.DOUBLE
    width = 8 if is_double else 4
    return CellType(WireType.DOUBLE if is_double else WireType.FLOAT, bytes([width]), partial(_little, width=width))


def _year(_: ColumnType) -> CellType:
    def cells(values: pa.Array) -> Cells:
        years = _numbers(values, pa.int16())
        return [fixed(np.where(years == 0, 0, years - 1900).astype(np.uint8).reshape(-1, 1), values)]

    return CellType(WireType.YEAR, b"", cells)


def _bit(kind: ColumnType) -> CellType:
    bits = kind.length or 1
    width = (bits + 7) // 8

    def cells(values: pa.Array) -> Cells:
        return [fixed(_big(_numbers(values, pa.uint64()), 8)[:, 8 - width :], values)]

    return CellType(WireType.BIT, bytes([bits % 8, bits // 8]), cells)


def _big(numbers: npt.NDArray[Any], width: int) -> Bytes:
    """Returns the lowest bytes of each number, the highest byte first."""
    whole: Bytes = numbers.astype(">u8", copy=False).view(np.uint8).reshape(len(numbers), 8)
    return whole[:, 8 - width :]


def _date(_: ColumnType) -> CellType:
    def cells(values: pa.Array) -> Cells | None:
        days = _numbers(values, pa.int32())
        if _has_less(values, days, calendar.FIRST_REAL_DAY):
            return None
        year, month, day = _dates(days)
        packed = (year << 9 | month << 5 | day).astype("<i4")
        return [fixed(packed.view(np.uint8).reshape(-1, 4)[:, :3], values)]

    return CellType(WireType.DATE, b"", cells)


def _dates(days: npt.NDArray[Any]) -> tuple[Numbers, Numbers, Numbers]:
    """Returns years, months and days of the month for days since 1970."""
    whole = days.astype("M8[D]")
    months = whole.astype("M8[M]")
    since = months.astype(np.int64)
    return 1970 + since // 12, since % 12 + 1, (whole - months.astype("M8[D]")).astype(np.int64) + 1


def _has_less(values: pa.Array, numbers: npt.NDArray[Any], least: int) -> bool:
    """Whether a value that is not NULL is less than `least`; `numbers` are the values, 0 for NULL."""
    less = numbers < least
    return bool(less.any() and (less & values.is_valid().to_numpy(zero_copy_only=False)).any())


def _fraction(micros: Numbers, fsp: int) -> list[Bytes]:
    width = (fsp + 1) // 2
    return [_big(micros // 10 ** (6 - 2 * width), width)] if width else []


def _datetime(kind: ColumnType) -> CellType:
    def cells(values: pa.Array) -> Cells | None:
        micros = _numbers(values, pa.int64())
        if _has_less(values, micros, calendar.FIRST_REAL_MICROSECOND):
            return None
        days, clock = np.divmod(micros, _DAY)
        seconds, rest = np.divmod(clock, _SECOND)
        year, month, day = _dates(days)
        date = (year * 13 + month) << 5 | day
        time = seconds // 3600 << 12 | seconds // 60 % 60 << 6 | seconds % 60
        return [fixed(np.hstack([_big((date << 17 | time) + _DATETIME_ZERO, 5), *_fraction(rest, kind.fsp)]), values)]

    return CellType(WireType.DATETIME2, bytes([kind.fsp]), cells)


def _timestamp(kind: ColumnType) -> CellType:
    def cells(values: pa.Array) -> Cells | None:
        micros = _numbers(values, pa.int64())
        seconds, rest = np.divmod(micros, _SECOND)
        if _has_less(values, seconds, 1) or (len(seconds) and seconds.max() > _LAST_TIMESTAMP):
            return None
        return [fixed(np.hstack([_big(seconds, 4), *_fraction(rest, kind.fsp)]), values)]

    return CellType(WireType.TIMESTAMP2, bytes([kind.fsp]), cells)


def _time(kind: ColumnType) -> CellType:
    def cells(values: pa.Array) -> Cells | None:
        micros = _numbers(values, pa.int64())
        if _has_less(values, micros, 0):
            return None
        seconds, rest = np.divmod(micros, _SECOND)
        packed = (seconds // 3600 << 12 | seconds // 60 % 60 << 6 | seconds % 60) + _TIME_ZERO
        return [fixed(np.hstack([_big(packed, 3), *_fraction(rest, kind.fsp)]), values)]

    return CellType(WireType.TIME2, bytes([kind.fsp]), cells)


def _decimal(kind: ColumnType) -> CellType | None:
    precision, scale = kind.precision or 10, kind.scale or 0
    if precision > _MOST_DIGITS:
        return None
    # The sizes in decimal digits of the parts that are written as separate numbers, from the last part to the first.
    fraction, whole = divmod(scale, _GROUP), divmod(precision - scale, _GROUP)
    sizes = [*([fraction[1]] if fraction[1] else []), *[_GROUP] * (fraction[0] + whole[0])]
    sizes += [whole[1]] if whole[1] else []

    def cells(values: pa.Array) -> Cells:
        limbs, is_negative = _limbs(values)
        found = []
        for size in sizes:
            limbs, part = _divided(limbs, 10**size)
            found.append(_big(part, _GROUP_BYTES[size]))
        matrix = np.hstack(found[::-1])
        matrix[is_negative] ^= 0xFF
        matrix[:, 0] ^= 0x80
        return [fixed(matrix, values)]

    return CellType(WireType.DECIMAL, bytes([precision, scale]), cells)


def _limbs(values: pa.Array) -> tuple[list[npt.NDArray[np.uint64]], npt.NDArray[np.bool_]]:
    """Returns the digits of each decimal as one whole number without sign, and which decimals are negative.

    The whole number is split into four numbers of 32 bits; the highest comes first.
    """
    if values.null_count:
        values = pc.fill_null(values, pa.scalar(0, values.type))
    words = np.frombuffer(values.buffers()[1], "<u8")[2 * values.offset : 2 * (values.offset + len(values))]
    low, high = words[::2].copy(), words[1::2].copy()
    is_negative = high >> 63 == 1
    high[is_negative] = ~high[is_negative] + (low[is_negative] == 0)
    low[is_negative] = ~low[is_negative] + 1
    half, mask = np.uint64(32), np.uint64(0xFFFFFFFF)
    return [high >> half, high & mask, low >> half, low & mask], is_negative


def _divided(
    limbs: list[npt.NDArray[np.uint64]], by: int
) -> tuple[list[npt.NDArray[np.uint64]], npt.NDArray[np.uint64]]:
    """Returns the quotients and the remainders of a division."""
    rest, quotients = np.zeros_like(limbs[0]), []
    for limb in limbs:
        whole = rest << np.uint64(32) | limb
        if not whole.any():
            quotients.append(limb)
            continue
        quotients.append(whole // np.uint64(by))
        rest = whole - quotients[-1] * np.uint64(by)
    return quotients, rest


def _char(kind: ColumnType) -> CellType | None:
    size = _most_bytes(kind)
    if size is None:
        return None
    metadata = bytes([WireType.STRING ^ (size & 0x300) >> 4, size & 0xFF])
    return CellType(WireType.STRING, metadata, partial(_text, kind, 2 if size > 255 else 1, size))


def _varchar(kind: ColumnType) -> CellType | None:
    size = _most_bytes(kind)
    if size is None:
        return None
    return CellType(WireType.VARCHAR, struct.pack("<H", size), partial(_text, kind, 2 if size > 255 else 1, size))


def _most_bytes(kind: ColumnType) -> int | None:
    length = 1 if kind.length is None else kind.length
    if kind.is_bytes:
        return length
    return length * _CHARACTER_BYTES[kind.charset] if kind.charset in _CHARACTER_BYTES else None


def _text(kind: ColumnType, width: int, most: int, values: pa.Array) -> Cells | None:
    if not kind.is_bytes and kind.charset not in _UTF8 and pc.all(pc.string_is_ascii(values)).as_py() is False:
        return None
    data = values.cast(pa.large_binary() if kind.is_bytes else pa.large_string()).cast(_BYTES)
    sizes = pc.binary_length(data)
    if (pc.max(sizes).as_py() or 0) > most:
        return None
    return [*_little(sizes.cast(pa.int64()), width=width), data]


def _enum(kind: ColumnType) -> CellType:
    width = 1 if len(kind.labels) < 256 else 2
    labels = pa.array(kind.labels, pa.string())

    def cells(values: pa.Array) -> Cells | None:
        numbers = pc.index_in(values, value_set=labels)
        if numbers.null_count != values.null_count:
            return None
        return _little(pc.add(numbers, 1), width=width)

    return CellType(WireType.STRING, bytes([WireType.ENUM, width]), cells)


def _set(kind: ColumnType) -> CellType:
    width = (len(kind.labels) + 7) // 8
    width = 8 if width > 4 else width
    places = {label: 1 << place for place, label in enumerate(kind.labels)}

    def cells(values: pa.Array) -> Cells | None:
        found = pc.dictionary_encode(values)
        known = found.dictionary.to_pylist()
        if len(known) > _MOST_SETS:
            return None
        sums = []
        for text in known:
            labels = text.split(",") if text else []
            if not places.keys() >= set(labels):
                return None
            sums.append(sum(places[label] for label in set(labels)))
        return _little(pa.array(sums, pa.uint64()).take(found.indices), width=width)

    return CellType(WireType.STRING, bytes([WireType.SET, width]), cells)


_MADE: dict[Kind, Callable[[ColumnType], CellType | None]] = {
    Kind.FLOAT: _float,
    Kind.DOUBLE: _float,
    Kind.YEAR: _year,
    Kind.BIT: _bit,
    Kind.DATE: _date,
    Kind.DATETIME: _datetime,
    Kind.TIMESTAMP: _timestamp,
    Kind.TIME: _time,
    Kind.DECIMAL: _decimal,
    Kind.CHAR: _char,
    Kind.BINARY: _char,
    Kind.VARCHAR: _varchar,
    Kind.VARBINARY: _varchar,
    Kind.ENUM: _enum,
    Kind.SET: _set,
}


def cells_of(types: Sequence[CellType], rows: pa.Table, names: Sequence[str]) -> list[Cells] | None:
    """Returns the cells of these columns; None if a value cannot be encoded."""
    found = []
    for kind, name in zip(types, names, strict=True):
        cells = kind.cells(combined(rows[name]))
        if cells is None:
            return None
        found.append(cells)
    return found
