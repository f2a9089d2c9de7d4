"""Zones that programs write to, connected by tasks in several ways (pair, ring, …): no change returns or is lost."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pymysql
import pytest
from tests.running import NOT_THERE, connect
from tests.spark.commands import Run, Task

from pidts.model import Column, ColumnType, Key, Kind, Table, TableName
from pidts.sandbox import Server
from pidts.target.mysql import MySqlTarget
from pidts.zones import Feed, carried

pytestmark = [pytest.mark.spark, pytest.mark.long]

RunSql = Callable[..., list[tuple[Any, ...]]]
SHAPES: dict[str, list[Feed]] = {
    "pair": [("a", "b"), ("b", "a")],
    "mesh": list(itertools.permutations("abc", 2)),
    "mesh of four": list(itertools.permutations("abcd", 2)),
    "ring": [("a", "b"), ("b", "c"), ("c", "a")],
    "star": [("a", "b"), ("b", "a"), ("a", "c"), ("c", "a")],
}
"""The tasks of each way to connect zones; zone a is the center of the star."""


@pytest.fixture
def servers(
    mariadb: Server, mysql97: Server, mysql56: Server, target_server: Callable[[str], Server], shape: str, database: str
) -> dict[str, Server]:
    """Returns a server for each zone of the shape."""
    names = sorted({name for feed in SHAPES[shape] for name in feed})
    kinds = [mariadb, mysql97, mysql56]
    if len(names) > len(kinds):
        kinds.append(target_server("mariadb"))
        with closing(connect(kinds[-1])) as session:
            session.cursor().execute(f"CREATE DATABASE {database}")
    return dict(zip(names, kinds, strict=False))


class Zones:
    """Servers, the tasks between them, and what was written on each. All rows begin in zone `a`."""

    def __init__(
        self,
        servers: dict[str, Server],
        make_task: Callable[..., Task],
        database: str,
        run_sql: RunSql,
        feeds: Sequence[Feed],
        **pidts: Any,
    ) -> None:
        self.pidts = pidts
        self.servers, self.database, self._run_sql = servers, database, run_sql
        self.numbers = {zone: itertools.count(1 + 1_000_000 * place) for place, zone in enumerate(servers)}
        self.tasks = {
            pair: self._task(make_task, *pair, "all" if "a" in zones else "incremental", sorted(zones - {pair[0]}))
            for pair, zones in carried(feeds).items()
        }
        self.copies = [pair for pair in feeds if "a" in carried(feeds)[pair]]

    def _task(
        self, make_task: Callable[..., Task], source: str, target: str, mode: str, forwards: Sequence[str]
    ) -> Task:
        return make_task(
            self.servers[source],
            self.servers[target],
            [self.database],
            name=f"{source}{target}_{self.database}",
            pidts={
                "zone": source,
                "target-zone": target,
                "forward": forwards,
                "relay": f"relay_{source}{target}",
                **self.pidts,
            },
            **{"task-mode": mode},
        )

    def sql(self, zone: str, statement: str) -> list[tuple[Any, ...]]:
        return self._run_sql(self.servers[zone], statement, database=self.database)

    def rows(self, zone: str, table: str) -> list[tuple[Any, ...]] | None:
        columns = self.sql(
            zone,
            "SELECT column_name FROM information_schema.columns "
            f"WHERE table_schema = '{self.database}' AND table_name = '{table}' ORDER BY 1",
        )
        if not columns:
            return None
        return self.sql(zone, f"SELECT {', '.join(name for (name,) in columns)} FROM {table} ORDER BY id")

    def is_equal(self, *tables: str) -> bool:
        zones = list(self.servers)
        return all(self.rows(zones[0], table) == self.rows(zone, table) for table in tables for zone in zones[1:])

    def write(self, zone: str) -> None:
        """Writes a new row, a change of a row of this zone, and a removal of another, in one transaction or in several."""
        number = next(self.numbers[zone])
        self.sql(zone, f"INSERT INTO t (id, n, text) VALUES ({number}, 0, '{zone}')")
        self.sql(zone, f"UPDATE t SET n = n + 1 WHERE id BETWEEN {number - 9} AND {number}")
        self.sql(zone, f"DELETE FROM t WHERE id = {number - 20}")

    def place(self, zone: str) -> tuple[Any, ...]:
        try:
            return self._run_sql(self.servers[zone], "SHOW BINARY LOG STATUS")[0][:2]
        except NOT_THERE:
            return self._run_sql(self.servers[zone], "SHOW MASTER STATUS")[0][:2]

    def end(self) -> tuple[Any, ...]:
        return tuple(map(self.place, self.servers))

    def is_stalled(self, seconds: float = 10) -> bool:
        """Returns whether no zone's log grows within this time."""
        before = self.end()
        time.sleep(seconds)
        return self.end() == before

    def begun(self, source: str, target: str) -> bool:
        """Returns whether the task from one zone to another has begun."""
        task = f"{source}{target}_{self.database}"
        try:
            return bool(self.sql(target, f"SELECT 1 FROM pidts_meta.checkpoint WHERE task = '{task}'"))
        except NOT_THERE:
            return False

    def locks(self) -> list[tuple[Any, ...]]:
        asked = f"SELECT * FROM pidts_meta.row_lock WHERE task LIKE '%{self.database}'"
        return [lock for zone in self.servers for lock in self.sql(zone, asked)]

    def start(self) -> dict[tuple[str, str], Run]:
        """Copies zone `a` to all others, and then starts the other directions."""
        rows = ", ".join(f"({-1000 - number}, {number}, 'copied')" for number in range(500))
        self.sql("a", "CREATE TABLE t (id INT PRIMARY KEY, n INT NOT NULL, text VARCHAR(20))")
        self.sql("a", f"INSERT INTO t VALUES {rows}")
        self.sql("a", "CREATE TABLE leaving (id INT PRIMARY KEY)")
        copies = {}
        for pair in self.copies:
            run = copies[pair] = self.tasks[pair].start("--json")
            run.wait_until(lambda zone=pair[1]: self.rows("a", "t") == self.rows(zone, "t"), "the copy")
        others = {pair: task.start("--json") for pair, task in self.tasks.items() if pair not in copies}
        for pair, run in others.items():
            run.wait_until(lambda pair=pair: self.begun(*pair), "the start of the other directions")
        return copies | others


def pause_of(feeds: Sequence[Feed]) -> float:
    """Returns the pause between two writes of a program: two processors run all servers and tasks of a mesh of four
    zones.
    """
    return 0.02 if len(feeds) < 12 else 0.5


def third(zones: Zones, zone: str, number: int) -> None:
    """Writes a row into a zone, as a task whose source is not a zone does."""
    server = zones.servers[zone]
    int_ = ColumnType(Kind.INT)
    table = Table(
        TableName(zones.database, "t"),
        (Column("id", int_, nullable=False), Column("n", int_, nullable=False)),
        (Key("PRIMARY", ("id",), unique=True, primary=True),),
    )
    rows = pa.Table.from_pylist([{"id": number, "n": 3}], schema=table.arrow)
    target = MySqlTarget(server.host, server.port, server.user, server.password)
    with closing(target.connect()) as session:
        session.begin()
        assert session.load(table, rows)
        session.commit()


def equal(zones: Zones, tables: tuple[str, ...], runs: dict[tuple[str, str], Run], what: str) -> None:
    for run in runs.values():
        run.wait_until(lambda: zones.is_equal(*tables), what, 600)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("shape", SHAPES)
def test_each_write_reaches_each_other_zone_once(
    make_task: Callable[..., Task],
    servers: dict[str, Server],
    database: str,
    run_sql: RunSql,
    background: Callable[..., Any],
    shape: str,
) -> None:
    feeds, size = SHAPES[shape], len(servers)
    zones = Zones(servers, make_task, database, run_sql, feeds)
    runs = zones.start()
    last = list(servers)[-1]
    with ExitStack() as writers:
        for zone in servers:
            writers.enter_context(background(lambda zone=zone: zones.write(zone), pause_of(feeds)))
        time.sleep(3)
        zones.sql("a", "ALTER TABLE t ADD COLUMN from_a INT DEFAULT 7")
        time.sleep(2 * size)
        zones.sql(last, "ALTER TABLE t ADD COLUMN from_last INT DEFAULT 8")
        zones.sql(last, "CREATE TABLE made (id INT PRIMARY KEY, v INT)")
        zones.sql(last, "INSERT INTO made VALUES (1, 1)")
        time.sleep(2 * size)
        for run in runs.values():
            run.kill()
        zones.sql(last, "INSERT INTO made VALUES (2, 2)")
        runs = {pair: task.start("--json") for pair, task in zones.tasks.items()}
        time.sleep(5)
        runs[feeds[0]].kill()
        runs[feeds[0]] = zones.tasks[feeds[0]].start("--json")
        zones.sql(last, "DROP TABLE leaving")
        for place, zone in enumerate(servers):
            third(zones, zone, 5_000_000 + place)
        time.sleep(3)
    tables = ("t", "made", "leaving")
    equal(zones, tables, runs, "all zones are equal")
    assert zones.rows("a", "leaving") is None
    found = {row[2] for row in zones.rows(last, "t") or []}
    assert {5_000_000 + place for place in range(size)} <= found
    assert len([number for number in found if number <= -1000]) == 500
    runs[feeds[0]].wait_until(zones.is_stalled, "the logs of idle zones do not grow", 180)
    assert zones.locks() == []
    zones.sql("a", "INSERT INTO made VALUES (3, 3)")
    equal(zones, tables, runs, "the table that came from another zone")
    for run in runs.values():
        assert run.stop() == 0


@pytest.mark.timeout(900)
def test_a_pair_whose_servers_and_tasks_are_killed_ends_equal(
    make_task: Callable[..., Task],
    target_server: Callable[[str], Server],
    run_sql: RunSql,
    background: Callable[..., Any],
) -> None:
    """Programs write in both zones. Each server is killed, then all processes of a task, then everything at once."""
    servers = {"a": target_server("mariadb"), "b": target_server("mysql97")}
    for server in servers.values():
        run_sql(server, "CREATE DATABASE killed")
    zones = Zones(servers, make_task, "killed", run_sql, [("a", "b"), ("b", "a")])
    runs = zones.start()

    def write(zone: str) -> None:
        with suppress(pymysql.err.OperationalError):  # The zone's server is down.
            zones.write(zone)

    with background(lambda: write("a"), 0.02), background(lambda: write("b"), 0.02):
        for server in servers.values():
            time.sleep(3)
            server.kill()
            time.sleep(2)
            server.start()
        time.sleep(3)
        for run in runs.values():
            for pid in [*run.jvm(), *run.replicator()]:
                os.kill(pid, signal.SIGKILL)
        time.sleep(5)
        for killed in (*runs.values(), *servers.values()):
            killed.kill()
        for server in servers.values():
            server.start()
        runs = {pair: task.start("--json") for pair, task in zones.tasks.items()}
        time.sleep(5)
    equal(zones, ("t", "leaving"), runs, "both zones are equal")
    assert min(zones.sql(zone, "SELECT COUNT(*) FROM t WHERE id > 0")[0][0] for zone in servers) > 20
    assert zones.locks() == []
    for run in runs.values():
        assert run.stop() == 0


NEW_VERSION = "CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)"


def conflict(zones: Zones, zone: str, chance: random.Random) -> None:
    """Creates, changes, moves or removes one of a few rows, as the programs of other zones do at the same time.

    Versions grow by 1, so several zones often have equal versions.
    """
    key, other, number = chance.randrange(30), chance.randrange(30), chance.randrange(1000)
    kind = chance.random()
    if kind < 0.45:
        statement = f"UPDATE c SET v = v + 1, n = {number}, text = '{zone}' WHERE id = {key}"
    elif kind < 0.6:
        statement = f"DELETE FROM c WHERE id = {key}"
    elif kind < 0.7:
        statement = f"UPDATE IGNORE c SET id = {other}, v = {NEW_VERSION} WHERE id = {key}"
    else:
        statement = f"INSERT IGNORE INTO c VALUES ({key}, {NEW_VERSION}, {number}, '{zone}', {number} / 7)"
    with suppress(pymysql.err.OperationalError):  # After a deadlock with a task, the program tries again.
        zones.sql(zone, statement)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("shape", SHAPES)
def test_zones_that_write_the_same_rows_end_equal(
    make_task: Callable[..., Task],
    servers: dict[str, Server],
    database: str,
    run_sql: RunSql,
    background: Callable[..., Any],
    shape: str,
) -> None:
    """Programs write in both zones all the time, and all processes are killed meanwhile.

    Versions decide, and no row is locked.
    """
    feeds = SHAPES[shape]
    pause = pause_of(feeds)
    decided = {"conflict": "version", "version-column": "v"}
    zones = Zones(servers, make_task, database, run_sql, feeds, **decided)
    zones.sql("a", "CREATE TABLE c (id INT PRIMARY KEY, v BIGINT NOT NULL, n INT, text CHAR(9), d DECIMAL(9, 3))")
    zones.sql("a", f"INSERT INTO c VALUES (1, {NEW_VERSION}, 1, 'copied', 1.5), (2, {NEW_VERSION}, 2, NULL, NULL)")
    runs = zones.start()
    chances = {zone: random.Random(zone) for zone in servers}
    with ExitStack() as writers:
        for zone in servers:
            writers.enter_context(background(lambda zone=zone: conflict(zones, zone, chances[zone]), pause))
            writers.enter_context(background(lambda zone=zone: zones.write(zone), 2 * pause))
        time.sleep(6)
        for run in runs.values():
            run.kill()
        time.sleep(2)
        runs = {pair: task.start("--json") for pair, task in zones.tasks.items()}
        time.sleep(8)
        runs[feeds[0]].kill()
        time.sleep(2)
        runs[feeds[0]] = zones.tasks[feeds[0]].start("--json")
        time.sleep(5)
    equal(zones, ("c", "t"), runs, "all zones are equal")
    runs[feeds[0]].wait_until(zones.is_stalled, "the logs of idle zones do not grow", 180)
    assert zones.is_equal("c", "t")
    assert zones.rows("a", "c")
    assert zones.locks() == []
    for run in runs.values():
        assert run.stop() == 0


@pytest.mark.timeout(900)
def test_a_write_of_a_zone_that_does_not_own_the_row_is_set_aside(
    make_task: Callable[..., Task],
    mariadb: Server,
    mysql97: Server,
    database: str,
    run_sql: RunSql,
    background: Callable[..., Any],
) -> None:
    """In each zone, a program continuously writes rows that the zone owns. In zone b, rows of zone a are written, too.

    All processes are killed meanwhile.
    """
    ranges = {"schema": database, "table": "t"}
    owners = [{**ranges, "where": "id >= 1000000", "zone": "b"}, {**ranges, "zone": "a"}]
    owners += [{"schema": database, "table": "leaving", "zone": "a"}]
    servers = {"a": mariadb, "b": mysql97}
    zones = Zones(servers, make_task, database, run_sql, [("a", "b"), ("b", "a")], conflict="owner", owners=owners)
    runs = zones.start()

    def row(zone: str, key: int) -> list[tuple[Any, ...]]:
        return zones.sql(zone, f"SELECT n, text FROM t WHERE id = {key}")

    def why(pair: tuple[str, str]) -> dict[str, str]:
        found = zones.tasks[pair].command("locks", "list", str(zones.tasks[pair].path), "--json")
        assert found.returncode in (0, 5), found.stderr
        return {one["key"]: one["why"] for one in json.loads(found.stdout)["locks"]}

    with background(lambda: zones.write("a"), 0.05), background(lambda: zones.write("b"), 0.05):
        time.sleep(2)
        zones.sql("b", "UPDATE t SET n = 77 WHERE id = -1001")
        zones.sql("b", "DELETE FROM t WHERE id = -1002")
        zones.sql("b", "DELETE FROM t WHERE id = -1003")
        zones.sql("b", "INSERT INTO t VALUES (-1003, 88, 'hole')")
        zones.sql("b", "UPDATE t SET id = 3000000 WHERE id = -1004")
        time.sleep(3)
        for run in runs.values():
            run.kill()
        time.sleep(1)
        runs = {pair: task.start("--json") for pair, task in zones.tasks.items()}
        time.sleep(3)
    foreign = [-1001, -1002, -1003, -1004]

    def is_equal() -> bool:
        rows = [{one[0]: one for one in zones.rows(zone, "t") or [] if one[0] not in foreign} for zone in servers]
        return rows[0] == rows[1]

    for run in runs.values():
        run.wait_until(is_equal, "all other rows are equal")
    assert [row("a", key) for key in foreign] == [[(-key - 1000, "copied")] for key in foreign]
    assert row("b", -1001) == [(77, "copied")]
    assert row("a", 3_000_000) == [(4, "copied")], "the row that arrives in b's range is b's own"
    reason = "zone b has written a row that zone a owns"
    assert why(("b", "a")) == {f"id={key}": reason for key in foreign}
    assert why(("a", "b")) == {}
    zones.sql("a", "UPDATE t SET n = n + 1 WHERE id = -1001")
    runs["a", "b"].wait_until(lambda: set(why(("a", "b"))) == {"id=-1001"}, "the owner's change finds another row")
    for pair, how in ((("a", "b"), ("--take", "source")), (("b", "a"), ("--take", "keep"))):
        path = str(zones.tasks[pair].path)
        (lock,) = (
            one["id"]
            for one in json.loads(zones.tasks[pair].command("locks", "list", path, "--json").stdout)["locks"]
            if one["key"] == "id=-1001"
        )
        done = zones.tasks[pair].command("locks", "resolve", path, lock, *how, "--yes")
        assert done.returncode == 0, done.stderr
    assert row("a", -1001) == row("b", -1001) == [(2, "copied")]
    zones.sql("b", "TRUNCATE TABLE leaving")
    runs["b", "a"].wait_until(lambda: "foreign-write" in status_of(zones.tasks["b", "a"]), "the statement halts")
    for run in runs.values():
        run.stop()


def status_of(task: Task) -> str:
    return task.command("status", str(task.path)).stdout.decode()


def login(server: Server) -> dict[str, Any]:
    return {"host": server.host, "port": server.port, "user": server.user, "password": server.password}


@pytest.mark.timeout(900)
def test_one_file_runs_all_directions(
    tmp_path: Path,
    mariadb: Server,
    mysql97: Server,
    postgres: Server,
    database: str,
    run_sql: RunSql,
    background: Callable[..., Any],
    eventually: Callable[..., None],
) -> None:
    """Programs write in two zones, and a PostgreSQL gets the changes from the second one.

    All processes are killed meanwhile.
    """
    file = tmp_path / "zones.yaml"
    leaf = {"type": "postgresql", "database": "postgres", **login(postgres)}
    zones = {
        "servers": {"a": login(mariadb), "b": login(mysql97), "p": leaf},
        "feeds": {"a": ["b"], "b": ["a", "p"]},
        "rules": {"block-allow-list": "ours"},
    }
    content = {
        "name": f"z_{database}",
        "block-allow-list": {"ours": {"do-dbs": [database]}},
        "pidts": {"zones": zones, "relay": "relay", "spark": {"master": "local[1,4]"}},
    }
    file.write_text(json.dumps(content))
    numbers = {"a": itertools.count(1, 2), "b": itertools.count(2, 2)}
    servers = {"a": mariadb, "b": mysql97}
    run_sql(mariadb, "CREATE TABLE t (id INT PRIMARY KEY, n INT NOT NULL)", database=database)
    run_sql(mariadb, "INSERT INTO t VALUES (-1, 1), (-2, 2)", database=database)

    def write(zone: str) -> None:
        number = next(numbers[zone])
        run_sql(servers[zone], f"INSERT INTO t VALUES ({number}, 0)", database=database)
        run_sql(servers[zone], f"UPDATE t SET n = n + 1 WHERE id = {number}", database=database)

    def rows(zone: str) -> list[tuple[Any, ...]]:
        if zone == "p":
            return run_sql(postgres, f'SELECT id, n FROM "{database}".t ORDER BY id')
        return run_sql(servers[zone], "SELECT id, n FROM t ORDER BY id", database=database)

    def are_equal() -> bool:
        try:
            return rows("a") == rows("b") == rows("p")
        except NOT_THERE:
            return False

    def status() -> dict[str, Any]:
        found = task.command("status", str(file), "--json")
        assert found.returncode == 0, found.stderr
        said: dict[str, Any] = json.loads(found.stdout)
        return {f"{one['from']}{one['to']}": one["stage"] for one in said["directions"]}

    task = Task(file)
    try:
        first = task.start("--json")
        first.wait_until(are_equal, "the copy")
        first.wait_until(lambda: set(status().values()) == {"syncing"}, "all directions sync")
        with background(lambda: write("a"), 0.05), background(lambda: write("b"), 0.05):
            time.sleep(8)
            children = first.pids("pidts\0run", "zones.yaml@")
            assert len(children) == 3
            first.kill()
            time.sleep(2)
            second = task.start("--json")
            time.sleep(8)
        second.wait_until(are_equal, "all zones are equal")
        assert len(rows("a")) > 4
        assert set(status()) == {"ab", "ba", "bp"}
        assert second.stop() == 0
        last = json.loads(second.log.read_text().splitlines()[-1])
        assert {one["stage"] for one in last["directions"].values()} == {"stopped"}
        eventually(lambda: set(status().values()) == {"stopped"}, 60, "status says that nothing runs")
    finally:
        for run in task.runs:
            if run.process.poll() is None:
                run.stop()


MIGRATIONS = (
    "ALTER TABLE t ADD COLUMN c INT NOT NULL DEFAULT 7",
    "CREATE TABLE made (id INT PRIMARY KEY, v INT)",
    "ALTER TABLE t ADD INDEX by_n (n)",
    "RENAME TABLE former TO renamed",
    "ALTER TABLE t MODIFY COLUMN n BIGINT NOT NULL",
    "ALTER TABLE quiet DROP COLUMN v",
)


@pytest.mark.timeout(900)
def test_both_zones_run_the_same_migrations_at_once(
    tmp_path: Path,
    mariadb: Server,
    mysql97: Server,
    database: str,
    run_sql: RunSql,
    background: Callable[..., Any],
) -> None:
    """Programs write in both zones meanwhile, and all processes are killed between the migrations and during one of
    them.

    A task that finds a migration made continues, so a later migration of one zone arrives in the other.
    """
    file = tmp_path / "zones.yaml"
    content = {
        "name": f"z_{database}",
        "block-allow-list": {"ours": {"do-dbs": [database]}},
        "pidts": {
            "zones": {"servers": {"a": login(mariadb), "b": login(mysql97)}, "rules": {"block-allow-list": "ours"}},
            "relay": "relay",
            "spark": {"master": "local[1,4]"},
        },
    }
    file.write_text(json.dumps(content))
    servers = {"a": mariadb, "b": mysql97}
    numbers = {"a": itertools.count(1, 2), "b": itertools.count(2, 2)}

    def sql(zone: str, statement: str) -> list[tuple[Any, ...]]:
        return run_sql(servers[zone], statement, database=database)

    sql("a", "CREATE TABLE t (id INT PRIMARY KEY, n INT NOT NULL)")
    sql("a", "CREATE TABLE former (id INT PRIMARY KEY)")
    sql("a", "CREATE TABLE quiet (id INT PRIMARY KEY, v INT)")
    for table in ("t", "quiet"):
        sql("a", f"INSERT INTO {table} VALUES (-1, 1), (-2, 2)")

    def write(zone: str) -> None:
        number = next(numbers[zone])
        sql(zone, f"INSERT INTO t (id, n) VALUES ({number}, 0)")
        sql(zone, f"UPDATE t SET n = n + 1 WHERE id = {number}")

    def tables(zone: str) -> dict[str, list[tuple[Any, ...]]]:
        """Returns the rows of all tables, with columns in the order of their names."""
        asked = f"SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = '{database}'"
        columns: dict[str, list[str]] = {}
        for table, column in sorted(sql(zone, asked)):
            columns.setdefault(table, []).append(column)
        return {one: sql(zone, f"SELECT {', '.join(names)} FROM {one} ORDER BY id") for one, names in columns.items()}

    def are_equal() -> bool:
        try:
            return tables("a") == tables("b")
        except NOT_THERE:
            return False  # A table was renamed between two readings.

    def stages() -> set[str]:
        found = task.command("status", str(file), "--json")
        return {one["stage"] for one in json.loads(found.stdout)["directions"]}

    def migrate(statement: str) -> None:
        """Runs a statement in both zones at the same moment."""
        with ThreadPoolExecutor(2) as both:
            for done in [both.submit(sql, zone, statement) for zone in servers]:
                done.result()

    task = Task(file)
    try:
        run = task.start("--json")
        run.wait_until(are_equal, "the copy")
        run.wait_until(lambda: stages() == {"syncing"}, "both directions sync")
        with background(lambda: write("a"), 0.05), background(lambda: write("b"), 0.05):
            for number, statement in enumerate(MIGRATIONS):
                time.sleep(2)
                migrate(statement)
                if number % 2:
                    time.sleep(number / 2)
                    run.kill()
                    run = task.start("--json")
        run.wait_until(are_equal, "both zones are equal")
        run.wait_until(lambda: stages() == {"syncing"}, "both directions still sync")
        assert {"made", "quiet", "renamed", "t"} == tables("a").keys()
        assert len(tables("a")["t"][0]) == 3
        sql("b", "ALTER TABLE t ADD COLUMN from_b INT NOT NULL DEFAULT 8")
        sql("b", "INSERT INTO made VALUES (1, 1)")
        run.wait_until(are_equal, "a later migration of one zone")
        assert len(tables("a")["t"][0]) == 4
        asked = f"SELECT task FROM pidts_meta.row_lock WHERE task LIKE 'z_{database}%'"
        assert [lock for zone in servers for lock in sql(zone, asked)] == []
        assert run.stop() == 0
    finally:
        for one in task.runs:
            if one.process.poll() is None:
                one.stop()


@pytest.mark.timeout(900)
def test_a_row_that_two_zones_have_written_is_one_row_again_by_the_recipe(
    tmp_path: Path, mariadb: Server, mysql97: Server, database: str, run_sql: RunSql
) -> None:
    """The recipe is in docs/operate/zones.md: one command ends a row's locks in both zones. Each kind of conflict has a
    row.
    """
    file = tmp_path / "zones.yaml"
    zones = {"servers": {"a": login(mariadb), "b": login(mysql97)}, "rules": {"block-allow-list": "ours"}}
    content = {
        "name": f"z_{database}",
        "block-allow-list": {"ours": {"do-dbs": [database]}},
        "pidts": {"zones": zones, "relay": "relay", "spark": {"master": "local[1,4]"}},
    }
    file.write_text(json.dumps(content))
    servers = {"a": mariadb, "b": mysql97}
    run_sql(mariadb, "CREATE TABLE t (id INT PRIMARY KEY, n INT NOT NULL, more INT)", database=database)
    run_sql(mariadb, "INSERT INTO t VALUES (1, 0, 0), (2, 0, 0), (3, 0, 0), (4, 0, 0)", database=database)

    def rows(zone: str) -> list[tuple[Any, ...]]:
        try:
            return run_sql(servers[zone], "SELECT id, n, more FROM t ORDER BY id", database=database)
        except NOT_THERE:
            return []

    def asked(*words: str) -> Any:
        done = task.command(*words, "--json")
        assert done.returncode in {0, 4, 5}, done.stdout + done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    def locked(direction: str) -> dict[int, str]:
        found = asked("locks", "list", f"{file}@{direction}")
        return {int(one["key"].strip("()").rpartition("=")[2]): one["id"] for one in found["locks"]}

    def resolve(direction: str, lock: str, *how: str) -> None:
        asked("locks", "resolve", f"{file}@{direction}", lock, *how, "--yes")

    task = Task(file)
    run = task.start("--json")
    try:
        run.wait_until(lambda: len(rows("b")) == 4, "the copy")
        run.wait_until(
            lambda: {one["stage"] for one in asked("status", str(file))["directions"]} == {"syncing"}, "both sync"
        )
        assert run.stop() == 0
        run_sql(mariadb, "UPDATE t SET n = 1 WHERE id IN (1, 2)", database=database)
        run_sql(mysql97, "UPDATE t SET n = 2, more = 2 WHERE id = 1", database=database)
        run_sql(mysql97, "DELETE FROM t WHERE id = 2", database=database)
        run_sql(mariadb, "DELETE FROM t WHERE id = 3", database=database)
        run_sql(mysql97, "UPDATE t SET n = 3 WHERE id = 3", database=database)
        run = task.start("--json")
        run.wait_until(lambda: len(locked("a-b")) == len(locked("b-a")) == 3, "both have their locks")

        # Both zones have changed row 1.
        resolve("a-b", locked("a-b")[1], "--take", "source")
        # Zone b has deleted row 2. With `keep`, row 2 is deleted in zone a, too, where a program then inserts it again.
        resolve("a-b", locked("a-b")[2], "--take", "keep")
        assert [row[0] for row in rows("a")] == [1, 4]
        run_sql(mariadb, "INSERT INTO t VALUES (2, 1, 0)", database=database)
        # Zone a has deleted row 3.
        resolve("b-a", locked("b-a")[3], "--take", "keep")
        assert locked("a-b") == locked("b-a") == {}
        run.wait_until(lambda: rows("a") == rows("b"), "both zones are equal")
        assert rows("a") == [(1, 1, 0), (2, 1, 0), (4, 0, 0)]
        # Later writes of both zones arrive as usual.
        run_sql(mariadb, "UPDATE t SET n = 9 WHERE id = 1", database=database)
        run.wait_until(lambda: rows("b")[0] == (1, 9, 0), "a change of zone a")
        run_sql(mysql97, "UPDATE t SET n = 10 WHERE id IN (1, 2)", database=database)
        run.wait_until(lambda: rows("a") == rows("b") == [(1, 10, 0), (2, 10, 0), (4, 0, 0)], "changes of zone b")
        assert locked("a-b") == locked("b-a") == {}
        assert run.stop() == 0
    finally:
        for one in task.runs:
            if one.process.poll() is None:
                one.stop()


@pytest.mark.timeout(900)
def test_rows_move_to_another_owner_while_both_zones_write(
    tmp_path: Path,
    mariadb: Server,
    mysql97: Server,
    database: str,
    run_sql: RunSql,
    background: Callable[..., Any],
) -> None:
    """The first command is killed while it waits, and then all processes are killed. The second command ends the move."""
    file = tmp_path / "zones.yaml"
    zones = {"servers": {"a": login(mariadb), "b": login(mysql97)}, "rules": {"block-allow-list": "ours"}}
    owners = [
        {"schema": database, "table": "t", "where": "region = 'eu'", "zone": "a"},
        {"schema": database, "table": "t", "zone": "b"},
    ]
    pidts = {
        "zones": zones,
        "conflict": "owner",
        "owners": owners,
        "relay": "relay",
        "spark": {"master": "local[1,4]"},
    }
    content = {"name": f"z_{database}", "block-allow-list": {"ours": {"do-dbs": [database]}}, "pidts": pidts}
    file.write_text(json.dumps(content))
    servers = {"a": mariadb, "b": mysql97}
    run_sql(mariadb, "CREATE TABLE t (id INT PRIMARY KEY, region VARCHAR(8), n INT NOT NULL)", database=database)
    run_sql(mariadb, "INSERT INTO t VALUES (1, 'eu', 0), (2, 'us', 0)", database=database)
    eu = f"{database}.t where region = 'eu'"

    def rows(zone: str) -> list[tuple[Any, ...]]:
        try:
            return run_sql(servers[zone], "SELECT id, region, n FROM t ORDER BY id", database=database)
        except NOT_THERE:
            return []

    def write(zone: str, key: int) -> None:
        run_sql(servers[zone], f"UPDATE t SET n = n + 1 WHERE id = {key}", database=database)

    def asked(*words: str) -> Any:
        done = task.command(*words, "--json")
        assert done.returncode in {0, 4, 5}, done.stdout + done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    def locked() -> dict[str, list[str]]:
        found = {one: asked("locks", "list", f"{file}@{one}")["locks"] for one in ("a-b", "b-a")}
        return {one: [lock["why"] for lock in locks] for one, locks in found.items()}

    def owner() -> dict[str, str]:
        said: dict[str, str] = asked("zones", "owners", str(file))[eu]
        return said

    task = Task(file)
    run = task.start("--json")
    try:
        run.wait_until(lambda: len(rows("b")) == 2, "the copy")
        run.wait_until(
            lambda: {one["stage"] for one in asked("status", str(file))["directions"]} == {"syncing"}, "both sync"
        )
        assert owner() == {"a": "a", "b": "a"}
        shown = task.command("zones", "move", str(file), eu, "--to", "b")
        assert shown.returncode == 0, shown.stderr
        assert owner() == {"a": "a", "b": "a"}
        with background(lambda: write("a", 1), 0.02), background(lambda: write("b", 2), 0.02):
            time.sleep(3)
            command = [sys.executable, "-m", "pidts", "zones", "move", str(file), eu, "--to", "b", "--yes"]
            with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as first:
                assert first.stderr is not None
                said = first.stderr.readline()
                assert "wait, until the other zones have caught up" in said
                first.kill()
            assert set(owner().values()) == {"a"}
            time.sleep(2)
            run.kill()
            time.sleep(1)
            run = task.start("--json")
        run.wait_until(lambda: rows("a") == rows("b"), "the zones are equal")
        assert locked() == {"a-b": [], "b-a": []}, "zone a was the owner all the time"
        with background(lambda: write("b", 2), 0.02):
            moved = task.command("zones", "move", str(file), eu, "--to", "b", "--yes")
            assert moved.returncode == 0, moved.stderr
            assert owner() == {"a": "b", "b": "b"}
            for _ in range(20):
                write("b", 1)
        run.wait_until(lambda: rows("a") == rows("b"), "what the new owner writes arrives")
        assert locked() == {"a-b": [], "b-a": []}
        write("a", 1)
        run.wait_until(lambda: bool(locked()["a-b"]), "a write of the former owner is set aside")
        assert locked() == {"a-b": ["zone a has written a row that zone b owns"], "b-a": []}
        assert run.stop() == 0
        run = task.start("--json")
        write("b", 2)
        run.wait_until(lambda: rows("a")[1] == rows("b")[1], "a new start knows the owner")
        assert run.stop() == 0
    finally:
        for one in task.runs:
            if one.process.poll() is None:
                one.stop()
