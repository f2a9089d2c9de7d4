"""How fast are special kinds of changes applied? Compares each kind with plain changes of the same rows, in one run.

    python bench/apply/not_plain.py [--kinds minimal,compressed,xa,keyless,guard,payload] [--targets mariadb] ...

- minimal: images that lack columns (`binlog_row_image = MINIMAL`).
- compressed: MariaDB's compressed events (`log_bin_compress`).
- xa: each transaction is prepared and then committed.
- keyless: the table has no key, only an index.
- guard: plain changes, and the task has a version column.
- payload: MySQL's compressed transactions (`binlog_transaction_compression`), compared with a plain log of MySQL.

Plain changes are inserts, updates and deletes of whole rows. The relay has all changes from the beginning. CPU time is
that of the task's processes, minus the CPU time of a second run of the task that has nothing to apply: its start and
its end. `server` is the CPU time of the target's server.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from measured import about, keep, printed
from ours import Task
from run import demand_all, expected, of_rounds
from targets import TargetServer, target_server
from workload import SCHEMA, SHAPES, Log, MySqlSource, Source

from pidts import sandbox
from pidts.rules import AllowList
from pidts.source import connect, read_structures

RESULT = Path(__file__).parent.parent / "results" / "not_plain.json"
_MARIADB = ("--max-binlog-size=1G", "--innodb-buffer-pool-size=512M", "--secure-file-priv=")
_MYSQL = ("--max-binlog-size=1G", "--innodb-buffer-pool-size=512M")
_KEYLESS = replace(
    SHAPES["sb"], columns=SHAPES["sb"].columns.replace("id BIGINT PRIMARY KEY", "id BIGINT NOT NULL, KEY by_id (id)")
)


@dataclass(frozen=True)
class Kind:
    """A kind of changes: the source that logs them, and the statements that it runs before and after."""

    source: str = "mariadb"
    begin: tuple[str, ...] = ()
    end: tuple[str, ...] = ()
    procedure: str = "small"
    compared: str = "plain"
    """The kind of plain changes with which this kind is compared."""
    more: dict[str, Any] | None = None
    """More keys of `pidts` in the task file."""


KINDS = {
    "plain": Kind(),
    "minimal": Kind(begin=("SET SESSION binlog_row_image = MINIMAL",), end=("SET SESSION binlog_row_image = FULL",)),
    "compressed": Kind(
        begin=("SET GLOBAL log_bin_compress_min_len = 10", "SET GLOBAL log_bin_compress = ON"),
        end=("SET GLOBAL log_bin_compress = OFF",),
    ),
    "xa": Kind(procedure="prepared"),
    "keyless": Kind("keyless"),
    "guard": Kind(more={"version-column": "k"}),
    "plain-mysql": Kind("mysql"),
    "payload": Kind(
        "mysql",
        begin=("SET SESSION binlog_transaction_compression = ON",),
        end=("SET SESSION binlog_transaction_compression = OFF",),
        compared="plain-mysql",
    ),
}


def main() -> None:
    options = parsed()
    command = about(options)
    names = options.kinds.split(",")
    names = list(dict.fromkeys([*(KINDS[name].compared for name in names), *names]))
    runs: list[dict[str, Any]] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-kinds-", dir=options.folder)))
        folder.chmod(0o777)
        sources = {name: stack.enter_context(Origin(name, folder, options)) for name in needed(names)}
        for target_kind in options.targets.split(","):
            targets = {
                base: stack.enter_context(target_server(target_kind))
                for base in dict.fromkeys("keyless" if KINDS[name].source == "keyless" else "keyed" for name in names)
            }
            for base, target in targets.items():
                origin = sources["keyless" if base == "keyless" else "mariadb"]
                target.make_base(origin.table, origin.dump)
            runs += of_target(target_kind, targets, sources, names, folder / target_kind, options)
    if options.result:
        keep(options.result, command, runs, "target", "by")


def needed(names: list[str]) -> list[str]:
    """Returns the names of the sources for these kinds of log.

    MariaDB is always one of the sources: its rows fill the targets for all kinds.
    """
    return list(dict.fromkeys(["mariadb", *(KINDS[name].source for name in names)]))


class Origin:
    """A source with its table, and a file with the rows that the table has before the changes."""

    def __init__(self, name: str, folder: Path, options: argparse.Namespace) -> None:
        self._name, self._stack = name, ExitStack()
        self._rows = options.rows
        self.dump = folder / f"{name}.tsv"

    def __enter__(self) -> Self:
        if self._name == "mysql":
            self.source: Source = MySqlSource(
                self._stack.enter_context(sandbox.start_mysql97(options=_MYSQL)), SHAPES["sb"], self._rows
            )
            return self
        server = self._stack.enter_context(sandbox.start_mariadb(options=_MARIADB))
        self.source = Source(server, _KEYLESS if self._name == "keyless" else SHAPES["sb"], self._rows)
        if self._name == "mariadb":
            prepare_procedure(self.source)
        self.source.dump(self.dump)
        session = connect(self.source.config)
        (self.table,) = read_structures(session, AllowList(do_dbs=(SCHEMA,))).values()
        session.close()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def prepare_procedure(source: Source) -> None:
    """Creates a procedure that makes the changes of `small`, and commits each transaction by XA."""
    text = str(source.run("SHOW CREATE PROCEDURE small")[0][2])
    body = text[text.index("BEGIN") :].replace("START TRANSACTION", "XA START 'bench'")
    body = body.replace("COMMIT;", "XA END 'bench'; XA PREPARE 'bench'; XA COMMIT 'bench';")
    source.run("CREATE PROCEDURE prepared(first BIGINT, behind BIGINT, size INT) " + body)


def task_of(kind: Kind, sources: dict[str, Origin], folder: Path, options: argparse.Namespace) -> tuple[Task, Log]:
    """Lets the source write the log of this kind. Returns a task that reads the log, and the log."""
    folder.mkdir()
    source = sources[kind.source].source
    if kind.begin:
        source.run(*kind.begin)
    log = source.log(options.size, options.changes, procedure=kind.procedure)
    if kind.end:
        source.run(*kind.end)
    return Task(source, log, folder, {}, kind.more), log


def of_target(
    target_kind: str,
    targets: dict[str, TargetServer],
    sources: dict[str, Origin],
    names: list[str],
    folder: Path,
    options: argparse.Namespace,
) -> list[dict[str, Any]]:
    """Measures all kinds, and returns the figures of each.

    Each task ends after the last change that its source has made so far. So a task applies its whole log before the
    source writes the log of another kind.
    """
    rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    folder.mkdir()
    for number in range(options.rounds):
        # Every other round has the opposite order, so that no kind is always the first one.
        for name in names[:: -1 if number % 2 else 1]:
            target = targets["keyless" if KINDS[name].source == "keyless" else "keyed"]
            target.reset()
            task, log = task_of(KINDS[name], sources, folder / f"{name}-{number}", options)
            task.fill(target)
            place = {"target": target_kind, "by": name, "rows_per_transaction": log.rows_per_transaction}
            rounds[name].append(printed(place | measured(task, target)))
            demand_all(target, name, expected(options.rows, log.changes))
            target.down()
    for name in names:
        if name != KINDS[name].compared:
            printed({"target": target_kind, name: against_plain(rounds[name], rounds[KINDS[name].compared])})
    return [of_rounds(each) for each in rounds.values()]


def measured(task: Task, target: TargetServer) -> dict[str, Any]:
    """Runs the task, and returns its rate and CPU times."""
    before, server = children(), server_time(target)
    found = task.run(target, 1)
    spent, server = children() - before, server_time(target) - server
    before = children()
    task.run_again(target)
    spent -= children() - before
    millions = found["changes"] / 1e6
    return found | {"cpu_per_million": round(spent / millions, 1), "server_per_million": round(server / millions, 1)}


def against_plain(runs: list[dict[str, Any]], plain: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns, for each round, the rate and the CPU time of a kind as multiples of those of plain changes."""
    pairs = list(zip(runs, plain, strict=True))
    return {
        "of the plain rate": [
            round(one["changes_per_second"] / other["changes_per_second"], 2) for one, other in pairs
        ],
        "times the processor time": [
            round(one["cpu_per_million"] / other["cpu_per_million"], 2) for one, other in pairs
        ],
    }


def children() -> float:
    """Returns the processor seconds of all processes that this process has started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def server_time(target: TargetServer) -> float:
    """Returns the processor seconds of the target's server, with its processes that have ended."""
    fields = Path(f"/proc/{target.server.pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--targets", default="mariadb,postgres")
    parser.add_argument("--size", type=int, default=4, help="rows in a transaction: 1, 4 or 1000")
    parser.add_argument("--rows", type=int, default=600_000, help="rows of the table")
    parser.add_argument(
        "--changes", type=int, default=50_000, help="changes in each log; no row is in two logs of one source"
    )
    parser.add_argument(
        "--rounds", type=int, default=1, help="how often each kind is measured, in turn; the median counts"
    )
    parser.add_argument("--folder", type=Path, help="the folder for the relay and the tables")
    parser.add_argument("--result", type=Path, help=f"the JSON file to which results are added, such as {RESULT}")
    return parser.parse_args()


if __name__ == "__main__":
    started = time.monotonic()
    main()
    printed({"seconds": round(time.monotonic() - started)})
