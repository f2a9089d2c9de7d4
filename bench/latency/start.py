"""How long does it take from the command `pidts run` until a change in the source's log is on the target?

    python bench/latency/start.py [--targets postgres,mariadb] [--times 5]

The task has run before, so its tables are copied and its relay exists. Each time, one row is committed on the source
while no task runs; then the command is started, and the target is asked every few milliseconds for the row. The very
first start, which creates the table and copies its rows, is measured, too.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from followed import task_file
from machine import machine
from run import START, connect

from pidts import sandbox
from pidts.sandbox import Server

RESULT = Path(__file__).parent.parent / "results" / "start.json"
COMMAND = [sys.executable, "-m", "pidts", "run"]
_ASK_SECONDS = 0.005
_PATIENCE = 120.0


def main() -> None:
    options = parsed()
    result: dict[str, Any] = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "runs": [],
    }
    for kind in options.targets.split(","):
        with sandbox.start_mariadb() as source, START[kind]() as target, tempfile.TemporaryDirectory() as folder:
            found = measured(source, target, Path(folder), options.times)
            result["runs"].append({"source": "mariadb", "target": kind} | found)
            print(json.dumps(result["runs"][-1]), flush=True)
    if options.result:
        options.result.write_text(json.dumps(result, indent=1) + "\n")


def measured(source: Server, target: Server, folder: Path, times: int) -> dict[str, Any]:
    with closing(connect(source)) as session, session.cursor() as cursor:
        cursor.execute("CREATE DATABASE bench")
        cursor.execute("CREATE TABLE bench.t (id INT PRIMARY KEY)")
        path = task_file("start", source, target, folder)
        seconds = []
        for number in range(times + 1):
            cursor.execute("INSERT INTO bench.t VALUES (%s)", (number,))
            seconds.append(until_there(path, target, number, folder / "run.log"))
            if number == 0:  # later starts then have nothing to copy
                subprocess.run([*COMMAND, str(path), "--until-synced"], check=True, capture_output=True, timeout=120)
    return {
        "seconds": {
            "first start, with the copy": round(seconds[0], 2),
            "later starts, median": round(statistics.median(seconds[1:]), 2),
            "each": [round(each, 2) for each in seconds[1:]],
        }
    }


def until_there(task: Path, target: Server, number: int, log: Path) -> float:
    """Runs the command until the row is on the target; returns how many seconds this took."""
    with log.open("wb") as output:
        begun = time.monotonic()
        run = subprocess.Popen([*COMMAND, str(task)], stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        with closing(connect(target)) as session, session.cursor() as cursor:
            while not is_there(cursor, number):
                if run.poll() is not None or time.monotonic() > begun + _PATIENCE:
                    raise RuntimeError(f"the row has not arrived on the target\n{log.read_text()[-2000:]}")
                time.sleep(_ASK_SECONDS)
        return time.monotonic() - begun
    finally:
        run.send_signal(signal.SIGTERM)
        run.wait(60)


def is_there(cursor: Any, number: int) -> bool:
    cursor.execute("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'bench' AND table_name = 't'")
    if not cursor.fetchone()[0]:
        return False
    cursor.execute("SELECT COUNT(*) FROM bench.t WHERE id = %s", (number,))
    return bool(cursor.fetchone()[0])


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", default="postgres,mariadb")
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--result", type=Path, help=f"the JSON file for the results, such as {RESULT}")
    return parser.parse_args()


if __name__ == "__main__":
    main()
