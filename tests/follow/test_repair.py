"""A damaged part of a copy, or of the served relay, is fetched again from where it is not damaged."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from tests.relay.sample_log import FORMAT, ORIGIN, START, Piece, sealed_log, store

from pidts.model import Halted, Lsn
from pidts.plan.continuity import Discontinuity
from pidts.relay import RelayReader, RelayWriter
from pidts.relay.breaks import first_break
from pidts.relay.folder import Folder
from pidts.relay.refetch import read_refetches
from pidts.replicate import AppliedPlace
from pidts.task.config.task_file import TaskConfig, load_task
from pidts.task.run.relay_refetch import RelayRefetch

from .conftest import Copying, Served, files

MakeCopy = Callable[..., Copying]
LOG = sealed_log(12)
BROKEN = 5
"""The number of the transaction in which a byte is changed."""
TASK = """
name: t
task-mode: all
target-database: {{host: 127.0.0.1, port: 9, user: root}}
mysql-instances: [{{source-id: s, from: {{host: 127.0.0.1, port: 9, user: root}}}}]
pidts: {{relay: ./copy, relay-from: {{url: "{url}", token-file: ./token, name: m}}}}
"""


def fill(served: Served, log: list[Piece]) -> None:
    with closing(RelayWriter.open(served.relay, "s", segment_bytes=700)) as writer:
        if writer.state is None:
            writer.begin(ORIGIN, START, "")
            writer.start_segment(FORMAT)
        at = writer.lsn or START
        store(writer, [piece for piece in log if piece.transaction.lsn > at])


def flip(relay: Path) -> Lsn:
    """Changes a byte of a transaction's events; returns the place before the transaction."""
    with closing(RelayReader(relay, "s")) as reader:
        entry = list(reader.entries(START))[BROKEN]
        path = Folder.of(relay, "s").log(entry.extent.segment)
    data = bytearray(path.read_bytes())
    data[entry.extent.offset + 20] ^= 1
    path.write_bytes(data)
    return LOG[BROKEN - 1].transaction.lsn


def config(tmp_path: Path, url: str) -> TaskConfig:
    path = tmp_path / "t.yaml"
    path.write_text(TASK.format(url=url))
    return load_task(path)


def broken_in(relay: Path) -> Discontinuity | None:
    with closing(RelayReader(relay, "s")) as reader:
        return first_break(reader, START)


def test_a_damaged_copy_is_received_again_and_the_intact_relay_stays(
    served: Served, copying: MakeCopy, tmp_path: Path
) -> None:
    fill(served, LOG)
    with served.serving() as url:
        copy = copying(start=AppliedPlace(START, "", ""))
        copy.until_at(LOG[-1].transaction.lsn)
        after = flip(copy.relay)
        found = broken_in(copy.relay)
        assert found is not None
        assert found.after == after
        refetch = RelayRefetch(config(tmp_path, url))
        refetch(found, START)
        copy.until(lambda: files(copy.relay) == files(served.relay))
        copy.until(lambda: read_refetches(Folder.of(copy.relay, "s")).pending is None)
        assert broken_in(copy.relay) is None
        assert served.asked == []
        # Damage at the same place a second time comes from the disk, and a person has to act.
        flip(copy.relay)
        with pytest.raises(Halted, match="again"):
            refetch(found, START)


def test_damage_of_the_relay_itself_is_received_from_the_source_again(
    served: Served, copying: MakeCopy, tmp_path: Path
) -> None:
    fill(served, LOG)
    after = flip(served.relay)
    served.receives_again = True
    with served.serving() as url:
        copy = copying(start=AppliedPlace(START, "", ""))
        copy.until_at(LOG[-1].transaction.lsn)
        found = broken_in(copy.relay)
        assert found is not None
        RelayRefetch(config(tmp_path, url))(found, START)
        copy.until(lambda: served.asked == [after])
        fill(served, LOG)  # Like the replicator, cuts off the relay from the damage on, and receives the rest again.
        copy.until_at(LOG[-1].transaction.lsn)
        copy.until(lambda: files(copy.relay) == files(served.relay))
        assert broken_in(copy.relay) is None


def test_damage_in_the_index_of_the_relay_is_found_while_it_is_served(served: Served, copying: MakeCopy) -> None:
    fill(served, LOG)
    folder = Folder.of(served.relay, "s")
    path = folder.index(2)
    data = bytearray(path.read_bytes())
    data[-30] ^= 1
    path.write_bytes(data)
    with served.serving():
        copy = copying(start=AppliedPlace(START, "", ""))
        copy.until(lambda: served.asked)
        last = served.asked[0]
        assert last is not None
        assert copy.reader.received is not None
        assert START < last <= copy.reader.received < LOG[-1].transaction.lsn
