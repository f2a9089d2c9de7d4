"""Follows a real server on a disk of three megabytes that another program's file fills meanwhile. Prints the results."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from pidts.relay import RelayReader, list_segments
from pidts.relay.retention import PurgeLimits, release
from pidts.relay.task_needs import TaskNeed
from pidts.replicate import Replicator, ReplicatorConfig, not_receiving
from pidts.source import SourceConfig, connect, log_end, query
from pidts.task.config.task_file import load_task
from pidts.task.run.read_structures import StructureReader
from pidts.task.run.replicator_process import NoReplicator

TASK = """
name: shop
task-mode: all
target-database: {{host: 127.0.0.1, port: 9, user: root}}
mysql-instances: [{{source-id: s, from: {{host: 127.0.0.1, port: 9, user: root}}}}]
pidts: {{relay: {disk}}}
"""

disk, given = Path(sys.argv[1]), json.loads(sys.argv[2])
source = SourceConfig(given["host"], given["port"], given["user"], given["password"], source_id="s")
stop = threading.Event()
codes: set[str] = set()


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert thread.is_alive(), "the replicator has ended"
        assert time.monotonic() < deadline, not_receiving(disk, "s")
        time.sleep(0.02)


def has_all() -> bool:
    received, end = reader.received, log_end(session)
    return received is not None and (received.log_index, received.offset) >= (end.log_index, end.offset)


with closing(connect(source)) as session, closing(RelayReader(disk, "s")) as reader:
    insert = f"INSERT INTO {given['database']}.t VALUES (REPEAT('x', 20000))"
    replicator = Replicator(ReplicatorConfig(source, disk, log_end(session), look_every=0.2))
    thread = threading.Thread(target=replicator.run, args=(stop,), daemon=True)
    thread.start()
    until(lambda: replicator.state().connected)
    TaskNeed(disk, "s", "shop").begin()
    for _ in range(20):
        query(session, insert)
    session.commit()
    until(has_all)
    with suppress(OSError), (disk / "filler").open("wb") as filler:
        while True:
            filler.write(bytes(512))
            filler.flush()
    for _ in range(8):
        query(session, insert)
        session.commit()
    until(lambda: not_receiving(disk, "s"))
    lack = not_receiving(disk, "s")
    assert lack is not None
    until(lambda: len(list_segments(disk, "s")) == 2)
    assert replicator.state().error is not None, "there is no room yet"
    applied = reader.received
    assert applied is not None
    if given["first_start"]:
        before = list_segments(disk, "s")
        with TemporaryDirectory() as folder:
            path = Path(folder) / "t.yaml"
            path.write_text(TASK.format(disk=disk))
            config = load_task(path)
        first = StructureReader(config, session, NoReplicator(config), stop)
        end = first.log_end(reader)
        replace(first, needed=end.lsn).wait_for(end.lsn, reader)
        gone = tuple(one for one in before if one not in list_segments(disk, "s"))
    else:
        gone = release(disk, "s", PurgeLimits(checkpoints={"shop": applied})).gone
    until(lambda: has_all() and not_receiving(disk, "s") is None)
    stop.set()
    thread.join(30)
sys.stdout.write(json.dumps({"code": lack.error.code, "purged": len(gone)}))
