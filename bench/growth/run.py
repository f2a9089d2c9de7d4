"""How do time and memory grow with the number of tables, columns, shards and workers, and with the size of the log?

    python bench/growth/run.py [--axis tables,columns] [--to SIZE] [--sizes 10,100] [--json FILE]

Each axis has several sizes. A point is the measurement of one size, with two new MariaDB servers and a new task. The
program measures the CPU time and the memory of all processes of PiDTS, without the database servers, and the elapsed
time. CPU time is the main figure, since other programs of the machine change it less than the elapsed time.

Without `--to`, an axis ends at a size that takes minutes on two cores. `--to` names another end: 10,000,000 rows for a
transaction of 10 GB, 50,000 MB for a backlog of 50 GB. `--sizes` measures only some sizes. Each point is written to the
file at once; `page.py` makes pictures and tables from the file.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import beside  # noqa: F401 - makes the next imports possible
from curves import Axis, Point, keep
from machine import machine
from points import AXES

RESULT = Path(__file__).parents[1] / "results" / "growth.json"


def main() -> None:
    options = parsed()
    for name in options.axis:
        axis = AXES[name]
        for size in options.sizes or axis.sizes_to(options.to):
            point = measured(axis, size, options.folder)
            for part, spent in point.parts.items():
                print(f"{size:,} {axis.unit}, {part}: {spent.to_json()}", flush=True)
            if options.json:
                keep(options.json, axis, machine(), point)


def measured(axis: Axis, size: int, folder: Path | None = None) -> Point:
    """Measures one point in a new folder, and returns it."""
    about = {"when": datetime.now(UTC).isoformat(timespec="seconds"), "load": round(os.getloadavg()[0], 1)}
    with tempfile.TemporaryDirectory(prefix="growth-", dir=folder) as place:
        Path(place).chmod(0o755)
        return Point(size, axis.work(size, Path(place)), about)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--axis", type=lambda text: text.split(","), default=list(AXES), help="axes to measure, of " + ", ".join(AXES)
    )
    parser.add_argument("--to", type=int, help="the largest size")
    parser.add_argument("--sizes", type=lambda text: [int(size) for size in text.split(",")])
    parser.add_argument("--folder", type=Path, help="the folder for servers and relays")
    parser.add_argument("--json", type=Path, help=f"the file to which points are added, such as {RESULT}")
    return parser.parse_args()


if __name__ == "__main__":
    main()
