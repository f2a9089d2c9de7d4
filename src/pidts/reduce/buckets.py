"""Assigns each change to a worker. All changes of a row are assigned to the same worker, in every process.

If an update gives its row another key, the two keys may belong to two workers: one worker gets a delete, the other an
insert. Rows of a table with secondary unique keys may exchange values with any other row, so one worker gets the whole
table.

A number computed from the key determines the worker. Two keys that some server treats as equal must get the same
number. Otherwise two workers would write one row: one worker deletes 'A' while another inserts 'a', and on a target
that ignores case, chance decides whether the row exists afterwards. Only the server knows what a collation treats as
equal ('ss' and 'ß', 'e' and 'é', 'AE' and 'Æ'). So the number includes a text only if its collation is binary: such a
collation ignores at most trailing spaces. The key's other columns distribute the rows. If a key has only texts with
other collations, one worker gets the whole table.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from pidts.model import ChangeBatch, Column, Op, Table
from pidts.reduce.collision_columns import watched_columns
from pidts.reduce.identity import identities
from pidts.reduce.split_update import IncompleteInsert, halved_bitmaps

TWO_WORKERS = IncompleteInsert(
    "the row's old key and its new key are written by two workers", "Set worker-count: 1, or SET GLOBAL"
)
"""The reason why the INSERT half of an update may lack values: another worker removes the row that has the values."""
_DECIMAL_FORMS = ((r"^0(\.0+)?(E.*)?$", "0"), (r"\.0+(E.*)?$", r"\1"), (r"(\.[0-9]*[1-9])0+(E.*)?$", r"\1\2"))
"""Regular expressions, each with the text to insert: they find a zero, and zeros at the end of the digits."""
_ODD = 0x9E3779B97F4A7C15
_PRIME = 0x100000001B3
_PRIME_INVERSE = pow(_PRIME, -1, 2**64)


def buckets(
    batch: ChangeBatch, count: int, watched: Collection[str] = (), lack: IncompleteInsert | None = None
) -> list[ChangeBatch | None]:
    """Splits a batch into `count` parts, each in log order; None for a part without changes.

    No row of the target is in two parts, so the parts can be reduced and written independently. `watched` is as for
    `net_changes`, `lack` as for `halved_bitmaps`.
    """
    if count < 1:
        raise ValueError(f"the number of buckets is {count}, not 1 or more")
    parts: list[ChangeBatch | None] = [None] * count
    if not len(batch):
        return parts
    if count == 1:
        return [batch]
    table = batch.table
    spread = [] if watched else _spreading(table)
    if not spread:
        parts[table_number(table) % count] = batch
        return parts
    keys = identities(batch)
    seed = table_number(table)
    now = _bucket([keys.current[i] for i in spread], seed, count)
    old = _bucket([keys.before[i] for i in spread], seed, count) if pc.any(keys.moved).as_py() else now
    crossing = pc.indices_nonzero(pc.and_(keys.moved, pc.fill_null(pc.not_equal(old, now), fill_value=False)))
    rows, place = batch.rows, now
    if len(crossing):
        rows, place = _halved(batch, crossing, old, now, lack)
    for number in range(count):
        mine = pc.indices_nonzero(pc.equal(place, number))
        if len(mine):
            parts[number] = batch if len(mine) == len(rows) else replace(batch, rows=rows.take(mine))
    return parts


def spread_by(table: Table) -> tuple[tuple[str, str], ...]:
    """Returns the columns whose values distribute the table's rows, each with the form in which its values are hashed.

    If two structures have the same result, `buckets` puts equal keys into the same part. Without columns, one worker
    gets the whole table.
    """
    columns = (table.column(table.identity[place]) for place in _spreading(table))
    return tuple((column.name.lower(), _form(column.type.arrow)) for column in columns)


def _spreading(table: Table) -> list[int]:
    names = () if watched_columns(table) else table.identity
    return [place for place, name in enumerate(names) if spreads(table.column(name))]


def _bucket(columns: list[pa.Array], seed: int, count: int) -> pa.UInt64Array:
    """Returns a number from 0 to count - 1 for each row: the upper half of its key's hash, scaled."""
    half = pa.scalar(32, pa.uint64())
    upper = pc.shift_right(key_hash(columns, seed), half)
    return pc.shift_right(pc.multiply(upper, pa.scalar(count, pa.uint64())), half)


def _halved(
    batch: ChangeBatch,
    crossing: pa.UInt64Array,
    old: pa.UInt64Array,
    now: pa.UInt64Array,
    lack: IncompleteInsert | None,
) -> tuple[pa.RecordBatch, pa.UInt64Array]:
    """Returns the batch with each update in `crossing` as a delete and an insert; and the bucket of each row."""
    crossing = crossing.cast(pa.int64())
    moments = pa.concat_arrays([pc.add(pc.multiply(pa.arange(0, len(batch), 1), 2), 1), pc.multiply(crossing, 2)])
    moments = moments.take(pc.sort_indices(moments))
    row = pc.shift_right(moments, 1)
    is_delete = pc.equal(pc.bit_wise_and(moments, 1), 0)
    is_insert = pc.and_not(pc.is_in(row, value_set=crossing), is_delete)
    op = pc.if_else(is_delete, pa.scalar(int(Op.DELETE), pa.int8()), batch.rows.column("op").take(row))
    none = pa.scalar(None, pa.int64())
    columns = [
        batch.rows.column("lsn").take(row),
        pc.if_else(is_insert, pa.scalar(int(Op.INSERT), pa.int8()), op),
        batch.rows.column("before").take(pc.if_else(is_insert, none, row)),
        batch.rows.column("after").take(pc.if_else(is_delete, none, row)),
        halved_bitmaps(batch, row, is_delete, is_insert, lack),
    ]
    bucket = pc.if_else(is_delete, old.take(row), now.take(row))
    return pa.RecordBatch.from_arrays(columns, schema=batch.rows.schema), bucket


def table_number(table: Table) -> int:
    """Returns a number computed from the table's name: it chooses the worker of a table whose rows stay together."""
    return zlib.crc32(str(table.name).encode())


def spreads(column: Column) -> bool:
    """Whether servers treat only equal bytes of this column as equal values (apart from trailing spaces, -0 and 0)."""
    return not column.type.is_text or (column.type.collation or "").endswith("_bin")


def key_hash(columns: Sequence[pa.Array], seed: int) -> pa.UInt64Array:
    """Returns one number per row. The order of the columns matters."""
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
        return _of_bytes(_decimal_texts(values))
    if pa.types.is_floating(kind):
        return values.cast(pa.float64()).view(pa.uint64())
    if pa.types.is_unsigned_integer(kind):
        return values.cast(pa.uint64())
    if pa.types.is_date(kind):
        values = values.cast(pa.int32())
    return values.cast(pa.int64()).view(pa.uint64())


def _form(kind: pa.DataType) -> str:
    """Returns a text for a type. `_numbers` gives equal values of types with the same text the same number."""
    if pa.types.is_decimal(kind):
        return "decimal"
    if pa.types.is_floating(kind):
        return "float"
    return "integer" if pa.types.is_integer(kind) else str(kind)


def _decimal_texts(values: pa.Array) -> pa.StringArray:
    """Returns a text for each decimal number, the same for 1.5 and 1.50: shards may differ in the scale."""
    texts = values.cast(pa.string())
    for pattern, text in _DECIMAL_FORMS:
        texts = pc.replace_substring_regex(texts, pattern, text)
    return texts


def _of_bytes(values: pa.Array) -> pa.UInt64Array:
    """Returns, for each value, a polynomial hash of its bytes, modulo 2^64.

    The bytes are the coefficients of a polynomial in a prime. One prefix sum over the whole column is enough for all
    values. The difference of the sums at a value's two ends is the value's polynomial, times the prime to the power of
    the value's start. So the difference is divided by that power.
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
    """Returns the powers of `base` with the exponents 1, 2, ..., `count`, modulo 2^64."""
    return pc.cumulative_prod(pa.repeat(_u64(base), count))


def _u64(value: int) -> pa.UInt64Scalar:
    return pa.scalar(value, pa.uint64())
