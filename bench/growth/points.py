"""Measures each axis at one size: starts two private MariaDB servers and a task between them, and measures commands."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import beside  # noqa: F401 - makes the next imports possible
import yaml
from commands import Meter, following, status, until_synced
from curves import Axis, Spent
from followed import task_file
from idle import below
from tests.running import NOT_THERE, Progress, connect
from tests.spark.standalone_cluster import FOR_A_SHORT_LIFE, standalone_cluster

from pidts import sandbox
from pidts.sandbox import Server

_SERVER = ("--innodb-buffer-pool-size=1G", "--max-binlog-size=1G", "--max-connections=2000", "--performance-schema=OFF")
_FOLLOWED = 20_000
"""The number of one-row transactions that a running task has to apply."""
_COLUMN_ROWS = 20_000
_PER_TRANSACTION = 100
_WORKED_ROWS = 100_000
_SHARD_ROWS = 10
_PAD = "RPAD(MD5({0}), 990, MD5({0} * 7))"
_PADDED = "CREATE TABLE padded (id BIGINT PRIMARY KEY, n INT NOT NULL, c VARCHAR(1000) CHARACTER SET latin1 NOT NULL)"
_ONE_BY_ONE = (
    "CREATE PROCEDURE one_by_one(behind INT) BEGIN DECLARE j INT DEFAULT 0; WHILE j < behind DO "
    "EXECUTE IMMEDIATE CONCAT('INSERT INTO {}', ', j, \", 'a change')\"); SET j = j + 1; END WHILE; END"
)
_CHANGES = (
    "CREATE PROCEDURE changes(k BIGINT, behind BIGINT) BEGIN DECLARE at BIGINT; WHILE k < behind DO SET at = k * 60; "
    f"START TRANSACTION; INSERT INTO padded SELECT at + seq, seq, {_PAD.format('(at + seq)')} FROM seq_0_to_59; "
    "UPDATE padded SET n = n + 1 WHERE id BETWEEN at - 60 AND at - 31; "
    "DELETE FROM padded WHERE id BETWEEN at - 30 AND at - 21; COMMIT; SET k = k + 1; END WHILE; END"
)
"""A procedure for transactions of 60 inserts, 30 updates and 10 deletes. No row is changed twice after its insert."""
_CHANGES_BYTES = 133_000
"""The approximate size of one transaction of `_CHANGES` in the log."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A source, a target and the task between them."""

    source: Server
    target: Server
    task: Path
    cursor: Any
    """A cursor on the source."""
    asked: Any
    """A cursor on the target."""

    def run(self, *statements: str) -> None:
        """Runs statements on the source, in its database `bench`."""
        for statement in statements:
            self.cursor.execute(statement)

    def change(self, **top: Any) -> None:
        """Changes keys of the task file. A mapping is merged into the earlier mapping of the key."""
        task = yaml.safe_load(self.task.read_text())
        for name, value in top.items():
            key = name.replace("_", "-")
            task[key] = task.get(key, {}) | value if isinstance(value, dict) else value
        self.task.write_text(yaml.safe_dump(task))

    def instance(self) -> dict[str, Any]:
        """Returns the task file's entry of the source."""
        found: dict[str, Any] = yaml.safe_load(self.task.read_text())["mysql-instances"][0]
        return found

    def has_all(self) -> Callable[[], bool]:
        """Returns whether all tables are copied, and the target has all changes of the source, as a function."""
        progress = Progress(self.asked.connection, task="growth")
        has = progress.has(self.cursor.connection)
        return lambda: progress.is_copied() and has()

    def followed(
        self, meter: Meter, wait_until: Callable[[Callable[[], bool]], None], *statements: str, amount: int
    ) -> Spent:
        """Runs statements on the source. Returns the time and memory that the running task uses until it has applied
        the statements.
        """
        before = meter.spent()
        self.run(*statements)
        wait_until(self.has_all())
        return replace(meter.since(before), amount=amount)

    def finds(self, query: str) -> Callable[[], bool]:
        """Returns a function that says whether a query on the target finds a row."""

        def is_there() -> bool:
            with suppress(*NOT_THERE):
                self.asked.execute(query)
                return self.asked.fetchone() is not None
            return False

        return is_there


@contextmanager
def pair(folder: Path) -> Iterator[Pair]:
    """Starts both servers in this folder."""
    with ExitStack() as stack:
        source = stack.enter_context(sandbox.start_mariadb(folder / "source", _SERVER))
        target = stack.enter_context(sandbox.start_mariadb(folder / "target", _SERVER))
        cursors = [stack.enter_context(closing(connect(server))).cursor() for server in (source, target)]
        cursors[0].execute("CREATE DATABASE bench")
        cursors[0].execute("USE bench")
        place = folder / "task"
        place.mkdir()
        yield Pair(source, target, task_file("growth", source, target, place), *cursors)


def tables(size: int, folder: Path) -> dict[str, Spent]:
    """Copies this number of tables of three columns, then applies changes; returns what each part has used."""
    with pair(folder) as at:
        at.run("SET sql_log_bin = 0")
        for number in range(size):
            at.run(f"CREATE TABLE t{number} (id INT PRIMARY KEY, n INT NOT NULL, c VARCHAR(40))")
            at.run(f"INSERT INTO t{number} VALUES (1, 1, 'a row')")
        at.run("SET sql_log_bin = 1")
        found = {"first start, with the copy": until_synced(at.task, amount=size)}
        at.run(f"INSERT INTO t{size - 1} VALUES (2, 2, 'a change')")
        at.run(_ONE_BY_ONE.format(f"t', j % {size}, ' VALUES (', j + 10, "))
        with following(at.task) as (meter, wait_until):
            wait_until(at.finds(f"SELECT 1 FROM bench.t{size - 1} WHERE id = 2"))
            found["start"] = meter.spent()
            found["changes"] = at.followed(meter, wait_until, f"CALL one_by_one({_FOLLOWED})", amount=_FOLLOWED)
        found["status"] = status(at.task)
    return found


def shards(size: int, folder: Path) -> dict[str, Spent]:
    """Merges this number of tables into one, and alters each; returns what each part has used."""
    with pair(folder) as at:
        merged = {"schema-pattern": "bench", "table-pattern": "s*", "target-schema": "bench", "target-table": "m"}
        at.change(
            shard_mode="pessimistic",
            routes={"all": merged},
            ignore_checking_items=["auto_increment_ID"],
            mysql_instances=[at.instance() | {"route-rules": ["all"]}],
        )
        at.run("SET sql_log_bin = 0")
        for number in range(size):
            first = number * 1_000_000
            at.run(f"CREATE TABLE s{number} (id BIGINT PRIMARY KEY, n INT NOT NULL, c VARCHAR(40))")
            at.run(f"INSERT INTO s{number} SELECT {first} + seq, seq, 'a row' FROM seq_1_to_{_SHARD_ROWS}")
        at.run("SET sql_log_bin = 1")
        found = {"first start, with the copy": until_synced(at.task, amount=size)}
        at.run(f"INSERT INTO s{size - 1} VALUES ({size * 1_000_000 - 1}, 2, 'a change')")
        key = f"(j % {size}) * 1000000 + 1000 + j DIV {size}"
        at.run(_ONE_BY_ONE.format(f"s', j % {size}, ' VALUES (', {key}, "))
        with following(at.task) as (meter, wait_until):
            wait_until(at.finds(f"SELECT 1 FROM bench.m WHERE id = {size * 1_000_000 - 1}"))
            found["start"] = meter.spent()
            found["changes"] = at.followed(meter, wait_until, f"CALL one_by_one({_FOLLOWED})", amount=_FOLLOWED)
            altered = (f"ALTER TABLE s{number} ADD COLUMN d INT NOT NULL DEFAULT 7" for number in range(size))
            found["ALTER TABLE of each shard"] = at.followed(meter, wait_until, *altered, amount=size)
        at.asked.execute("SELECT COUNT(*) FROM bench.m WHERE d = 7")
        expect(at.asked.fetchone()[0], size * _SHARD_ROWS + _FOLLOWED + 1)
        found["status"] = status(at.task)
    return found


def columns(size: int, folder: Path) -> dict[str, Spent]:
    """Copies a table with this number of columns, then applies changes; returns what each part has used."""
    kinds = ("INT", "VARCHAR(10) CHARACTER SET latin1", "DATETIME", "DECIMAL(10,2)", "DOUBLE")
    values = ("seq", "LEFT(MD5(seq * {}), 10)", "'2026-01-01' + INTERVAL seq SECOND", "seq / 4", "seq / 7")
    others = range(size - 1)
    made = ", ".join(f"c{each} {kinds[each % len(kinds)]} NOT NULL" for each in others)
    row = ", ".join(values[each % len(values)].format(each + 1) for each in others)
    with pair(folder) as at:
        at.run(f"CREATE TABLE wide (id INT PRIMARY KEY, {made})")
        at.run("SET sql_log_bin = 0", f"INSERT INTO wide SELECT seq, {row} FROM seq_1_to_{_COLUMN_ROWS}")
        at.run("SET sql_log_bin = 1")
        found = {"first start, with the copy": until_synced(at.task)}
        with following(at.task) as (meter, wait_until):
            wait_until(at.has_all())
            ends = range(_COLUMN_ROWS, 2 * _COLUMN_ROWS, _PER_TRANSACTION)
            inserts = (f"INSERT INTO wide SELECT seq, {row} FROM seq_{k + 1}_to_{k + _PER_TRANSACTION}" for k in ends)
            found["changes"] = at.followed(meter, wait_until, *inserts, amount=_COLUMN_ROWS * size)
        at.asked.execute("SELECT COUNT(*) FROM bench.wide")
        expect(at.asked.fetchone()[0], 2 * _COLUMN_ROWS)
    return found


def transaction(size: int, folder: Path) -> dict[str, Spent]:
    """Applies one transaction that inserts this number of rows of 1 KB; returns what each part has used."""
    with pair(folder) as at:
        at.run(_PADDED)
        with following(at.task) as (meter, wait_until):
            wait_until(at.has_all())
            found = {"start": meter.spent()}
            insert = f"INSERT INTO padded SELECT seq, seq, {_PAD.format('seq')} FROM seq_1_to_{size}"
            found["changes"] = at.followed(meter, wait_until, insert, amount=size)
        at.asked.execute("SELECT COUNT(*) FROM bench.padded")
        expect(at.asked.fetchone()[0], size)
    return found


def backlog(size: int, folder: Path) -> dict[str, Spent]:
    """Applies this number of megabytes of log, written while no task ran; returns what this has used."""
    with pair(folder) as at:
        at.run(_PADDED, _CHANGES)
        until_synced(at.task)
        transactions = max(1, size * 1_000_000 // _CHANGES_BYTES)
        at.run(f"CALL changes(0, {transactions})")
        found = {"start and changes": until_synced(at.task, amount=transactions * _PER_TRANSACTION)}
        at.cursor.execute("SELECT COUNT(*) FROM padded")
        wanted = at.cursor.fetchone()[0]
        at.asked.execute("SELECT COUNT(*) FROM bench.padded")
        expect(at.asked.fetchone()[0], wanted)
    return found


def workers(size: int, folder: Path) -> dict[str, Spent]:
    """Applies `_WORKED_ROWS` changes with `size` workers, each in an executor of its own on a standalone cluster.

    Spark's processes have started before the measurement begins.
    """
    (folder / "cluster").mkdir()
    with standalone_cluster(folder / "cluster", size) as cluster, pair(folder) as at:
        conf = {
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.cores.max": str(size),
            "spark.executor.extraJavaOptions": FOR_A_SHORT_LIFE,
        }
        at.change(
            syncers={"global": {"worker-count": size}},
            pidts={"spark": {"master": cluster.url, "direct-rows": 0, "conf": conf}},
            mysql_instances=[at.instance() | {"syncer-config-name": "global"}],
        )
        at.run(_PADDED, _CHANGES)
        with following(at.task, daemons()) as (meter, wait_until):
            at.run(f"CALL changes(0, {20 * size})")
            wait_until(at.has_all())
            changes = f"CALL changes({20 * size}, {20 * size + _WORKED_ROWS // _PER_TRANSACTION})"
            return {"changes": at.followed(meter, wait_until, changes, amount=_WORKED_ROWS)}


def daemons() -> dict[str, int]:
    """Returns the workers of the standalone cluster, which are children of this process, by number."""
    found = {}
    for pid in below(os.getpid()):
        with suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
            if "org.apache.spark.deploy.worker.Worker" in words:
                found[f"worker {Path(words[words.index('--work-dir') + 1]).name.removeprefix('worker-')}"] = pid
    return found


def expect(found: int, wanted: int) -> None:
    if found != wanted:
        raise AssertionError(f"the target has {found} rows, not {wanted}")


AXES = {
    axis.name: axis
    for axis in (
        Axis("tables", "tables", (10, 100, 1_000, 5_000, 20_000), 20_000, tables),
        Axis("columns", "columns", (5, 50, 125, 250, 500), 500, columns),
        Axis(
            "transaction", "rows in one transaction", (1, *(10**each for each in range(3, 8))), 1_000_000, transaction
        ),
        Axis("backlog", "MB of log", (50, 200, 1_000, 5_000, 10_000, 50_000), 5_000, backlog),
        Axis("shards", "shards", (2, 10, 30, 100, 300, 1_000), 1_000, shards),
        Axis("workers", "workers", (1, 2, 4, 8), 8, workers),
    )
}
