"""Serves a relay on a small disk that is full to the last byte. Prints the results.

Only the follower's report about its task makes room. The follower begins anew each time, and first sends this report.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import structlog
from sample_log import FORMAT_EVENT, ORIGIN, START, sample_log, store

from pidts.follow.client import RelayServerAddress
from pidts.follow.follower import Follower, FollowerConfig
from pidts.follow.served_relay import ServedSource
from pidts.follow.server import RelayEndpoint, relay_server
from pidts.model import Lsn, Transient
from pidts.relay import RelayReader, RelayWriter, list_segments
from pidts.relay.folder import Folder
from pidts.relay.task_needs import Need, TaskNeed, needs_locked, read_needs, write_need
from pidts.replicate import AppliedPlace
from pidts.source import SourceConfig

structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
disk, elsewhere = Path(sys.argv[1]), Path(sys.argv[1]).with_name("elsewhere")
elsewhere.mkdir()
token = elsewhere / "token"
token.touch(0o600)
token.write_text("a token that nobody guesses\n")
log = sample_log(240)
writer = RelayWriter.open(disk, "s", segment_bytes=6_000)
writer.begin(ORIGIN, START, "")
writer.start_segment(FORMAT_EVENT)
folder = Folder.of(disk, "s")
with needs_locked(folder):
    write_need(folder, Need("shop@m", START))
need = TaskNeed(elsewhere / "copy", "s", "shop")
need.move(START)


def followed(url: str, until: Lsn) -> None:
    """Follows until the copy is complete, and the server has received the report."""
    address = RelayServerAddress(url, token)
    follower = Follower(FollowerConfig(address, "s", elsewhere / "copy", "m", start=AppliedPlace(START, "", "")))
    stop = threading.Event()
    thread = threading.Thread(target=follower.run, args=(stop,), daemon=True)
    thread.start()
    reader, deadline = RelayReader(elsewhere / "copy", "s"), time.monotonic() + 20
    while reader.received != until or not follower.state().connected:
        assert time.monotonic() < deadline, follower.state()
        time.sleep(0.01)
    reader.close()
    stop.set()
    thread.join()


full, first = 0, []
source = SourceConfig("127.0.0.1", 9, source_id="s")
with relay_server([ServedSource(source, disk, 0, print)], RelayEndpoint("127.0.0.1:0", token)) as url:
    while writer.lsn != log[-1].transaction.lsn:
        at = writer.lsn
        with suppress(Transient):
            store(writer, [piece for piece in log if at is None or piece.transaction.lsn > at])
        received = RelayReader(disk, "s").received
        assert received is not None
        assert received != at, "nothing came in although there was room"
        filler = disk / "filler"
        with suppress(OSError), filler.open("wb") as file:
            while True:
                file.write(bytes(512))
                file.flush()
        try:
            with needs_locked(folder):
                write_need(folder, read_needs(folder)[0])
        except Transient:
            full += 1
        # The task still needs the same log, so nothing can be purged. The copy nevertheless gets the current log.
        followed(url, received)
        need.move(received)
        followed(url, received)
        filler.unlink()
        first.append(list_segments(disk, "s")[0].number)
writer.close()
copy = RelayReader(elsewhere / "copy", "s")
assert [copy.read(entry.extent) for entry in copy.entries()] == [piece.raw for piece in log]
sys.stdout.write(json.dumps({"full": full, "first": first}))
