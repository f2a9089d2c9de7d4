"""Arrow columns are converted to text without loss."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidts.model import Column, ColumnType, Halted, Kind, calendar
from pidts.model.column_text import decimal_text, duration_text
from pidts.target.mysql.encode import StatementLimits, literals, statements, tuples
from pidts.target.text import exact_float_text, hex_text, moment_text, vector_text


def test_decimals_have_no_exponent():
    values = [Decimal("1E-8"), None, Decimal("-0.5"), Decimal(0), Decimal("-123456789012.00000001")]
    for kind in (pa.decimal128(20, 8), pa.decimal256(65, 8)):
        text = decimal_text(pa.array(values, kind)).to_pylist()
        assert text == ["0.00000001", None, "-0.50000000", "0.00000000", "-123456789012.00000001"]


@given(st.lists(st.none() | st.decimals(-(10**20), 10**20, places=10), max_size=5))
def test_decimal_text_reads_back(values):
    text = decimal_text(pa.array(values, pa.decimal128(38, 10))).to_pylist()
    assert [each if each is None else Decimal(each) for each in text] == values


@given(st.lists(st.none() | st.binary(max_size=6), max_size=6), st.integers(0, 3))
def test_hex_of_any_slice(values, first):
    text = hex_text(pa.array(values, pa.binary())[first:], "x").to_pylist()
    assert text == [None if value is None else "x" + value.hex() for value in values[first:]]


@given(st.lists(st.none() | st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=5))
def test_floats_keep_every_bit(values):
    text = exact_float_text(pa.array(values, pa.float32())).to_pylist()
    assert [each if each is None else float(each) for each in text] == values
    assert all(each is None or "e" in each for each in text)


def test_times_of_day_go_far_beyond_a_day():
    assert duration_text(pa.array([-3020399_999_999, -1, 0, None, 36_000_000_000], pa.duration("us"))).to_pylist() == [
        "-838:59:59.999999",
        "-00:00:00.000001",
        "00:00:00.000000",
        None,
        "10:00:00.000000",
    ]


def test_dates_that_no_calendar_has_are_shown_as_by_the_server():
    days = [
        calendar.days(0, 0, 0),
        calendar.days(2023, 2, 31),
        None,
        calendar.days(1, 1, 1),
        calendar.days(2024, 0, 15),
    ]
    assert moment_text(pa.array(days, pa.int32()).view(pa.date32())).to_pylist() == [
        "0000-00-00",
        "2023-02-31",
        None,
        "0001-01-01",
        "2024-00-15",
    ]
    moment = calendar.microseconds(calendar.days(2023, 2, 31), 86_399_999_999)
    for kind in (pa.timestamp("us"), pa.timestamp("us", "UTC")):
        text = moment_text(pa.array([moment, 0], pa.int64()).view(kind)).to_pylist()
        assert text == ["2023-02-31 23:59:59.999999", "1970-01-01 00:00:00.000000"]


def test_vectors_of_a_slice():
    values = pa.array([b"\0\0\x80\x3f", None, b"", b"\0\0\x80\x3f\0\0\0\x40"])
    assert vector_text(values[1:], "[", "]").to_pylist() == [None, "[]", "[1,2]"]


def column(kind: Kind) -> Column:
    return Column("c", ColumnType(kind))


def test_a_literal_ends_where_it_should():
    text = literals(column(Kind.TEXT), pa.array(["it's", "a\\", None, "\\'"])).to_pylist()
    assert text == [b"'it\\'s'", b"'a\\\\'", None, b"'\\\\\\''"]
    assert literals(column(Kind.BLOB), pa.array([b"\xff'\x00"])).to_pylist() == [b"_binary'\xff\\'\x00'"]


def test_statements_are_cut_by_rows_and_by_size():
    rows = tuples([pa.array([b"1", b"22", b"333"], pa.large_binary())])
    by_rows = [sql for sql, _, _ in statements(b"<", rows, b">", StatementLimits(2, 100, 100), cut=1)]
    assert by_rows == [b"<(1),(22)>", b"<(333)>"]
    by_size = [sql for sql, _, _ in statements(b"<", rows, b">", StatementLimits(9, 11, 100), cut=1)]
    assert by_size == [b"<(1),(22)>", b"<(333)>"]
    with pytest.raises(Halted, match="max_allowed_packet"):
        list(statements(b"<", rows, b">", StatementLimits(9, 5, 6), cut=1))
