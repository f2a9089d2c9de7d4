"""`pidts check` names triggers of the target that fire when the task writes rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.task.checks.test_lost_defaults import task_file

from pidts.sandbox import Server
from pidts.source.finding import Finding
from pidts.task.checks.all_sources import check_all_sources
from pidts.task.config.task_file import TaskConfig

RunSql = Callable[..., list[tuple[Any, ...]]]


@pytest.mark.parametrize("kind", ["mysql97", "mysql56"])
def test_a_trigger_of_a_mysql_target_is_a_hint_with_the_statement_that_drops_it(
    mariadb: Server, mysql97: Server, mysql56: Server, database: str, run_sql: RunSql, tmp_path: Path, kind: str
) -> None:
    target = {"mysql97": mysql97, "mysql56": mysql56}[kind]
    for server in (mariadb, target):
        run_sql(server, "CREATE TABLE t (id INT PRIMARY KEY, n INT)", database=database)
        run_sql(server, "CREATE TABLE other (id INT PRIMARY KEY)", database=database)
    run_sql(mariadb, "CREATE TRIGGER adds BEFORE INSERT ON t FOR EACH ROW SET NEW.n = NEW.n + 1", database=database)
    parts = task_file(tmp_path, database, mariadb, target)
    assert not hints(parts), "only the source has a trigger"
    run_sql(target, "CREATE TRIGGER `a``b` BEFORE INSERT ON t FOR EACH ROW SET NEW.n = NEW.n + 1", database=database)
    (found,) = hints(parts)
    assert found.ok
    assert found.message.endswith(f"{database}.t: a`b")
    run_sql(target, found.fix.partition("and run: ")[2], database=database)
    assert not hints(parts)


def hints(parts: tuple[TaskConfig, ...]) -> list[Finding]:
    return [one for one in check_all_sources(parts) if one.item == "target_tables" and "trigger" in one.message]
