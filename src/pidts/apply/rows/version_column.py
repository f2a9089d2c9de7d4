"""Decides which columns can be a version column, and converts their values to numbers that have the same order."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pidts.model import Column, Kind
from pidts.model.calendar import FIRST_REAL_DAY, FIRST_REAL_MICROSECOND
from pidts.model.types import DATED
from pidts.reduce.key_numbers import Numbers


def can_be_version(column: Column) -> bool:
    """Whether every target stores the column's values exactly, and compares them in the same way."""
    return column.type.is_integer or column.type.kind in (Kind.DECIMAL, *DATED)


def ranks(values: pa.Array) -> Numbers:
    """Returns a number for each value: a later version has a higher number. NULL, zero and partial dates have 0."""
    known = only_real(values)
    numbers = np.zeros(len(values), np.int64)
    is_known = known.is_valid().to_numpy(zero_copy_only=False)
    numbers[is_known] = pc.rank(known.drop_null(), "ascending", tiebreaker="dense").to_numpy()
    return numbers


def only_real(values: pa.Array) -> pa.Array:
    """Returns the values with NULL for zero and partial dates, which some targets would return as another value."""
    if pa.types.is_timestamp(values.type):
        number, first = values.cast(pa.int64()), FIRST_REAL_MICROSECOND
    elif pa.types.is_date(values.type):
        number, first = values.cast(pa.int32()), FIRST_REAL_DAY
    else:
        return values
    return pc.if_else(pc.greater_equal(number, first), values, pa.scalar(None, values.type))
