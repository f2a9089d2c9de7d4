"""How long does it take from a commit on the source until its rows are visible on the target, and in which steps?

    python bench/latency/run.py [--targets postgres,mariadb] [--rate 500] [--on-divergence overwrite,lock] [--updates]

One process commits one-row transactions at a steady rate; each row has the time of its commit. Another process asks the
target every millisecond for the highest key: every row up to this key is visible then. Both processes use the same
clock, and the time of the query is part of the result. The times of the steps come from the log lines of `pidts run
--debug` about batches. They are measured in a second run, since writing these lines takes CPU time. With `--updates`,
every other commit changes a row that was committed shortly before; only new rows are measured.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from bisect import bisect_left
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pymysql
from followed import task_file, wait_for_batch
from idle import TICKS, spent
from machine import machine

from pidts import sandbox
from pidts.sandbox import Server

RESULT = Path(__file__).parent.parent / "results" / "latency.json"
TABLE = "CREATE TABLE bench.ticks (id BIGINT AUTO_INCREMENT PRIMARY KEY, at BIGINT NOT NULL, pad CHAR(100) NOT NULL)"
_ASK_SECONDS = 0.001
_SETTLE_SECONDS = 5.0
_UPDATED = 97
"""An update changes one of this number of newest rows."""
START = {
    "postgres": lambda: sandbox.start_postgres(options=("-c", "fsync=on")),
    "mariadb": lambda: sandbox.start_mariadb(options=("--innodb-flush-log-at-trx-commit=1",)),
    "mysql97": lambda: sandbox.start_mysql97(options=("--innodb-flush-log-at-trx-commit=1",)),
}
_DONE = re.compile(
    r"batch done .*?called=(?P<called>[\d.]+) changes=(?P<changes>\d+)"
    r".*?planned=(?P<planned>[\d.]+) seconds=(?P<seconds>\{.*?\})"
)


def main() -> None:
    options = parsed()
    result: dict[str, Any] = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "rate": options.rate,
        "runs": [],
    }
    for kind in options.targets.split(","):
        for policy in options.on_divergence.split(","):
            with sandbox.start_mariadb() as source, START[kind]() as target, tempfile.TemporaryDirectory() as folder:
                found = measured(source, target, Path(folder), policy, options)
                if not options.updates:
                    found |= measured(source, target, Path(folder), policy, options, steps=True)
            of = {"on-divergence": policy} if policy != "overwrite" else {}
            result["runs"].append({"source": "mariadb", "target": kind} | of | found)
            print(json.dumps(result["runs"][-1]), flush=True)
    if options.result:
        options.result.write_text(json.dumps(result, indent=1) + "\n")


def measured(
    source: Server, target: Server, folder: Path, policy: str, options: argparse.Namespace, *, steps: bool = False
) -> dict[str, Any]:
    """Returns the latency and the CPU time of a run; with `steps`, only the times of the steps."""
    name = "steps" if steps else "latency"
    folder = folder / name
    folder.mkdir()
    for server in (source, target):
        drop(server)
    with closing(connect(source)) as session, session.cursor() as cursor:
        cursor.execute("CREATE DATABASE bench")
        cursor.execute(TABLE)
    log = folder / "run.log"
    with log.open("wb") as output:
        path = task_file(name, source, target, folder, on_divergence=policy)
        command = [sys.executable, "-m", "pidts", "run", str(path), *(["--debug"] if steps else [])]
        run = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        if steps:
            wait_for_batch(run, log)
        else:
            wait_for_row(run, source, target, log)
        seconds = _SETTLE_SECONDS + options.seconds
        queue: multiprocessing.Queue[list[tuple[int, int]]] = multiprocessing.Queue()
        commits = int(options.rate * seconds)
        writer = multiprocessing.Process(target=write, args=(source, options.rate, commits, options.updates, queue))
        writer.start()
        shares = threading.Thread(target=used, args=(run.pid, options.seconds, cpu := {}))
        shares.start()
        seen = watched(target, -(-commits // 2) if options.updates else commits)
        committed = queue.get(timeout=30)
        writer.join(10)
        shares.join()
    finally:
        run.send_signal(signal.SIGTERM)
        run.wait(60)
        if options.keep_log:
            shutil.copy(log, options.keep_log)
    if steps:
        return parts(committed, seen, log.read_text())
    return figures(committed, seen) | {"percent_of_a_core": cpu}


def drop(server: Server) -> None:
    """Removes the table of an earlier run."""
    sql = "DROP SCHEMA IF EXISTS bench CASCADE" if server.kind == "postgres" else "DROP DATABASE IF EXISTS bench"
    with closing(connect(server)) as session, session.cursor() as cursor:
        cursor.execute(sql)


def wait_for_row(run: subprocess.Popen[bytes], source: Server, target: Server, log: Path) -> None:
    """Waits until the run has copied a row, and has applied a second row from the log; then removes both rows."""
    with closing(connect(source)) as session, session.cursor() as cursor:
        for number in (1, 2):
            cursor.execute("INSERT INTO bench.ticks (id, at, pad) VALUES (%s, 0, '')", (-number,))
            deadline = time.monotonic() + 120
            while count(target) < number:
                if time.monotonic() > deadline or run.poll() is not None:
                    raise RuntimeError(f"the run has not begun\n{log.read_text()[-2000:]}")
                time.sleep(0.2)
        cursor.execute("DELETE FROM bench.ticks")
    time.sleep(1)


def count(server: Server) -> int:
    """Returns the number of rows; 0 before the table exists."""
    with suppress(psycopg.Error, pymysql.Error), closing(connect(server)) as session, session.cursor() as cursor:
        cursor.execute("SELECT COUNT(*) FROM bench.ticks")
        return int(cursor.fetchone()[0])
    return 0


def used(root: int, seconds: float, shares: dict[str, float]) -> None:
    """Adds to `shares` the CPU time of each kind of process of the task, after the first seconds, in % of a core."""
    time.sleep(_SETTLE_SECONDS)
    before, begun = spent(root), time.monotonic()
    time.sleep(seconds)
    after, took = spent(root), time.monotonic() - begun
    for name, ticks in after.items():
        process = name.partition(": ")[0]
        share = (ticks - before.get(name, 0)) / TICKS / took * 100
        shares[process] = shares.get(process, 0.0) + share
    shares["all"] = sum(shares.values())
    shares |= {name: round(share, 1) for name, share in shares.items()}


def write(source: Server, rate: int, commits: int, updates: bool, queue: Any) -> None:
    """Commits at a steady rate. A slow commit delays only the next few commits."""
    committed = []
    with closing(connect(source)) as session, session.cursor() as cursor:
        begun = time.monotonic()
        for number in range(commits):
            pause = begun + number / rate - time.monotonic()
            if pause > 0:
                time.sleep(pause)
            if updates and number % 2:
                place = committed[-1 - number % min(len(committed), _UPDATED)][0]
                cursor.execute("UPDATE bench.ticks SET pad = %s WHERE id = %s", (f"changed by {number}", place))
                continue
            at = time.time_ns() // 1000
            cursor.execute("INSERT INTO bench.ticks (at, pad) VALUES (%s, 'some text beside it')", (at,))
            committed.append((cursor.lastrowid, at))
    queue.put(committed)


def watched(target: Server, rows: int) -> list[tuple[int, int]]:
    """Returns each highest key that became visible, with the time."""
    seen: list[tuple[int, int]] = []
    last, deadline = 0, time.monotonic() + 120
    with closing(connect(target)) as session, session.cursor() as cursor:
        while last < rows and time.monotonic() < deadline:
            cursor.execute("SELECT MAX(id) FROM bench.ticks")
            found = cursor.fetchone()[0] or 0
            if found > last:
                seen.append((found, time.time_ns() // 1000))
                last = found
            time.sleep(_ASK_SECONDS)
    return seen


def figures(committed: list[tuple[int, int]], seen: list[tuple[int, int]]) -> dict[str, Any]:
    settled = committed[0][1] + int(_SETTLE_SECONDS * 1e6)
    keys = [key for key, _ in seen]
    waits = sorted((seen[bisect_left(keys, key)][1] - at) / 1000 for key, at in committed if at > settled)
    return {
        "commits": len(waits),
        "ms": {
            "median": round(statistics.median(waits), 1),
            "p90": round(waits[len(waits) * 90 // 100], 1),
            "p99": round(waits[len(waits) * 99 // 100], 1),
            "max": round(waits[-1], 1),
        },
    }


def parts(committed: list[tuple[int, int]], seen: list[tuple[int, int]], log: str) -> dict[str, Any]:
    """Returns, for each step on the path of a change, the median of the time that batches spent in it."""
    settled = committed[0][1] / 1e6 + _SETTLE_SECONDS
    samples: dict[str, list[float]] = {}
    keys, done, last, sizes = [key for key, _ in seen], 0, 0.0, []
    clocks = dict(committed)
    for match in _DONE.finditer(re.sub(r"\x1b\[[0-9;]*m", "", log)):
        first, done = done + 1, done + int(match["changes"])
        called, planned = float(match["called"]), float(match["planned"])
        steps = json.loads(match["seconds"].replace("'", '"'))
        ended = called + sum(steps.values())
        if planned > settled and done > first - 1 and done in clocks:
            ages = [planned - clocks[key] / 1e6 for key in range(first, done + 1)]
            row = {
                "commit to planned, mean of the rows": statistics.mean(ages),
                "commit to planned, last row": ages[-1],
            }
            row |= {"planned to called": called - planned} | steps
            row |= {
                "end to seen": seen[bisect_left(keys, done)][1] / 1e6 - ended,
                "last end to planned": planned - last,
            }
            for name, value in row.items():
                samples.setdefault(name, []).append(value)
            sizes.append(done - first + 1)
        last = ended
    medians = {name: round(statistics.median(values) * 1000, 1) for name, values in samples.items()}
    return {"batches": len(sizes), "rows_of_a_batch": statistics.median(sizes) if sizes else 0, "parts_ms": medians}


def connect(server: Server) -> Any:
    if server.kind == "postgres":
        return psycopg.connect(host=server.host, port=server.port, user=server.user, dbname="postgres", autocommit=True)
    return pymysql.connect(host=server.host, port=server.port, user=server.user, autocommit=True)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", default="postgres,mariadb")
    parser.add_argument("--rate", type=int, default=500, help="commits a second")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--updates", action="store_true", help="every second commit is an update")
    parser.add_argument(
        "--on-divergence", default="overwrite", help="values of `pidts.on-divergence`; each is measured"
    )
    parser.add_argument("--keep-log", type=Path, help="copy the log of the run to this file")
    parser.add_argument("--result", type=Path, help=f"the JSON file for the results, such as {RESULT}")
    return parser.parse_args()


if __name__ == "__main__":
    main()
