"""Converts keys to whole numbers, so that rows and changes of one identity are matched without an object per value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pidts.reduce.identity import plain_zero

Numbers: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]


def key_numbers(columns: Sequence[pa.Array]) -> Numbers:
    """Returns one number per row. Only equal keys get the same number: keys with the same bytes, where -0 equals 0."""
    numbers: Numbers | None = None
    for values in columns:
        codes = _codes(plain_zero(values))
        if numbers is None:
            numbers = codes
        else:  # each factor is at most the number of rows, so the product stays far below 2^63
            numbers = _codes(pa.array(numbers * (int(codes.max(initial=0)) + 1) + codes))
    if numbers is None:
        raise ValueError("a key of no columns")
    return numbers


def merged(parts: Sequence[Sequence[pa.Array]]) -> list[pa.Array]:
    """Joins several lists of the same columns."""
    return [pa.concat_arrays(column) for column in zip(*parts, strict=True)]


def to_mask(values: pa.Array | pa.ChunkedArray) -> Mask:
    """Returns booleans as a numpy array; NULL counts as False."""
    return np.asarray(values.fill_null(False).to_numpy(zero_copy_only=False), dtype=np.bool_)  # noqa: FBT003


def chunkless(table: pa.Table, names: Sequence[str]) -> list[pa.Array]:
    """Returns columns of a table, each as one array."""
    columns = (table[name] for name in names)
    return [c.combine_chunks() if isinstance(c, pa.ChunkedArray) else c for c in columns]


def _codes(values: pa.Array) -> Numbers:
    encoded: Any = values.dictionary_encode(null_encoding="encode")
    return np.asarray(encoded.indices.to_numpy(zero_copy_only=False), dtype=np.int64)
