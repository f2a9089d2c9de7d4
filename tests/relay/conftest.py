"""A folder for a relay, and its writer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pidts.relay import RelayWriter

from .sample_log import FORMAT, FORMAT_EVENT, ORIGIN, START, Piece, sealed_log, store


@pytest.fixture
def relay(tmp_path: Path) -> Path:
    return tmp_path / "relay"


@pytest.fixture
def make_writer(relay: Path) -> Iterator[Callable[..., RelayWriter]]:
    """Opens a writer of source `s`, and begins the relay if it is empty. Closes the writer at the end of the test."""
    opened = []

    def make(segment_bytes: int = 1 << 20, gtid_set: str | None = "", directory: Path = relay) -> RelayWriter:
        writer = RelayWriter.open(directory, "s", segment_bytes=segment_bytes)
        opened.append(writer)
        if writer.state is None:
            writer.begin(ORIGIN, START, gtid_set)
            writer.start_segment(FORMAT_EVENT)
        return writer

    yield make
    for writer in opened:
        writer.close()


@pytest.fixture
def log(relay: Path) -> list[Piece]:
    """Returns twelve transactions with checksums, in three or more segments."""
    pieces = sealed_log(12)
    writer = RelayWriter.open(relay, "s", segment_bytes=700)
    writer.begin(ORIGIN, START, "")
    writer.start_segment(FORMAT)
    store(writer, pieces)
    writer.close()
    assert len(list(relay.glob("s/*.index"))) >= 3
    return pieces
