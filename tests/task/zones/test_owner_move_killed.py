"""`pidts zones move` is killed at each step on real servers, while both tasks run and programs write.

The points of the command are its commits in both zones, LOCK TABLES, and the wait until the other zone has caught up.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.forked_programs import LoadedPrograms
from tests.running import NOT_THERE

from pidts.forked import ForkedProcess
from pidts.sandbox import Server

RunSql = Callable[..., list[tuple[Any, ...]]]
TASKS = ("a-b", "b-a")
FOREIGN = "zone {} has written a row that zone {} owns"
SECONDS = 120


class Shop:
    """Two zones, of which one owns the rows of a region, and the two running tasks."""

    def __init__(
        self, folder: Path, servers: dict[str, Server], database: str, run_sql: RunSql, programs: LoadedPrograms
    ) -> None:
        self.folder, self.servers, self.database = folder, servers, database
        self._run_sql, self._programs = run_sql, programs
        self.file, self.range = folder / "zones.yaml", f"{database}.t where region = 'eu'"
        zones = {
            zone: {"host": one.host, "port": one.port, "user": one.user, "password": one.password}
            for zone, one in servers.items()
        }
        content = {
            "name": f"m_{database}",
            "block-allow-list": {"ours": {"do-dbs": [database]}},
            "pidts": {
                "zones": {"servers": zones, "rules": {"block-allow-list": "ours"}},
                "conflict": "owner",
                "owners": [
                    {"schema": database, "table": "t", "where": "region = 'eu'", "zone": "a"},
                    {"schema": database, "table": "t", "zone": "b"},
                ],
                "relay": "relay",
            },
        }
        self.file.write_text(json.dumps(content))
        self.sql("a", "CREATE TABLE t (id INT PRIMARY KEY, region VARCHAR(8), n INT NOT NULL)")
        self.sql("a", "INSERT INTO t VALUES (1, 'eu', 0), (2, 'us', 0)")
        self.runs: dict[str, ForkedProcess] = {}
        for task in TASKS:
            self.start(task)
            self.await_that(lambda task=task: self.stage(task) == "syncing", f"task {task} syncs")

    def start(self, task: str) -> None:
        with (self.folder / f"{task}.log").open("ab") as log:
            self.runs[task] = self._programs.start(["run", f"{self.file}@{task}", "--json"], log, log)

    def kill_tasks(self) -> None:
        for run in self.runs.values():
            run.kill()
            run.wait()

    def stop(self) -> None:
        for run in self.runs.values():
            if run.poll() is None:
                run.send_signal(signal.SIGTERM)
        for run in self.runs.values():
            run.wait(SECONDS)

    def asked(self, *words: str) -> Any:
        done = self._programs.run([*words, "--json"], SECONDS)
        assert done.returncode in {0, 4, 5}, done.stdout + done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    def stage(self, task: str) -> str:
        directions = self.asked("status", str(self.file))["directions"]
        return next(str(one["stage"]) for one in directions if f"{one['from']}-{one['to']}" == task)

    def owners(self) -> dict[str, str]:
        """Returns the owner of the range by the records of each zone."""
        found: dict[str, str] = self.asked("zones", "owners", str(self.file))[self.range]
        return found

    def locked(self, task: str) -> dict[int, str]:
        found = self.asked("locks", "list", f"{self.file}@{task}")["locks"]
        return {int(one["key"].strip("()").rpartition("=")[2]): one["why"] for one in found}

    def sql(self, zone: str, statement: str) -> list[tuple[Any, ...]]:
        return self._run_sql(self.servers[zone], statement, database=self.database)

    def rows(self, zone: str) -> dict[int, tuple[Any, ...]]:
        try:
            return {row[0]: row for row in self.sql(zone, "SELECT id, region, n FROM t")}
        except NOT_THERE:
            return {}

    def await_that(self, claim: Callable[[], bool], what: str) -> None:
        until = time.monotonic() + SECONDS
        while not claim():
            logs = [(self.folder / f"{task}.log").read_text()[-4000:] for task in self.runs]
            assert all(run.poll() is None for run in self.runs.values()), (
                f"a task has ended before this: {what}\n{logs}"
            )
            assert time.monotonic() < until, f"not within {SECONDS} s: {what}\n{logs}"
            time.sleep(0.1)

    def killed(self, kills_at: int, words: Sequence[str]) -> str | None:
        """Runs a command that is killed. Returns the point, or None if the command has ended normally."""
        seen = self.folder / f"points.{kills_at}"
        command = [sys.executable, "-m", "tests.task.zones.killed_command", str(seen), str(kills_at), *words]
        done = subprocess.run(
            command, cwd=Path(__file__).parents[3], capture_output=True, timeout=SECONDS, check=False, text=True
        )
        if done.returncode == 0:
            return None
        assert done.returncode == -signal.SIGKILL, done.stderr
        lines = seen.read_text().splitlines()
        return f"{lines[-1]} ({len(lines) - 1})"


@pytest.fixture
def shop(
    tmp_path: Path, mariadb: Server, mysql97: Server, database: str, run_sql: RunSql, programs: LoadedPrograms
) -> Iterator[Shop]:
    made = Shop(tmp_path, {"a": mariadb, "b": mysql97}, database, run_sql, programs)
    yield made
    made.stop()


def moves(shop: Shop, kills_at: int, *, undoes: bool) -> bool:
    """Moves the range with a command that is killed, and with a second command. Returns False if the first one was not
    killed.
    """
    (old,) = set(shop.owners().values())
    new = "b" if old == "a" else "a"
    moving = ["zones", "move", str(shop.file), shop.range, "--to", new, "--yes"]
    before, between, after, elsewhere = (1_000 * place + kills_at for place in (1, 2, 3, 4))
    shop.sql(old, f"INSERT INTO t VALUES ({before}, 'eu', 0)")
    point = shop.killed(kills_at, moving)
    owners = set(shop.owners().values()) - {""}
    assert owners <= {old} or owners <= {new}, f"killed {point}: {owners}"
    shop.sql(old, f"INSERT INTO t VALUES ({between}, 'eu', 0)")
    shop.sql("b", f"INSERT INTO t VALUES ({elsewhere}, 'us', 0)")
    if kills_at % 3 == 2:
        shop.kill_tasks()
        for task in TASKS:
            shop.start(task)
    ending = ["zones", "move", str(shop.file), shop.range, "--undo", "--yes"] if undoes else moving
    done = shop._programs.run(ending, SECONDS)
    assert done.returncode == 0, f"killed {point}: {done.stderr.decode()}"
    (owner,) = set(shop.owners().values())
    assert owner == new or undoes, f"killed {point}"
    assert owners <= {owner} or (owner, owners) == (new, {old}), f"killed {point}: {owners} had the range, then {owner}"
    shop.sql(owner, f"UPDATE t SET n = n + 1 WHERE id = {before}")
    shop.sql(owner, f"INSERT INTO t VALUES ({after}, 'eu', 0)")

    def has_arrived() -> bool:
        wanted = {before: (before, "eu", 1), after: (after, "eu", 0), elsewhere: (elsewhere, "us", 0)}
        there = [shop.rows(zone) for zone in "ab"]
        return all(rows.get(key) == row for rows in there for key, row in wanted.items()) and (
            there[0].get(between) == there[1].get(between) or between in shop.locked(f"{old}-{other_of(old)}")
        )

    shop.await_that(has_arrived, f"killed {point}: what the owner writes is in both zones")
    rows = [shop.rows(zone) for zone in "ab"]
    locked = {task: shop.locked(task) for task in TASKS}
    differ = {key for key in rows[0].keys() | rows[1].keys() if rows[0].get(key) != rows[1].get(key)}
    assert differ == locked["a-b"].keys() | locked["b-a"].keys(), f"killed {point}"
    assert all(1_000 * 2 <= key < 1_000 * 3 for key in differ), "what the former owner has written since"
    return point is not None


def other_of(zone: str) -> str:
    return "b" if zone == "a" else "a"


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("undoes", [False, True], ids=["repeated", "undone"])
def test_a_move_may_be_killed_at_each_step(shop: Shop, *, undoes: bool) -> None:
    kills_at = 0
    while moves(shop, kills_at, undoes=undoes):
        kills_at += 1
    assert kills_at > 15
