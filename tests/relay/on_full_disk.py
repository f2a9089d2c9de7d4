"""Fills a disk of some dozens of kilobytes with a relay, makes room by a purge, and continues.

Prints the results.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path

from sample_log import FORMAT_EVENT, ORIGIN, START, sample_log, store

from pidts.model import Column, ColumnType, Kind, Table, TableName, Transient
from pidts.relay import RelayReader, RelayWriter, list_segments
from pidts.relay.folder import Folder
from pidts.relay.retention import PurgeLimits, release
from pidts.relay.structures import StoredStructures, history_at, store_structures, stored_places
from pidts.relay.task_needs import TaskNeed
from pidts.schema import Dialect
from pidts.schema.evolve.known_structures import KnownStructures

disk = Path(sys.argv[1])
log = sample_log(400)
writer = RelayWriter.open(disk, "s", segment_bytes=6_000)
writer.begin(ORIGIN, START, "")
writer.start_segment(FORMAT_EVENT)
tables = {
    name: Table(name, (Column("id", ColumnType(Kind.INT)),))
    for name in (TableName("shop", f"t{number}") for number in range(30))
}
store_structures(
    Folder.of(disk, "s"), StoredStructures(START, KnownStructures(tables, {"shop": ("utf8mb4", "x")}), Dialect())
)
need = TaskNeed(disk, "s", "shop")
need.move(START)
purged = 0
codes, seen = [], []
while True:
    at = writer.lsn
    try:
        store(writer, [piece for piece in log if at is None or piece.transaction.lsn > at])
    except Transient as error:
        codes.append(error.code)
    reader = RelayReader(disk, "s")
    new = list(reader.entries(seen[-1][0] if seen else None))
    seen += [(entry.transaction.lsn, reader.read(entry.extent)) for entry in new]
    reader.close()
    if len(seen) == len(log):
        break
    assert new, "nothing came in although there was room"
    # The disk is full to the last byte: before the purge, neither the need nor the moved structures fit.
    filler = disk / "filler"
    with suppress(OSError), filler.open("wb") as file:
        while True:
            file.write(bytes(512))
            file.flush()
    applied = seen[-1][0]
    try:
        need.move(applied)
    except Transient as error:
        codes.append(error.code)
    gone = release(disk, "s", PurgeLimits(checkpoints={"shop": applied})).gone
    purged += len(gone)
    filler.unlink(missing_ok=True)
    need.move(applied)
    reader = RelayReader(disk, "s")
    assert set(tables) <= set(history_at(reader, applied).tables)
    assert [lsn for lsn in stored_places(Folder.of(disk, "s")) if lsn < list_segments(disk, "s")[0].start] == []
writer.close()
assert [raw for _, raw in seen] == [piece.raw for piece in log]
sys.stdout.write(json.dumps({"codes": codes, "purged": purged}))
