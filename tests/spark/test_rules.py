"""A task file filters, routes and extracts: full copy, changes and schema changes have the result that its rules
describe.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.running import Progress

from pidts.sandbox import Server

from .commands import Task

pytestmark = [pytest.mark.spark, pytest.mark.long]

RunSql = Callable[..., list[tuple[Any, ...]]]

BEFORE = (
    "CREATE TABLE orders_1 (id INT PRIMARY KEY, state VARCHAR(10), amount DECIMAL(8,2), UNIQUE (state, id))",
    "INSERT INTO orders_1 SELECT seq, 'new', seq / 2 FROM seq_1_to_500",
    "CREATE TABLE item (id INT PRIMARY KEY, name VARCHAR(20))",
    "INSERT INTO item VALUES (1, 'pen'), (2, 'ink')",
    "CREATE TABLE plain (a INT)",
    "INSERT INTO plain VALUES (1), (1)",
)
MEANWHILE = (
    "UPDATE orders_1 SET state = 'paid' WHERE id <= 20",
    "DELETE FROM orders_1 WHERE id = 21",  # filtered
    "INSERT INTO orders_1 VALUES (901, 'new', 1), (902, 'test', 2), (903, NULL, 3)",
    "UPDATE orders_1 SET id = 904 WHERE id = 901",
    "INSERT INTO plain VALUES (2), (1)",
    "DELETE FROM plain WHERE a = 1 LIMIT 1",
    "ALTER TABLE orders_1 ADD COLUMN note VARCHAR(9) DEFAULT 'none' AFTER id, DROP COLUMN amount",  # the drop is filtered
    "INSERT INTO orders_1 VALUES (905, 'hello', 'late')",
    "TRUNCATE TABLE item",  # filtered
    "INSERT INTO item VALUES (3, 'nib')",
    "ALTER TABLE item RENAME TO thing",
    "INSERT INTO thing VALUES (4, 'quill')",
    "CREATE TABLE orders_2x (id INT PRIMARY KEY, state VARCHAR(10))",
    "INSERT INTO orders_2x VALUES (1, 'x')",
)


def test_rows_and_schema_changes_go_where_the_rules_say(
    make_task: Callable[..., Task],
    mariadb: Server,
    target_server: Callable[[str], Server],
    database: str,
    run_sql: RunSql,
    open_session: Callable[..., Any],
) -> None:
    target, target_table = target_server("postgres"), f"{database}_target_names"
    for sql in BEFORE:
        run_sql(mariadb, sql, database=database)
    task = make_task(
        mariadb,
        target,
        [database],
        instance={
            "route-rules": ["schema", "orders", "late"],
            "filter-rules": ["no-deletes", "no-drops"],
            "expression-filters": ["no-tests"],
        },
        **{
            "routes": {
                "schema": {"schema-pattern": database, "target-schema": target_table},
                "orders": {
                    "schema-pattern": database,
                    "table-pattern": "~^orders_[0-9]$",
                    "target-schema": target_table,
                    "target-table": "orders",
                    "extract-table": {"table-regexp": "^orders_(.*)$", "target-column": "shard"},
                    "extract-source": {"source-regexp": "(.*)", "target-column": "origin"},
                },
                "late": {
                    "schema-pattern": database,
                    "table-pattern": "orders_2?",
                    "target-schema": target_table,
                    "target-table": "late",
                },
            },
            "filters": {
                "no-deletes": {
                    "schema-pattern": database,
                    "table-pattern": "orders_*",
                    "events": ["delete", "drop column"],
                    "action": "Ignore",
                },
                "no-drops": {"schema-pattern": database, "events": ["truncate table"], "action": "Ignore"},
            },
            "expression-filter": {
                "no-tests": {"schema": database, "table": "orders_1", "insert-value-expr": "state = 'TEST'"}
            },
        },
    )
    run = task.start()
    run.wait_until(Progress(open_session(target)).is_copied, "all is copied")
    for sql in MEANWHILE:
        run_sql(mariadb, sql, database=database)
    assert run.stop() == 0, task.logs()
    task.sync()

    def there(table: str, columns: str = "*") -> list[tuple[Any, ...]]:
        return sorted(run_sql(target, f"SELECT {columns} FROM {target_table}.{table}"), key=repr)

    orders = {row[0]: row[1:] for row in there("orders", "id, state, note, shard, origin")}
    assert set(orders) == {*range(1, 501), 903, 904, 905}
    assert all(row[2:] == ("1", "one") for row in orders.values())
    assert orders[20] == ("paid", "none", "1", "one")
    assert orders[903][0] is None
    assert orders[905][:2] == ("late", "hello")
    assert {row[0] for row in there("orders", "COUNT(amount)")} == {502}, "a filtered DROP COLUMN leaves the column"
    assert there("thing") == [(1, "pen"), (2, "ink"), (3, "nib"), (4, "quill")]
    assert there("plain") == [(1,), (1,), (2,)]
    assert there("late") == [(1, "x")]
    kept = "SELECT table_name FROM information_schema.tables WHERE table_schema = %s"
    assert run_sql(target, kept, database) == []
