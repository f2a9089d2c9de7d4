"""Texts as the code points of their characters, for whole columns at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

POINTS = 0x110000
Numbers = np.ndarray[Any, Any]


def code_points(values: pa.StringArray) -> tuple[Numbers, Numbers]:
    """Returns the code points of all texts one after the other, and how many each text has; none for NULL."""
    values = pc.fill_null(values, "")
    sizes = pc.utf8_length(values).to_numpy(zero_copy_only=False).astype(np.int64)
    _, offsets, data = values.buffers()
    if data is None or not len(values):
        return np.empty(0, np.int64), sizes
    places = np.frombuffer(offsets, np.int32, len(values) + 1, 4 * values.offset)
    text = data.slice(int(places[0]), int(places[-1] - places[0])).to_pybytes()
    if text.isascii():
        return np.frombuffer(text, np.uint8).astype(np.int64), sizes
    return np.frombuffer(text.decode().encode("utf-32-le"), "<u4").astype(np.int64), sizes


def replaced(values: pa.StringArray, by: Numbers) -> pa.StringArray:
    """Replaces each character by the one that a table has for its code point."""
    points, sizes = code_points(values)
    found = by[points]
    text = found.astype("<u4").tobytes().decode("utf-32-le").encode()
    ends = np.concatenate([[0], np.cumsum(_utf8_sizes(found))])
    offsets = np.concatenate([[0], ends[np.cumsum(sizes)]]).astype(np.int64)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text)]
    result = pa.Array.from_buffers(pa.large_string(), len(values), buffers).cast(pa.string())
    return pc.if_else(values.is_valid(), result, pa.scalar(None, pa.string()))


def _utf8_sizes(points: Numbers) -> Numbers:
    return 1 + (points >= 0x80).astype(np.int64) + (points >= 0x800) + (points >= 0x10000)
