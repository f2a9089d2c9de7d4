"""`check`, `plan` and `cutover` name the columns whose default the target does not have."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.task.applied_task import begin

from pidts.model import Column, ColumnType, Kind, TableName
from pidts.sandbox import Server
from pidts.target.mysql import MySqlTarget
from pidts.task.checks.all_sources import check_all_sources
from pidts.task.checks.preview import preview_task
from pidts.task.config.task_file import TaskConfig, load_parts
from pidts.task.cutover.inventory import read_inventory
from pidts.task.tables.lost_defaults import _text

RunSql = Callable[..., list[tuple[Any, ...]]]
MADE = "CREATE TABLE made (id INT PRIMARY KEY, v VARCHAR(36) NOT NULL DEFAULT (UUID()), n INT NOT NULL DEFAULT 7)"
USED = (
    "CREATE TABLE used (id INT PRIMARY KEY, n INT NOT NULL DEFAULT 7, m INT DEFAULT 8, at TIMESTAMP NULL DEFAULT NOW())"
)


@pytest.mark.parametrize(
    ("source_kind", "target_kind"),
    [("mariadb", "postgres"), ("mysql97", "postgres"), ("mariadb", "mysql56"), ("mysql97", "mariadb")],
)
def test_a_default_that_the_target_lacks_is_named_before_the_switch(
    mariadb: Server,
    mysql97: Server,
    mysql56: Server,
    postgres: Server,
    database: str,
    run_sql: RunSql,
    tmp_path: Path,
    source_kind: str,
    target_kind: str,
) -> None:
    source = {"mariadb": mariadb, "mysql97": mysql97}[source_kind]
    target = {"postgres": postgres, "mysql56": mysql56, "mariadb": mariadb}[target_kind]
    for sql in (MADE, USED):
        run_sql(source, sql, database=database)
    used = f"{database}.used" if target_kind == "postgres" else "used"
    if target_kind == "postgres":
        run_sql(target, f"CREATE SCHEMA {database}", database=database)
    then = "TIMESTAMP WITH TIME ZONE" if target_kind == "postgres" else "TIMESTAMP NULL"
    run_sql(
        target,
        f"CREATE TABLE {used} (id INT PRIMARY KEY, n INT NOT NULL, m INT DEFAULT 8, at {then})",
        database=database,
    )
    parts = task_file(tmp_path, database, source, target)
    plan = {table.source.name: (table.way, table.notes) for table in preview_task(parts)["s"]}
    assert (plan["made"][0], plan["used"][0]) == ("create", "use"), plan
    assert [note.split(":")[0] for note in plan["made"][1] if "default" in note] == ["column v"]
    assert [note.split(":")[0] for note in plan["used"][1] if "default" in note] == ["column n", "column at"]
    checked = [one.message for one in check_all_sources(parts) if one.item == "not_carried"]
    (of_made,) = [one for one in checked if f"{database}.made: " in one]
    assert "column v: the target has no default, and the source has" in of_made
    assert "column n: the target" not in of_made
    (of_used,) = [one for one in checked if f"{database}.used: " in one]
    assert "column n: the target has no default, and the source has 7" in of_used
    assert "column m: the target" not in of_used
    with closing(parts[0].target.server.connect()) as session:
        run_sql(target, f"DROP TABLE {used}", database=database)
        begin(parts[0], session)
        change = "ALTER COLUMN" if target_kind == "postgres" else "ALTER"
        run_sql(target, f"ALTER TABLE {used} {change} n DROP DEFAULT", database=database)
        left = {(one.kind, one.table, one.name): one.text for one in read_inventory(parts, session).left}
    assert left.keys() == {("default", "made", "v"), ("default", "used", "n")}
    quoted = (
        '"used" ALTER COLUMN "n" SET DEFAULT 7;'
        if target_kind == "postgres"
        else "`used` ALTER COLUMN `n` SET DEFAULT 7;"
    )
    assert left["default", "used", "n"].endswith(quoted)
    assert "uuid()" in left["default", "made", "v"].lower()


@pytest.mark.parametrize("kind", ["mariadb", "mysql97", "mysql56"])
def test_the_printed_statement_gives_a_column_the_current_time(
    mariadb: Server, mysql97: Server, mysql56: Server, database: str, run_sql: RunSql, kind: str
) -> None:
    server = {"mariadb": mariadb, "mysql97": mysql97, "mysql56": mysql56}[kind]
    name = TableName(database, "t")
    run_sql(server, "CREATE TABLE t (id INT PRIMARY KEY, at DATETIME(3), v VARCHAR(36))", database=database)
    columns = [
        Column("at", ColumnType(Kind.DATETIME, fsp=3), default="current_timestamp(3)"),
        *([Column("v", ColumnType(Kind.VARCHAR, length=36), default="uuid()")] if kind != "mysql56" else []),
    ]
    with closing(MySqlTarget(server.host, server.port, server.user, server.password).connect()) as session:
        for column in columns:
            statement = _text(session, name, column).splitlines()[-1]
            run_sql(server, statement.replace("TYPE", "DATETIME(3)"), database=database)
    run_sql(server, "INSERT INTO t (id) VALUES (1)", database=database)
    ((row),) = run_sql(server, "SELECT at, v FROM t", database=database)
    assert [value is not None for value in row] == [True, kind != "mysql56"]


def task_file(folder: Path, database: str, source: Server, target: Server) -> tuple[TaskConfig, ...]:
    path = folder / "task.yaml"
    kind, more = ("postgresql", f", database: {database}") if target.kind == "postgres" else ("mysql", "")
    path.write_text(f"""\
name: {database}
task-mode: all
target-database: {{type: {kind}, host: {target.host}, port: {target.port}, user: {target.user}, password: "{target.password}"{more}}}
mysql-instances:
  - source-id: s
    from: {{host: {source.host}, port: {source.port}, user: {source.user}, password: "{source.password}"}}
    block-allow-list: all
block-allow-list:
  all: {{do-dbs: [{database}]}}
""")
    return load_parts(path)
