"""The relay's index shows which tables the log has changed between two places."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.relay.sample_log import FORMAT_EVENT, ORIGIN, START, sample_log, store

from pidts.model import TableName
from pidts.relay import RelayWriter
from pidts.schema import Dialect
from pidts.task.compare.relayed_changes import RelayedChanges
from pidts.task.config.task_file import TaskConfig, load_task

TASK = """
name: t
task-mode: all
target-database: {host: 127.0.0.1, port: 9, user: root}
mysql-instances:
  - {source-id: s, from: {host: 127.0.0.1, port: 9, user: root}, block-allow-list: one}
block-allow-list:
  one: {do-dbs: [shop]}
"""
OTHER, CHANGED = TableName("shop", "other"), TableName("shop", "order")


@pytest.fixture
def config(tmp_path: Path) -> TaskConfig:
    path = tmp_path / "t.yaml"
    path.write_text(TASK)
    return load_task(path)


def test_the_whole_index_is_read_once_and_not_for_each_table(config: TaskConfig) -> None:
    log = sample_log(10_000, largest=1)
    log[-3:] = [replace(piece, transaction=replace(piece.transaction, ddl=None)) for piece in log[-3:]]
    writer = RelayWriter.open(config.relay, "s")
    writer.begin(ORIGIN, START, "")
    writer.start_segment(FORMAT_EVENT)
    store(writer, log, every=5_000)
    changes = RelayedChanges(config, Dialect())
    after, end = log[-3].transaction.lsn, log[-1].transaction.lsn

    def seconds(times: int) -> float:
        begin = time.process_time()
        for _ in range(times):
            assert changes.untouched(OTHER, after, end)
        return time.process_time() - begin

    first = seconds(1)
    assert seconds(50) < 5 * first
    assert not changes.untouched(CHANGED, after, end)
    (more,) = sample_log(1, after=end)
    assert not changes.untouched(OTHER, after, more.transaction.lsn), "the relay does not have this place yet"
    store(writer, [replace(more, transaction=replace(more.transaction, ddl=None))])
    assert changes.untouched(OTHER, after, more.transaction.lsn), "the same object sees new log"
    writer.close()
