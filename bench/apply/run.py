"""How fast are changes applied?

The bench compares PiDTS with programs that get the decoded changes in memory (`bulk`, `events`), with native
replication, and with single statements.

    python bench/apply/run.py [--targets mariadb,mysql97,postgres] [--shapes sb,wide] [--sizes 1,4,1000] ...

A private MariaDB is the source. Every contender gets the same changes, on the same server with the same settings.
Before each contender runs, the table is restored from the same copy. `--quick` measures one combination (MariaDB,
shape sb, one row in a transaction) in about a minute.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import rivals
from measured import about, keep, printed
from ours import Task
from targets import KINDS, SQL_USER, TargetServer, target_server
from workload import SCHEMA, SHAPES, Log, Source

from pidts import sandbox
from pidts.model import Table
from pidts.rules import AllowList
from pidts.source import connect, read_structures

RESULT = Path(__file__).parent.parent / "results" / "apply.json"
_SOURCE = ("--max-binlog-size=1G", "--innodb-buffer-pool-size=1G", "--innodb-log-file-size=512M", "--secure-file-priv=")


def main() -> None:
    options = parsed()
    command = about(options)
    runs: list[dict[str, Any]] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-apply-", dir=options.folder)))
        folder.chmod(0o755)
        for shape in options.shapes.split(","):
            runs += of_shape(shape, folder / shape, options)
    if options.result:
        keep(options.result, command, runs, "target", "table", "rows_per_transaction", "by")


def of_shape(shape: str, folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    runs = []
    folder.mkdir()
    folder.chmod(0o777)
    with ExitStack() as stack:
        server = stack.enter_context(sandbox.start_mariadb(options=_SOURCE))
        source = Source(server, SHAPES[shape], options.rows)
        dump = folder / "base.tsv"
        source.dump(dump)
        session = connect(source.config)
        (table,) = read_structures(session, AllowList(do_dbs=(SCHEMA,))).values()
        session.close()
        targets = {kind: stack.enter_context(target_server(kind)) for kind in options.targets.split(",")}
        for target in targets.values():
            target.make_base(table, dump)
        for size in map(int, options.sizes.split(",")):
            log = source.log(size, options.changes)
            place = folder / str(size)
            place.mkdir()
            settings = {"direct-rows": options.direct_rows} if options.direct_rows is not None else {}
            task = Task(source, log, place, settings)
            is_full = False
            for kind, target in targets.items():
                target.reset()
                if not is_full:
                    task.fill(target)
                    is_full = True
                changes = task.changes(table)
                work = rivals.batches(changes)
                known = contenders(target, table, source, log, task, changes, work, options)
                chosen = {name: run for name, run in known.items() if name in options.contenders.split(",")}
                rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in chosen}
                for number in range(options.rounds):
                    # Every other round has the opposite order, so that no contender is always the first one.
                    for name, contender in list(chosen.items())[:: -1 if number % 2 else 1]:
                        target.reset()
                        place = {"target": kind, "table": shape, "rows_per_transaction": size, "by": name}
                        rounds[name].append(printed(place | contender()))
                        if rounds[name][-1]["changes"] == log.changes:
                            demand_all(target, name, expected(options.rows, log.changes))
                runs += [of_rounds(each) for each in rounds.values()]
                target.down()
                print_ratios(runs, kind, shape, size)
    return runs


def demand_all(target: TargetServer, name: str, rows: int) -> None:
    found = target.count()
    if found != rows:
        raise AssertionError(f"after {name}, the table has {found} rows, not {rows}")


def of_rounds(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the round with the median rate, and the rates of all rounds."""
    ordered = sorted(runs, key=lambda run: run["changes_per_second"])
    rates = [run["changes_per_second"] for run in runs]
    return ordered[len(ordered) // 2] | ({"rounds": rates} if len(rates) > 1 else {})


def contenders(
    target: TargetServer,
    table: Table,
    source: Source,
    log: Log,
    task: Task,
    changes: list[Any],
    work: list[rivals.Batch],
    options: argparse.Namespace,
) -> dict[str, Callable[[], dict[str, Any]]]:
    found: dict[str, Callable[[], dict[str, Any]]] = {
        "bulk": lambda: rivals.bulk(target, table, work),
        "ours": lambda: task.run(target, 1),
        "ours2": lambda: task.run(target, 2),
        "ours-lock": lambda: task.run(target, 1, on_divergence="lock"),
        "single": lambda: rivals.single(target, table, changes, log.rows_per_transaction, options.seconds),
    }
    if target.kind == "mariadb":
        found |= {
            "ours-sql": lambda: task.run(target, 1, user=SQL_USER),
            "ours2-sql": lambda: task.run(target, 2, user=SQL_USER),
            "events": lambda: rivals.events(target, table, work),
            "native0": lambda: rivals.native(target, source, log, 0, options.seconds),
            "native4": lambda: rivals.native(target, source, log, 4, options.seconds),
        }
    return found


def expected(rows: int, changes: int) -> int:
    return rows + changes * 3 // 10 - changes * 2 // 10


def print_ratios(runs: list[dict[str, Any]], kind: str, shape: str, size: int) -> None:
    place = (kind, shape, size)
    mine = [run for run in runs if (run["target"], run["table"], run["rows_per_transaction"]) == place]
    rates = {run["by"]: run["changes_per_second"] for run in mine}
    if "ours" in rates:
        printed(
            {"ours against": {name: round(rates["ours"] / rate, 2) for name, rate in rates.items() if name != "ours"}}
        )


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", default=",".join(KINDS))
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--sizes", default="1,4,1000", help="numbers of rows in a transaction")
    parser.add_argument("--contenders", default="bulk,ours,ours2,single,native0,native4")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the table")
    parser.add_argument("--changes", type=int, default=200_000, help="changes in each log")
    parser.add_argument(
        "--rounds", type=int, default=1, help="how often each contender runs, in turn; the median counts"
    )
    parser.add_argument(
        "--seconds", type=float, default=4, help="the longest time for contenders that would take minutes"
    )
    parser.add_argument("--direct-rows", type=int, default=None, help="the task's `direct-rows`")
    parser.add_argument("--folder", type=Path, help="the folder for the relay and the tables")
    parser.add_argument("--result", type=Path, help=f"the JSON file to which results are added, such as {RESULT}")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    if options.quick:
        options.targets, options.shapes, options.sizes = "mariadb", "sb", "1"
        options.rows, options.changes = min(options.rows, 300_000), min(options.changes, 200_000)
    return options


if __name__ == "__main__":
    started = time.monotonic()
    main()
    printed({"seconds": round(time.monotonic() - started)})
