"""Lets one segment and another program's file fill a disk of three megabytes. Prints the results."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path

from sample_log import FORMAT_EVENT, ORIGIN, START, sample_log, store

from pidts.model import Transient
from pidts.relay import RelayReader, RelayWriter, list_segments
from pidts.relay.retention import PurgeLimits, release
from pidts.relay.task_needs import TaskNeed
from pidts.replicate.status import StatusFile, not_receiving

disk, how = Path(sys.argv[1]), sys.argv[2]
log = sample_log(12_000, largest=400)
assert sum(len(piece.raw) for piece in log) > 4 << 20
writer = RelayWriter.open(disk, "s")
writer.begin(ORIGIN, START, "")
writer.start_segment(FORMAT_EVENT)
need = TaskNeed(disk, "s", "shop")
need.move(START)
status = StatusFile(disk / "s" / "status.json", "s")
status.update(connected=True)
filler = disk / "filler"


def fill() -> None:
    with suppress(OSError), filler.open("ab") as file:
        while True:
            file.write(bytes(512))
            file.flush()


full, purged = 0, []
while writer.lsn != log[-1].transaction.lsn:
    begun = [piece for piece in log if writer.lsn is None or piece.transaction.lsn > writer.lsn]
    assert full < 50, "no way out of the full disk"
    try:
        store(writer, begun[:1500], every=100)
        if how == "stranger" and not filler.exists():
            fill()
    except Transient as error:
        full += 1
        writer.rollback()
        status.update(connected=False, error=error, received=writer.lsn)
        lack = not_receiving(disk, "s")
        assert lack is not None, "the status is not written"
        assert (lack.error.code, lack.since > 0) == ("relay-full", True)
        writer.give_way()
    applied = writer.lsn
    assert applied is not None
    # Everything is applied at once.
    with suppress(Transient):
        need.move(applied)
    purged += [one.number for one in release(disk, "s", PurgeLimits(checkpoints={"shop": applied})).gone]
reader = RelayReader(disk, "s")
last = list(reader.entries(list_segments(disk, "s")[0].start))[-1]
assert last.transaction.lsn == log[-1].transaction.lsn
reader.close()
writer.close()
sys.stdout.write(json.dumps({"full": full, "purged": len(purged)}))
