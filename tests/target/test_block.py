"""Rows for COPY BINARY have the documented format, and compiled and plain code give the same bytes."""

from __future__ import annotations

from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidts.target.postgres.encode.block import block, plain
from pidts.target.postgres.encode.block_kernel import by_rows

_LAYOUTS = (">i2", ">i4", ">f8", "V16", [("sign", ">u2"), ("digits", ">i2", (3,)), ("more", "u1")])


@pytest.mark.parametrize("kernel", ["compiled", "python"])
def test_each_field_follows_its_length(monkeypatch, kernel):
    monkeypatch.setenv("PIDTS_KERNEL", kernel)
    numbers = pa.array([1, None], pa.int64())
    texts = pa.array([b"ab", b""], pa.large_binary())
    rows = block([(numbers, np.array([1, 0], ">i8")), (texts, texts)])
    first = b"\0\2" + b"\0\0\0\x08" + bytes(7) + b"\1" + b"\0\0\0\2ab"
    assert bytes(rows) == first + b"\0\2" + b"\xff\xff\xff\xff" + b"\0\0\0\0"


@given(st.integers(0, 2**32), st.integers(1, 40), st.integers(0, 9), st.booleans())
def test_compiled_and_plain_code_give_the_same(seed, count, skipped, has_nulls):
    random = Random(seed)

    def column():
        """Returns an array that is a slice of a larger array."""
        size = skipped + count
        there = [not has_nulls or random.random() < 0.7 for _ in range(size)]
        if random.random() < 0.5:
            values = [random.randbytes(random.choice((0, 1, 2, 4, 8, 300))) if each else None for each in there]
            array = pa.array(values, pa.large_binary()).slice(skipped)
            return array, array
        kind = np.dtype(random.choice(_LAYOUTS))
        written = np.frombuffer(random.randbytes(kind.itemsize * count), kind)
        # Every second value, not adjacent to the next one: numpy returns such arrays for one field of a record.
        spread = np.repeat(written, 2)[::2]
        return pa.array([1 if each else None for each in there], pa.int8()).slice(skipped), spread

    columns = [column() for _ in range(random.randint(1, 6))]
    assert bytes(by_rows(columns)) == bytes(plain(columns))
