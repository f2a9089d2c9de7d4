"""How fast is a full copy? Compares PiDTS, from source to target, with the limit and with other programs.

    python bench/copy/run.py [--source mariadb] [--targets mariadb,mysql97,postgres] [--rows 5000000] ...

The rows are divided among the tables: two of each shape (the columns and values of a table). Every contender copies
these tables into the same server with the same settings. Before each contender runs, this server is emptied, started
anew and prepared. A contender's time ends when all rows are committed and all keys exist. Then the bench compares rows
and values of both sides. pg_chameleon does not support MySQL 9.7 as source. mydumper (with myloader) and pgloader have
to be installed. `--quick` only copies 200,000 rows from MariaDB to PostgreSQL.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import beside  # noqa: F401 - makes the next imports possible
import by_hand
import product
import programs
from measured import about, keep, printed
from origin import START, STREAMS, Source, check
from targets import KINDS, TargetServer, target_server

RESULT = Path(__file__).parent.parent / "results" / "copy.json"


def main() -> None:
    options = parsed()
    command = about(options)
    runs: list[dict[str, Any]] = []
    with START[options.source]() as server:
        begun = time.monotonic()
        source = Source(server, options.shapes.split(","), options.rows)
        printed({"filled": source.rows, "seconds": round(time.monotonic() - begun, 1)})
        for kind in options.targets.split(","):
            with target_server(kind) as target, tempfile.TemporaryDirectory(dir=options.folder) as folder:
                Path(folder).chmod(0o755)
                runs += of_target(source, target, Path(folder), options)
    if options.result:
        keep(options.result, command, runs, "source", "target", "tables", "by")


def of_target(source: Source, target: TargetServer, folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    runs = []
    target.keep_base()
    for name, contender in contenders(source, target, options).items():
        if name in options.contenders.split(","):
            place = folder / name
            place.mkdir()
            target.reset()
            target.run_in()
            pair = {"source": options.source, "target": target.kind, "tables": options.shapes, "by": name}
            found = contender(place)
            check(source, target)
            rate = {"rows": source.rows, "rows_per_second": round(source.rows / found["seconds"])}
            runs.append(printed(pair | rate | found))
    print_ratios(runs)
    return runs


def contenders(
    source: Source, target: TargetServer, options: argparse.Namespace
) -> dict[str, Callable[[Path], dict[str, Any]]]:
    """Returns the contenders by name: functions that copy the tables, and get a folder of their own for their files."""
    ways = by_hand.ways(target.kind)
    found: dict[str, Callable[[Path], float]] = {
        name: lambda _, load=load: by_hand.run(source, target, load) for name, load in ways.items()
    }
    if target.kind != "postgres":
        found["mysqldump"] = partial(programs.dump, source, target)
        found["mydumper"] = partial(programs.mydumper, source, target)
    elif options.source != "mysql97":
        found["pg_chameleon"] = partial(programs.chameleon, source, target)
        found["pgloader"] = partial(programs.pgloader, source, target)
    return {
        "ours": partial(product.run, source, target, mode=options.mode, threads=STREAMS),
        **{name: lambda folder, work=work: {"seconds": round(work(folder), 3)} for name, work in found.items()},
    }


def print_ratios(runs: list[dict[str, Any]]) -> None:
    rates = {run["by"]: run["rows_per_second"] for run in runs}
    whole = {run["by"]: run.get("seconds_with_start", run["seconds"]) for run in runs}
    if ours := rates.pop("ours", 0):
        printed({"ours against": {name: round(ours / rate, 2) for name, rate in rates.items()}})
        printed({"whole command": {name: round(whole[name] / whole["ours"], 2) for name in rates}})


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", default="mariadb", choices=sorted(START))
    parser.add_argument("--targets", default=",".join(KINDS))
    parser.add_argument("--shapes", default="sb,wide", help="shapes of the tables")
    parser.add_argument("--rows", type=int, default=5_000_000, help="rows of all tables together")
    parser.add_argument("--contenders", default="limit,limit2,mysqldump,pg_chameleon,ours")
    parser.add_argument("--mode", default="full", choices=("full", "all"), help="the task's `task-mode`")
    parser.add_argument("--folder", type=Path, help="the folder for the relay and the logs")
    parser.add_argument("--result", type=Path, help=f"the JSON file to which results are added, such as {RESULT}")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    if options.quick:
        options.targets, options.rows = "postgres", 200_000
    return options


if __name__ == "__main__":
    started = time.monotonic()
    main()
    printed({"seconds": round(time.monotonic() - started)})
