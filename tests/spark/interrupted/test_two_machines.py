"""`pidts replicate` and `pidts apply` work in two processes and two folders, connected only by TLS. Each may die."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.login.certificates import Authority
from tests.running import Progress
from tests.spark.commands import Run, Task
from tests.spark.standalone_cluster import standalone_cluster

from pidts.relay.folder import Folder
from pidts.relay.task_needs import read_needs
from pidts.sandbox import Server

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@dataclass
class Apart:
    """A task in two folders, as on two machines."""

    receiver: Task
    applier: Task
    tls: tuple[str, ...]
    source: Any
    target: Any
    progress: Progress
    database: str
    port: str = "0"

    def replicate(self) -> Run:
        run = self.receiver.start("--serve", f"127.0.0.1:{self.port}", *self.tls, command="replicate")
        run.wait_until(lambda: "is served at" in run.log.read_text(), "the relay is served", 60)
        found = re.search(r"is served at https://127\.0\.0\.1:(\d+)", run.log.read_text())
        assert found is not None
        self.port = found[1]
        text = self.applier.path.read_text()
        self.applier.path.write_text(re.sub(r"https://127\.0\.0\.1:\d+", f"https://127.0.0.1:{self.port}", text))
        return run

    def apply(self) -> Run:
        return self.applier.start("--json", command="apply")

    def files(self, task: Task) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in sorted(task.path.parent.glob("relay/one/0*"))}

    def rows(self) -> list[tuple[Any, ...]]:
        query = f"SELECT id, name, price FROM {self.database}.item ORDER BY id"
        cursor = self.source.cursor()
        cursor.execute(query)
        expected = [tuple(row) for row in cursor.fetchall()]
        assert [tuple(row) for row in self.target.execute(query).fetchall()] == expected
        return expected

    def write(self, count: int) -> None:
        cursor = self.source.cursor()
        for _ in range(count):
            cursor.execute(f"INSERT INTO {self.database}.item (name, price) VALUES ('new', 1)")
            cursor.execute(f"UPDATE {self.database}.item SET price = price + 1 WHERE id % 50 = 0")


@pytest.fixture
def apart(
    mariadb: Server,
    database: str,
    make_task: Callable[..., Task],
    target_server: Callable[[str], Server],
    open_session: Callable[..., Any],
    tmp_path: Path,
) -> Iterator[Apart]:
    source, target = open_session(mariadb), target_server("postgres")
    cursor = source.cursor()
    cursor.execute(
        f"CREATE TABLE {database}.item (id INT PRIMARY KEY AUTO_INCREMENT, name VARCHAR(30), price DECIMAL(9,2))"
    )
    cursor.execute(f"USE {database}")
    cursor.execute(f"INSERT INTO {database}.item SELECT seq, CONCAT('item ', seq), seq / 4 FROM seq_1_to_500")
    # `pidts apply` reads rows and positions from the source, and never the log.
    cursor.execute(f"CREATE USER {database[-20:]}_r@'127.0.0.1' IDENTIFIED BY 'pw'")
    cursor.execute(f"GRANT SELECT ON {database}.* TO {database[-20:]}_r@'127.0.0.1'")
    cursor.execute(f"GRANT REPLICATION CLIENT ON *.* TO {database[-20:]}_r@'127.0.0.1'")
    whole = make_task(mariadb, target, [database])
    text = yaml.safe_load(whole.path.read_text())
    token = tmp_path / "token"
    token.touch(0o600)
    token.write_text("a token that nobody guesses\n")
    authority = Authority(tmp_path / "ca", "ours")
    pair = authority.sign("server", addresses=("127.0.0.1",))
    tasks = {}
    for side in ("receiver", "applier"):
        folder = tmp_path / side
        folder.mkdir()
        if side == "applier":
            text["pidts"]["relay-from"] = {
                "url": "https://127.0.0.1:1",
                "token-file": str(token),
                "ca": str(authority.ca),
                "name": "here",
            }
            text["mysql-instances"][0]["from"] |= {"user": f"{database[-20:]}_r", "password": "pw"}
        path = folder / "t.yaml"
        path.write_text(yaml.safe_dump(text))
        tasks[side] = Task(path, whole.programs)
    tls = ("--token-file", str(token), "--tls-cert", str(pair.cert), "--tls-key", str(pair.key))
    session = open_session(target)
    made = Apart(tasks["receiver"], tasks["applier"], tls, source, session, Progress(session), database)
    yield made
    for task in tasks.values():
        for run in task.runs:
            if run.process.poll() is None:
                run.kill()
    cursor.execute(f"DROP USER {database[-20:]}_r@'127.0.0.1'")


@pytest.mark.long
def test_a_task_runs_on_two_machines_and_each_part_may_die(apart: Apart) -> None:
    serving = apart.replicate()
    applying = apart.apply()
    applying.wait_until(apart.progress.is_copied, "all is copied", 120)
    apart.write(20)
    applying.wait_until(apart.progress.has(apart.source), "the first changes are there", 60)
    assert len(apart.rows()) == 520

    # Only the follower is killed, and its parent starts it again.
    (follower,) = applying.replicator()
    os.kill(follower, signal.SIGKILL)
    apart.write(20)
    applying.wait_until(apart.progress.has(apart.source), "changes after the follower was killed", 60)

    # The process that forks followers is killed, with the follower: the next follower is a program of its own.
    (forker,) = applying.forker()
    os.kill(forker, signal.SIGKILL)
    apart.write(20)
    applying.wait_until(apart.progress.has(apart.source), "changes after the forker was killed", 60)

    # The relay server is killed while the source is written to. These changes arrive when it is back.
    serving.kill()
    apart.write(20)
    status = apart.applier.path.parent / "relay/one/status.json"
    applying.wait_until(lambda: "relay-server-lost" in status.read_text(), "the reason is reported", 60)
    serving = apart.replicate()
    applying.wait_until(apart.progress.has(apart.source), "changes while the relay server was dead", 60)

    # `pidts apply` is killed, with all processes that it has started.
    applying.kill()
    apart.write(20)
    applying = apart.apply()
    applying.wait_until(apart.progress.has(apart.source), "changes while nothing was applied", 120)

    # The machine that applies is lost with its copy: the target's checkpoint says where to begin.
    applying.kill()
    apart.write(20)
    time.sleep(0.5)
    shutil.rmtree(apart.applier.path.parent / "relay")
    applying = apart.apply()
    applying.wait_until(apart.progress.has(apart.source), "changes after the copy was lost", 120)
    applying.wait_until(
        lambda: apart.files(apart.applier).items() <= apart.files(apart.receiver).items(), "byte for byte", 20
    )

    # The relay server has a record of the other machine's progress, by name.
    relay = Folder.of(apart.receiver.path.parent / "relay", "one")

    def is_recorded() -> bool:
        (need,) = read_needs(relay)
        return need.task == "t@here" and need.lsn is not None

    applying.wait_until(is_recorded, "the need of the other machine", 60)
    assert applying.summary()["rows"]
    assert len(apart.rows()) == 620
    assert serving.stop() == 0
    last = apart.applier.start("--until-synced", "--json", command="apply")
    with pytest.raises(subprocess.TimeoutExpired):
        last.process.wait(8)  # Nobody can say that the task is synced while the relay server does not run.
    apart.replicate()
    assert last.process.wait(120) == 0, last.log.read_text()[-4000:]


@pytest.mark.long
def test_executors_of_a_cluster_read_the_copy(apart: Apart, tmp_path: Path) -> None:
    """Driver and executors see the folder of the copy: here all of them are on one machine."""
    with standalone_cluster(tmp_path) as cluster:
        text = yaml.safe_load(apart.applier.path.read_text())
        conf = {"spark.executor.memory": "512m", "spark.executor.cores": "1", "spark.cores.max": "2"}
        text["pidts"]["spark"] = {"master": cluster.url, "direct-rows": 0, "conf": conf}
        apart.applier.path.write_text(yaml.safe_dump(text))
        apart.replicate()
        applying = apart.apply()
        applying.wait_until(apart.progress.is_copied, "all is copied", 200)
        apart.write(20)
        applying.wait_until(apart.progress.has(apart.source), "the changes are there", 240)
        assert len(apart.rows()) == 520
        assert cluster.executors()
        assert applying.summary()["rows"]["inserted"] == 20


@pytest.mark.long
def test_a_relay_on_a_shared_file_system_needs_no_server(apart: Apart) -> None:
    """`pidts apply` starts no replicator. It reads what another process writes in the same folder."""
    text = yaml.safe_load(apart.receiver.path.read_text())
    text["pidts"]["relay"] = str(apart.receiver.path.parent / "relay")
    apart.applier.path.write_text(yaml.safe_dump(text))
    receiving = apart.receiver.start(command="replicate")
    applying = apart.apply()
    applying.wait_until(apart.progress.is_copied, "all is copied", 200)
    apart.write(20)
    applying.wait_until(apart.progress.has(apart.source), "the changes are there", 60)
    assert applying.replicator() == []
    receiving.kill()
    apart.write(20)
    receiving = apart.receiver.start(command="replicate")
    applying.wait_until(apart.progress.has(apart.source), "the changes after the replicator was killed", 60)
    assert len(apart.rows()) == 540
    assert applying.stop() == 0
