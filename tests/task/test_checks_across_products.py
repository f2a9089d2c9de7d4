"""A cutover creates checks on a target whose names of checks are unique in a schema, not in a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.task.applied_task import begin

from pidts import sandbox
from pidts.sandbox import Server
from pidts.task.config.task_file import load_parts
from pidts.task.cutover.steps import Checklist, StepName
from pidts.task.cutover.switch import CutoverOptions, CutoverRun

RunSql = Callable[..., list[tuple[Any, ...]]]


LONG = "b" * 62


@pytest.mark.parametrize(
    ("second", "names"),
    [("b", ["b_big", "b_n"]), (LONG, [f"{LONG[:55]}_644514a7", f"{LONG}_n"])],
    ids=["short", "long"],
)
def test_checks_of_one_name_in_several_tables_are_made_and_none_on_a_json_column(
    mysql97: Server, database: str, run_sql: RunSql, tmp_path: Path, second: str, names: list[str]
) -> None:
    """MariaDB names a column's check like the column. MySQL's names have at most 64 characters."""
    columns = "id INT PRIMARY KEY, j JSON, n INT CHECK (n > 0), CONSTRAINT big CHECK (id > 0)"
    source_sql = [f"CREATE TABLE {table} ({columns})" for table in ("a", second)]
    target_sql = [f"ALTER TABLE {second} MODIFY j JSON"]
    found = _cut_over(mysql97, database, run_sql, tmp_path, source_sql, target_sql)
    (checks,) = [step for step in found.steps if step.name is StepName.CHECKS]
    assert (checks.about, checks.details) == ("5 made", ())
    assert _checks(mysql97, database, run_sql) == {("a", "big"), ("a", "j"), ("a", "n"), *((second, n) for n in names)}
    assert not found.left


def _cut_over(
    server: Server,
    database: str,
    run_sql: RunSql,
    tmp_path: Path,
    source_sql: Sequence[str],
    target_sql: Sequence[str] = (),
) -> Checklist:
    """Cuts over from a MariaDB to which nobody else writes."""
    with sandbox.start_mariadb() as source:
        run_sql(source, f"CREATE DATABASE {database}")
        for statement in source_sql:
            run_sql(source, statement, database=database)
        one, other = (
            f'host: {each.host}, port: {each.port}, user: {each.user}, password: "{each.password}"'
            for each in (source, server)
        )
        path = tmp_path / "t.yaml"
        path.write_text(f"""\
name: {database}
task-mode: all
target-database: {{type: mysql, {other}}}
mysql-instances: [{{source-id: a, from: {{{one}}}, block-allow-list: all}}]
block-allow-list: {{all: {{do-dbs: [{database}]}}}}
""")
        parts = load_parts(path)
        with closing(parts[0].target.server.connect()) as target:
            begin(parts[0], target)
            for statement in target_sql:
                run_sql(server, statement, database=database)
            options = CutoverOptions(read_only=False)
            run = CutoverRun(parts, target, options, run_once=lambda: pytest.fail("applied"), verify=None)
            return run.carry_out()


def _checks(server: Server, database: str, run_sql: RunSql) -> set[tuple[str, str]]:
    return set(
        run_sql(
            server,
            "SELECT table_name, constraint_name FROM information_schema.table_constraints "
            f"WHERE table_schema = '{database}' AND constraint_type = 'CHECK'",
        )
    )
