"""The keys between chunks are JSON in the checkpoint, and SQL in the next statement."""

from __future__ import annotations

import json
from decimal import Decimal

import pyarrow as pa
import pytest

from pidts.model import Column, ColumnType, Halted, Key, Kind, Table, TableName, calendar
from pidts.source.keys import after, last_key, literal

UTF8 = {"charset": "utf8mb4", "collation": "utf8mb4_general_ci"}


def table_of(*types: ColumnType) -> Table:
    columns = tuple(Column(f"c{number}", kind, nullable=False) for number, kind in enumerate(types))
    return Table(
        TableName("d", "t"), columns, (Key("PRIMARY", tuple(column.name for column in columns), primary=True),)
    )


ZERO_DATE = calendar.days(0, 0, 0)


@pytest.mark.parametrize(
    ("kind", "value", "in_json", "in_sql"),
    [
        (ColumnType(Kind.BIGINT, unsigned=True), 2**64 - 1, 2**64 - 1, "18446744073709551615"),
        (ColumnType(Kind.BIT, length=64), 5, 5, "5"),
        (ColumnType(Kind.YEAR), 0, 0, "0"),
        (ColumnType(Kind.DECIMAL, precision=38, scale=4), Decimal("-0.0001"), "-0.0001", "-0.0001"),
        (ColumnType(Kind.DOUBLE), 0.1, 0.1, "0.1e0"),
        (ColumnType(Kind.DOUBLE), 1e300, 1e300, "1e+300"),
        (ColumnType(Kind.VARCHAR, length=9, **UTF8), "a'é", "a'é", "_utf8mb4 X'6127c3a9'"),
        (ColumnType(Kind.VARBINARY, length=9), b"\0'", "0027", "X'0027'"),
        (ColumnType(Kind.ENUM, labels=("z", "a"), **UTF8), "a", "a", "2"),
        (ColumnType(Kind.ENUM, labels=("z", "a"), **UTF8), "", "", "0"),
        (ColumnType(Kind.SET, labels=("z", "a", "m"), **UTF8), "z,m", "z,m", "5"),
        (ColumnType(Kind.DATE), ZERO_DATE, "0000-00-00", "'0000-00-00'"),
        (ColumnType(Kind.DATETIME, fsp=6), 1_000_001, "1970-01-01 00:00:01.000001", "'1970-01-01 00:00:01.000001'"),
        (ColumnType(Kind.TIMESTAMP), 0, "1970-01-01 00:00:00.000000", "'1970-01-01 00:00:00.000000'"),
        (ColumnType(Kind.TIME, fsp=3), -3_020_399_000_000, "-838:59:59.000000", "'-838:59:59.000000'"),
    ],
)
def test_a_key_value_survives_json_and_becomes_sql(kind, value, in_json, in_sql):
    table = table_of(kind)
    plain = pa.int32() if kind.kind is Kind.DATE else pa.int64() if pa.types.is_temporal(kind.arrow) else kind.arrow
    rows = pa.table([pa.array([value], plain).cast(kind.arrow)], schema=table.arrow)
    key = last_key(rows, table)
    assert key == [in_json]
    assert literal(json.loads(json.dumps(key))[0], table.columns[0], table) == in_sql


def test_no_rows_have_no_last_key():
    table = table_of(ColumnType(Kind.INT))
    assert last_key(table.arrow.empty_table(), table) is None


def test_rows_after_a_composite_key_are_found_by_its_first_column():
    table = table_of(*[ColumnType(Kind.INT)] * 3)
    assert (
        after(table, [1, 2, 3]) == "`c0` >= 1 AND (`c0` > 1 OR (`c0` = 1 AND (`c1` > 2 OR (`c1` = 2 AND (`c2` > 3)))))"
    )
    assert after(table_of(ColumnType(Kind.INT)), [7]) == "`c0` > 7"


def test_a_json_column_is_no_key():
    table = table_of(ColumnType(Kind.JSON))
    with pytest.raises(Halted):
        literal("{}", table.columns[0], table)
