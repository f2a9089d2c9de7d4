"""The places of removed rows are joined from several files that name such places."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyiceberg")

from pidts.target.iceberg.metadata_file import in_order

PLACES = st.lists(st.integers(0, 30), max_size=12).map(sorted)


@given(st.lists(PLACES, min_size=1, max_size=5))
def test_each_place_is_there_once_and_in_order(parts: list[list[int]]) -> None:
    found = in_order([np.array(part, np.int64) for part in parts])
    assert found.tolist() == sorted({place for part in parts for place in part})
