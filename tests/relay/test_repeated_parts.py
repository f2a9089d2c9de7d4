"""The relay notes the parts of the log that tasks send again beside the parts that were damaged."""

from __future__ import annotations

from pathlib import Path

from pidts.model import Lsn
from pidts.relay.folder import Folder
from pidts.relay.refetch import Refetch, Refetches, _write, note_repeated, read_refetches


def test_parts_that_are_sent_again_displace_no_damaged_part(tmp_path: Path) -> None:
    folder = Folder.of(tmp_path, "s")
    folder.path.mkdir(parents=True)
    damaged = Refetch(Lsn(0, 1, 4), Lsn(0, 1, 9), "relay-corrupt")
    _write(folder, Refetches(None, (damaged,)))
    for number in range(60):
        note_repeated(folder, Lsn(0, 1, number), Lsn(0, 2, number))
    done = read_refetches(folder).done
    assert done[0] == damaged
    assert [one.after.offset for one in done[1:]] == list(range(10, 60))
