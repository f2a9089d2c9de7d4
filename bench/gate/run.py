"""How fast does a channel fill its datacenter? Compares a channel with LOAD DATA and with INSERTs of the same records.

    python bench/gate/run.py [--targets mariadb,mysql97] [--sizes 1,4,1000] [--workers 1,2] [--changes 200000]

A private MariaDB is the source, and its log is in the relay before the measurement begins. The time of PiDTS begins
with the first commit of records, whose records do not count, and ends with the last commit. The other contenders write
the same records to the same server. The first is one connection that loads all records with `LOAD DATA`. The other two
are programs that write, for each transaction of the source, one INSERT of all its records. One of these programs
commits after each INSERT, but does not move `transfer_checkpoint`: readers would not see the records. The other also
moves `transfer_checkpoint` in the same transaction. Each round measures all contenders, one after another, and a ratio
compares two contenders of one round.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))
sys.path.append(str(Path(__file__).parents[1] / "apply"))

import pymysql
import yaml
from machine import machine
from measured import keep, printed
from workload import SCHEMA, SHAPES, Log, Source

from pidts import sandbox
from pidts.relay import RelayReader
from pidts.sandbox import Server

RESULT = Path(__file__).parents[1] / "results" / "gate.json"
DATACENTER = "dc"
_SOURCE = ("--max-binlog-size=1G", "--innodb-buffer-pool-size=1G", "--innodb-log-file-size=512M")
_DURABLE = ("--innodb-flush-log-at-trx-commit=1", "--innodb-flush-method=fsync", "--sync-binlog=1")
"""With these settings, a server makes each commit durable, as by default. The sandbox has other settings."""
_TARGET = (*_DURABLE, "--innodb-buffer-pool-size=1G", "--max-allowed-packet=64M", "--secure-file-priv=")
_MARIADB = (*_TARGET, "--skip-debug-no-sync", "--innodb-log-file-size=512M")
_MYSQL = (*_TARGET, "--innodb-redo-log-capacity=512M")
TARGETS = {
    "mariadb": lambda folder: sandbox.start_mariadb(folder, (*_MARIADB, "--skip-log-bin")),
    "mysql97": lambda folder: sandbox.start_mysql97(folder, (*_MYSQL, "--skip-log-bin")),
    "mysql97-binlog": lambda folder: sandbox.start_mysql97(folder, _MYSQL),
    "mysql97-binlog-files": lambda folder: sandbox.start_mysql97(folder, (*_MYSQL, "--local-infile=ON")),
}
"""The last two targets have a binary log, as MySQL has by default.

MySQL refuses LOAD DATA LOCAL unless `local_infile` is ON. Otherwise PiDTS writes INSERTs of many rows. Only the last
target has `local_infile = ON`.
"""
_COLUMNS = "id, tid, dbname, tablename, create_time, instance_name, optype, data"
INSERT, INSERT_AND_CHECKPOINT = "one insert a transaction", "one insert a transaction and its checkpoint"
_PIDTS = [sys.executable, "-m", "pidts"]
_TRANSACTIONS = 20_000
"""The largest number of transactions that are written one by one; the rate does not depend on it."""


def main() -> None:
    options = parsed()
    command = {"when": datetime.now(UTC).isoformat(timespec="seconds"), "machine": machine(), **vars(options)}
    command.pop("result")
    runs: list[dict[str, Any]] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-gate-")))
        folder.chmod(0o755)
        server = stack.enter_context(sandbox.start_mariadb(options=_SOURCE))
        sizes = [int(size) for size in options.sizes.split(",")]
        source = Source(server, SHAPES[options.shape], options.changes * len(sizes))
        logs = [source.log(size, options.changes) for size in sizes]
        for kind in options.targets.split(","):
            with TARGETS[kind](folder / kind) as target:
                (folder / kind).chmod(0o755)
                for log in logs:
                    runs += of_log(kind, source, target, log, folder, options)
    if options.result:
        keep(options.result, command, runs, "target", "table", "rows_per_transaction", "by")


def of_log(
    kind: str, source: Source, target: Server, log: Log, folder: Path, options: argparse.Namespace
) -> list[dict[str, Any]]:
    place = {"target": kind, "table": log.shape, "rows_per_transaction": log.rows_per_transaction}
    relay = folder / f"relay-{log.rows_per_transaction}"
    found: dict[str, list[dict[str, Any]]] = {}

    def measured(by: str, run: Callable[[], dict[str, Any]]) -> None:
        found.setdefault(by, []).append(printed(place | {"by": by} | run()))

    session = connected(target)
    for _ in range(options.rounds):
        for workers in map(int, options.workers.split(",")):
            session.execute(f"DROP DATABASE IF EXISTS {DATACENTER}")
            path = task_file(source, target, log, folder, relay, workers)
            if not relay.exists():
                fill(path, relay, log)
            measured(f"ours, {workers} connections", partial(ours, path, session, log, folder))
        text = written(session, folder, log.changes)
        measured("load data", partial(load_data, session, text, log.changes))
        statements, rows = prepared(session)
        measured(INSERT, partial(inserts, session, statements, rows))
        fresh_copy(session)
        measured(INSERT_AND_CHECKPOINT, partial(inserts_and_checkpoints, session, statements, rows))
    rates = {by: [run["per_second"] for run in runs] for by, runs in found.items()}
    for name, mine in rates.items():
        if name.startswith("ours"):
            print(
                f"{kind}, {place['rows_per_transaction']} rows a transaction, {name}: "
                f"{ratio(mine, rates['load data'])} of load data, "
                f"{ratio(mine, rates[INSERT])} x {INSERT}, "
                f"{ratio(mine, rates[INSERT_AND_CHECKPOINT])} x {INSERT_AND_CHECKPOINT}",
                flush=True,
            )
    return [
        place
        | {"by": by, "per_second": round(statistics.median(rates[by])), "rounds": rates[by]}
        | {name: statistics.median(run[name] for run in runs) for name in runs[0] if name == "own_cpu_us"}
        for by, runs in found.items()
    ]


def ratio(mine: list[int], theirs: list[int]) -> str:
    """Returns the median of the rounds' ratios, and each ratio. Other processes slow both contenders of a round."""
    found = [one / other for one, other in zip(mine, theirs, strict=True)]
    return f"{statistics.median(found):.2f} ({', '.join(f'{one:.2f}' for one in found)})"


def cpu(pid: int | None) -> float:
    """Returns the CPU time of a process so far in seconds, with the time that the system used for it."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def connected(server: Server) -> Any:
    connection = pymysql.connect(
        host=server.host, port=server.port, user=server.user, autocommit=True, charset="utf8mb4"
    )
    return connection.cursor()


def task_file(source: Source, target: Server, log: Log, folder: Path, relay: Path, workers: int) -> Path:
    server = source.server
    task = {
        "name": "bench",
        "task-mode": "incremental",
        "target-database": {
            "type": "datacenter",
            "host": target.host,
            "port": target.port,
            "user": target.user,
            "database": DATACENTER,
        },
        "mysql-instances": [
            {
                "source-id": "one",
                "from": {"host": server.host, "port": server.port, "user": server.user},
                "meta": {"binlog-name": log.begin.file, "binlog-pos": log.begin.offset},
                "block-allow-list": "ours",
                "syncer-config-name": "global",
            }
        ],
        "block-allow-list": {"ours": {"do-dbs": [SCHEMA]}},
        "syncers": {"global": {"worker-count": workers, "batch": 20_000}},
        "pidts": {"relay": str(relay), "relay-keep": "24h"},
    }
    path = folder / "bench.yaml"
    path.write_text(yaml.safe_dump(task))
    return path


def fill(path: Path, relay: Path, log: Log) -> None:
    """Runs the replicator until the relay has the whole log."""
    end = log.end.log_index, log.end.offset
    process = subprocess.Popen(
        [*_PIDTS, "replicate", str(path)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        with closing(RelayReader(relay, "one")) as reader:
            while (lsn := reader.received) is None or (lsn.log_index, lsn.offset) < end:
                if process.poll() is not None:
                    raise RuntimeError("the replicator has ended")
                time.sleep(0.05)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def ours(path: Path, session: Any, log: Log, folder: Path) -> dict[str, Any]:
    """Returns the rate from the first visible records, which do not count, until all records are there."""
    first, begun, spent = 0, 0.0, 0.0
    with (folder / "run.log").open("wb") as output:
        process = subprocess.Popen([*_PIDTS, "run", str(path)], stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        while True:
            last = 0
            with suppress(pymysql.err.Error):
                session.execute(f"SELECT MAX(id) FROM {DATACENTER}.transfer_checkpoint")
                last = session.fetchone()[0] or 0
            if last and not begun:
                first, begun, spent = last, time.monotonic(), cpu(process.pid)
            if last >= log.changes:
                found = rate(log.changes - first, time.monotonic() - begun)
                return found | {"own_cpu_us": round((cpu(process.pid) - spent) / found["changes"] * 1e6, 1)}
            if process.poll() is not None:
                raise RuntimeError((folder / "run.log").read_text())
            time.sleep(0.005)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def written(session: Any, folder: Path, changes: int) -> Path:
    """Lets the server write the finished records to a file; returns its path."""
    path = folder / "out" / "records.tsv"
    path.parent.mkdir(exist_ok=True)
    path.parent.chmod(0o777)
    path.unlink(missing_ok=True)
    session.execute(
        f"SELECT {_COLUMNS} FROM {DATACENTER}.transfer_data WHERE id <= {changes} ORDER BY id "
        f"INTO OUTFILE '{path}' CHARACTER SET utf8mb4"
    )
    fresh_copy(session)
    return path


def load_data(session: Any, path: Path, changes: int) -> dict[str, Any]:
    """Loads all records with one connection, in one transaction; returns the rate."""
    begun = time.monotonic()
    session.execute(f"LOAD DATA INFILE '{path}' INTO TABLE {DATACENTER}.copy CHARACTER SET utf8mb4 ({_COLUMNS})")
    return rate(changes, time.monotonic() - begun)


def prepared(session: Any) -> tuple[list[str], int]:
    """Returns a multi-row INSERT for each transaction, and the number of rows in all of them."""
    session.execute(f"SELECT * FROM {DATACENTER}.transfer_data WHERE tid <= {_TRANSACTIONS} ORDER BY id")
    head = f"INSERT INTO {DATACENTER}.copy VALUES "
    rows, statements = 0, []
    for _, group in groupby(session.fetchall(), key=lambda row: row[1]):
        values = [session.mogrify("(%s, %s, %s, %s, %s, %s, %s, %s)", row) for row in group]
        rows += len(values)
        statements.append(head + ", ".join(values))
    fresh_copy(session)
    return statements, rows


def inserts(session: Any, statements: list[str], rows: int) -> dict[str, Any]:
    """Runs the INSERTs, each of which commits by itself; returns the rate."""
    begun = time.monotonic()
    for statement in statements:
        session.execute(statement)
    return rate(rows, time.monotonic() - begun)


def inserts_and_checkpoints(session: Any, statements: list[str], rows: int) -> dict[str, Any]:
    """Runs the INSERTs, each of which commits together with the row of the checkpoint; returns the rate."""
    session.execute("SET autocommit = 0")
    begun = time.monotonic()
    for statement in statements:
        session.execute(statement)
        session.execute(f"UPDATE {DATACENTER}.transfer_checkpoint SET id = id + 1, tid = tid + 1")
        session.execute("COMMIT")
    seconds = time.monotonic() - begun
    session.execute("SET autocommit = 1")
    return rate(rows, seconds)


def fresh_copy(session: Any) -> None:
    session.execute(f"DROP TABLE IF EXISTS {DATACENTER}.copy")
    session.execute(f"CREATE TABLE {DATACENTER}.copy LIKE {DATACENTER}.transfer_data")


def rate(changes: int, seconds: float) -> dict[str, Any]:
    return {"changes": changes, "seconds": round(seconds, 3), "per_second": round(changes / seconds)}


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", default="mariadb,mysql97")
    parser.add_argument("--shape", default="sb", choices=SHAPES)
    parser.add_argument("--sizes", default="1,4,1000")
    parser.add_argument("--workers", default="1,2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--changes", type=int, default=200_000)
    parser.add_argument("--result", type=Path, default=RESULT)
    return parser.parse_args()


if __name__ == "__main__":
    main()
