"""How much CPU time does a task without work use?

    python bench/latency/idle.py [--target postgres] [--seconds 60]

The source commits nothing, and sends only heartbeats. The result is the CPU time, as the kernel counts it, of the
driver, the JVM, Spark's Python processes and the replicator; for the JVM also by thread.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pymysql
from followed import task_file, wait_for_batch
from machine import machine

from pidts import sandbox
from pidts.sandbox import Server

RESULT = Path(__file__).parent.parent / "results" / "idle.json"
_SETTLE_SECONDS = 15.0
TICKS = os.sysconf("SC_CLK_TCK")
_START = {
    "postgres": sandbox.start_postgres,
    "mariadb": sandbox.start_mariadb,
    "mysql97": sandbox.start_mysql97,
}


def main() -> None:
    options = parsed()
    with sandbox.start_mariadb() as source, _START[options.target]() as target, tempfile.TemporaryDirectory() as folder:
        found = measured(source, target, Path(folder), options)
    result = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "target": options.target,
    } | found
    print(json.dumps(result, indent=1))
    if options.result:
        options.result.write_text(json.dumps(result, indent=1) + "\n")


def measured(source: Server, target: Server, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    session = pymysql.connect(host=source.host, port=source.port, user=source.user, autocommit=True)
    with closing(session), session.cursor() as cursor:
        cursor.execute("CREATE DATABASE bench")
        cursor.execute("CREATE TABLE bench.t (id INT PRIMARY KEY)")
        cursor.execute("INSERT INTO bench.t VALUES (1), (2), (3)")
    log = folder / "run.log"
    with log.open("wb") as output:
        command = [sys.executable, "-m", "pidts", "run", str(task_file("idle", source, target, folder)), "--debug"]
        run = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        wait_for_batch(run, log)
        time.sleep(_SETTLE_SECONDS)
        before, begun = spent(run.pid), time.monotonic()
        time.sleep(options.seconds)
        after, seconds = spent(run.pid), time.monotonic() - begun
    finally:
        run.send_signal(signal.SIGTERM)
        run.wait(60)
    used = {name: (after[name] - before.get(name, 0)) / TICKS / seconds * 100 for name in after}
    processes: dict[str, float] = {}
    for name, share in used.items():
        process = name.partition(": ")[0]
        processes[process] = processes.get(process, 0.0) + share
    return {
        "seconds": round(seconds),
        "percent_of_a_core": round(sum(used.values()), 2),
        "processes": {name: round(share, 2) for name, share in sorted(processes.items())},
        "threads": {
            name: round(share, 2) for name, share in sorted(used.items(), key=lambda item: -item[1]) if share >= 0.02
        },
    }


def spent(root: int) -> dict[str, int]:
    """Returns the clock ticks that each thread of a process and of its descendants has used, by kind."""
    found: dict[str, int] = {}
    for pid in below(root):
        with suppress(OSError):
            for thread in Path(f"/proc/{pid}/task").iterdir():
                text = (thread / "stat").read_text()
                name, fields = text[text.index("(") + 1 : text.rindex(")")], text.rpartition(")")[2].split()
                place = f"{kind(pid, root)}: {name} {thread.name}"
                found[place] = int(fields[11]) + int(fields[12])
    return found


def below(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found, left = [], [root]
    while left:
        pid = left.pop()
        found.append(pid)
        left += children.get(pid, [])
    return found


def kind(pid: int, root: int) -> str:
    if pid == root:
        return "driver"
    command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    for words, name in (
        ("SparkSubmit", "jvm"),
        ("pidts-replicate", "replicator"),
        ("pidts-forker", "forker"),
        ("pyspark.daemon", "spark's workers"),
        ("pyspark", "planner"),
    ):
        if words in command:
            return name
    return "other"


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="postgres", choices=sorted(_START))
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--result", type=Path, help=f"the JSON file for the results, such as {RESULT}")
    return parser.parse_args()


if __name__ == "__main__":
    main()
