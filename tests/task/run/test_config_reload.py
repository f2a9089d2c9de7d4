"""The task file is changed while the task runs: each change is applied, left for the next start, or refused, always
completely.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from pidts.model import Column, ColumnType, Kind, Table, TableName
from pidts.rules import ColumnMapping, Extract, RouteRule, Routes, Rules
from pidts.sandbox import Server
from pidts.task.config import diff
from pidts.task.config.diff import FileWatch, difference
from pidts.task.config.task_file import TaskConfig, load_task
from pidts.task.run.config_reload import ConfigReload
from pidts.task.run.tracker import Tracker
from pidts.task.tables.rule_changes import rule_conflict

RunSql = Callable[..., list[tuple[Any, ...]]]

TASK = """\
name: {name}
task-mode: {mode}
target-database: {{type: postgresql, host: {target}, port: {target_port}, user: {user}, password: "{password}", database: {name}}}
mysql-instances:
  - source-id: s
    from: {{host: {source}, port: {source_port}, user: {source_user}, password: "{source_password}"}}
    block-allow-list: one
    {instance}
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
    "instance": "",
}


def routes(*rules: RouteRule) -> Routes:
    return Routes(rules)


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., TaskConfig]:
    def task(**given: Any) -> TaskConfig:
        path = tmp_path / "task.yaml"
        path.write_text(TASK.format(**{**NOWHERE, **given}))
        return load_task(path)

    return task


def test_every_setting_is_decided_upon() -> None:
    """A new key has to be added to one of the lists."""
    decided = {*diff._SAFE, *diff._WAITS, *diff._NOTHING}
    assert decided == {field.name for field in fields(TaskConfig)}


def test_rules_and_limits_are_applied_while_the_task_runs(write: Callable[..., TaskConfig]) -> None:
    running = write()
    more = write(tables="{db-name: a, tbl-name: '*'}", extra="pidts: {copy-rate: 100, chunk-rows: 7}")
    found = difference(running, more)
    assert found.taken == ("block-allow-list", "pidts.chunk-rows", "pidts.copy-rate")
    assert found.waiting == ()
    assert found.config.allow(TableName("a", "u"))
    assert found.config.limits.rate == 100


def test_rules_are_taken_over_by_their_own_keys(write: Callable[..., TaskConfig]) -> None:
    running = write()
    rules = """
filters: {f: {schema-pattern: a, events: [delete], action: Ignore}}
expression-filter: {e: {schema: a, table: t, insert-value-expr: "id < 0"}}
routes: {r: {schema-pattern: a, target-schema: b}}
syncers: {s: {batch: 10}}
"""
    named = "filter-rules: [f]\n    expression-filters: [e]\n    route-rules: [r]\n    syncer-config-name: s"
    file = write(extra=rules, instance=named)
    found = difference(running, file)
    assert found.taken == ("filters", "expression-filter", "routes", "syncers.batch")
    assert (found.config.rules, found.config.limits.row_events) == (file.rules, 8_000)
    moved_down = write(extra="\n" + rules, instance=named)
    assert difference(file, moved_down).taken == (), "the lines that rules stand in are no change"


def test_which_tables_are_of_online_schema_changes_does_not_change_under_way(write: Callable[..., TaskConfig]) -> None:
    running = write()
    found = difference(running, write(extra="online-ddl: false"))
    assert (found.taken, found.waiting) == ((), ("online-ddl",))
    assert not found.config.allow(TableName("a", "_t_gho"))


def table(schema: str, name: str) -> Table:
    return Table(TableName(schema, name), (Column("id", ColumnType(Kind.INT)),))


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (Rules(), Rules(), ""),
        (Rules(), Rules(routes=routes(RouteRule("b", target_schema="x"))), ""),
        (
            Rules(),
            Rules(routes=routes(RouteRule("a", "t", "x", "y"))),
            "a.t has rows on the target in a.t, and the new route leads to x.y",
        ),
        (
            Rules(routes=routes(RouteRule("a", "t", "x", "y"))),
            Rules(routes=routes(RouteRule("a", "t", "x", "y", Extract("(.*)", "origin")))),
            "a.t has rows on the target in x.y, and the new route leads to x.y with origin = 't'",
        ),
        # These rules have the same effect as the old ones.
        (
            Rules(routes=routes(RouteRule("a", "t", "x", "y"))),
            Rules(routes=routes(RouteRule("a", "?", "x", "y"), RouteRule("b", "*", "z"))),
            "",
        ),
        (
            Rules(),
            Rules(mappings=(ColumnMapping("a", "t", "id", "add prefix", ("x",)),)),
            "a.t has rows on the target with values of an earlier column mapping",
        ),
        (Rules(), Rules(mappings=(ColumnMapping("b", "t", "id", "add prefix", ("x",)),)), ""),
    ],
)
def test_rows_that_are_on_the_target_stay_where_they_are(before: Rules, after: Rules, why: str) -> None:
    assert rule_conflict(before, after, [table("a", "t"), table("c", "t")]) == why


def test_changed_addresses_wait_for_the_next_start(write: Callable[..., TaskConfig]) -> None:
    running = write()
    found = difference(running, write(source_port=10, mode="full", extra="pidts: {copy-rate: 5}"))
    assert found.waiting == ("task-mode", "mysql-instances")
    assert (found.config.source, found.config.mode, found.config.limits.rate) == (running.source, "all", 5)


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


def test_changes_that_cannot_be_applied_are_reported_and_the_task_continues(
    write: Callable[..., TaskConfig],
    mariadb: Server,
    postgres: Server,
    database: str,
    run_sql: RunSql,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pidts.task.run.config_reload._LOOK_SECONDS", 0.0)
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
    shown: list[str] = []
    tracker = Tracker("t", "s", lambda progress: shown.append(progress.message))
    prepare_meta(running := write(**real, tables=tables(database, "t")))
    reload = ConfigReload([running], tracker.note)

    def look() -> TaskConfig | None:
        found = reload.look(running) or reload.look(running)
        tracker.show("sync")
        return found

    assert look() is None
    os.utime(running.path, ns=(1, 1))
    assert look() is None
    os.utime(running.path, ns=(2, 2))
    again = reload.look(running, halted=True) or reload.look(running, halted=True)
    assert again is not None
    assert again == running
    running = again
    tracker.show("sync")
    assert "the task tries its halted tables again" in shown[-1]
    assert reload.look(running, halted=True) is None
    running.path.write_text("name: [")
    assert look() is None
    assert "bad-yaml" in shown[-1]
    write(**real, tables=tables(database, "nothing"))
    assert look() is None
    assert "no table of the source" in shown[-1]
    write(**real, tables=tables(database, "'*'"))
    assert look() is None
    assert f"{database}.full: it already has rows on the target" in shown[-1]
    write(**real, mode="incremental", tables=tables(database, "t"))
    assert look() is None
    assert "task-mode will take effect at the next start" in shown[-1]
    both = "routes: {r: {schema-pattern: '*', target-schema: x}, s: {schema-pattern: '*', target-schema: y}}"
    write(**real, tables=tables(database, "'*'"), extra=both, instance="route-rules: [r, s]")
    assert look() is None
    assert "2 routes fit" in shown[-1]
    run_sql(postgres, f'DELETE FROM "{database}".full', database=database)
    write(**real, tables=tables(database, "'*'"))
    taken = look()
    assert taken is not None
    assert taken.allow(TableName(database, "full"))


def prepare_meta(config: TaskConfig) -> None:
    from contextlib import closing

    with closing(config.target.server.connect()) as target:
        target.meta.prepare()
