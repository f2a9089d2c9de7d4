"""The source of a task on two machines is replaced or reset, and the relay, its copy or both are lost meanwhile."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.conftest import RunSql
from tests.replicated_pair import RESET, promote, replicated_pair, wait
from tests.spark.commands import Run, Task

from pidts.sandbox import Server

pytestmark = pytest.mark.timeout(600)

COUNT = "SELECT COUNT(*) FROM shop.t"
ROWS = "SELECT tx, n FROM shop.t ORDER BY tx, n"


@dataclass
class Machines:
    """A relay server, a machine that applies its log, and the source's two servers."""

    receiver: Task
    applier: Task
    primary: Server
    standby: Server
    target: Server
    database: str
    token: Path
    run_sql: RunSql
    port: str = "0"
    written: int = 0

    def serve(self) -> Run:
        run = self.receiver.start(
            "--serve", f"127.0.0.1:{self.port}", "--token-file", str(self.token), command="replicate"
        )
        run.wait_until(lambda: "is served at" in run.log.read_text(), "the relay is served", 60)
        found = re.search(r"is served at http://127\.0\.0\.1:(\d+)", run.log.read_text())
        assert found is not None
        self.port = found[1]
        text = self.applier.path.read_text()
        self.applier.path.write_text(re.sub(r"http://127\.0\.0\.1:\d+", f"http://127.0.0.1:{self.port}", text))
        return run

    def add(self, server: Server, count: int = 3) -> None:
        for _ in range(count):
            number = self.written = self.written + 1
            self.run_sql(server, f"INSERT INTO t VALUES ({number}, 1), ({number}, 2)", database="shop")

    def rows(self) -> Any:
        return self.run_sql(self.target, ROWS, database=self.database)

    def is_equal(self, server: Server) -> bool:
        return bool(self.rows() == self.run_sql(server, ROWS))

    def apply(self, *options: str) -> str:
        """Applies the log up to its end; returns the code of the error, or an empty text."""
        run = self.applier.start("--until-synced", "--json", *options, command="apply")
        code = run.process.wait(120)
        if code == 0:
            return ""
        assert code == 5, self.applier.logs()
        return str(json.loads(run.log.read_text().splitlines()[-1])["error"]["code"])

    def fail_over(self) -> None:
        wait(lambda: self.run_sql(self.standby, COUNT) == self.run_sql(self.primary, COUNT), "the standby has all")
        self.primary.kill()
        promote(self.standby, self.run_sql)
        for task in (self.receiver, self.applier):
            task.path.write_text(task.path.read_text().replace(str(self.primary.port), str(self.standby.port)))

    def lose(self, task: Task) -> None:
        shutil.rmtree(task.path.parent / "relay")


@pytest.fixture(params=["mariadb", pytest.param("mysql97", marks=pytest.mark.long)])
def machines(
    request: pytest.FixtureRequest, postgres: Server, make_task: Callable[..., Task], run_sql: RunSql, tmp_path: Path
) -> Iterator[Machines]:
    database = f"apart_{request.param}_{abs(hash(request.node.name)) % 10**8}"
    with replicated_pair(request.param, tmp_path, run_sql) as (primary, standby):
        run_sql(primary, "CREATE DATABASE shop")
        run_sql(primary, "CREATE TABLE t (tx int, n int)", database="shop")
        run_sql(postgres, f"CREATE DATABASE {database}")
        whole = make_task(primary, postgres, ["shop"], database=database, name=database, instance={"enable-gtid": True})
        text = yaml.safe_load(whole.path.read_text())
        token = tmp_path / "token"
        token.touch(0o600)
        token.write_text("a token that nobody guesses\n")
        tasks = {}
        for side in ("receiver", "applier"):
            (tmp_path / side).mkdir()
            if side == "applier":
                text["pidts"]["relay-from"] = {"url": "http://127.0.0.1:1", "token-file": str(token), "name": "here"}
            path = tmp_path / side / "t.yaml"
            path.write_text(yaml.safe_dump(text))
            tasks[side] = Task(path, whole.programs)
        made = Machines(tasks["receiver"], tasks["applier"], primary, standby, postgres, database, token, run_sql)
        yield made
        for task in tasks.values():
            for run in task.runs:
                if run.process.poll() is None:
                    run.kill()
    run_sql(postgres, f"DROP DATABASE {database} WITH (FORCE)")


@pytest.mark.parametrize(
    "lost",
    [
        pytest.param("nothing", marks=pytest.mark.long),
        pytest.param("copy", marks=pytest.mark.long),
        pytest.param("relay", marks=pytest.mark.long),
        "both",
    ],
)
def test_the_source_fails_over_while_the_follower_is_behind(machines: Machines, lost: str) -> None:
    """Without a key, a row that is applied twice stays twice."""
    serving = machines.serve()
    machines.add(machines.primary)
    assert machines.apply() == ""
    assert machines.is_equal(machines.primary)
    applying = machines.applier.start(command="apply")
    machines.add(machines.primary)
    applying.wait_until(lambda: machines.is_equal(machines.primary), "the first rows are there", 60)
    applying.kill()
    machines.add(machines.primary)
    time.sleep(2)
    serving.kill()
    machines.fail_over()
    machines.add(machines.standby)
    before = machines.rows()
    if lost in {"copy", "both"}:
        machines.lose(machines.applier)
    if lost in {"relay", "both"}:
        machines.lose(machines.receiver)
    machines.serve()
    machines.add(machines.standby)
    code = machines.apply()
    if lost in {"relay", "both"}:
        # No relay has the log between the checkpoint and the place where the new relay begins.
        assert code == ("relay-copy-differs" if lost == "relay" else "relay-purged")
        if lost == "relay":
            machines.lose(machines.applier)
            assert machines.apply() == "relay-purged"
        assert machines.rows() == before
        assert machines.apply("--resync") == ""
    else:
        assert code == ""
    assert machines.is_equal(machines.standby)
    machines.add(machines.standby)
    assert machines.apply() == ""
    assert machines.is_equal(machines.standby)


def test_an_operator_chooses_a_standby_on_both_machines(machines: Machines) -> None:
    """The machine that applies needs the new server for tables that are added, and for copies."""
    for task in (machines.receiver, machines.applier):
        text = yaml.safe_load(task.path.read_text())
        text["mysql-instances"][0]["standbys"] = [{"host": machines.standby.host, "port": machines.standby.port}]
        task.path.write_text(yaml.safe_dump(text))
    serving = machines.serve()
    assert machines.apply() == ""
    machines.add(machines.primary)
    applying = machines.applier.start(command="apply")
    applying.wait_until(lambda: machines.is_equal(machines.primary), "the first rows are there", 60)
    wait(
        lambda: machines.run_sql(machines.standby, COUNT) == machines.run_sql(machines.primary, COUNT),
        "the standby has all",
    )
    machines.primary.kill()
    promote(machines.standby, machines.run_sql)
    serving.kill()
    for task in (machines.receiver, machines.applier):
        assert task.start(command="failover").process.wait(60) == 0
    machines.serve()
    applying.wait_until(lambda: "the source is now read from" in applying.log.read_text(), "the switch", 60)
    machines.add(machines.standby)
    applying.wait_until(lambda: machines.is_equal(machines.standby), "the rows of the standby are there", 60)


@pytest.mark.long
def test_a_source_is_reset_and_the_new_relay_does_not_reach_the_checkpoint(machines: Machines) -> None:
    """The relay server cannot send the checkpoint's place, so the machine that applies has to ask the source."""
    source = machines.primary
    serving = machines.serve()
    machines.add(source)
    assert machines.apply() == ""
    machines.run_sql(source, "FLUSH BINARY LOGS")
    machines.add(source)
    assert machines.apply() == ""
    before = machines.rows()
    serving.kill()
    for task in (machines.receiver, machines.applier):
        machines.lose(task)
    time.sleep(1.1)  # the head of a log file has the second in which the file was created
    machines.run_sql(source, RESET[source.kind])
    machines.serve()
    machines.add(source)
    assert machines.apply() == "source-went-back"
    assert machines.rows() == before
    assert machines.apply("--resync") == ""
    assert machines.is_equal(source)
    machines.add(source)
    assert machines.apply() == ""
    assert machines.is_equal(source)
