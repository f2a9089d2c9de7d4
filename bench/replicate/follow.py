"""Lets a replicator receive the log from one position to another, and prints the replicator's figures as JSON."""

from __future__ import annotations

import json
import resource
import sys
import threading
import time
from pathlib import Path

from pidts.model import Position
from pidts.replicate import Replicator, ReplicatorConfig
from pidts.source import SourceConfig

_WARM_BYTES = 2 << 20


def main() -> None:
    port, user, password, relay, begin, end = sys.argv[1:]
    source = SourceConfig("127.0.0.1", int(port), user, password, source_id="s")
    start, goal = Position.parse(begin), Position.parse(end)
    replicator, stop = Replicator(ReplicatorConfig(source, Path(relay), start)), threading.Event()
    begun = time.perf_counter()
    thread = threading.Thread(target=replicator.run, args=(stop,))
    thread.start()
    warm: tuple[float, float, int] | None = None
    while thread.is_alive():
        state = replicator.state()
        if warm is None and state.bytes > min(_WARM_BYTES, (goal.offset - start.offset) // 4):
            warm = time.perf_counter(), cpu(), state.bytes
        if state.received and (state.received.log_index, state.received.offset) >= (goal.log_index, goal.offset):
            break
        time.sleep(0.001)
    ended, spent = time.perf_counter(), cpu()
    received = replicator.state().bytes
    stop.set()
    thread.join()
    since, cpu_since, bytes_since = warm or (begun, 0.0, 0)
    answer = {
        "seconds_with_start": round(ended - begun, 3),
        "seconds": round(ended - since, 3),
        "cpu_seconds": round(spent - cpu_since, 3),
        "bytes": received - bytes_since,
        "peak_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }
    print(json.dumps(answer))


def cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
