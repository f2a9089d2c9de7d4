"""Dates that are in no calendar are stored among real dates, and are read unchanged."""

from __future__ import annotations

from datetime import date

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidts.model import calendar

DAY = 86_400 * 10**6
parts = st.tuples(st.integers(0, 9999), st.integers(0, 12), st.integers(0, 31))


@given(parts)
def test_every_date_comes_back(fields):
    assert calendar.fields(calendar.days(*fields)) == fields


@given(parts)
def test_one_comparison_finds_unreal_dates(fields):
    try:
        real = date(*fields)
    except ValueError:
        assert calendar.days(*fields) < calendar.FIRST_REAL_DAY
    else:
        assert calendar.days(*fields) == (real - date(1970, 1, 1)).days >= calendar.FIRST_REAL_DAY


@given(parts, parts)
def test_different_dates_are_different_numbers(one, other):
    assert (one == other) == (calendar.days(*one) == calendar.days(*other))


@given(parts, st.integers(0, DAY - 1))
def test_a_time_of_day_stays_with_its_date(fields, time):
    value = calendar.microseconds(calendar.days(*fields), time)
    assert calendar.split(value) == (calendar.days(*fields), time)
    assert (value < calendar.FIRST_REAL_MICROSECOND) == (calendar.days(*fields) < calendar.FIRST_REAL_DAY)
    assert pa.array([value], pa.timestamp("us")).cast(pa.int64())[0].as_py() == value


@pytest.mark.parametrize("fields", [(0, 0, 0), (2024, 0, 15), (2023, 2, 31), (0, 1, 1)])
def test_unreal_dates_fit_arrow(fields):
    day = calendar.days(*fields)
    assert pa.array([day], pa.int32()).cast(pa.date32()).cast(pa.int32())[0].as_py() == day
