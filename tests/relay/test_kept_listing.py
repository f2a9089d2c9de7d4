"""A reader that stays open lists its folder only after a change, and does not keep removed files open."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pidts.relay import RelayReader, RelayWriter
from pidts.relay.folder import Folder

from .sample_log import FORMAT_EVENT, sample_log, store

MakeWriter = Callable[..., RelayWriter]


def _settle(relay: Path) -> None:
    """Makes the folder's time ten seconds old, as if it had been unchanged for a while."""
    before = time.time_ns() - 10_000_000_000
    os.utime(relay / "s", ns=(before, before))


def test_a_settled_folder_is_listed_once(relay: Path, make_writer: MakeWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    store(make_writer(), sample_log(5))
    _settle(relay)
    lists: list[Folder] = []
    listed = Folder.numbers

    def watched(folder: Folder) -> list[int]:
        lists.append(folder)
        return listed(folder)

    monkeypatch.setattr(Folder, "numbers", watched)
    reader = RelayReader(relay, "s")
    for _ in range(10):
        assert len(list(reader.entries())) == 5
        assert reader.received is not None
    assert len(lists) == 1


@pytest.mark.parametrize(
    ("ahead", "nanoseconds"),
    [
        pytest.param(60, 1, id="however long the next lines take"),
        pytest.param(-1, 0, id="a file system that keeps whole seconds"),
    ],
)
def test_a_segment_is_seen_that_leaves_the_folder_its_time(
    relay: Path, make_writer: MakeWriter, ahead: int, nanoseconds: int
) -> None:
    """Two changes within one tick of the file system's clock have the same time."""
    writer, log = make_writer(), sample_log(20)
    store(writer, log[:10])
    reader = RelayReader(relay, "s")
    just_now = int(time.time() + ahead) * 1_000_000_000 + nanoseconds
    os.utime(relay / "s", ns=(just_now, just_now))
    assert len(list(reader.entries())) == 10
    writer.start_segment(FORMAT_EVENT)
    store(writer, log[10:])
    os.utime(relay / "s", ns=(just_now, just_now))
    assert len(list(reader.entries())) == 20


def test_a_segment_after_a_kept_listing_is_seen(relay: Path, make_writer: MakeWriter) -> None:
    writer, log = make_writer(), sample_log(20)
    store(writer, log[:10])
    _settle(relay)
    reader = RelayReader(relay, "s")
    assert len(list(reader.entries())) == 10
    writer.start_segment(FORMAT_EVENT)
    assert len(list(reader.entries())) == 10
    store(writer, log[10:])
    assert len(list(reader.entries())) == 20


def test_the_events_of_a_removed_file_are_not_read(relay: Path, make_writer: MakeWriter) -> None:
    """A relay that was emptied and filled again has another file with the same name."""
    log = sample_log(3)
    store(make_writer(), log)
    reader = RelayReader(relay, "s")
    (first, *_) = reader.entries()
    assert reader.read(first.extent) == log[0].raw
    path = relay / "s" / "000000001.log"
    other = path.read_bytes().replace(log[0].raw, bytes(len(log[0].raw)))
    path.unlink()
    path.write_bytes(other)
    assert reader.read(first.extent) == bytes(len(log[0].raw))
