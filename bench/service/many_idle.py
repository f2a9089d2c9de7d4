"""Measures the memory and the CPU time of a service with many tasks while the tasks have nothing to do.

    python bench/service/many_idle.py [--tasks 50] [--target mariadb] [--seconds 60]

One source server has a schema for each task, with a table of three rows. Each task copies its table, and then nothing
happens. The results are for all processes of the service: memory as PSS (shared memory is divided among the processes
that share it), and the CPU time that the kernel counts. The database servers do not count.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pymysql

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "latency"))

from idle import TICKS, below
from machine import machine

from pidts import sandbox
from pidts.service.process_lock import holder_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pidts.sandbox import Server

RESULT = Path(__file__).parents[1] / "results" / "service.json"
START = {"postgres": sandbox.start_postgres, "mariadb": sandbox.start_mariadb}
_SETTLE_SECONDS = 15.0
_PATIENCE = 900.0
_MEGABYTE = 1024


def main() -> None:
    options = parsed()
    with sandbox.start_mariadb() as source, START[options.target]() as target, tempfile.TemporaryDirectory() as folder:
        found = measured(source, target, Path(folder), options)
    result = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "target": options.target,
    } | found
    print(json.dumps(result, indent=1))
    if options.result:
        options.result.write_text(json.dumps(result, indent=1) + "\n")


def measured(source: Server, target: Server, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    names = [f"idle_{number:02}" for number in range(options.tasks)]
    session = pymysql.connect(host=source.host, port=source.port, user=source.user, autocommit=True)
    with closing(session), session.cursor() as cursor:
        cursor.execute("SET GLOBAL max_connections = 2000")
        for name in names:
            cursor.execute(f"CREATE DATABASE {name}")
            cursor.execute(f"CREATE TABLE {name}.t (id INT PRIMARY KEY)")
            cursor.execute(f"INSERT INTO {name}.t VALUES (1), (2), (3)")
    if target.kind == "mariadb":
        session = pymysql.connect(host=target.host, port=target.port, user=target.user, autocommit=True)
        with closing(session), session.cursor() as cursor:
            cursor.execute("SET GLOBAL max_connections = 2000")
    with serving(folder) as (service, url):
        begun = time.monotonic()
        for name in names:
            call(url, "POST", "/api/tasks", task_file(name, source, target))
        wait_until_idle(url, options.tasks)
        started = time.monotonic() - begun
        time.sleep(_SETTLE_SECONDS)
        before, begun = spent(service), time.monotonic()
        memory = pss(service)
        time.sleep(options.seconds)
        after, seconds = spent(service), time.monotonic() - begun
        stages = {task["stage"] for task in call(url, "GET", "/api/tasks")["tasks"]}
    if stages != {"sync"}:
        raise RuntimeError(f"the tasks should all have the stage sync, and have the stages {stages}")
    if before.keys() != after.keys():
        raise RuntimeError(f"processes came or went: {before.keys() ^ after.keys()}")
    shares: dict[str, float] = {}
    for (pid, what), ticks in after.items():
        shares[what] = shares.get(what, 0.0) + (ticks - before[pid, what]) / TICKS / seconds * 100
    return {
        "tasks": options.tasks,
        "seconds_to_start": round(started, 1),
        "mb": {what: round(mb, 1) for what, mb in sorted(memory.items())},
        "mb_a_task": round(sum(memory.values()) / options.tasks, 1),
        "percent_of_a_core": {what: round(share, 2) for what, share in sorted(shares.items())},
        "percent_of_a_core_all": round(sum(shares.values()), 1),
        "processes": len(after),
    }


@contextmanager
def serving(folder: Path) -> Iterator[tuple[int, str]]:
    """Yields the process id of a service, and the service's address. Ends the service and its tasks afterwards."""
    state, output = folder / "state", folder / "serve.log"
    with output.open("wb") as log:
        command = [sys.executable, "-m", "pidts", "serve", "--listen", "127.0.0.1:0", "--state", str(state)]
        service = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + _PATIENCE
        while not (state / "service.json").exists():
            if service.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(output.read_text())
            time.sleep(0.1)
        yield service.pid, json.loads((state / "service.json").read_text())["url"]
    finally:
        service.kill()
        service.wait()
        for lock in state.glob("tasks/*/process.lock"):
            if holder := holder_of(lock):
                with suppress(ProcessLookupError):
                    os.kill(holder, signal.SIGKILL)
        time.sleep(1)  # A replicator ends with its task.


def wait_until_idle(url: str, count: int) -> None:
    deadline = time.monotonic() + _PATIENCE
    while True:
        tasks = call(url, "GET", "/api/tasks")["tasks"]
        if len(tasks) == count and all(is_idle(task) for task in tasks):
            return
        if time.monotonic() > deadline:
            raise RuntimeError(f"the tasks have not begun: {[task for task in tasks if not is_idle(task)][:3]}")
        time.sleep(1)


def is_idle(task: dict[str, Any]) -> bool:
    return task["stage"] == "sync"


def call(url: str, method: str, path: str, body: str | None = None) -> Any:
    """Returns the answer of the service. If there were too many requests in a second, tries again a second later."""
    host, port = url.removeprefix("http://").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    with closing(connection):
        headers = {"Content-Type": "application/yaml"} if body is not None else {}
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        data = answer.read()
    if answer.status == http.HTTPStatus.TOO_MANY_REQUESTS:
        time.sleep(1)
        return call(url, method, path, body)
    if answer.status >= 300:
        raise RuntimeError(f"{answer.status} {data.decode()}")
    return json.loads(data)


def spent(root: int) -> dict[tuple[int, str], int]:
    """Returns the clock ticks of each process below the service, by kind."""
    found: dict[tuple[int, str], int] = {}
    for pid, what in processes(root).items():
        with suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            found[pid, what] = int(fields[11]) + int(fields[12])
    return found


def pss(root: int) -> dict[str, float]:
    """Returns the memory (PSS) of each kind of process, in megabytes."""
    found: dict[str, float] = {}
    for pid, what in processes(root).items():
        with suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    found[what] = found.get(what, 0.0) + int(line.split()[1]) / _MEGABYTE
    return found


def processes(root: int) -> dict[int, str]:
    """Returns the kind of each process, which the kind of the process's parent shows."""
    found = {root: "service"}
    for pid in below(root):
        with suppress(OSError):
            parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            found.setdefault(pid, _BELOW.get(found.get(parent, ""), "other"))
    return found


_BELOW = {"service": "spawner", "spawner": "tasks", "tasks": "forkers", "forkers": "replicators"}


def task_file(name: str, source: Server, target: Server) -> str:
    to = f"host: {target.host}, port: {target.port}, user: {target.user}"
    to += ", type: postgresql, database: postgres" if target.kind == "postgres" else ", type: mysql"
    return f"""
name: {name}
task-mode: all
target-database: {{{to}}}
mysql-instances:
  - source-id: one
    from: {{host: {source.host}, port: {source.port}, user: {source.user}, password: "{source.password}"}}
    block-allow-list: ours
block-allow-list:
  ours: {{do-dbs: [{name}]}}
"""


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=50)
    parser.add_argument("--target", default="mariadb", choices=sorted(START))
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--result", type=Path, help=f"the JSON file for the results, such as {RESULT}")
    return parser.parse_args()


if __name__ == "__main__":
    main()
