"""How much memory does a task use, by process and by cause, while it is idle, follows the source, or copies?

    python bench/memory/run.py [--target postgres] [--rows 300000] [--seconds 15]

The result is PSS: memory that several processes share is divided among them. The causes are the kinds of mappings that
the kernel shows: mapped files (programs and libraries), the heap, and anonymous memory. Each state is sampled, and the
highest sample counts.

- *idle*: a task whose tables are copied, and whose source commits nothing.
- *following*: the same task, whose source commits 500 one-row transactions a second.
- *copying*: the first start, which copies a table with `--rows` rows.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1] / "latency"))

from followed import task_file, wait_for_batch
from idle import below, kind
from machine import machine
from run import START, TABLE, connect, write

from pidts import sandbox

if TYPE_CHECKING:
    from collections.abc import Callable

    from pidts.sandbox import Server

    Sample = dict[str, dict[str, float]]

RESULT = Path(__file__).parent.parent / "results" / "memory.json"
_SAMPLE_SECONDS = 0.25
_SETTLE_SECONDS = 10.0
_RATE = 500
_PATIENCE = 300.0


def main() -> None:
    options = parsed()
    with sandbox.start_mariadb() as source, START[options.target]() as target, tempfile.TemporaryDirectory() as folder:
        states = measured(source, target, Path(folder), options)
    result = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "target": options.target,
        "rows": options.rows,
        "mb": states,
    }
    print(json.dumps(result, indent=1))
    if options.result:
        options.result.write_text(json.dumps(result, indent=1) + "\n")


def measured(source: Server, target: Server, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    with closing(connect(source)) as session, session.cursor() as cursor:
        cursor.execute("CREATE DATABASE bench")
        cursor.execute("USE bench")
        cursor.execute(TABLE)
        cursor.execute("CREATE TABLE bench.many (id INT PRIMARY KEY, n BIGINT NOT NULL, t VARCHAR(100) NOT NULL)")
        cursor.execute(f"INSERT INTO bench.many SELECT seq, seq * 7, MD5(seq) FROM seq_1_to_{options.rows}")
    task = task_file("memory", source, target, folder)

    def is_copied() -> bool:
        with suppress(Exception), closing(connect(target)) as session, session.cursor() as cursor:
            cursor.execute("SELECT COUNT(*) FROM bench.many")
            return bool(cursor.fetchone()[0] == options.rows)
        return False

    found = {"copying": figures(highest(task, folder, until(is_copied)))}
    # This run does the work that the copy may have left, so that the next two measurements do not contain it.
    subprocess.run([*command(task), "--until-synced"], check=True, capture_output=True, timeout=_PATIENCE)
    found["idle"] = figures(highest(task, folder, for_seconds(options.seconds), settle=_SETTLE_SECONDS))
    seconds = options.seconds + 4 * _SETTLE_SECONDS
    writer = threading.Thread(target=write, args=(source, _RATE, int(_RATE * seconds), False, SimpleQueue()))
    writer.start()
    found["following"] = figures(highest(task, folder, for_seconds(options.seconds), settle=_SETTLE_SECONDS))
    writer.join()
    return found


def command(task: Path) -> list[str]:
    return [sys.executable, "-m", "pidts", "run", str(task)]


def until(is_over: Callable[[], bool]) -> Callable[[], bool]:
    deadline = time.monotonic() + _PATIENCE

    def over() -> bool:
        if time.monotonic() > deadline:
            raise RuntimeError(f"the task has not copied the table in {_PATIENCE} seconds")
        return is_over()

    return over


def for_seconds(seconds: float) -> Callable[[], bool]:
    begun: list[float] = []

    def over() -> bool:
        begun.append(time.monotonic())
        return begun[-1] > begun[0] + seconds

    return over


def highest(task: Path, folder: Path, is_over: Callable[[], bool], settle: float = 0) -> Sample:
    """Samples the memory while the task runs; returns the sample with the highest sum."""
    log = folder / "run.log"
    with log.open("wb") as output:
        run = subprocess.Popen([*command(task), "--debug"], stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        if settle:
            wait_for_replicator(run)
            time.sleep(settle)
        else:
            wait_for_batch(run, log)
        best: Sample = {}
        while not is_over():
            if run.poll() is not None:
                raise RuntimeError(log.read_text()[-2000:])
            sample = taken(run.pid)
            best = max(best, sample, key=total)
            time.sleep(_SAMPLE_SECONDS)
        return best
    finally:
        run.send_signal(signal.SIGTERM)
        run.wait(60)


def wait_for_replicator(run: subprocess.Popen[bytes]) -> None:
    """Waits for the replicator, which is the last process that starts without Spark."""
    while run.poll() is None and not any(kind(pid, run.pid) == "replicator" for pid in below(run.pid)):
        time.sleep(_SAMPLE_SECONDS)


def taken(root: int) -> Sample:
    """Returns the PSS of each kind of process in MB, by cause."""
    found: Sample = {}
    for pid in below(root):
        with suppress(OSError):
            causes = found.setdefault(kind(pid, root), {})
            cause = "anonymous"
            for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
                words = line.split()
                if "-" in words[0] and ":" not in words[0]:
                    path = words[5] if len(words) > 5 else ""
                    cause = "heap" if path == "[heap]" else "files" if path.startswith("/") else "anonymous"
                elif words[0] == "Pss:":
                    causes[cause] = causes.get(cause, 0.0) + int(words[1]) / 1024
    return found


def total(sample: Sample) -> float:
    return sum(sum(causes.values()) for causes in sample.values())


def figures(sample: Sample) -> dict[str, Any]:
    return {
        "all": round(total(sample)),
        "processes": {
            name: {"all": round(sum(causes.values()))} | {cause: round(mb) for cause, mb in sorted(causes.items())}
            for name, causes in sorted(sample.items())
        },
    }


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="postgres", choices=sorted(START))
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--result", type=Path, help=f"the JSON file for the results, such as {RESULT}")
    return parser.parse_args()


if __name__ == "__main__":
    main()
