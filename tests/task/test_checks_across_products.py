"""A cutover creates checks on a target whose names of checks are unique in a schema, not in a table."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.task.applied_task import begin

from pidts import sandbox
from pidts.sandbox import Server
from pidts.task.config.task_file import load_parts
from pidts.task.cutover.steps import StepName
from pidts.task.cutover.switch import CutoverOptions, CutoverRun

RunSql = Callable[..., list[tuple[Any, ...]]]


def test_checks_of_one_name_in_several_tables_are_made_and_none_on_a_json_column(
    mysql97: Server, database: str, run_sql: RunSql, tmp_path: Path
) -> None:
    """MariaDB names a column's check like the column. The test has a source to which nobody else writes."""
    with sandbox.start_mariadb() as source:
        run_sql(source, f"CREATE DATABASE {database}")
        for table in ("a", "b"):
            columns = "id INT PRIMARY KEY, j JSON, n INT CHECK (n > 0), CONSTRAINT big CHECK (id > 0)"
            run_sql(source, f"CREATE TABLE {table} ({columns})", database=database)
        one, other = (
            f'host: {each.host}, port: {each.port}, user: {each.user}, password: "{each.password}"'
            for each in (source, mysql97)
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
            run_sql(mysql97, "ALTER TABLE b MODIFY j JSON", database=database)
            options = CutoverOptions(read_only=False)
            run = CutoverRun(parts, target, options, run_once=lambda: pytest.fail("applied"), verify=None)
            found = run.carry_out()
    (checks,) = [step for step in found.steps if step.name is StepName.CHECKS]
    assert (checks.about, checks.details) == ("5 made", ())
    assert run_sql(
        mysql97,
        "SELECT table_name, constraint_name FROM information_schema.table_constraints "
        f"WHERE table_schema = '{database}' AND constraint_type = 'CHECK' ORDER BY 1, 2",
    ) == [("a", "big"), ("a", "j"), ("a", "n"), ("b", "b_big"), ("b", "b_n")]
    assert not found.left
