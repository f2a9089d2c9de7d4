"""Positions in a standby's log are recorded, for a failover without GTIDs."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from pidts.model import Lsn, Position
from pidts.relay import Origin
from pidts.relay.repeats import add_repeats, after_whole_log, repeated_until
from pidts.relay.standby_samples import Sample, Samples, read_samples, write_samples

ORIGIN = Origin("one", "bin", 0)


def _at(number: int) -> Position:
    return Position.of("bin", 1 + number // 1000, 4 + number % 1000)


def _sampled(times: list[float]) -> Samples:
    found = Samples(ORIGIN, "two")
    for number, time in enumerate(sorted(times)):
        found = found.with_sample(Sample(time, _at(number), _at(2 * number)))
    return found


@given(st.lists(st.floats(0, 30 * 86_400), min_size=1, max_size=60), st.integers(0, 60))
def test_the_last_sample_is_kept_and_none_is_usable_that_was_not_received(times: list[float], received: int) -> None:
    found = _sampled(times)
    assert found.samples[-1].source == _at(len(times) - 1)
    assert list(found.samples) == sorted(found.samples, key=lambda one: one.time)
    usable = found.usable(_at(received))
    key = [(one.source.log_index, one.source.offset) for one in usable]
    assert key == sorted(key, reverse=True)
    assert all(place <= (_at(received).log_index, _at(received).offset) for place in key)


def test_few_old_samples_and_many_of_the_last_minute_are_kept() -> None:
    found = _sampled([float(second) for second in [*range(0, 19_900, 20), *range(19_900, 20_000)]])
    assert len(found.samples) < 250
    ages = [19_999 - one.time for one in found.samples]
    assert sum(age < 60 for age in ages) == 60
    assert all(one - other <= 601 for one, other in pairwise(ages))


def test_samples_are_kept_beside_the_relay(tmp_path: Path) -> None:
    assert read_samples(tmp_path, "h:1") is None
    found = _sampled([1.5, 7.25])
    write_samples(tmp_path, "h:1", found)
    assert read_samples(tmp_path, "h:1") == found
    assert read_samples(tmp_path, "h:2") is None


def test_the_furthest_place_of_repeats_counts(tmp_path: Path) -> None:
    assert repeated_until(tmp_path) is None
    for until in (Lsn(1, 3, 700), Lsn(1, 3, 90)):
        add_repeats(tmp_path, until)
    assert repeated_until(tmp_path) == Lsn(1, 3, 700)
    add_repeats(tmp_path, after_whole_log(2))
    with (tmp_path / "repeats").open("a") as file:
        file.write("0003.00")  # A crash came in the middle of a line.
    assert after_whole_log(2) == repeated_until(tmp_path)
    assert Lsn(2, 2**32 - 1, 7) < after_whole_log(2) < Lsn(3, 0, 0)
