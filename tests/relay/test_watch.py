"""A wait for new log in a relay ends when log is written, and otherwise after its timeout."""

from __future__ import annotations

import gc
import os
import shutil
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from pidts.relay import watch
from pidts.relay.watch import FolderWatch


def seconds_of_a_wait(watched: FolderWatch, seconds: float) -> float:
    begun = time.monotonic()
    watched.wait(seconds)
    return time.monotonic() - begun


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel tells it on Linux only")
def test_a_wait_ends_with_a_write(tmp_path: Path) -> None:
    with (tmp_path / "000000001.index").open("ab", buffering=0) as index, closing(FolderWatch(tmp_path)) as watched:
        watched.wait(10)  # begins to watch
        threading.Timer(0.1, index.write, [b"entry"]).start()
        assert 0.05 < seconds_of_a_wait(watched, 10) < 5
        index.write(b"entry")
        index.write(b"entry")
        assert seconds_of_a_wait(watched, 10) < 5, "what was written before the wait counts"
        assert seconds_of_a_wait(watched, 0.05) >= 0.04, "and counts once"
        (tmp_path / "000000002.new").touch()
        (tmp_path / "000000002.new").rename(tmp_path / "000000002.index")
        assert seconds_of_a_wait(watched, 1) < 0.9


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel tells it on Linux only")
def test_a_wait_continues_until_the_index_is_written(tmp_path: Path) -> None:
    """Readers do not see events that no entry names yet, nor the record of their arrival."""
    with (
        (tmp_path / "000000001.log").open("ab", buffering=0) as log,
        (tmp_path / "000000001.index").open("ab", buffering=0) as index,
        (tmp_path / "arrivals").open("ab", buffering=0) as arrivals,
        closing(FolderWatch(tmp_path)) as watched,
    ):
        watched.wait(10)
        log.write(b"events")
        arrivals.write(b"record")
        threading.Timer(0.1, log.write, [b"events"]).start()
        threading.Timer(0.3, index.write, [b"entry"]).start()
        assert 0.25 < seconds_of_a_wait(watched, 10) < 5
        log.write(b"events")
        assert seconds_of_a_wait(watched, 0.05) >= 0.04


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it is about Linux")
def test_writes_that_are_no_news_do_not_even_wake_the_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "000000001.index").touch()
    with (
        (tmp_path / "000000001.log").open("ab", buffering=0) as log,
        (tmp_path / "arrivals").open("ab", buffering=0) as arrivals,
        closing(FolderWatch(tmp_path)) as watched,
    ):
        watched.wait(10)
        monkeypatch.setattr(watch.os, "read", lambda *_: pytest.fail("the kernel reports something"))
        log.write(b"events")
        arrivals.write(b"record")
        assert seconds_of_a_wait(watched, 0.05) >= 0.04


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it is about Linux")
def test_whatever_index_is_the_newest_one_is_watched(tmp_path: Path) -> None:
    """Segments begin, are purged and cut off; a relay that was emptied begins again with the same names."""

    def ends_a_wait(number: int) -> bool:
        with (tmp_path / f"{number:09}.index").open("ab", buffering=0) as index:
            watched.wait(0.01)  # From here on, a new file is watched.
            assert seconds_of_a_wait(watched, 0.02) >= 0.015
            index.write(b"entry")
            return seconds_of_a_wait(watched, 0.5) < 0.4

    with closing(FolderWatch(tmp_path)) as watched:
        watched.wait(10)
        assert ends_a_wait(1)
        assert ends_a_wait(2)
        (tmp_path / "000000001.index").unlink()
        assert ends_a_wait(2), "an older one was purged"
        assert ends_a_wait(3)
        (tmp_path / "000000003.index").unlink()
        assert ends_a_wait(2), "the newest one was cut off"
        (tmp_path / "000000002.index").unlink()
        assert ends_a_wait(2), "another file has the same name"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it is about Linux")
@pytest.mark.parametrize("change", ["removed", "moved away", "missing at first"])
def test_a_folder_that_is_made_again_is_watched_again(tmp_path: Path, change: str) -> None:
    folder, index = tmp_path / "s", tmp_path / "s" / "000000001.index"

    def make() -> None:
        folder.mkdir()
        index.touch()

    with closing(FolderWatch(folder)) as watched:
        if change != "missing at first":
            make()
        watched.wait(10)
        if change == "removed":
            shutil.rmtree(folder)
        elif change == "moved away":
            folder.rename(tmp_path / "old")
        for _ in range(3):
            watched.wait(0.01)
        make()
        for _ in range(3):
            watched.wait(0.01)
        threading.Timer(0.1, index.write_bytes, [b"entry"]).start()
        assert 0.05 < seconds_of_a_wait(watched, 10) < 2


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it is about Linux")
def test_a_folder_may_vanish_while_its_newest_index_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "s"
    folder.mkdir()
    listed = os.listdir

    def vanishing(path: Path) -> list[str]:
        shutil.rmtree(folder)
        return listed(path)

    with closing(FolderWatch(folder)) as watched:
        monkeypatch.setattr(watch.os, "listdir", vanishing)
        watched.wait(10)
        assert not folder.exists()
        assert seconds_of_a_wait(watched, 0.5) < 0.4, "that the folder is gone ends the wait"


def test_a_folder_that_cannot_be_watched_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(FolderWatch(tmp_path / "none")) as watched:
        watched.wait(10)
        assert seconds_of_a_wait(watched, 1) < 0.9
    monkeypatch.setattr(watch.sys, "platform", "darwin")
    with closing(FolderWatch(tmp_path)) as watched:
        watched.wait(10)
        assert seconds_of_a_wait(watched, 1) < 0.9


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it is about Linux")
def test_a_watch_that_was_not_ended_is_removed(tmp_path: Path) -> None:
    def open_watches() -> int:
        return sum("inotify" in str(one.readlink()) for one in Path("/proc/self/fd").iterdir() if one.is_symlink())

    before = open_watches()
    for _ in range(5):
        FolderWatch(tmp_path).wait(0)
    gc.collect()
    assert open_watches() == before
