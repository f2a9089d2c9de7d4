"""A number per key that every process computes alike, on whole columns.

Two keys that some server holds equal must get the same number, or two workers would write one row: one worker deletes
'A' while another inserts 'a', and on a target that folds case the row is gone or not, as it happens. What a collation
holds equal is the server's knowledge, not ours ('ss' and 'ß', 'e' and 'é', 'AE' and 'Æ'). Text takes part only under a
binary collation, where nothing but trailing spaces can be overlooked; the other columns of the key spread its rows, and
a table whose key is such text alone stays with one worker.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pidts.model import Column, Table

_ODD = 0x9E3779B97F4A7C15
_PRIME = 0x100000001B3
_PRIME_INVERSE = pow(_PRIME, -1, 2**64)


def table_number(table: Table) -> int:
    """A number of the table's name, for keys without a column to spread by."""
    return zlib.crc32(str(table.name).encode())


def spreads(column: Column) -> bool:
    """Whether equal bytes is all that servers call equal in this column (trailing spaces and zero's sign aside)."""
    return not column.type.is_text or (column.type.collation or "").endswith("_bin")


def key_hash(columns: Sequence[pa.Array], seed: int) -> pa.UInt64Array:
    """One number per row over one or more columns; the order of the columns counts."""
    number = pa.repeat(pa.scalar(seed, pa.uint64()), len(columns[0]))
    for values in columns:
        number = _mixed(pc.bit_wise_xor(pc.multiply(number, _u64(_ODD)), _numbers(values)))
    return number


def _mixed(number: pa.UInt64Array) -> pa.UInt64Array:
    for shift in (32, 29, 32):
        number = pc.multiply(pc.bit_wise_xor(number, pc.shift_right(number, _u64(shift))), _u64(_ODD))
    return pc.bit_wise_xor(number, pc.shift_right(number, _u64(32)))


def _numbers(values: pa.Array) -> pa.UInt64Array:
    kind = values.type
    if pa.types.is_string(kind):
        return _of_bytes(pc.ascii_rtrim(values, characters=" "))
    if pa.types.is_binary(kind):
        return _of_bytes(values)
    if pa.types.is_decimal(kind):
        return _of_bytes(values.cast(pa.string()))
    if pa.types.is_floating(kind):
        return values.cast(pa.float64()).view(pa.uint64())
    if pa.types.is_unsigned_integer(kind):
        return values.cast(pa.uint64())
    if pa.types.is_date(kind):
        values = values.cast(pa.int32())
    return values.cast(pa.int64()).view(pa.uint64())


def _of_bytes(values: pa.Array) -> pa.UInt64Array:
    """Polynomials in a prime over the bytes of each value, modulo 2^64.

    One running sum over the whole column serves all values: the sum between a value's two ends is its polynomial times
    the prime to the power of where it begins, which the inverse takes off again.
    """
    size = len(values)
    _, offsets_buffer, data = values.buffers()
    if data is None:
        return pa.repeat(_u64(0), size)
    offsets = pa.Array.from_buffers(pa.int32(), size + 1, [None, offsets_buffer], offset=values.offset)
    begin = offsets[0].as_py()
    length = offsets[size].as_py() - begin
    ends = pc.subtract(offsets, pa.scalar(begin, pa.int32()))
    starts, stops = ends.slice(0, size), ends.slice(1)
    letters = pa.Array.from_buffers(pa.uint8(), length, [None, data], offset=begin).cast(pa.uint64())
    terms = pc.multiply(pc.add(letters, _u64(1)), _powers(_PRIME, length))
    sums = pa.concat_arrays([pa.array([0], pa.uint64()), pc.cumulative_sum(terms)])
    between = pc.subtract(sums.take(stops), sums.take(starts))
    return pc.multiply(between, _powers(_PRIME_INVERSE, length + 1).take(starts))


def _powers(base: int, count: int) -> pa.UInt64Array:
    """`base` to the power of 1, 2, ... modulo 2^64."""
    return pc.cumulative_prod(pa.repeat(_u64(base), count))


def _u64(value: int) -> pa.UInt64Scalar:
    return pa.scalar(value, pa.uint64())
