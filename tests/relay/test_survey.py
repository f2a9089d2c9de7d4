"""How much log lies behind a place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pidts.model import Lsn
from pidts.relay import RelayWriter
from pidts.relay.survey import measure

from .made_up import made_up_log, store


@pytest.mark.parametrize("gap", [0, 1_000_000])
def test_log_is_counted_where_the_file_on_the_server_has_more_before_it(
    relay: Path, make_writer: Callable[..., RelayWriter], gap: int
) -> None:
    """Whoever resumes by GTID gets nothing of what he has, and the relay's file is shorter by that."""

    def behind(lsn: Lsn) -> Lsn:
        return replace(lsn, offset=lsn.offset + gap)

    log = made_up_log(20)
    moved = [
        replace(
            one,
            transaction=replace(
                one.transaction,
                lsn=behind(one.transaction.lsn),
                prev_lsn=behind(one.transaction.prev_lsn) if number else one.transaction.prev_lsn,
                begin=behind(one.transaction.begin),
            ),
        )
        for number, one in enumerate(log)
    ]
    store(make_writer(), moved)
    count = measure(relay, "s")
    ends = [one.transaction.lsn for one in moved]
    left = [sum(len(one.raw) for one in moved[number + 1 :]) for number in range(len(moved))]
    assert [count(lsn) for lsn in ends] == left
