"""A pattern that matches nothing is reported with its name, and nothing is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from pidts.model import TableName
from pidts.task.checks.rule_hints import unused_rule_findings, unused_rules
from pidts.task.config.task_file import TaskConfig, load_parts

TASK = """
name: t
task-mode: all
target-database: {host: 127.0.0.1, port: 9, user: root}
mysql-instances:
  - {source-id: a, from: {host: 127.0.0.1, port: 9, user: root}, route-rules: [orders, misspelled], block-allow-list: one}
  - {source-id: b, from: {host: 127.0.0.1, port: 9, user: root}, route-rules: [orders, items, schemas], block-allow-list: one}
routes:
  orders: {schema-pattern: "shop_*", table-pattern: "order_*", target-schema: shop, target-table: orders}
  items: {schema-pattern: "shop_*", table-pattern: "item_*", target-schema: shop, target-table: items}
  misspelled: {schema-pattern: "shop_*", table-pattern: "oder_*", target-schema: shop, target-table: orders}
  schemas: {schema-pattern: "crm_*", target-schema: crm}
block-allow-list:
  one:
    do-dbs: ["shop_*", "crm", "~^CRM_"]
    do-tables: [{db-name: "shop_*", tbl-name: "*"}, {db-name: "crm_*", tbl-name: "~^c"}, {db-name: "crm_*", tbl-name: users}]
"""
ORDERS, ITEMS = (TableName("Shop_1", name) for name in ("Order_1", "item_1"))
CUSTOMERS = TableName("crm_1", "customers")


@pytest.fixture
def parts(tmp_path: Path) -> tuple[TaskConfig, ...]:
    path = tmp_path / "t.yaml"
    path.write_text(TASK)
    return load_parts(path)


def test_patterns_that_fit_no_table_of_any_source_are_named(parts: tuple[TaskConfig, ...]) -> None:
    assert unused_rules(parts, {"a": [ORDERS], "b": [ITEMS, CUSTOMERS]}) == [
        "route misspelled (shop_*.oder_* -> shop.orders) matches no table of any source",
        "block-allow-list: crm of do-dbs matches no table of any source",
        "block-allow-list: crm_*.users of do-tables matches no table of any source",
    ]
    found = unused_rules(parts, {"a": [ITEMS], "b": [ITEMS]})
    assert [one.partition(" matches")[0].partition(" (")[0] for one in found] == [
        "route orders",
        "route misspelled",
        "block-allow-list: crm of do-dbs",
        "block-allow-list: ~^CRM_ of do-dbs",
        "block-allow-list: crm_*.~^c of do-tables",
        "block-allow-list: crm_*.users of do-tables",
        "route schemas",
    ]
    assert all(finding.ok for finding in unused_rule_findings(parts, {"a": [ITEMS], "b": [ITEMS]}))


def test_where_a_source_is_not_known_nobody_can_say(parts: tuple[TaskConfig, ...]) -> None:
    assert unused_rules(parts, {"a": [ORDERS]}) == []
    assert unused_rules(parts, {"a": [ORDERS], "b": []}) == []
