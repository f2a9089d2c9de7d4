"""Receives a transaction that is larger than the disk. Prints the error, and whether there is room to try again."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from sample_log import FORMAT_EVENT, ORIGIN, START, event, sample_log, store

from pidts.model import Transient
from pidts.relay import RelayWriter

disk = Path(sys.argv[1])
writer = RelayWriter.open(disk, "s")
writer.begin(ORIGIN, START, "")
writer.start_segment(FORMAT_EVENT)
(piece,) = sample_log(1)
piece.events = [event(19, bytes(100_000)) for _ in range(50)]
try:
    store(writer, [piece])
except Transient as error:
    found = {"code": error.code, "what": error.what, "todo": error.todo, "has_room": writer.has_room}
    sys.stdout.write(json.dumps(found))
