"""Which tables two zones may put together if both have rows, and which other tasks may be there."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests.forked_programs import LoadedPrograms
from tests.running import NOT_THERE
from tests.spark.commands import Run
from tests.task.zones.returning_pair import RunSql

from pidts.model import PrecheckFailed
from pidts.rules import AllowList
from pidts.rules.record import allow_list_to_text
from pidts.sandbox import Server
from pidts.task.checks.joining.both_have_rows import forwarding
from pidts.task.checks.task_records import merged_tables
from pidts.task.config.task_file import load_directions, load_task
from pidts.task.config.zones_file import path_of

COLUMNS = "(id INT PRIMARY KEY, u INT, changed DATETIME(6) NOT NULL"


class Shop:
    """Two zones with one table, both with rows."""

    def __init__(
        self, folder: Path, servers: dict[str, Server], database: str, run_sql: RunSql, programs: LoadedPrograms
    ) -> None:
        self.file, self.servers, self.database = folder / "zones.yaml", servers, database
        self._run_sql, self._programs, self._logs = run_sql, programs, itertools.count()
        for zone in servers:
            self.sql(zone, f"CREATE TABLE t {COLUMNS})")
            self.sql(zone, f"INSERT INTO t VALUES ({ord(zone)}, 1, NOW(6))")
        self.write_file(both=True)

    def sql(self, zone: str, statement: str) -> list[tuple[object, ...]]:
        return self._run_sql(self.servers[zone], statement, database=self.database)

    def write_file(self, *, both: bool, conflict: str = "version") -> None:
        zones = {
            zone: {"host": one.host, "port": one.port, "user": one.user, "password": one.password}
            for zone, one in self.servers.items()
        }
        ours = {
            "zones": {"servers": zones, "rules": {"block-allow-list": "ours"}},
            "relay": "relay",
            "conflict": conflict,
            **({"version-column": "changed"} if conflict == "version" else {}),
            **({"both-have-rows": True} if both else {}),
        }
        content = {
            "name": f"m_{self.database}",
            "block-allow-list": {"ours": {"do-dbs": [self.database]}},
            "pidts": ours,
        }
        self.file.write_text(json.dumps(content))

    def check(self, direction: str) -> str:
        return self._programs.run(["check", f"{self.file}@{direction}"], 200).stdout.decode()

    @contextmanager
    def started(self, direction: str) -> Iterator[Run]:
        """Runs a direction in the background."""
        with self.started_file(Path(f"{self.file}@{direction}")) as run:
            yield run

    def write_single(self, source: str, target: str, *, both: bool) -> Path:
        """Writes a file for one direction. Without `both`, its task copies no rows."""
        servers = {
            zone: {"host": one.host, "port": one.port, "user": one.user, "password": one.password}
            for zone, one in self.servers.items()
        }
        content = {
            "name": f"s_{self.database}_{source}_{target}",
            "task-mode": "all" if both else "incremental",
            "target-database": {"type": "mysql", **servers[target]},
            "mysql-instances": [{"source-id": source, "from": servers[source], "block-allow-list": "ours"}],
            "block-allow-list": {"ours": {"do-dbs": [self.database]}},
            "pidts": {
                "zone": source,
                "target-zone": target,
                "relay": "relay",
                "conflict": "version",
                "version-column": "changed",
                **({"both-have-rows": True} if both else {}),
            },
        }
        path = self.file.with_name(f"{source}-{target}.yaml")
        path.write_text(json.dumps(content))
        return path

    @contextmanager
    def started_file(self, path: Path) -> Iterator[Run]:
        log = path.with_name(f"{path.name}.{next(self._logs)}.log")
        with log.open("wb") as output:
            run = Run(self._programs.start(["run", str(path)], output, output), log)
            try:
                yield run
            finally:
                run.kill()

    def waits(self, zone: str) -> bool:
        """Whether the task into this zone has its place in the log, and waits for the task of the other direction."""
        asked = f"SELECT 1 FROM pidts_meta.note WHERE task LIKE 'm_{self.database}-%' AND table_name = 'both have rows'"
        with suppress(*NOT_THERE):
            return bool(self.sql(zone, asked))
        return False

    def refusal(self, direction: str = "a-b") -> str:
        ran = self._programs.run(["run", f"{self.file}@{direction}", "--until-synced"], 200)
        assert ran.returncode == PrecheckFailed.exit_code, ran.stderr.decode()
        return ran.stderr.decode()


@pytest.fixture
def shop(
    tmp_path: Path, mariadb: Server, mysql97: Server, database: str, run_sql: RunSql, programs: LoadedPrograms
) -> Shop:
    return Shop(tmp_path, {"a": mariadb, "b": mysql97}, database, run_sql, programs)


@pytest.mark.timeout(600)
def test_tables_that_cannot_be_put_together(shop: Shop) -> None:
    for conflict in ("version", "lock"):
        shop.write_file(both=False, conflict=conflict)
        assert "both-have-rows" in shop.refusal(), "the message says what can be done"
    shop.write_file(both=True)
    shop.sql("a", f"CREATE TABLE u {COLUMNS}, UNIQUE KEY (u))")
    assert "does not exist in the target's zone" in shop.refusal()
    shop.sql("b", f"CREATE TABLE u {COLUMNS}, UNIQUE KEY (u))")
    assert "unique key besides its primary key" in shop.refusal()
    assert [shop.sql(zone, "SELECT id FROM t") for zone in "ab"] == [[(97,)], [(98,)]]


@pytest.mark.timeout(600)
def test_tables_that_come_or_go_while_a_direction_waits_do_not_end_it(shop: Shop) -> None:
    for zone in "ab":
        shop.sql(zone, f"CREATE TABLE v {COLUMNS})")
    with shop.started("a-b") as waiting:
        waiting.wait_until(lambda: shop.waits("b"), "the direction has its place in the log")
        waiting.wait_until(
            lambda: "no row is written before the task from zone b to zone a begins" in waiting.log.read_text(),
            "the run says what it waits for",
        )
        shop.sql("b", "DROP TABLE v")
        for zone in "ab":
            shop.sql(zone, f"CREATE TABLE u {COLUMNS})")
            shop.sql(zone, f"INSERT INTO u VALUES ({ord(zone)}, 1, NOW(6))")
        shop.sql("a", "DROP TABLE v")
        with shop.started("b-a") as other:
            for run, table in ((waiting, "t"), (other, "u")):
                rows = f"SELECT id FROM {table} ORDER BY id"
                run.wait_until(
                    lambda rows=rows: shop.sql("a", rows) == shop.sql("b", rows) == [(97,), (98,)],
                    f"the rows of {table} are in both zones",
                )
            shop.sql("a", "DELETE FROM u WHERE id = 98")
            waiting.wait_until(lambda: shop.sql("b", "SELECT id FROM u") == [(97,)], "a DELETE is carried")


@pytest.mark.timeout(600)
def test_no_other_tasks_may_have_begun(shop: Shop) -> None:
    shop.sql("b", "DELETE FROM t")
    shop.write_file(both=False)
    done = shop._programs.run(["run", f"{shop.file}@a-b", "--until-synced"], 200)
    assert done.returncode == 0, done.stderr.decode()
    shop.write_file(both=True)
    assert "has begun without both-have-rows" in shop.refusal("b-a")
    place = f"task = 'm_{shop.database}-a-b' AND table_schema = '' AND table_name"
    shop.sql(
        "b",
        f"INSERT INTO pidts_meta.note SELECT task, source, '', 'both have rows', '{{}}' FROM pidts_meta.note "
        f"WHERE {place} = 'zone'",
    )
    refused = shop.refusal("b-a")
    assert "zone-not-joined" in refused, "the task from a to b has already written rows"
    statement = f"DELETE FROM `pidts_meta`.checkpoint WHERE task = 'm_{shop.database}-a-b'"
    assert statement in refused
    checked = shop.check("b-a")
    assert "zone-not-joined" in checked or statement in checked
    shop.sql("b", statement)
    assert "zone-not-joined" not in shop.check("b-a")
    for zone, row in (("a", 1), ("b", 2)):
        shop.sql(zone, f"INSERT INTO t VALUES ({row}, {row}, NOW(6))")
    assert "pidts relay forget FILE" in refused
    forgotten = shop._programs.run(["relay", "forget", f"{shop.file}@a-b"], 60)
    assert forgotten.returncode == 0, forgotten.stderr.decode()
    with shop.started("a-b") as out, shop.started("b-a"):
        out.wait_until(
            lambda: shop.sql("a", "SELECT id FROM t") == shop.sql("b", "SELECT id FROM t") == [(1,), (2,), (97,)],
            "both zones have all rows",
        )


@pytest.mark.timeout(600)
def test_a_task_that_began_without_the_key_while_its_opposite_waits_can_begin_anew(shop: Shop) -> None:
    """The commands are those of the advice."""
    out = shop.write_single("a", "b", both=False)
    back = shop.write_single("b", "a", both=True)
    with shop.started_file(back) as waiting:
        waiting.wait_until(lambda: "no row is written before" in waiting.log.read_text(), "the task waits")
        with shop.started_file(out):
            assert waiting.process.wait(100) == PrecheckFailed.exit_code
    refused = waiting.log.read_text()
    (statement,) = re.findall(r"DELETE FROM `pidts_meta`.checkpoint WHERE task = '\w+'", refused)
    shop.write_single("a", "b", both=True)
    shop.sql("b", statement)
    forgotten = shop._programs.run(["relay", "forget", str(out)], 60)
    assert forgotten.returncode == 0, forgotten.stderr.decode()
    with shop.started_file(back), shop.started_file(out) as run:
        run.wait_until(
            lambda: shop.sql("a", "SELECT id FROM t") == shop.sql("b", "SELECT id FROM t") == [(97,), (98,)],
            "both zones have all rows",
        )
        shop.sql("b", "DELETE FROM t WHERE id = 97")
        run.wait_until(lambda: shop.sql("a", "SELECT id FROM t") == [(98,)], "a DELETE is carried")


def test_a_note_of_an_earlier_version_selects_all_tables() -> None:
    assert merged_tables("yes") == AllowList()
    assert merged_tables("") is None
    some = AllowList(do_dbs=("shop",))
    assert merged_tables(allow_list_to_text(some)) == some


def test_all_tasks_that_forward_the_changes_of_a_joining_zone_are_waited_for(tmp_path: Path) -> None:
    """In the line d, b, a, zone c joins a. A task from b to d with the former file would leave out the rows of c."""
    server = {"host": "127.0.0.1", "port": 1, "user": "u", "password": "p"}
    zones = {
        "servers": {zone: {**server, **({"joins": "a"} if zone == "c" else {})} for zone in "abdc"},
        "feeds": {"a": ["b", "c"], "b": ["a", "d"], "d": ["b"], "c": ["a"]},
        "rules": {"block-allow-list": "ours"},
    }
    ours = {"zones": zones, "conflict": "version", "version-column": "changed", "both-have-rows": True}
    content = {"name": "line", "block-allow-list": {"ours": {"do-dbs": ["shop"]}}, "pidts": ours}
    file = tmp_path / "zones.yaml"
    file.write_text(json.dumps(content))
    joining = next(one for one in load_directions(file) if str(one) == "c-a")
    assert {one.name for one in forwarding(load_task(path_of(file, joining)))} == {"line-a-b", "line-b-d"}
