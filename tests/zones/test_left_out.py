"""Three zones on servers: the change that a zone makes after one that it has left out is locked in the other two.

The servers compare texts by collations of their own, so the digests of a key differ between them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.forked_programs import LoadedPrograms

from pidts.sandbox import Server

RunSql = Callable[..., list[tuple[Any, ...]]]
FIRST = [("Ada", 1), ("Bob", 1), ("Cy", 1)]


class Mesh:
    """Zones, and a task from each zone to every other zone."""

    def __init__(
        self, folder: Path, servers: dict[str, Server], database: str, run_sql: RunSql, programs: LoadedPrograms
    ) -> None:
        self.folder, self.servers, self.database = folder, servers, database
        self._run_sql, self._programs = run_sql, programs

    def sql(self, zone: str, statement: str) -> list[tuple[Any, ...]]:
        return self._run_sql(self.servers[zone], statement, database=self.database)

    def rows(self, zone: str) -> list[tuple[Any, ...]]:
        return self.sql(zone, "SELECT name, n FROM t ORDER BY name")

    def locks(self, zone: str) -> list[tuple[str, int]]:
        asked = f"SELECT task, COUNT(*) FROM pidts_meta.row_lock WHERE task LIKE '%{self.database}' GROUP BY task"
        return [(task.removesuffix(f"_{self.database}"), count) for task, count in self.sql(zone, asked)]

    def carry(self, *pairs: str) -> None:
        """Runs tasks, one after the other, until they are synced."""
        for source, target in pairs:
            name = f"{source}{target}_{self.database}"
            of = {
                zone: {"host": one.host, "port": one.port, "user": one.user, "password": one.password}
                for zone, one in ((zone, self.servers[zone]) for zone in (source, target))
            }
            instance = {"source-id": source, "from": of[source], "block-allow-list": "ours", "syncer-config-name": "s"}
            task = {
                "name": name,
                "task-mode": "all" if source == "a" else "incremental",
                "target-database": {"type": "mysql", **of[target]},
                "mysql-instances": [instance],
                "syncers": {"s": {"worker-count": 3}},
                "block-allow-list": {"ours": {"do-dbs": [self.database]}},
                "pidts": {"zone": source, "target-zone": target, "relay": f"relay_{name}"},
            }
            path = self.folder / f"{name}.yaml"
            path.write_text(yaml.safe_dump(task))
            ran = self._programs.run(["run", str(path), "--until-synced"], 300)
            assert ran.returncode == 0, ran.stderr.decode()[-4000:]


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("last", ["mysql56", "mariadb", "mysql97"])
def test_the_other_zones_lock_what_a_zone_changes_after_a_change_that_it_left_out(
    tmp_path: Path,
    mariadb: Server,
    mysql97: Server,
    mysql56: Server,
    database: str,
    run_sql: RunSql,
    programs: LoadedPrograms,
    last: str,
) -> None:
    """Zone `c` is the server that is named `last`."""
    servers = sorted((mariadb, mysql97, mysql56), key=lambda server: server.kind == last)
    mesh = Mesh(tmp_path, dict(zip("abc", servers, strict=True)), database, run_sql, programs)
    mesh.sql("a", "CREATE TABLE t (name VARCHAR(20) PRIMARY KEY, n INT) CHARACTER SET utf8mb4")
    mesh.sql("a", "INSERT INTO t VALUES ('Ada', 1), ('Bob', 1), ('Cy', 1)")
    mesh.carry("ab", "ac", "ba", "bc", "ca", "cb")
    assert [mesh.rows(zone) for zone in "abc"] == [FIRST] * 3
    for zone in "ab":
        mesh.sql(zone, "UPDATE t SET n = 2 WHERE name = 'Ada'")
        mesh.sql(zone, "DELETE FROM t WHERE name = 'Bob'")
    mesh.carry("ac", "bc")
    mesh.sql("c", "UPDATE t SET n = 1 WHERE name = 'Ada'")
    mesh.sql("c", "INSERT INTO t VALUES ('Bob', 1)")
    mesh.sql("c", "UPDATE t SET n = 3 WHERE name = 'Cy'")
    mesh.carry("ca", "cb", "ab", "ba")
    assert mesh.rows("c") == [("Ada", 1), ("Bob", 1), ("Cy", 3)]
    assert [mesh.rows(zone) for zone in "ab"] == [[("Ada", 2), ("Cy", 3)]] * 2
    assert [mesh.locks(zone) for zone in "abc"] == [[("ca", 2)], [("cb", 2)], []]
    assert [mesh.sql(zone, "SELECT COUNT(*) FROM pidts_meta.left_out") for zone in "abc"] == [[(0,)]] * 3
