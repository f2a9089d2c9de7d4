"""How fast does a replicator receive a log, compared with the servers' own program?

    python bench/replicate/measure.py [--server mariadb|mysql97] [--client PROGRAM] [--result FILE]

A private server makes four logs. A replicator receives each of them. If `--client` names it, `mariadb-binlog`
(`mysqlbinlog`) then receives the same log with `--raw`. The bench also measures the time from a commit until readers of
the relay see its transaction.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pymysql
import workloads
from workloads import Log

from pidts import sandbox
from pidts.relay import RelayReader
from pidts.sandbox import Server

sys.path.append(str(Path(__file__).parents[1]))

from machine import machine

_OPTIONS = ("--max-binlog-size=1G", "--innodb-buffer-pool-size=512M", "--max-allowed-packet=1G")
_COMMITS = 300


def main() -> None:
    options = parsed()
    start = {"mariadb": sandbox.start_mariadb, "mysql97": sandbox.start_mysql97}[options.server]
    results: dict[str, Any] = {"machine": machine(), "server": options.server, "runs": []}
    with start(options=_OPTIONS) as server, tempfile.TemporaryDirectory(dir=options.folder) as folder:
        session = pymysql.connect(host=server.host, port=server.port, user=server.user, password=server.password)
        session.autocommit(True)
        workloads.prepare(session)
        makers = (
            lambda: workloads.thousands(server, session, options.megabytes),
            lambda: workloads.tiny(server, session, options.tiny),
            lambda: workloads.huge(server, session, options.huge),
            lambda: workloads.long_event(server, session, options.event),
        )
        for make in makers:
            # Each log is received before the next workload runs: a replicator ends only when it has received all that
            # the server has logged.
            results["runs"] += measured(server, make(), Path(folder), options)
        results["latency_ms"] = {
            kernel: printed(latency(server, session, Path(folder), kernel)) for kernel in options.kernels.split(",")
        }
        results["disk"] = printed(disk(Path(folder)))
    if options.result:
        options.result.write_text(json.dumps(results, indent=1) + "\n")


def measured(server: Server, log: Log, folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    runs = []
    for _ in range(options.times):
        kernels = options.kernels.split(",")
        runs += [printed({"log": log.name, "by": kernel} | followed(server, log, folder, kernel)) for kernel in kernels]
        if options.client:
            client = shlex.split(options.client), shlex.split(options.client_options)
            runs.append(
                printed({"log": log.name, "by": Path(client[0][-1]).name} | dumped(server, log, folder, client))
            )
    return runs


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", default="mariadb")
    parser.add_argument("--client", default="", help="the command of the program to compare with")
    parser.add_argument(
        "--client-options",
        default="",
        help="more options of this program; MySQL's needs --ssl-mode=DISABLED, since it prefers TLS",
    )
    parser.add_argument("--kernels", default="compiled")
    parser.add_argument("--megabytes", type=int, default=500, help="megabytes of transactions of 1,000 rows")
    parser.add_argument("--tiny", type=int, default=100_000, help="transactions of one row")
    parser.add_argument("--huge", type=int, default=1000, help="megabytes of one transaction")
    parser.add_argument("--event", type=int, default=300, help="megabytes of one event")
    parser.add_argument("--times", type=int, default=1, help="how often each log is received")
    parser.add_argument("--folder", type=Path, help="the folder for the relay")
    parser.add_argument("--result", type=Path)
    return parser.parse_args()


def printed(result: dict[str, Any]) -> dict[str, Any]:
    print(json.dumps(result), flush=True)
    return result


@contextmanager
def following(server: Server, log: Log, relay: Path, kernel: str) -> Iterator[subprocess.Popen[str]]:
    script = Path(__file__).parent / "follow.py"
    words = [str(server.port), server.user, server.password, str(relay), str(log.begin), str(log.end)]
    child = subprocess.Popen(
        [sys.executable, str(script), *words],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PIDTS_KERNEL": kernel},
    )
    try:
        yield child
    finally:
        child.kill()
        child.wait()
        shutil.rmtree(relay, ignore_errors=True)


def followed(server: Server, log: Log, folder: Path, kernel: str) -> dict[str, Any]:
    with following(server, log, folder / "relay", kernel) as child:
        answer: dict[str, Any] = json.loads(child.communicate(timeout=300)[0].splitlines()[-1])
    return answer | rates(log, answer["bytes"], answer["seconds"], answer["cpu_seconds"])


def rates(log: Log, received: int, seconds: float, cpu: float) -> dict[str, Any]:
    share, seconds, cpu = received / log.bytes, max(seconds, 1e-3), max(cpu, 1e-3)
    found = {"mb_per_second": round(received / seconds / 1e6), "mb_per_cpu_second": round(received / cpu / 1e6)}
    if log.transactions > 1:
        found["transactions_per_second"] = round(log.transactions * share / seconds)
        found["transactions_per_cpu_second"] = round(log.transactions * share / cpu)
    return found


def dumped(server: Server, log: Log, folder: Path, client: tuple[list[str], list[str]]) -> dict[str, Any]:
    target = folder / "raw"
    target.mkdir()
    words = ["--no-defaults", "--raw", "--read-from-remote-server", f"--host={server.host}", f"--port={server.port}"]
    words += [f"--user={server.user}", f"--result-file={target}/", *client[1], log.begin.file]
    before, begun = os.times(), time.perf_counter()
    subprocess.run([*client[0], *words], check=True, timeout=300)
    seconds, after = time.perf_counter() - begun, os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    size = sum(path.stat().st_size for path in target.iterdir())
    shutil.rmtree(target)
    return {"seconds": round(seconds, 3), "cpu_seconds": round(cpu, 3)} | rates(log, size, seconds, cpu)


def latency(server: Server, session: Any, folder: Path, kernel: str) -> dict[str, Any]:
    """Measures the time from the return of a commit until readers of the relay see the transaction."""
    workloads.run(session, "FLUSH BINARY LOGS")
    here = workloads.end_of(server)
    never = Log("latency", here, type(here)(here.file, 10**9), 1)
    waits = []
    with following(server, never, folder / "relay", kernel):
        reader = RelayReader(folder / "relay", "s")
        for number in range(_COMMITS + 20):
            before = reader.received
            workloads.run(session, f"INSERT INTO bench.sb (k) VALUES ({number})")
            begun = time.perf_counter()
            while (seen := reader.received) is None or seen == before:
                # Without a pause, the reader would take CPU time from the processes that it waits for.
                time.sleep(0.0002)
                if time.perf_counter() - begun > 30:
                    raise TimeoutError("the relay has not received the transaction within 30 seconds")
            waits.append((time.perf_counter() - begun) * 1000)
            time.sleep(0.005)
    waits = sorted(waits[20:])
    return {"p50": round(statistics.median(waits), 2), "p99": round(waits[len(waits) * 99 // 100], 2)}


def disk(folder: Path) -> dict[str, Any]:
    """Returns the milliseconds that making written bytes durable takes, for several numbers of bytes."""
    found = {}
    for size in (0, 1 << 20, 8 << 20):
        with (folder / "disk").open("wb", buffering=0) as file:
            spent = []
            for _ in range(20):
                file.write(bytes(size or 1))
                begun = time.perf_counter()
                os.fdatasync(file.fileno())
                spent.append((time.perf_counter() - begun) * 1000)
        found[f"sync_ms_after_{size}_bytes"] = round(statistics.median(spent), 2)
    return found


if __name__ == "__main__":
    main()
