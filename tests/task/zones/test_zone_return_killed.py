"""`pidts zones return` is killed at each of its steps on real servers, and the same command then goes on."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.running import PIDTS

from pidts.cli.app import run_command
from pidts.cli.zones import zone_return as command
from pidts.sandbox import Server
from pidts.target.mysql import MySqlSession
from pidts.task.zones import zone_return_servers

RunSql = Callable[..., list[tuple[Any, ...]]]


class KilledError(BaseException):
    """The command ends here, and nothing of it goes on."""


class Points:
    """Kills the command at one of the points that it comes to, and remembers their names."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[str] = []
        self.kills_at = -1
        for place, name in (
            (MySqlSession, "commit"),
            (zone_return_servers, "forget_need"),
            (zone_return_servers, "empty_relay"),
            (command, "_copy"),
        ):
            monkeypatch.setattr(place, name, self._around(name, getattr(place, name)))

    def _around(self, name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any) -> Any:
            self._at(f"before {name}")
            found = work(*arguments)
            self._at(f"behind {name}")
            return found

        return wrapped

    def _at(self, name: str) -> None:
        self.seen.append(name)
        if len(self.seen) - 1 == self.kills_at:
            raise KilledError(name)

    def run(self, words: Sequence[str], kills_at: int = -1) -> int | None:
        """Returns the exit code of a command, and None if it was killed."""
        self.seen, self.kills_at = [], kills_at
        try:
            return run_command(words)
        except KilledError:
            return None
        finally:
            self.kills_at = -1


@pytest.fixture
def points(monkeypatch: pytest.MonkeyPatch) -> Points:
    return Points(monkeypatch)


class Pair:
    """Zones a and b, whose tasks have begun."""

    def __init__(self, folder: Path, servers: dict[str, Server], database: str, run_sql: RunSql) -> None:
        self.file, self.servers, self.database, self._run_sql = folder / "zones.yaml", servers, database, run_sql
        self.write_file(joins=False)
        self.sql("a", "CREATE TABLE t (id INT PRIMARY KEY, n INT NOT NULL)")
        self.sql("a", "INSERT INTO t VALUES (1, 1), (2, 2)")
        self.carry("a-b")
        self.carry("b-a")
        self.number = 2

    def write_file(self, *, joins: bool) -> None:
        zones: dict[str, dict[str, Any]] = {
            zone: {"host": one.host, "port": one.port, "user": one.user, "password": one.password}
            for zone, one in self.servers.items()
        }
        if joins:
            zones["b"]["joins"] = "a"
        content = {
            "name": f"k_{self.database}",
            "block-allow-list": {"ours": {"do-dbs": [self.database]}},
            "pidts": {"zones": {"servers": zones, "rules": {"block-allow-list": "ours"}}, "relay": "relay"},
        }
        self.file.write_text(json.dumps(content))

    def sql(self, zone: str, statement: str) -> list[tuple[Any, ...]]:
        return self._run_sql(self.servers[zone], statement, database=self.database)

    def rows(self, zone: str) -> list[tuple[Any, ...]]:
        return self.sql(zone, "SELECT * FROM t ORDER BY id")

    def carry(self, direction: str) -> None:
        ran = subprocess.run(
            [*PIDTS, "run", f"{self.file}@{direction}", "--until-synced"], capture_output=True, check=False, timeout=400
        )
        assert ran.returncode == 0, ran.stderr.decode()

    def differ(self) -> None:
        """Each zone gets a row that the other one does not have, and b loses one."""
        self.number += 2
        self.sql("a", f"INSERT INTO t VALUES ({self.number}, 1)")
        self.sql("b", f"INSERT INTO t VALUES ({self.number + 1}, 1)")
        self.sql("b", "UPDATE t SET n = n + 1 WHERE id = 1")

    def demand_returned(self) -> None:
        """Zone b has the rows of zone a, and what programs write now is carried in both directions."""
        assert self.rows("b") == self.rows("a")
        assert self.number + 1 not in {row[0] for row in self.rows("a")}
        self.sql("b", f"UPDATE t SET n = {self.number} WHERE id = 2")
        self.carry("b-a")
        self.sql("a", f"INSERT INTO t VALUES ({self.number + 1}, 5)")
        self.carry("a-b")
        assert self.rows("b") == self.rows("a")
        assert (2, self.number) in self.rows("a")


@pytest.fixture
def pair(tmp_path: Path, mariadb: Server, mysql97: Server, database: str, run_sql: RunSql) -> Pair:
    return Pair(tmp_path, {"a": mariadb, "b": mysql97}, database, run_sql)


def returns(pair: Pair, points: Points, kills_at: int) -> bool:
    """Lets zone b return by a command that is killed, and by the same command; False if it was not killed."""
    words = ["zones", "return", str(pair.file), "b", "--yes", "--discard-unsent"]
    pair.differ()
    pair.write_file(joins=True)
    code = points.run(words, kills_at)
    is_killed = code is None
    assert is_killed or code == 0
    if is_killed:
        point = points.seen[-1]
        assert points.run(words) == 0, f"killed {point}, the command does not go on"
    pair.write_file(joins=False)
    pair.demand_returned()
    return is_killed


@pytest.mark.timeout(600)
def test_a_return_that_is_killed_before_it_comes_to_a_relay_goes_on(pair: Pair, points: Points) -> None:
    """The records of the task that fills the zone are gone then, and its relay still says how far the zone was."""
    assert not returns(pair, points, -1)
    last = max(place for place, name in enumerate(points.seen) if name == "before forget_need")
    assert returns(pair, points, last)


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_a_return_may_be_killed_at_each_step(pair: Pair, points: Points) -> None:
    kills_at = 0
    while returns(pair, points, kills_at):
        kills_at += 1
    assert kills_at > 15
