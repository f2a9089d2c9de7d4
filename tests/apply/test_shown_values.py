"""Values in messages and in `pidts locks show` have the form in which the servers show them."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
import pytest

from pidts.apply.rows.shown_values import value_text


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (timedelta(hours=26, minutes=3, seconds=4), pa.duration("us"), "26:03:04"),
        (-timedelta(minutes=1, microseconds=500_000), pa.duration("us"), "-00:01:00.5"),
        (timedelta(0), pa.duration("us"), "00:00:00"),
        (0.1, pa.float32(), "0.1"),
        (0.1, pa.float64(), "0.1"),
        (b"\x00\xab", pa.binary(), "0x00AB"),
        (b"", pa.binary(), "''"),
        ("a 'b'", pa.string(), repr("a 'b'")),
        (5, pa.int32(), "5"),
        (None, pa.int32(), "NULL"),
        (None, pa.string(), "NULL"),
    ],
)
def test_a_value_is_shown_as_a_server_shows_it(value: object, kind: pa.DataType, text: str) -> None:
    assert value_text(pa.array([value], kind)) == text
