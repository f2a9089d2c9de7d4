"""Rows of a relay are marked as retries if the relay has received their part of the log a second time."""

from __future__ import annotations

import numpy as np
import pytest

from pidts.excerpt.rows import are_retries
from pidts.model import Lsn
from pidts.relay.refetch import Refetch


@pytest.mark.parametrize(
    ("after", "to", "expected"),
    [
        (Lsn(0, 7, 100), Lsn(0, 7, 300), [False, True, True, False]),
        (Lsn(0, 6, 900), Lsn(0, 7, 200), [True, True, False, False]),
        (Lsn(0, 7, 200), Lsn(0, 9, 4), [False, False, True, True]),
        (Lsn(0, 6, 4), Lsn(0, 8, 4), [True, True, True, True]),
        (Lsn(0, 8, 4), Lsn(0, 9, 4), [False, False, False, False]),
        (Lsn(1, 7, 4), Lsn(1, 7, 900), [False, False, False, False]),
    ],
)
def test_rows_of_a_range(after: Lsn, to: Lsn, expected: list[bool]) -> None:
    """A row's place is the first byte of its event.

    So it is at or after the range's beginning, and before the range's end.
    """
    offsets = np.array([50, 100, 250, 300])
    found = are_retries(Lsn(0, 7, 4), offsets, [Refetch(after, to, "relay-gap")])
    assert found.tolist() == expected


def test_a_row_may_be_in_one_of_several() -> None:
    ranges = [Refetch(Lsn(0, 7, 4), Lsn(0, 7, 60), "relay-gap"), Refetch(Lsn(0, 7, 200), Lsn(0, 7, 260), "relay-gap")]
    assert are_retries(Lsn(0, 7, 4), np.array([50, 100, 250]), ranges).tolist() == [True, False, True]
    assert are_retries(Lsn(0, 7, 4), np.array([50, 100]), []).tolist() == [False, False]
