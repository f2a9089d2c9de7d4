"""Few rows become the same SQL as many."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.target.conformance.samples import array

from pidts.model import Column, ColumnType, Halted, Key, Kind, Table, TableName
from pidts.target.mysql.encode import FEW, StatementLimits, demand_fits, literals, statements, tuples
from pidts.target.mysql.few_rows import few_literals, few_statements, few_tuples

_ANY_TEXT = st.text(st.characters(codec="utf-8"), max_size=6) | st.sampled_from(["it's", "a\\", "\\'", "", "\0"])
_BYTES = st.binary(max_size=6) | st.sampled_from([b"'", b"\\", b"\xff'\x00"])
_MICROS = st.integers(-(10**15), 10**15)
VALUES = {
    ColumnType(Kind.TINYINT): st.integers(-128, 127),
    ColumnType(Kind.BIGINT, unsigned=True): st.integers(0, 2**64 - 1),
    ColumnType(Kind.BIT, length=9): st.integers(0, 511),
    ColumnType(Kind.DECIMAL, precision=12, scale=5): st.decimals(-(10**6), 10**6, places=5).map(Decimal),
    ColumnType(Kind.FLOAT): st.floats(width=32, allow_nan=False, allow_infinity=False),
    ColumnType(Kind.DOUBLE): st.floats(allow_nan=False, allow_infinity=False),
    ColumnType(Kind.YEAR): st.sampled_from([0, 1901, 2155]),
    ColumnType(Kind.DATE): st.integers(-800_000, 100_000),
    ColumnType(Kind.DATETIME, fsp=6): _MICROS,
    ColumnType(Kind.TIMESTAMP, fsp=3): _MICROS,
    ColumnType(Kind.TIME, fsp=6): _MICROS,
    ColumnType(Kind.VARCHAR, length=9, charset="utf8mb4"): _ANY_TEXT,
    ColumnType(Kind.LONGTEXT, charset="latin1"): _ANY_TEXT,
    ColumnType(Kind.ENUM, labels=("a", "it's")): st.sampled_from(["a", "it's", ""]),
    ColumnType(Kind.JSON): st.sampled_from(['{"a": "\'"}', "[]"]),
    ColumnType(Kind.BLOB): _BYTES,
    ColumnType(Kind.VARBINARY, length=9): _BYTES,
}


@pytest.mark.parametrize("kind", VALUES, ids=lambda kind: str(kind.kind))
@given(st.data())
def test_a_value_has_one_text(kind, data):
    column = Column("c", kind)
    values = data.draw(st.lists(st.none() | VALUES[kind], min_size=1, max_size=4))
    many = literals(column, array(values * (FEW + 1), kind.arrow)).to_pylist()
    few = few_literals(column)(array([None, *values], kind.arrow)[1:])
    assert few == [b"NULL" if one is None else one for one in many[: len(values)]]


@given(st.lists(st.tuples(st.integers(-9, 9), st.none() | _ANY_TEXT), min_size=1, max_size=FEW))
def test_a_row_has_one_text(rows):
    columns = (Column("id", ColumnType(Kind.INT)), Column("v", ColumnType(Kind.TEXT, charset="utf8mb4")))
    table = Table(TableName("d", "t"), columns, (Key("PRIMARY", ("id",), unique=True, primary=True),))
    found = pa.table([pa.array(each) for each in zip(*rows * (FEW + 1), strict=True)], schema=table.arrow)
    many = tuples([literals(column, found[column.name]) for column in columns], b",DEFAULT),").to_pylist()
    texts = [(place, few_literals(column)) for place, column in enumerate(columns)]
    assert few_tuples(texts, found.slice(0, len(rows)), b",DEFAULT),") == many[: len(rows)]


@given(st.lists(st.binary(max_size=9), max_size=9), st.integers(1, 5), st.integers(0, 40))
def test_few_and_many_are_cut_at_the_same_rows(values, most, size):
    rows = [value + b"),;." for value in values]
    limits = StatementLimits(most, size, 1000)
    many = statements(b"<<", pa.array(rows, pa.large_binary()), b">", limits, cut=2)
    assert list(few_statements(b"<<", rows, b">", limits, cut=2)) == [sql for sql, _, _ in many]


def test_a_row_that_is_larger_than_a_packet_halts():
    with pytest.raises(Halted, match="max_allowed_packet") as caught:
        list(few_statements(b"<", [b"12,", b"12345,"], b">", StatementLimits(9, 5, 6), cut=1))
    assert "SET GLOBAL max_allowed_packet = 1024 " in caught.value.todo


@pytest.mark.parametrize(
    ("size", "advice"),
    [
        (2**26, "max_allowed_packet = 67108864 "),
        (2**26 + 1, "max_allowed_packet = 134217728 "),
        (2**30, "max_allowed_packet = 1073741824 "),
        (2**30 + 1, "make the row smaller"),
    ],
)
def test_the_advised_packet_has_room_for_the_row(size, advice):
    with pytest.raises(Halted) as caught:
        demand_fits(size, StatementLimits(9, 5, 6))
    assert advice in caught.value.todo
