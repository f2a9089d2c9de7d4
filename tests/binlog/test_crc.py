"""The compiled CRC-32 equals zlib's, for every short length and for any bytes."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidts.binlog import crc
from pidts.binlog.jit import address


def compiled(data: bytes, start: int = 0) -> int:
    return int(crc.crc32_at(address(data), len(data), start))


@pytest.mark.parametrize("start", [0, 0xFFFFFFFF, 0x12345678])
def test_every_short_length(start):
    data = bytes(byte * 31 + 7 & 0xFF for byte in range(700))
    wrong = [size for size in range(len(data) + 1) if compiled(data[:size], start) != zlib.crc32(data[:size], start)]
    assert wrong == []


@given(st.binary(max_size=300), st.integers(0, 100), st.integers(0, 2**32 - 1))
def test_any_bytes_many_times_over(data, times, start):
    assert compiled(data * times, start) == zlib.crc32(data * times, start)


@given(st.binary(max_size=400), st.integers(0, 400))
def test_a_sum_continues_where_another_ended(data, cut):
    assert compiled(data[cut:], compiled(data[:cut])) == zlib.crc32(data)


def test_one_changed_bit_changes_the_crc():
    data = bytes(1000)
    sums = {compiled(data[:at] + b"\x40" + data[at + 1 :]) for at in range(len(data))}
    assert len(sums | {compiled(data)}) == 1001


@pytest.mark.parametrize("size", [0, 100, 16383, 16384, 100_003])
def test_python_gets_the_same_whichever_is_faster(size):
    data = memoryview(bytes(range(256)) * 400)[:size]
    assert crc.crc32(data, 5) == zlib.crc32(data, 5)


def test_without_the_multiplication_tables_do_it_all():
    data = bytes(range(256)) * 3
    assert int(crc._sliced(address(data), address(data) + len(data), 0xFFFFFFFF)) ^ 0xFFFFFFFF == zlib.crc32(data)
