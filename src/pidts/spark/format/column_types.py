"""The columns of `format("binlog")`: their Spark types, and, in a typed query, the table's own types.

A typed query finds columns by name, so it can read rows that were written before a column was added. It is an error if
a value would be lost: if the query lacks the value's column, or if the type of the query's column cannot store the
value.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from pidts.excerpt.cut import LogSelection
from pidts.excerpt.json_columns import clock_text, vectors
from pidts.excerpt.rows import QueryView
from pidts.model import Column, ColumnType, Halted, Kind, Lsn, Table, Where, calendar
from pidts.model.column_text import decimal_text
from pidts.schema import Dialect
from pidts.spark.format.options import BinlogOptions

_SPARK_PRECISION = 38
_SIGNED: dict[Kind, DataType] = {
    Kind.TINYINT: ByteType(),
    Kind.SMALLINT: ShortType(),
    Kind.MEDIUMINT: IntegerType(),
    Kind.INT: IntegerType(),
    Kind.BIGINT: LongType(),
}
_UNSIGNED: dict[Kind, DataType] = {
    Kind.TINYINT: ShortType(),
    Kind.SMALLINT: IntegerType(),
    Kind.MEDIUMINT: IntegerType(),
    Kind.INT: LongType(),
    Kind.BIGINT: DecimalType(20, 0),
}
_FIXED: dict[Kind, DataType] = {
    Kind.FLOAT: FloatType(),
    Kind.DOUBLE: DoubleType(),
    Kind.YEAR: IntegerType(),
    Kind.DATE: DateType(),
    Kind.DATETIME: TimestampNTZType(),
    Kind.TIMESTAMP: TimestampType(),
    Kind.VECTOR: ArrayType(FloatType(), containsNull=False),
}
_WIDER = (
    (pa.types.is_signed_integer, lambda kind: pa.types.is_integer(kind) or pa.types.is_decimal(kind)),
    (pa.types.is_floating, pa.types.is_floating),
    (pa.types.is_decimal, pa.types.is_decimal),
)


def change_columns(image: DataType) -> StructType:
    """Returns the columns of a data frame; `image` is the type of `old` and `new`."""
    return StructType(
        [
            StructField("lsn", StringType(), nullable=False),
            StructField("prev_lsn", StringType(), nullable=False),
            StructField("zone", IntegerType(), nullable=False),
            StructField("source", StringType(), nullable=False),
            StructField("database", StringType()),
            StructField("table", StringType()),
            StructField("op", StringType(), nullable=False),
            StructField("ts", TimestampType(), nullable=False),
            StructField("gtid", StringType()),
            StructField("xid", LongType()),
            StructField("old", image),
            StructField("new", image),
            StructField("is_retry", BooleanType(), nullable=False),
        ]
    )


def view_of(options: BinlogOptions, schema: StructType, dialect: Dialect) -> QueryView:
    """Returns the rows and columns of the log that a data frame has."""
    return QueryView(
        LogSelection(options.allow, dialect, statements=options.typed is None),
        arrow_schema(schema),
        options.source_id,
        options.zone,
        typed=typed_images if options.typed else None,
        after=options.start if isinstance(options.start, Lsn) else None,
        upto=options.end if isinstance(options.end, Lsn) else None,
    )


def row_type(table: Table) -> StructType:
    """Returns the type of a row of the table."""
    return StructType([StructField(column.name, spark_type(column.type)) for column in table.columns])


def spark_type(kind: ColumnType) -> DataType:
    """Returns the Spark type of a column's values."""
    if kind.is_integer:
        return (_UNSIGNED if kind.unsigned else _SIGNED)[kind.kind]
    if kind.kind in _FIXED:
        return _FIXED[kind.kind]
    if kind.kind is Kind.DECIMAL:
        precision = kind.precision or 10
        return DecimalType(precision, kind.scale or 0) if precision <= _SPARK_PRECISION else StringType()
    if kind.kind is Kind.BIT:
        return BooleanType() if kind.length == 1 else BinaryType()
    return BinaryType() if kind.is_bytes else StringType()


def arrow_schema(columns: StructType) -> pa.Schema:
    """Returns exactly the Arrow schema that Spark demands of a data source's rows."""
    return to_arrow_schema(columns, timezone="UTC")


def fits(table: Table, wanted: DataType) -> bool:
    """Whether a table's rows have exactly the type that the query needs."""
    return bool(row_type(table) == wanted)


def typed_images(table: Table, images: pa.StructArray, wanted: pa.StructType) -> pa.StructArray:
    """Returns images of a batch as structs of the query's type."""
    places = {column.name: place for place, column in enumerate(table.columns)}
    fields = list(wanted)
    if unknown := places.keys() - {field.name for field in fields}:
        raise _differs(table, f"rows have the column {min(unknown)}, which the query does not have")
    arrays = []
    for field in fields:
        if field.name not in places:
            arrays.append(pa.nulls(len(images), field.type))
            continue
        place = places[field.name]
        arrays.append(_widened(table, table.columns[place], images.field(place), field.type))
    mask = pc.invert(images.is_valid()) if images.null_count else None
    if not fields:
        return pa.array([{} if valid else None for valid in images.is_valid().to_pylist()], wanted)
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=mask)


def _widened(table: Table, column: Column, array: pa.Array, wanted: pa.DataType) -> pa.Array:
    natural = _natural(column.type)
    if natural != wanted and not any(is_of(natural) and takes(wanted) for is_of, takes in _WIDER):
        raise _differs(table, f"the column {column.name} has values of type {natural}, the query wants {wanted}")
    values = _values(array, column.type, natural)
    if natural == wanted:
        return values
    try:
        return values.cast(wanted)
    except pa.ArrowInvalid as error:
        raise _differs(table, f"a value of {column.name} does not fit: {error}") from error


@lru_cache(maxsize=4096)
def _natural(kind: ColumnType) -> pa.DataType:
    return arrow_schema(StructType([StructField("v", spark_type(kind))])).field(0).type


def _values(array: pa.Array, kind: ColumnType, wanted: pa.DataType) -> pa.Array:
    match kind.kind:
        case Kind.DATE | Kind.DATETIME | Kind.TIMESTAMP:
            return _real(array, kind.kind)
        case Kind.TIME:
            return clock_text(array)
        case Kind.BIT:
            return _bits(array, kind.length or 1)
        case Kind.VECTOR:
            return _floats(array, wanted)
        case Kind.DECIMAL if wanted == pa.string():
            return decimal_text(array)
    return array if array.type == wanted else array.cast(wanted)


def _real(array: pa.Array, kind: Kind) -> pa.Array:
    """Returns the values with NULL in place of zero and partial dates, and of dates such as February 30."""
    days = kind is Kind.DATE
    numbers = array.cast(pa.int32() if days else pa.int64())
    first = pa.scalar(calendar.FIRST_REAL_DAY if days else calendar.FIRST_REAL_MICROSECOND, numbers.type)
    real: pa.Array = pc.greater_equal(numbers, first)
    return array if pc.all(real).as_py() else pc.if_else(real, array, pa.scalar(None, array.type))


def _bits(array: pa.Array, length: int) -> pa.Array:
    if length == 1:
        return array.cast(pa.bool_())
    size = (length + 7) // 8
    numbers = array.fill_null(0).to_numpy(zero_copy_only=False).astype(">u8")
    data = np.ascontiguousarray(numbers.view(np.uint8).reshape(-1, 8)[:, 8 - size :]).tobytes()
    offsets = np.arange(len(array) + 1, dtype=np.int32) * size
    values = pa.Array.from_buffers(pa.binary(), len(array), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    return pc.if_else(array.is_valid(), values, pa.scalar(None, pa.binary()))


def _floats(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    if array.null_count == len(array):
        return pa.nulls(len(array), wanted)
    found = vectors(array)
    return pa.ListArray.from_arrays(found.offsets, found.values, type=wanted, mask=pc.invert(array.is_valid()))


def _differs(table: Table, what: str) -> Halted:
    todo = (
        "Read the log up to the table's schema change without `typed`, or give the former columns by `.schema(...)`. "
        "After that change, continue with `typed`"
    )
    return Halted("typed-structure-differs", what, where=Where(table=str(table.name)), todo=todo)
