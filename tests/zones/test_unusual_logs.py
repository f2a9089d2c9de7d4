"""No change returns if a zone's log is compressed or encrypted, or if the log of its replica is read.

A server decrypts its log before it sends it, but sends compressed events as they are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.encrypting_mysql import start_encrypting_mysql97
from tests.forked_programs import LoadedPrograms
from tests.replicate.test_unusual_logs import mariadb_options, mysql97_options
from tests.replicated_pair import replicated_pair, wait

from pidts import sandbox
from pidts.sandbox import Server

RunSql = Callable[..., list[tuple[Any, ...]]]
EXECUTED = {
    "mariadb": ("SELECT @@GLOBAL.gtid_binlog_pos", "SELECT @@GLOBAL.gtid_slave_pos"),
    "mysql97": ("SELECT @@GLOBAL.gtid_executed", "SELECT @@GLOBAL.gtid_executed"),
}
"""Two queries: for the transactions of a primary, and for those that its replica has."""


class Zone:
    """A zone: the server to which programs write, and the server whose log is read, which may be its replica."""

    def __init__(self, name: str, server: Server, run_sql: RunSql, read: Server | None = None) -> None:
        self.name, self.server, self.read, self._run_sql = name, server, read or server, run_sql

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        return self._run_sql(self.server, statement, database="shop")

    def await_replica(self) -> None:
        if self.read is self.server:
            return
        there, here = EXECUTED[self.server.kind]
        executed = self._run_sql(self.server, there)
        wait(lambda: self._run_sql(self.read, here) == executed, "the replica has everything")

    def contents(self) -> dict[str, list[tuple[Any, ...]]]:
        return {name: self.sql(f"SELECT * FROM {name} ORDER BY id") for (name,) in self.sql("SHOW TABLES FROM shop")}

    def begin_file(self) -> None:
        self._run_sql(self.server, "FLUSH BINARY LOGS")

    def logged(self) -> list[str]:
        """Returns what the current log file has about the schema: its table maps and statements."""
        file = self._run_sql(self.server, "SHOW BINARY LOGS")[-1][0]
        shown = [(str(row[2]), str(row[5])) for row in self._run_sql(self.server, f"SHOW BINLOG EVENTS IN '{file}'")]
        return [text for kind, text in shown if kind in {"Table_map", "Query", "Query_compressed"} and "shop" in text]


class Pair:
    """Two zones, and a task in each direction."""

    def __init__(self, folder: Path, a: Zone, b: Zone, programs: LoadedPrograms) -> None:
        self.folder, self.a, self.b, self._programs = folder, a, b, programs

    def carry(self, source: Zone, target: Zone) -> dict[str, int]:
        """Runs a task until it is synced; returns the numbers of changes that it has carried."""
        source.await_replica()
        path = self.folder / f"{source.name}{target.name}.yaml"
        of = {
            zone: {"host": one.host, "port": one.port, "user": one.user, "password": one.password}
            for zone, one in (("source", source.read), ("target", target.server))
        }
        task = {
            "name": path.stem,
            "task-mode": "all" if source is self.a else "incremental",
            "target-database": {"type": "mysql", **of["target"]},
            "mysql-instances": [{"source-id": source.name, "from": of["source"], "block-allow-list": "ours"}],
            "block-allow-list": {"ours": {"do-dbs": ["shop"]}},
            "pidts": {"zone": source.name, "target-zone": target.name, "relay": f"relay_{path.stem}"},
        }
        path.write_text(yaml.safe_dump(task))
        ran = self._programs.run(["run", str(path), "--until-synced", "--json"], 300)
        assert ran.returncode == 0, ran.stderr.decode()[-4000:]
        carried: dict[str, int] = json.loads(ran.stdout.splitlines()[-1])["rows"]
        return {kind: count for kind, count in carried.items() if count}


@pytest.fixture(
    params=["packed", *(pytest.param(f"replica-{kind}", marks=pytest.mark.long) for kind in ("mariadb", "mysql97"))]
)
def pair(request: pytest.FixtureRequest, tmp_path: Path, run_sql: RunSql, programs: LoadedPrograms) -> Iterator[Pair]:
    with ExitStack() as servers:
        if request.param == "packed":
            a = Zone("a", servers.enter_context(sandbox.start_mariadb(options=mariadb_options(tmp_path))), run_sql)
            b = Zone("b", servers.enter_context(start_encrypting_mysql97(tmp_path, mysql97_options(tmp_path))), run_sql)
            assert run_sql(b.server, "SHOW BINARY LOGS")[-1][2] == "Yes"  # The log file is encrypted.
        else:
            kind = request.param.removeprefix("replica-")
            primary, standby = servers.enter_context(replicated_pair(kind, tmp_path / "pair", run_sql))
            a = Zone("a", servers.enter_context(sandbox.start_mariadb()), run_sql)
            b = Zone("b", primary, run_sql, standby)
        for zone in (a, b):
            run_sql(zone.server, "CREATE DATABASE shop")
        yield Pair(tmp_path, a, b, programs)


@pytest.mark.timeout(600)
def test_no_change_returns(pair: Pair) -> None:
    a, b = pair.a, pair.b
    for statement in (
        "CREATE TABLE t (id INT PRIMARY KEY, n INT, text LONGTEXT)",
        "CREATE TABLE emptied (id INT PRIMARY KEY)",
        "CREATE TABLE gone (id INT PRIMARY KEY)",
        "INSERT INTO t VALUES (1, 1, 'copied'), (2, 2, NULL), (3, 3, REPEAT('long ', 20000))",
        "INSERT INTO emptied VALUES (1)",
    ):
        a.sql(statement)
    pair.carry(a, b)
    pair.carry(b, a)
    assert b.contents() == a.contents()
    for here, there in ((a, b), (b, a)):
        name, first = here.name, 10 if here is a else 20
        for statement in (
            f"INSERT INTO t (id, n, text) VALUES ({first}, 0, REPEAT('{name} ', 30000)), ({first + 1}, 0, 'kept')",
            f"UPDATE t SET n = n + {first}, text = CONCAT(text, '{name}') WHERE id < 3",
            f"DELETE FROM t WHERE id = {first + 1}",
            f"ALTER TABLE t ADD COLUMN from_{name} INT DEFAULT 7",
            f"CREATE TABLE made_{name} (id INT PRIMARY KEY)",
            f"INSERT INTO made_{name} VALUES (1)",
            *(["TRUNCATE TABLE emptied", "DROP TABLE gone"] if here is a else ["RENAME TABLE emptied TO renamed"]),
        ):
            here.sql(statement)
        here.begin_file()
        assert pair.carry(here, there)
        assert there.contents() == here.contents()
        assert f"from_{name}" in json.dumps(there.sql("SHOW CREATE TABLE t"))
        assert pair.carry(there, here) == {}, f"what came from zone {name} has come back"
        assert here.logged() == []
        assert there.contents() == here.contents()
