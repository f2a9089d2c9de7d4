"""How fast are row images decoded? `python bench/decode/run.py` compares PiDTS, mysql-replication and mariadb-binlog.

PiDTS is measured from the bytes of a log file to Arrow batches, with verified checksums, on one core.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numba
from logs import Log, write

from pidts.binlog import MAGIC, LogWalker, decode_slice, iter_raw
from pidts.binlog.table_map import TableMap

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent))

from machine import machine  # noqa: E402 - needs the line above


def ours(log: Log, kernel: str, times: int) -> dict[str, Any]:
    """Returns the rates of the fastest of several runs, since other processes use the machine, too."""
    os.environ["PIDTS_KERNEL"] = kernel
    raw = log.path.read_bytes()[len(MAGIC) :]
    walker = LogWalker(log.path.name)
    walker.feed(next(iter_raw(raw)))
    structure: Callable[[TableMap], Any] = lambda found: found.to_table()  # noqa: E731
    seconds, spent = [], []
    for _ in range(times):
        start, cpu = time.perf_counter(), time.process_time()
        batches = decode_slice(raw, format=walker.format, log_file=log.path.name, change_no=0, structures=structure)
        seconds.append(time.perf_counter() - start)
        spent.append(time.process_time() - cpu)
        assert sum(len(batch) for batch in batches) == log.changes
    rates = {"images_per_cpu_second": round(log.images / min(spent)), "arrow_bytes": _bytes(batches)}
    return _rates(log, min(seconds)) | rates


def rival(log: Log, python: str) -> dict[str, Any]:
    done = subprocess.run([python, HERE / "rival.py", log.path], capture_output=True, check=True, text=True)
    found = json.loads(done.stdout)
    assert found["changes"] == log.changes, found
    return _rates(log, found["seconds"])


def printer(log: Log, program: str) -> dict[str, Any]:
    """Returns the rates of a program that prints every row as text; its output is discarded."""
    start = time.perf_counter()
    subprocess.run([program, "--no-defaults", "-v", "-v", log.path], stdout=subprocess.DEVNULL, check=True)
    return _rates(log, time.perf_counter() - start)


def _rates(log: Log, seconds: float) -> dict[str, Any]:
    return {
        "seconds": round(seconds, 4),
        "changes_per_second": round(log.changes / seconds),
        "images_per_second": round(log.images / seconds),
        "megabytes_per_second": round(log.path.stat().st_size / seconds / 1e6),
    }


def _bytes(batches: list[Any]) -> int:
    return sum(batch.rows.get_total_buffer_size() for batch in batches)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--rows", type=int, default=200_000, help="rows of the sysbench table; the other tables have a fifth of them"
    )
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument(
        "--rival-python", default=".venv-bench/bin/python", help="a Python with the packages of requirements/bench.in"
    )
    parser.add_argument("--mariadb-binlog", default=shutil.which("mariadb-binlog"))
    parser.add_argument("--logs", type=Path, help="the folder that keeps the logs; if it has logs, they are decoded")
    parser.add_argument("--only-ours", action="store_true")
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    result: dict[str, Any] = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine() | {"numba": numba.__version__},
        "logs": {},
    }
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.logs or Path(scratch)
        for log in kept(folder, options.rows):
            found: dict[str, Any] = {"changes": log.changes, "images": log.images, "bytes": log.path.stat().st_size}
            found["compiled"] = ours(log, "compiled", options.times)
            if not options.only_ours:
                found["plain"] = ours(log, "python", 1)
                if Path(options.rival_python).exists():
                    found["mysql-replication"] = rival(log, options.rival_python)
                if options.mariadb_binlog:
                    found["mariadb-binlog -v"] = printer(log, options.mariadb_binlog)
            result["logs"][log.name] = found
            for name, rates in found.items():
                if isinstance(rates, dict):
                    speed, size = rates["images_per_second"], rates["megabytes_per_second"]
                    print(f"{log.name:5} {name:18} {speed:>12,} images/s {size:>6} MB/s")
    if not options.only_ours:
        results = HERE.parent / "results"
        results.mkdir(exist_ok=True)
        (results / "decode.json").write_text(json.dumps(result, indent=2) + "\n")


def kept(folder: Path, rows: int) -> list[Log]:
    folder.mkdir(parents=True, exist_ok=True)
    index = folder / "logs.json"
    if not index.exists():
        written = write(folder, rows)
        index.write_text(json.dumps([asdict(log) | {"path": str(log.path)} for log in written]))
    return [Log(**{**log, "path": Path(log["path"])}) for log in json.loads(index.read_text())]


if __name__ == "__main__":
    sys.exit(main())
