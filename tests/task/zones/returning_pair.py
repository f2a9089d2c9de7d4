"""A pair of zones on real servers, of which one is restored from a backup and returns."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.forked_programs import LoadedPrograms

from pidts.sandbox import Server

RunSql = Callable[..., list[tuple[Any, ...]]]


class Pair:
    """Zones a and b, whose tasks have begun."""

    def __init__(
        self, folder: Path, servers: dict[str, Server], database: str, run_sql: RunSql, programs: LoadedPrograms
    ) -> None:
        self.file, self.servers, self.database, self._run_sql = folder / "zones.yaml", servers, database, run_sql
        self._programs = programs
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
        ran = self._programs.run(["run", f"{self.file}@{direction}", "--until-synced"], 400)
        assert ran.returncode == 0, ran.stderr.decode()

    def differ(self) -> None:
        """In each zone, inserts a row that the other zone does not get; in zone b, changes another row."""
        self.number += 2
        self.sql("a", f"INSERT INTO t VALUES ({self.number}, 1)")
        self.sql("b", f"INSERT INTO t VALUES ({self.number + 1}, 1)")
        self.sql("b", "UPDATE t SET n = n + 1 WHERE id = 1")

    def records(self) -> list[list[tuple[Any, ...]]]:
        """For each zone, returns the tasks that have checkpoints there."""
        asked = f"SELECT task, worker FROM pidts_meta.checkpoint WHERE task LIKE 'k_{self.database}-%'"
        return [self.sql(zone, asked) for zone in self.servers]

    def demand_returned(self) -> None:
        """Checks that zone b has the rows of zone a, and that what programs write now is carried in both directions."""
        assert self.rows("b") == self.rows("a")
        assert self.number + 1 not in {row[0] for row in self.rows("a")}
        self.sql("b", f"UPDATE t SET n = {self.number} WHERE id = 2")
        self.carry("b-a")
        self.sql("a", f"INSERT INTO t VALUES ({self.number + 1}, 5)")
        self.carry("a-b")
        assert self.rows("b") == self.rows("a")
        assert (2, self.number) in self.rows("a")
