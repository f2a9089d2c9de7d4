"""The log of a real MySQL after the step `stop` of a cutover: which statements on other tables prevent the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pidts.model import PrecheckFailed
from pidts.sandbox import Server
from pidts.source import connect
from pidts.source.position import log_end
from pidts.task.config.task_file import TaskConfig, load_task
from pidts.task.cutover.log_after_stop import demand_unchanged

FILE = """\
name: t
task-mode: all
target-database: {{type: postgresql, host: localhost, port: 1, user: nobody, password: "", database: none}}
mysql-instances:
  - source-id: one
    from: {{host: {source.host}, port: {source.port}, user: {source.user}, password: "{source.password}"}}
    block-allow-list: ours
block-allow-list: {{ours: {{do-dbs: ["{schema}"]}}}}
"""
RunSql = Callable[..., None]
InOneSession = Callable[..., None]


@pytest.fixture
def part(mysql97: Server, database: str, tmp_path: Path, run_sql: RunSql) -> Iterator[TaskConfig]:
    """Returns a task on a schema with one table; another schema has a table, and functions that write to both."""
    path = tmp_path / "t.yaml"
    path.write_text(FILE.format(source=mysql97, schema=database))
    for sql in (
        f"CREATE TABLE {database}.t (i INT)",
        f"CREATE DATABASE {database}_o",
        f"CREATE TABLE {database}_o.gone (i INT)",
        f"CREATE TABLE {database}_o.log (i INT)",
        *(
            f"CREATE FUNCTION {database}_o.{name}(a INT) RETURNS INT DETERMINISTIC MODIFIES SQL DATA "
            f"BEGIN INSERT INTO {table} VALUES (a); RETURN a; END"
            for name, table in (("f", f"{database}_o.log"), ("g", f"{database}.t"))
        ),
    ):
        run_sql(mysql97, sql)
    yield load_task(path)
    run_sql(mysql97, f"DROP DATABASE {database}_o")


@pytest.mark.parametrize(
    ("statement", "is_refused"),
    [
        ("INSERT INTO gone VALUES (1)", False),
        ("INSERT INTO gone VALUES (f(1))", False),
        ("INSERT INTO gone VALUES (g(1))", True),
        ("INSERT INTO gone SELECT i FROM {database}.t", True),
    ],
)
def test_the_databases_in_the_log_of_mysql_decide_after_stop(
    part: TaskConfig,
    mysql97: Server,
    database: str,
    in_one_session: InOneSession,
    statement: str,
    is_refused: bool,
) -> None:
    """The table is gone when the cutover looks, so the source could not be asked about it."""
    with closing(connect(part.source.server)) as session:
        place = str(log_end(session))
    in_one_session(
        mysql97,
        f"{database}_o",
        "SET SESSION binlog_format = STATEMENT",
        statement.format(database=database),
        "DROP TABLE gone",
    )
    if not is_refused:
        demand_unchanged(part, place, "")
        return
    with pytest.raises(PrecheckFailed, match=r"a program has changed tables \(INSERT INTO gone"):
        demand_unchanged(part, place, "")
