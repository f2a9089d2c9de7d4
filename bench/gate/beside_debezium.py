"""How fast is a channel from log to rows, compared with Debezium's embedded engine, whose JSON is discarded?

    python bench/gate/beside_debezium.py [--changes 200000] [--rounds 3]

Both read the same log from a private MySQL. The time of PiDTS ends with the last commit in a datacenter, on a MariaDB
of the same machine. The time of Debezium ends when it has the JSON, without schemas, which would only make it slower.
Both times begin with the first changes, and do not include the start.

The bench needs `mvn`, which downloads Debezium, and `java` of JDK 17 or later.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))
sys.path.append(str(Path(__file__).parents[1] / "apply"))

from machine import machine
from measured import keep, printed
from run import DATACENTER, TARGETS, connected, ours, rate, task_file
from workload import SCHEMA, SHAPES, Log, MySqlSource, Source

from pidts import sandbox
from pidts.sandbox import Server

RESULT = Path(__file__).parents[1] / "results" / "debezium.json"
_ENGINE = Path(__file__).parent / "debezium"
_JAVA = ("java", "-Xmx2g")
_SECONDS = 900


def main() -> None:
    options = parsed()
    missing = [name for name in ("mvn", "java") if shutil.which(name) is None]
    if missing:
        raise SystemExit(f"{' and '.join(missing)} missing: Debezium cannot run here")
    command = {"when": datetime.now(UTC).isoformat(timespec="seconds"), "machine": machine(), **vars(options)}
    command.pop("result")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-gate-")))
        folder.chmod(0o755)
        get = ["mvn", "-q", "-B", "-f", str(_ENGINE), "dependency:copy-dependencies", f"-DoutputDirectory={folder}/lib"]
        subprocess.run(get, check=True, timeout=_SECONDS)
        server = stack.enter_context(sandbox.start_mysql97(options=("--innodb-buffer-pool-size=1G",)))
        source = MySqlSource(server, SHAPES["sb"], options.changes)
        begin = debezium_begins(server, folder)
        log = source.log(options.size, options.changes)
        target = stack.enter_context(TARGETS["mariadb"](folder / "target"))
        runs = of_log(source, target, log, folder, options.rounds, begin)
    if options.result:
        keep(options.result, command, runs, "rows_per_transaction", "by")


def of_log(source: Source, target: Server, log: Log, folder: Path, rounds: int, begin: Path) -> list[dict[str, Any]]:
    found: dict[str, list[dict[str, Any]]] = {"ours": [], "debezium": []}
    place = {"rows_per_transaction": log.rows_per_transaction}
    for number in range(rounds):
        session = connected(target)
        session.execute(f"DROP DATABASE IF EXISTS {DATACENTER}")
        relay = folder / f"relay-{number}"
        path = task_file(source, target, log, folder, relay, 2)
        found["ours"].append(printed(place | {"by": "ours"} | ours(path, session, log, folder)))
        shutil.rmtree(relay)
        found["debezium"].append(printed(place | {"by": "debezium"} | debezium(folder, begin, log.changes)))
    rates = {by: [run["per_second"] for run in runs] for by, runs in found.items()}
    ratios = [mine / theirs for mine, theirs in zip(rates["ours"], rates["debezium"], strict=True)]
    print(f"ours: {statistics.median(ratios):.2f} x Debezium's engine ({', '.join(f'{one:.2f}' for one in ratios)})")
    return [place | {"by": by, "per_second": round(statistics.median(rates[by])), "rounds": rates[by]} for by in found]


def debezium_begins(server: Server, folder: Path) -> Path:
    """Lets the engine record the structures and its position before the log is written.

    Returns the folder of both records.
    """
    begin = folder / "begin"
    begin.mkdir()
    properties = {
        "name": "bench",
        "connector.class": "io.debezium.connector.mysql.MySqlConnector",
        "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
        "offset.storage.file.filename": "FOLDER/offsets",
        "offset.flush.interval.ms": "1000",
        "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
        "schema.history.internal.file.filename": "FOLDER/history",
        "database.hostname": server.host,
        "database.port": str(server.port),
        "database.user": server.user,
        "database.password": server.password,
        "database.server.id": "771",
        "database.include.list": SCHEMA,
        "topic.prefix": "bench",
        "snapshot.mode": "no_data",
        "tombstones.on.delete": "false",
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "false",
        "converter.schemas.enable": "false",
    }
    (begin / "properties").write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    engine(folder, begin, 0)
    return begin


def debezium(folder: Path, begin: Path, changes: int) -> dict[str, Any]:
    """Returns the rate of the engine, which begins at the same position in the log in each round."""
    again = folder / "again"
    shutil.rmtree(again, ignore_errors=True)
    shutil.copytree(begin, again)
    found = engine(folder, again, changes)
    return rate(found["changes"], found["seconds"]) | {"bytes": found["bytes"]}


def engine(folder: Path, state: Path, changes: int) -> dict[str, Any]:
    path = state / "properties"
    path.write_text(path.read_text().replace("FOLDER", str(state)).replace(str(folder / "begin"), str(state)))
    command = [*_JAVA, "-cp", f"{folder}/lib/*", str(_ENGINE / "Engine.java"), str(path), str(changes)]
    done = subprocess.run(command, capture_output=True, timeout=_SECONDS, check=False, text=True)
    if done.returncode or not done.stdout.strip():
        raise RuntimeError(done.stderr[-4000:])
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--changes", type=int, default=200_000)
    parser.add_argument("--size", type=int, default=4, help="rows of a transaction: 1 or 4")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--result", type=Path, default=RESULT)
    return parser.parse_args()


if __name__ == "__main__":
    main()
