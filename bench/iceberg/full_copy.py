"""Compares a full copy into a warehouse with Spark's JDBC reader: `python bench/iceberg/full_copy.py [--rows 5000000]`.

Both read one table of a MariaDB with two connections and write Parquet files. PiDTS runs `pidts run --until-synced`
into Iceberg tables. This command makes the relay, the checkpoint and the table, and makes every file durable. The other
contender is what a user would write by hand: `spark.read.jdbc` in 2 partitions, then `write.parquet`. Each time is that
of a whole process, with the start of its JVM. The two contenders run in turn. Afterwards the rows of both copies are
counted and summed.

The bench needs `mvn`, which downloads MariaDB's driver for Java.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pymysql

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent))

from machine import machine  # noqa: E402 - needs the line above

from pidts import sandbox  # noqa: E402
from pidts.sandbox import Server  # noqa: E402

DRIVER = "org.mariadb.jdbc:mariadb-java-client:3.5.11"
PARTITIONS = 2
TABLE = (
    "CREATE TABLE lake.t "
    "(id BIGINT PRIMARY KEY, k INT NOT NULL, price DECIMAL(12,2), made DATETIME(6), name VARCHAR(60))"
)
ROWS = (
    "INSERT INTO lake.t SELECT seq, seq * 7919 % 100000, seq / 7, '2020-01-01' + INTERVAL seq SECOND, "
    "CONCAT(MD5(seq), ' of ', seq * 31) FROM seq_1_to_{rows}"
)
TASK = """\
name: copied
task-mode: {mode}
target-database: {{type: iceberg, warehouse: warehouse}}
mysql-instances:
  - source-id: shop
    from: {{host: {host}, port: {port}, user: {user}, password-file: password}}
    block-allow-list: ours
    mydumper-config-name: two
block-allow-list: {{ours: {{do-dbs: [lake]}}}}
mydumpers: {{two: {{threads: {threads}}}}}
"""


def ours(server: Server, _rows: int, folder: Path, _jars: Path, mode: str = "full") -> list[str]:
    (folder / "password").write_text(server.password)
    (folder / "password").chmod(0o600)
    file = folder / "task.yaml"
    place = {"host": server.host, "port": server.port, "user": server.user}
    file.write_text(TASK.format(**place, threads=PARTITIONS, mode=mode))
    return [str(Path(sys.executable).with_name("pidts")), "run", str(file), "--until-synced"]


def by_hand(server: Server, rows: int, folder: Path, jars: Path) -> list[str]:
    (jar,) = jars.glob("mariadb-java-client-*.jar")
    # Spark quotes names as MySQL does only if the address names MySQL.
    url = f"jdbc:mysql://{server.host}:{server.port}/lake?permitMysqlScheme&sslMode=disable"
    reader = {
        "url": url,
        "driver": "org.mariadb.jdbc.Driver",
        "dbtable": "t",
        "user": server.user,
        "password": server.password,
        "partitionColumn": "id",
        "lowerBound": "1",
        "upperBound": str(rows + 1),
        "numPartitions": str(PARTITIONS),
        "fetchsize": "10000",
    }
    program = f"""\
from pyspark.sql import SparkSession
spark = (SparkSession.builder.master("local[{PARTITIONS}]").config("spark.jars", {str(jar)!r})
    .config("spark.ui.enabled", "false").config("spark.driver.memory", "2g").getOrCreate())
spark.read.format("jdbc").options(**{reader!r}).load().write.parquet({str(folder / "warehouse")!r})
spark.stop()
"""
    return [sys.executable, "-c", program]


CONTENDERS = {"ours": ours, "jdbc": by_hand}


def content(place: Path) -> tuple[int, int]:
    """Returns the number of rows that a reader sees, and a sum over their values."""
    from pyiceberg.catalog.sql import SqlCatalog

    if not (place / "catalog.db").exists():
        found = pa.concat_tables(pq.ParquetFile(path).read(["id", "k"]) for path in place.glob("*.parquet"))
    else:
        catalog = SqlCatalog("lake", uri=f"sqlite:///{place}/catalog.db", warehouse=f"file://{place}")
        found = catalog.load_table("lake.t").scan(selected_fields=("id", "k")).to_arrow()
        catalog.engine.dispose()
    return len(found), int(np.sum(found["id"].to_numpy() * (found["k"].to_numpy().astype(np.int64) + 1)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="the folder for the tables")
    options = parser.parse_args()
    about: dict[str, Any] = {"when": datetime.now(UTC).isoformat(timespec="seconds"), "machine": machine()}
    top = Path(tempfile.mkdtemp(dir=options.folder))
    spent: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    found: dict[str, tuple[int, int]] = {}
    try:
        get = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={DRIVER}", f"-DoutputDirectory={top}/jars"]
        subprocess.run(get, check=True)
        with sandbox.start_mariadb(options=("--innodb-buffer-pool-size=1G",)) as server:
            place = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
            with closing(pymysql.connect(**place, autocommit=True)) as session, session.cursor() as cursor:
                cursor.execute("CREATE DATABASE lake")
                cursor.execute("USE lake")
                cursor.execute("SET sql_log_bin = 0")
                cursor.execute(TABLE)
                cursor.execute(ROWS.format(rows=options.rows))
                cursor.execute("ANALYZE TABLE lake.t")
            for number in range(options.rounds):
                for name, made in list(CONTENDERS.items())[:: 1 if number % 2 else -1]:
                    folder = top / f"{name}-{number}"
                    folder.mkdir()
                    command = made(server, options.rows, folder, top / "jars")
                    begun = time.monotonic()
                    with (folder / "log").open("wb") as log:
                        done = subprocess.run(command, cwd=folder, stdout=log, stderr=log, env=os.environ, check=False)
                    spent[name].append(round(time.monotonic() - begun, 2))
                    if done.returncode:
                        raise SystemExit((folder / "log").read_text()[-3000:])
                    found[name] = content(folder / "warehouse")
                    shutil.rmtree(folder)
                print(
                    f"round {number}: " + ", ".join(f"{name} {each[-1]} s" for name, each in spent.items()), flush=True
                )
    finally:
        shutil.rmtree(top)
    if found["ours"] != found["jdbc"] or found["ours"][0] != options.rows:
        raise SystemExit(f"the copies differ: {found}")
    ratios = [theirs / own for own, theirs in zip(spent["ours"], spent["jdbc"], strict=True)]
    about |= {"rows": options.rows, "seconds": spent, "times_as_fast": round(statistics.median(ratios), 2)}
    print(f"{about['times_as_fast']} times as fast as Spark's JDBC reader (median)")
    path = HERE.parent / "results" / "iceberg.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(known | {"copy": about}, indent=2) + "\n")


if __name__ == "__main__":
    main()
