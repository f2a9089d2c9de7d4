"""The executed set of a relay has exactly the transactions that the log has."""

from __future__ import annotations

import pytest

from pidts.relay.gtids import ExecutedGtids

UUID = "11111111-2222-3333-4444-555555555555"


@pytest.mark.parametrize("known", ["", f"{UUID}:1-3"])
def test_a_gap_between_gtids_is_not_executed(known: str) -> None:
    gtids = ExecutedGtids(known)
    gtids.add_range(f"{UUID}:", 1, 3)
    gtids.add(f"{UUID}:7")
    assert gtids.text == f"{UUID}:1-3:7"
    gtids.add_range(f"{UUID}:", 8, 9)
    gtids.add_range(f"{UUID}:", 20, 21)
    assert gtids.text == f"{UUID}:1-3:7-9:20-21"


def test_a_gtid_that_fills_a_gap_later_joins_its_neighbours() -> None:
    gtids = ExecutedGtids("")
    for number in (1, 3, 2):
        gtids.add(f"{UUID}:{number}")
    assert gtids.text == f"{UUID}:1-3"
