"""Events that a server sends a second time, after a reconnect by GTID, are stored once."""

from __future__ import annotations

import random
from contextlib import closing
from pathlib import Path

from tests.binlog.logs.log_maker import LogMaker, rotate

from pidts.binlog import EventType
from pidts.model import MySqlGtidSet, Position, Where
from pidts.relay import Origin, RelayReader, RelayWriter
from pidts.replicate.receiver import Receiver
from pidts.replicate.resume import Resume

ORIGIN = Origin("server", "bin", 0)


def fill(folder: Path, *connections: tuple[Resume, list[bytes]]) -> bytes:
    """Receives the events of the connections. Returns the events of the relay's first segment."""
    for resume, events in connections:
        with closing(RelayWriter.open(folder, "s")) as writer:
            receiver = Receiver(writer, resume, Where(source="s"))
            receiver.take(events)
            receiver.sync()
    with closing(RelayReader(folder, "s")) as reader:
        entries = [entry.transaction for entry in reader.entries()]
        assert [entry.prev_lsn for entry in entries[1:]] == [entry.lsn for entry in entries[:-1]]
        return reader.folder.log(1).read_bytes()


def test_a_resume_by_gtid_just_after_a_files_head_stores_the_head_once(tmp_path: Path) -> None:
    log = LogMaker(random.Random(1), product="mysql")
    log.put(EventType.PREVIOUS_GTIDS, bytes(8))
    head = list(log.events)
    log.ordinary(["a"], rows=1)
    rest = log.events[len(head) :]
    begin = Resume(Position(log.file, 4), ORIGIN, None, "")
    again = Resume(MySqlGtidSet.parse(""))
    first = [rotate(log.file, 4)]
    whole = fill(tmp_path / "whole", (begin, first + head + rest))
    assert whole.endswith(b"".join([*head[1:], *rest]))
    assert fill(tmp_path / "twice", (begin, first + head), (again, first + head + rest)) == whole
