"""By an Lsn, readers find the time at which this place of the log arrived, even while the writer still writes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pidts.model import Lsn
from pidts.relay import receive_times
from pidts.relay.folder import Folder
from pidts.relay.receive_times import ReceiveTimes, ReceiveTimeWriter, arrivals_path


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    made = Folder.of(tmp_path, "s")
    made.path.mkdir()
    return made


def lsn(offset: int) -> Lsn:
    return Lsn(0, 1, offset)


def test_the_arrival_of_a_place_is_that_of_the_part_that_covers_it(folder: Folder) -> None:
    writer, reader = ReceiveTimeWriter(folder), ReceiveTimes(folder)
    assert reader.at(lsn(1)) is None
    for offset, at in ((100, 10.0), (200, 11.0), (300, 12.0)):
        writer.note(lsn(offset), at, at - 0.5)
    for offset, at in ((101, 11.0), (200, 11.0), (201, 12.0), (300, 12.0)):
        found = reader.at(lsn(offset))
        assert found is not None
        assert (found.at, found.committed) == (at, at - 0.5)
        assert writer.arrived(lsn(offset)) == at
    assert reader.at(lsn(100)) is None, "what is before it may have come at any time"
    assert reader.at(lsn(301)) is None
    after = reader.at(lsn(200), after=True)
    assert after is not None
    assert after.at == 12.0
    writer.note(lsn(400), 13.0, 13.0)
    assert reader.at(lsn(350)) is not None, "a reader follows the writer"


def test_log_that_arrives_together_has_one_record_with_the_earliest_time(folder: Folder) -> None:
    writer, reader = ReceiveTimeWriter(folder), ReceiveTimes(folder)
    writer.note(lsn(1), 9.0, 9.0)
    for number in range(10):
        writer.note(lsn(10 + number), 10.0 + number / 10_000, 10.0)
        assert reader.at(lsn(10 + number)) is not None, "a record that grows is read again"
    found = reader.at(lsn(19))
    assert found is not None
    assert (found.number, found.at) == (2, 10.0)


def test_another_writer_continues_and_a_relay_that_was_cut_back_is_followed(folder: Folder) -> None:
    first, reader = ReceiveTimeWriter(folder), ReceiveTimes(folder)
    for offset in (100, 200, 300):
        first.note(lsn(offset), offset / 10, 0.0)
    assert reader.at(lsn(300)) is not None
    first.close()
    second = ReceiveTimeWriter(folder)
    second.note(lsn(150), 99.0, 0.0)
    second.note(lsn(250), 100.0, 0.0)
    found = reader.at(lsn(220))
    assert found is not None
    assert found.at == 100.0
    assert reader.at(lsn(300)) is None, "it has not come again"
    fresh = ReceiveTimes(folder).at(lsn(220))
    assert fresh is not None
    assert fresh.at == 100.0


def test_the_ring_is_overwritten_and_a_slow_reader_recovers(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receive_times, "_RECORDS", 8)
    writer, reader = ReceiveTimeWriter(folder), ReceiveTimes(folder)
    writer.note(lsn(1), 1.0, 1.0)
    assert reader.at(lsn(1)) is None
    for number in range(2, 40):
        writer.note(lsn(number), float(number), 0.0)
    size = arrivals_path(folder).stat().st_size
    found = reader.at(lsn(38))
    assert found is not None
    assert found.at == 38.0
    assert reader.at(lsn(20)) is None, "it was overwritten"
    writer.note(lsn(50), 50.0, 0.0)
    assert arrivals_path(folder).stat().st_size == size


def test_a_torn_record_is_passed_over(folder: Folder) -> None:
    writer = ReceiveTimeWriter(folder)
    for number in range(1, 5):
        writer.note(lsn(number), float(number), 0.0)
    with arrivals_path(folder).open("r+b") as file:
        file.seek(-2, os.SEEK_END)
        file.write(b"\xff\xff")
    reader = ReceiveTimes(folder)
    assert reader.at(lsn(3)) is not None
    assert reader.at(lsn(4)) is None
    again = ReceiveTimeWriter(folder)
    again.note(lsn(9), 9.0, 0.0)
    assert reader.at(lsn(9)) is not None


def test_a_folder_that_refuses_the_file_costs_only_the_measuring(tmp_path: Path) -> None:
    missing = Folder.of(tmp_path, "nobody")
    writer = ReceiveTimeWriter(missing)
    writer.note(lsn(1), 1.0, 1.0)
    writer.note(lsn(2), 2.0, 2.0)
    assert writer.arrived(lsn(2)) == 2.0
    assert ReceiveTimes(missing).at(lsn(2)) is None
    writer.close()
