"""The amount of log that a relay has after a place is counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pidts.model import Lsn
from pidts.relay import RelayWriter, list_segments
from pidts.relay.folder import Folder
from pidts.relay.survey import measure, survey

from .sample_log import START, sample_log, store


@pytest.mark.parametrize("gap", [0, 1_000_000])
def test_log_is_counted_where_the_file_on_the_server_has_more_before_it(
    relay: Path, make_writer: Callable[..., RelayWriter], gap: int
) -> None:
    """A replicator that resumes by GTID gets no log that it has already, so the relay's file is shorter."""

    def behind(lsn: Lsn) -> Lsn:
        return replace(lsn, offset=lsn.offset + gap)

    log = sample_log(20)
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


@pytest.mark.parametrize("which", [0, -1])
def test_events_that_are_missing_beside_their_index_count_as_nothing(
    relay: Path, make_writer: Callable[..., RelayWriter], which: int
) -> None:
    """A reader gets an error, but the amount of log is known."""
    log = sample_log(60)
    store(make_writer(segment_bytes=2_000), log)
    listed = list_segments(relay, "s")
    lost = listed[which]
    Folder.of(relay, "s").log(lost.number).unlink()
    assert [one.log_bytes for one in list_segments(relay, "s")] == [
        0 if one == lost else one.log_bytes for one in listed
    ]
    assert len(survey(relay, "s")) == len(listed) > 2
    assert measure(relay, "s")(START) == sum(one.log_bytes for one in listed if one != lost)


def test_a_relay_of_one_segment_without_its_events_has_no_log(
    relay: Path, make_writer: Callable[..., RelayWriter]
) -> None:
    log = sample_log(5)
    store(make_writer(), log)
    Folder.of(relay, "s").log(1).unlink()
    assert measure(relay, "s")(log[1].transaction.lsn) == 0
