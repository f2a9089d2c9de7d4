"""Rules that are changed while the task runs apply from then on, or are refused if rows on the target prevent this."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import yaml
from tests.running import NO_TABLE

from pidts.sandbox import Server

from .commands import Task

pytestmark = pytest.mark.spark

RunSql = Callable[..., list[tuple[Any, ...]]]


@pytest.mark.timeout(400)
def test_filters_are_taken_over_and_a_route_of_rows_that_are_there_is_not(
    make_task: Callable[..., Task],
    mariadb: Server,
    target_server: Callable[[str], Server],
    database: str,
    run_sql: RunSql,
) -> None:
    target = target_server("postgres")
    for sql in ("CREATE TABLE t (id INT PRIMARY KEY, a INT)", "INSERT INTO t VALUES (1, 1), (2, 2)"):
        run_sql(mariadb, sql, database=database)
    meta = f"own_{database}"[:60]
    task = make_task(mariadb, target, [database], **{"meta-schema": meta})
    routed = {
        "schema-pattern": database,
        "table-pattern": "t",
        "target-table": "target_table",
        "extract-table": {"table-regexp": "(.*)", "target-column": "origin"},
    }
    change(task, "routes", "route-rules", routed)

    def there() -> list[tuple[Any, ...]]:
        try:
            return run_sql(target, f'SELECT id, a, origin FROM "{database}".target_table ORDER BY id')
        except NO_TABLE:
            return []

    run = task.start("--json")
    run.wait_until(lambda: there() == [(1, 1, "t"), (2, 2, "t")], "the copy")
    change(task, "filters", "filter-rules", {"schema-pattern": "*", "events": ["delete"], "action": "Ignore"})
    run.wait_until(lambda: "keys=('filters',)" in run.log.read_text(), "the filter is taken over")
    run_sql(mariadb, "DELETE FROM t WHERE id = 1", database=database)
    run_sql(mariadb, "UPDATE t SET a = 20 WHERE id = 2", database=database)
    run.wait_until(lambda: (2, 20, "t") in there(), "changes behind the one that is dropped")
    assert there()[0] == (1, 1, "t")

    change(task, "routes", "route-rules", routed | {"target-table": "elsewhere"})
    run.wait_until(lambda: "and the new route leads to" in run.log.read_text(), "the refusal")
    run_sql(mariadb, "INSERT INTO t VALUES (3, 3)", database=database)
    run.wait_until(lambda: (3, 3, "t") in there(), "the task goes on as it was")
    run.summary()
    assert run_sql(target, f'SELECT source, worker FROM "{meta}".checkpoint') == [("one", 0)]
    run_sql(target, f'DROP SCHEMA "{meta}" CASCADE')


def change(task: Task, key: str, names: str, rule: dict[str, Any]) -> None:
    """Writes the task file with `rule` as its only rule of the kind `key`."""
    about = yaml.safe_load(task.path.read_text())
    about[key] = {"one": rule}
    about["mysql-instances"][0][names] = ["one"]
    task.path.write_text(yaml.safe_dump(about))
