"""How old are the rows that a reader of a warehouse sees, at 1,000 changes a second?

Run `python bench/iceberg/freshness.py`. A process commits transactions of ten changes at a steady rate on a MariaDB:
updates and inserts in a large table, and the time of the commit in a table of one row. `pidts run` carries these
changes into Iceberg tables. A reader with pyiceberg reads the time from the small table, again and again. This time is
as old as the rows of the large table, because all tables of a batch change together. The age includes the time that the
reader takes to read.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pymysql
from full_copy import HERE, ROWS, TABLE, machine, ours

from pidts import sandbox
from pidts.sandbox import Server

CHANGES = 10
"""The changes of a transaction: seven updates, two new rows, and the time of the commit."""
SETTLE_SECONDS = 10.0
PAUSE = 0.25


def connect(server: Server) -> Any:
    place = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
    return pymysql.connect(**place, autocommit=False)


def write(server: Server, rows: int, rate: int, seconds: float) -> None:
    """Commits at a steady rate. After a slow commit, the next commits come without a pause until the rate is right."""
    chance, begun = random.Random(1), time.monotonic()
    with closing(connect(server)) as session, session.cursor() as cursor:
        for number in range(int(seconds * rate / CHANGES)):
            pause = begun + number * CHANGES / rate - time.monotonic()
            if pause > 0:
                time.sleep(pause)
            ids = ", ".join(str(chance.randrange(1, rows + 1)) for _ in range(7))
            new = rows + 2 * number
            cursor.execute(f"UPDATE lake.t SET k = k + 1 WHERE id IN ({ids})")
            cursor.execute(f"INSERT INTO lake.t (id, k) VALUES ({new + 1}, 0), ({new + 2}, 0)")
            cursor.execute("UPDATE lake.clock SET at = %s", (time.time_ns(),))
            session.commit()


def clock(place: Path) -> int:
    """Returns the time of the newest commit that a reader sees."""
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("lake", uri=f"sqlite:///{place}/catalog.db", warehouse=f"file://{place}")
    try:
        return int(catalog.load_table("lake.clock").scan().to_arrow()["at"][0].as_py())
    finally:
        catalog.engine.dispose()


def follows(server: Server, place: Path) -> None:
    """Waits until the run has carried the first change."""
    with closing(connect(server)) as session, session.cursor() as cursor:
        cursor.execute("UPDATE lake.clock SET at = 1")
        session.commit()
    until = time.monotonic() + 120
    while clock(place) == 0:
        if time.monotonic() > until:
            raise SystemExit("the run has not begun")
        time.sleep(PAUSE)


def measured(server: Server, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    command = [word for word in ours(server, options.rows, folder, folder, mode="all") if word != "--until-synced"]
    place, log = folder / "warehouse", folder / "log"
    copied = subprocess.run([*command, "--until-synced"], cwd=folder, capture_output=True, check=False)
    if copied.returncode:
        raise SystemExit(copied.stderr.decode()[-3000:])
    with log.open("wb") as output:
        run = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output)
    seconds = SETTLE_SECONDS + options.seconds
    writer = multiprocessing.Process(target=write, args=(server, options.rows, options.rate, seconds))
    ages, files = [], []
    try:
        follows(server, place)
        writer.start()
        begun = time.monotonic()
        while writer.is_alive():
            seen = clock(place)
            if time.monotonic() - begun > SETTLE_SECONDS and writer.is_alive():
                ages.append((time.time_ns() - seen) / 1e9)
                files.append(sum(1 for each in place.rglob("*") if each.is_file()))
            time.sleep(PAUSE)
        late = time.monotonic() - begun - seconds
    finally:
        writer.terminate()
        run.send_signal(signal.SIGTERM)
        if run.wait(60):
            raise SystemExit(log.read_text()[-3000:])
    ordered = sorted(ages)
    return {
        "rows": options.rows,
        "changes_a_second": options.rate,
        "seconds": options.seconds,
        "writer_was_late_seconds": round(late, 2),
        "looks": len(ages),
        "age_seconds": {
            "median": round(statistics.median(ages), 2),
            "p99": round(ordered[len(ordered) * 99 // 100], 2),
            "max": round(ordered[-1], 2),
        },
        "files": files[:: max(1, len(files) // 20)],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--rate", type=int, default=1000, help="changes a second")
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--folder", type=Path, help="the folder for the tables")
    options = parser.parse_args()
    about: dict[str, Any] = {"when": datetime.now(UTC).isoformat(timespec="seconds"), "machine": machine()}
    folder = Path(tempfile.mkdtemp(dir=options.folder))
    try:
        with sandbox.start_mariadb(options=("--innodb-buffer-pool-size=1G",)) as server:
            with closing(connect(server)) as session, session.cursor() as cursor:
                cursor.execute("CREATE DATABASE lake")
                cursor.execute("USE lake")
                cursor.execute("SET sql_log_bin = 0")
                cursor.execute(TABLE)
                cursor.execute(ROWS.format(rows=options.rows))
                cursor.execute("CREATE TABLE lake.clock (id INT PRIMARY KEY, at BIGINT NOT NULL)")
                cursor.execute("INSERT INTO lake.clock VALUES (1, 0)")
                session.commit()
            about |= measured(server, folder, options)
    finally:
        shutil.rmtree(folder)
    print(json.dumps(about["age_seconds"]), f"files: {about['files']}")
    path = HERE.parent / "results" / "iceberg.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(known | {"freshness": about}, indent=2) + "\n")


if __name__ == "__main__":
    main()
