"""Do two zones need more CPU time than two tasks, one for each direction?

    python bench/zones/run.py [--rounds 3] [--rate 300] [--seconds 20] [--rows 1,50]

There are two MariaDB servers, a and b. On each, a program changes rows of its own, at the same steady rate for all
contenders:

- *zones*: one task file with both zones; both programs write one table, and each server has the rows of both
- *apart*: a task from a to b and a task from b to a; each carries a table of its own, to which only the program on its
  source writes
- *apart, comparing*: the same two tasks, which compare each row with the target's row before they change it, as zones
  do

The result is the CPU time of all processes of the tasks, from the first commit until both servers have all changes.
The CPU time of the servers is shown, too. Each round measures all contenders, and a ratio compares
two contenders of one round.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pymysql
from pymysql.constants import ER

sys.path += [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "latency")]
from idle import TICKS, spent
from machine import machine

from pidts import sandbox
from pidts.sandbox import Server

RESULT = Path(__file__).parent.parent / "results" / "zones.json"
PIDTS = [sys.executable, "-m", "pidts"]
_PATIENCE_SECONDS, _WARM_SECONDS = 300.0, 5.0
_OF_B = 1_000_000_000
"""The first key of the rows of server b."""


@dataclass(frozen=True)
class Contender:
    files: list[Path]
    """The task files that run at the same time."""
    schemas: dict[str, str]
    """For each server, the schema of the table to which the program on this server writes."""


def main() -> None:
    options = parsed()
    result: dict[str, Any] = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "rate": options.rate,
        "seconds": options.seconds,
        "runs": [],
    }
    for rows in map(int, options.rows.split(",")):
        rounds = [in_turn(rows, number, options) for number in range(options.rounds)]
        result["runs"].append({"rows_a_transaction": rows, "zones_of": ratios(rounds), "rounds": rounds})
        print(json.dumps(result["runs"][-1]["zones_of"]), flush=True)
    if options.result:
        options.result.write_text(json.dumps(result, indent=1) + "\n")


def in_turn(rows: int, number: int, options: argparse.Namespace) -> dict[str, Any]:
    """Measures all contenders once, and returns their figures. Round `number` begins with contender `number`."""
    names = list(CONTENDERS)
    found = {}
    for name in names[number % len(names) :] + names[: number % len(names)]:
        found[name] = measured(CONTENDERS[name], rows, options)
        print(json.dumps({"rows_a_transaction": rows, "round": number, name: found[name]}), flush=True)
    return found


def ratios(rounds: Sequence[dict[str, Any]]) -> dict[str, list[float]]:
    """Returns the median, the lowest and the highest ratio."""
    found = {}
    for part in ("tasks", "servers"):
        for other in (name for name in CONTENDERS if name != "zones"):
            of = [one["zones"][part] / one[other][part] for one in rounds]
            found[f"{part}: {other}"] = [round(each, 3) for each in (statistics.median(of), min(of), max(of))]
    return found


def measured(make: Callable[[dict[str, Server], Path], Contender], rows: int, options: argparse.Namespace) -> Any:
    with ExitStack() as cleanup:
        servers = {name: cleanup.enter_context(sandbox.start_mariadb()) for name in "ab"}
        contender = make(servers, Path(cleanup.enter_context(tempfile.TemporaryDirectory())))
        for schema, name in {schema: name for name, schema in reversed(contender.schemas.items())}.items():
            sql(servers[name], f"CREATE DATABASE {schema}")
            sql(servers[name], f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, n INT NOT NULL, text CHAR(60) NOT NULL)")
            sql(servers[name], f"INSERT INTO {schema}.t VALUES (0, 0, '')")
        runs = [cleanup.enter_context(running(file)) for file in contender.files]
        until(lambda: has_all(servers, contender.schemas), "the first row has not arrived", contender.files)
        until(lambda: all(map(is_syncing, contender.files)), "the tasks are not syncing", contender.files)

        def carry(begin: int, rate: float, seconds: float) -> float:
            write(servers, contender.schemas, begin, rows, rate, seconds)
            written = time.monotonic()
            until(lambda: has_all(servers, contender.schemas), "not everything has arrived", contender.files)
            return time.monotonic() - written

        carry(100_000_000, options.rate, _WARM_SECONDS)
        load, before = os.getloadavg()[0], ticks(runs, servers)
        late = carry(200_000_000, options.rate, options.seconds)
        after = ticks(runs, servers)
    if before.keys() != after.keys() or any(after[part] < before[part] for part in before):
        raise RuntimeError("a process has begun or ended meanwhile, and its time is not known")
    took = {part: (after[part] - before[part]) / TICKS for part in sorted(after)}
    servers_took = took.pop("servers")
    return {
        "tasks": round(sum(took.values()), 2),
        "servers": round(servers_took, 2),
        "parts": {part: round(seconds, 2) for part, seconds in took.items()},
        "seconds_behind": round(late, 1),
        "load_before": round(load, 2),
    }


def zones(servers: dict[str, Server], folder: Path) -> Contender:
    task = {
        "name": "zones",
        "block-allow-list": {"ours": {"do-dbs": ["bench"]}},
        "pidts": {
            "zones": {
                "servers": {name: login(server) for name, server in servers.items()},
                "rules": {"block-allow-list": "ours"},
            },
            "relay": str(folder / "relay"),
        },
    }
    return Contender([written_file(folder, task)], {"a": "bench", "b": "bench"})


def apart(servers: dict[str, Server], folder: Path, *, on_divergence: str = "overwrite") -> Contender:
    files = []
    for source, target in ("ab", "ba"):
        task = {
            "name": f"from-{source}",
            "task-mode": "all",
            "target-database": login(servers[target]),
            "mysql-instances": [{"source-id": source, "from": login(servers[source]), "block-allow-list": "ours"}],
            "block-allow-list": {"ours": {"do-dbs": [f"bench_{source}"]}},
            "pidts": {"relay": str(folder / f"relay-{source}"), "on-divergence": on_divergence},
        }
        files.append(written_file(folder, task))
    return Contender(files, {"a": "bench_a", "b": "bench_b"})


def comparing(servers: dict[str, Server], folder: Path) -> Contender:
    return apart(servers, folder, on_divergence="lock")


CONTENDERS = {"zones": zones, "apart": apart, "apart, comparing": comparing}


def written_file(folder: Path, task: dict[str, Any]) -> Path:
    path = folder / f"{task['name']}.yaml"
    path.write_text(json.dumps(task))
    return path


def login(server: Server) -> dict[str, Any]:
    return {"host": server.host, "port": server.port, "user": server.user, "password": server.password}


@contextmanager
def running(file: Path) -> Iterator[subprocess.Popen[bytes]]:
    with file.with_suffix(".log").open("wb") as log:
        run = subprocess.Popen([*PIDTS, "run", str(file)], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            yield run
        finally:
            run.send_signal(signal.SIGTERM)
            run.wait(120)


def is_syncing(file: Path) -> bool:
    """Whether all directions of a file of zones are syncing; always true for other task files."""
    shown = subprocess.run([*PIDTS, "status", str(file), "--json"], capture_output=True, check=False)
    return all(one["stage"] == "syncing" for one in json.loads(shown.stdout).get("directions", []))


def write(
    servers: dict[str, Server], schemas: dict[str, str], begin: int, rows: int, rate: float, seconds: float
) -> None:
    """Lets both programs write, each on a connection of its own."""
    with ThreadPoolExecutor(len(servers)) as pool:
        for one in [
            pool.submit(program, server, schemas[name], begin + _OF_B * (name == "b"), rows, rate, seconds)
            for name, server in servers.items()
        ]:
            one.result()


def program(server: Server, schema: str, begin: int, rows: int, rate: float, seconds: float) -> None:
    """Commits at a steady rate: in turn new rows, an UPDATE of the newest rows, and a DELETE of older ones."""
    began, keys = time.monotonic(), begin
    with closing(connect(server)) as session, session.cursor() as cursor:
        for number in range(int(rate * seconds)):
            pause = began + number / rate - time.monotonic()
            if pause > 0:
                time.sleep(pause)
            if number % 3 == 0:
                new = ", ".join(f"({keys + place}, 0, 'text of some length')" for place in range(rows))
                again_if_deadlocked(cursor, f"INSERT INTO {schema}.t VALUES {new}")
                keys += rows
            elif number % 3 == 1:
                again_if_deadlocked(
                    cursor, f"UPDATE {schema}.t SET n = n + 1 WHERE id IN ({listed(keys - rows, rows)})"
                )
            elif keys - 9 * rows > begin:
                again_if_deadlocked(cursor, f"DELETE FROM {schema}.t WHERE id IN ({listed(keys - 10 * rows, rows)})")


def listed(begin: int, rows: int) -> str:
    return ", ".join(map(str, range(begin, begin + rows)))


def again_if_deadlocked(cursor: Any, statement: str) -> None:
    while True:
        try:
            cursor.execute(statement)
        except pymysql.err.OperationalError as error:
            if error.args[0] != ER.LOCK_DEADLOCK:
                raise
        else:
            return


def has_all(servers: dict[str, Server], schemas: dict[str, str]) -> bool:
    """Whether both servers have the same rows in each table."""
    asked = [f"SELECT COUNT(*), SUM(id), SUM(n) FROM {schema}.t" for schema in sorted(set(schemas.values()))]
    try:
        first, other = ([sql(server, one) for one in asked] for server in servers.values())
    except pymysql.err.ProgrammingError:
        return False  # The table does not exist yet.
    return first == other


def ticks(runs: Sequence[subprocess.Popen[bytes]], servers: dict[str, Server]) -> dict[str, int]:
    """Returns the CPU time of the running processes, by kind."""
    found = {"servers": 0}
    for run in runs:
        for name, count in spent(run.pid).items():
            kind = name.partition(": ")[0]
            kind = "driver" if kind == "other" else kind  # These are the directions of a file of zones.
            found[kind] = found.get(kind, 0) + count
    for server in servers.values():
        assert server.pid is not None
        found["servers"] += sum(spent(server.pid).values())
    return found


def until(claim: Callable[[], bool], what: str, files: Sequence[Path]) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not claim():
        if time.monotonic() > deadline:
            said = "\n".join(file.with_suffix(".log").read_text()[-3000:] for file in files)
            raise RuntimeError(f"{what}\n{said}")
        time.sleep(0.1)


def sql(server: Server, statement: str) -> Any:
    with closing(connect(server)) as session, session.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall()


def connect(server: Server) -> Any:
    return pymysql.connect(
        host=server.host, port=server.port, user=server.user, password=server.password, autocommit=True
    )


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rate", type=float, default=300, help="commits a second of each program")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rows", default="1,50", help="numbers of rows in a transaction")
    parser.add_argument("--result", type=Path, help=f"the JSON file for the results, such as {RESULT}")
    return parser.parse_args()


if __name__ == "__main__":
    main()
