"""A channel begins once, even if first starts run at the same time or are interrupted."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.conftest import RunSql
from tests.crashes import ProcessDied
from tests.forked_programs import LoadedPrograms
from tests.spark.commands import Task

from pidts.model import SourceTablesKey, Transient
from pidts.sandbox import Server
from pidts.source import connect
from pidts.target.mysql.meta import MySqlCheckpoints
from pidts.task.config.task_file import TaskConfig, load_task
from pidts.task.run import channel_start
from pidts.task.run.channel_start import begin_channel
from pidts.task.run.replicator_process import ReplicatorProcess
from pidts.task.run.start import StartState


@dataclass
class Starts:
    """The starts of one channel, possibly on several machines."""

    config: TaskConfig
    programs: LoadedPrograms
    replicators: dict[str, ReplicatorProcess] = field(default_factory=dict)

    def begin(self, relay: str = "relay") -> StartState:
        path = self.config.path.with_name(f"{relay}.yaml")
        path.write_text(self.config.path.read_text().replace("relay: relay", f"relay: {relay}"))
        config = load_task(path)
        replicator = self.replicators.setdefault(relay, ReplicatorProcess(config, forker=self.programs.replicators))
        with closing(connect(config.source.server)) as source, closing(config.target.server.connect()) as target:
            return begin_channel(config, source, target, replicator, threading.Event())

    def on_record(self) -> dict[str, list[str]]:
        """Returns the recorded tables and their columns."""
        with closing(self.config.target.server.connect()) as target:
            known = target.meta.structures.load(self.config.name, SourceTablesKey("one"))
        return {name.name: [column.name for column in table.columns] for name, table in known.items()}


@pytest.fixture
def starts(
    mariadb: Server,
    database: str,
    make_channel: Callable[..., Task],
    run_sql: RunSql,
    programs: LoadedPrograms,
) -> Iterator[Starts]:
    datacenter = f"{database[-40:].strip('_')}_dc"
    run_sql(mariadb, "CREATE TABLE t (a int)", database=database)
    run_sql(mariadb, "CREATE TABLE u (a int)", database=database)
    made = Starts(load_task(make_channel(mariadb, mariadb, database, datacenter).path), programs)
    yield made
    for replicator in made.replicators.values():
        replicator.stop()
    run_sql(mariadb, f"DROP DATABASE IF EXISTS `{datacenter}`")


def test_structures_and_checkpoint_come_from_the_same_first_start(
    starts: Starts,
    mariadb: Server,
    database: str,
    run_sql: RunSql,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read_at_start = channel_start.read_at_start

    def read_slowly(*args: Any) -> Any:
        read = read_at_start(*args)
        monkeypatch.setattr(channel_start, "read_at_start", read_at_start)
        run_sql(mariadb, "ALTER TABLE t ADD COLUMN b int", database=database)
        starts.begin("there")
        return read

    monkeypatch.setattr(channel_start, "read_at_start", read_slowly)
    with pytest.raises(Transient, match="task-taken") as refused:
        starts.begin("here")
    assert "stop one of the two" in refused.value.todo
    assert starts.on_record() == {"t": ["a", "b"], "u": ["a"]}


def test_a_table_that_is_dropped_between_a_first_start_and_its_repetition_is_not_on_record(
    starts: Starts,
    mariadb: Server,
    database: str,
    run_sql: RunSql,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def killed(*_: Any, **__: Any) -> Any:
        raise ProcessDied

    with monkeypatch.context() as patch:
        patch.setattr(MySqlCheckpoints, "claim", killed)
        with pytest.raises(ProcessDied):
            starts.begin()
    assert set(starts.on_record()) == {"t", "u"}
    run_sql(mariadb, "DROP TABLE t", database=database)
    starts.begin()
    assert set(starts.on_record()) == {"u"}
