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
from pidts.task.cutover.inventory import Inventory, read_inventory
from pidts.task.cutover.remaining_steps import NOTHING_TO_MAKE
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
    found, _ = _cut_over(mysql97, database, run_sql, tmp_path, source_sql, target_sql)
    (checks,) = [step for step in found.steps if step.name is StepName.CHECKS]
    assert (checks.about, checks.details) == ("5 made", ())
    assert _checks(mysql97, database, run_sql) == {("a", "big"), ("a", "j"), ("a", "n"), *((second, n) for n in names)}
    assert not found.left


def test_names_that_other_tables_of_the_target_use_are_not_taken_and_a_second_look_finds_the_own_checks(
    mysql97: Server, database: str, run_sql: RunSql, tmp_path: Path
) -> None:
    """`a` with `b_c` and `a_b` with `c` have the same name with the table's name before it."""
    columns = "id INT PRIMARY KEY, CONSTRAINT b_c CHECK (id > 0), CONSTRAINT c CHECK (id > 1)"
    source_sql = [f"CREATE TABLE {table} ({columns})" for table in ("a", "a_b")]
    names = ("B_C", "c")
    earlier = ", ".join(f"CONSTRAINT {name} CHECK (n > 0)" for name in names)
    target_sql = [f"CREATE TABLE earlier (n INT, {earlier})"]
    found, again = _cut_over(mysql97, database, run_sql, tmp_path, source_sql, target_sql)
    (checks,) = [step for step in found.steps if step.name is StepName.CHECKS]
    assert (checks.about, checks.details) == ("4 made", ())
    there = _checks(mysql97, database, run_sql)
    others = {("earlier", name) for name in names} | {("a", "a_b_c"), ("a", "a_c"), ("a_b", "a_b_b_c")}
    assert others < there
    ((table, name),) = there - others
    assert (table, name[:6]) == ("a_b", "a_b_c_")
    assert [(one.table.name, one.name) for one in again.checks] == [
        ("a", "a_b_c"),
        ("a", "a_c"),
        ("a_b", "a_b_b_c"),
        ("a_b", name),
    ]


def test_a_check_that_the_target_already_has_is_not_counted_as_made(
    mysql97: Server, database: str, run_sql: RunSql, tmp_path: Path
) -> None:
    """The list before the cutover does not count it either. On the way back, the old server has all of its objects."""
    found, _ = _cut_over(
        mysql97,
        database,
        run_sql,
        tmp_path,
        ["CREATE TABLE a (id INT PRIMARY KEY, CONSTRAINT big CHECK (id > 0))"],
        ["ALTER TABLE a ADD CONSTRAINT big CHECK (id > 0)"],
    )
    (checks,) = [step for step in found.steps if step.name is StepName.CHECKS]
    assert (checks.about, checks.details) == (NOTHING_TO_MAKE, ())


def _cut_over(
    server: Server,
    database: str,
    run_sql: RunSql,
    tmp_path: Path,
    source_sql: Sequence[str],
    target_sql: Sequence[str] = (),
) -> tuple[Checklist, Inventory]:
    """Cuts over from a MariaDB to which nobody else writes. Returns the steps, and the objects as seen after them."""
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
            return run.carry_out(), read_inventory(parts, target)


def _checks(server: Server, database: str, run_sql: RunSql) -> set[tuple[str, str]]:
    return set(
        run_sql(
            server,
            "SELECT table_name, constraint_name FROM information_schema.table_constraints "
            f"WHERE table_schema = '{database}' AND constraint_type = 'CHECK'",
        )
    )
