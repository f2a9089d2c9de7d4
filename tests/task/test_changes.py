"""A change of the task file under a running task: taken over, left for the next start, or refused; never half of one."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from pidts.model import TableName
from pidts.sandbox import Server
from pidts.task import changes
from pidts.task.changes import FileWatch, difference
from pidts.task.config import TaskConfig, load_task
from pidts.task.takeover import Takeover
from pidts.task.tracker import Tracker

RunSql = Callable[..., list[tuple[Any, ...]]]

TASK = """\
name: {name}
task-mode: {mode}
target-database: {{type: postgresql, host: {target}, port: {target_port}, user: {user}, password: "{password}", database: {name}}}
mysql-instances:
  - source-id: s
    from: {{host: {source}, port: {source_port}, user: {source_user}, password: "{source_password}"}}
    block-allow-list: one
block-allow-list: {{one: {{do-tables: [{tables}]}}}}
{extra}
"""
NOWHERE = {
    "name": "t",
    "mode": "all",
    "target": "127.0.0.1",
    "target_port": 9,
    "user": "u",
    "password": "p",
    "source": "127.0.0.1",
    "source_port": 9,
    "source_user": "u",
    "source_password": "p",
    "tables": "{db-name: a, tbl-name: t}",
    "extra": "",
}


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., TaskConfig]:
    def task(**given: Any) -> TaskConfig:
        path = tmp_path / "task.yaml"
        path.write_text(TASK.format(**{**NOWHERE, **given}))
        return load_task(path)

    return task


def test_every_setting_is_decided_upon() -> None:
    """A new one has to be put on one of the lists."""
    decided = {*changes._SAFE, *changes._WAITS, *changes._NOTHING}
    assert decided == {field.name for field in fields(TaskConfig)}


def test_what_is_followed_and_how_much_at_once_is_taken_over(write: Callable[..., TaskConfig]) -> None:
    running = write()
    more = write(tables="{db-name: a, tbl-name: '*'}", extra="pidts: {copy-rate: 100, chunk-rows: 7}")
    found = difference(running, more)
    assert found.taken == ("block-allow-list", "pidts.chunk-rows", "pidts.copy-rate")
    assert found.waiting == ()
    assert found.config.allow(TableName("a", "u"))
    assert found.config.copy_rate == 100


def test_where_things_are_waits_for_the_next_start(write: Callable[..., TaskConfig]) -> None:
    running = write()
    found = difference(running, write(source_port=10, mode="full", extra="pidts: {copy-rate: 5}"))
    assert found.waiting == ("task-mode", "mysql-instances")
    assert (found.config.source, found.config.mode, found.config.copy_rate) == (running.source, "all", 5)


def test_nothing_happens_where_nothing_differs(write: Callable[..., TaskConfig]) -> None:
    found = difference(write(), write(extra="# only words\nignore-checking-items: [gtid]"))
    assert (found.taken, found.waiting) == ((), ())


def test_a_change_is_noticed_once(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("one")
    watch = FileWatch(path)
    assert looks(watch) == [False, True, False]
    os.utime(path, ns=(1, 1))
    assert looks(watch) == [False, True, False]
    watch.forget()
    assert looks(watch) == [True, False, False]
    path.unlink()
    assert looks(watch) == [False, False, False]
    path.write_text("one")
    assert looks(watch) == [False, True, False]
    for at in range(5):
        os.utime(path, ns=(at, at))
        assert not watch.is_changed(), "somebody is still writing"
    assert watch.is_changed()


def looks(watch: FileWatch) -> list[bool]:
    return [watch.is_changed() for _ in range(3)]


def test_what_cannot_be_taken_over_is_said_and_the_task_goes_on(
    write: Callable[..., TaskConfig],
    mariadb: Server,
    postgres: Server,
    database: str,
    run_sql: RunSql,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pidts.task.takeover._LOOK_SECONDS", 0.0)
    for sql in ("CREATE TABLE t (id INT PRIMARY KEY)", "CREATE TABLE full (id INT PRIMARY KEY)"):
        run_sql(mariadb, sql, database=database)
    run_sql(postgres, f'CREATE SCHEMA "{database}"', database=database)
    run_sql(postgres, f'CREATE TABLE "{database}".full (id int PRIMARY KEY)', database=database)
    run_sql(postgres, f'INSERT INTO "{database}".full VALUES (1)', database=database)
    real = {
        "name": database,
        "target": postgres.host,
        "target_port": postgres.port,
        "user": postgres.user,
        "password": postgres.password,
        "source": mariadb.host,
        "source_port": mariadb.port,
        "source_user": mariadb.user,
        "source_password": mariadb.password,
    }
    tables = "{{db-name: {0}, tbl-name: {1}}}".format
    told: list[str] = []
    tracker = Tracker("t", lambda progress: told.append(progress.message))
    prepare_meta(running := write(**real, tables=tables(database, "t")))
    takeover = Takeover(running, tracker)

    def look() -> TaskConfig | None:
        found = takeover.look(running) or takeover.look(running)
        tracker.tell("sync")
        return found

    assert look() is None
    running.path.write_text("name: [")
    assert look() is None
    assert "bad-yaml" in told[-1]
    write(**real, tables=tables(database, "nothing"))
    assert look() is None
    assert "no table of the source" in told[-1]
    write(**real, tables=tables(database, "'*'"))
    assert look() is None
    assert f"{database}.full: it has rows on the target already" in told[-1]
    write(**real, mode="incremental", tables=tables(database, "t"))
    assert look() is None
    assert "task-mode will count from the next start on" in told[-1]
    run_sql(postgres, f'DELETE FROM "{database}".full', database=database)
    write(**real, tables=tables(database, "'*'"))
    taken = look()
    assert taken is not None
    assert taken.allow(TableName(database, "full"))


def prepare_meta(config: TaskConfig) -> None:
    from contextlib import closing

    from pidts.task.compose import target_of

    with closing(target_of(config).connect()) as target:
        target.prepare_meta()
