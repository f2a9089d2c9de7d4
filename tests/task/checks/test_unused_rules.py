"""A pattern that matches nothing is reported with its name, and nothing is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from pidts.model import TableName
from pidts.task.checks.unused_rules import UnusedRule, unused_rules
from pidts.task.config.task_file import TaskConfig, load_parts

TASK = """
name: t
task-mode: all
target-database: {host: 127.0.0.1, port: 9, user: root}
mysql-instances:
  - {source-id: a, from: {host: 127.0.0.1, port: 9, user: root}, route-rules: [orders, misspelled], filter-rules: [drops], expression-filters: [tests], block-allow-list: one}
  - {source-id: b, from: {host: 127.0.0.1, port: 9, user: root}, route-rules: [orders, items, schemas], block-allow-list: one}
routes:
  orders: {schema-pattern: "shop_*", table-pattern: "order_*", target-schema: shop, target-table: orders}
  items: {schema-pattern: "shop_*", table-pattern: "item_*", target-schema: shop, target-table: items}
  misspelled: {schema-pattern: "shop_*", table-pattern: "oder_*", target-schema: shop, target-table: orders}
  schemas: {schema-pattern: "crm_*", target-schema: crm}
filters:
  drops: {schema-pattern: "shop_*", table-pattern: "oder_*", events: [drop table], action: Ignore}
expression-filter:
  tests: {schema: shop_1, table: custmers, insert-value-expr: "id = 0"}
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
    assert list(map(str, unused_rules(parts, {"a": [ORDERS], "b": [ITEMS, CUSTOMERS]}))) == [
        "route misspelled (shop_*.oder_* -> shop.orders) matches no table of any source",
        "filter drops (shop_*.oder_*: Ignore drop table) matches no table of any source",
        "expression filter tests (shop_1.custmers: drops INSERT id = 0) matches no table of any source",
        "block-allow-list: crm of do-dbs matches no table of any source",
        "block-allow-list: crm_*.users of do-tables matches no table of any source",
    ]
    found = map(str, unused_rules(parts, {"a": [ITEMS], "b": [ITEMS]}))
    assert [one.partition(" matches")[0].partition(" (")[0] for one in found] == [
        "route orders",
        "route misspelled",
        "filter drops",
        "expression filter tests",
        "block-allow-list: crm of do-dbs",
        "block-allow-list: ~^CRM_ of do-dbs",
        "block-allow-list: crm_*.~^c of do-tables",
        "block-allow-list: crm_*.users of do-tables",
        "route schemas",
    ]


def test_where_a_source_is_not_known_nobody_can_say(parts: tuple[TaskConfig, ...]) -> None:
    assert unused_rules(parts, {"a": [ORDERS]}) == []
    assert unused_rules(parts, {"a": [ORDERS], "b": []}) == []


PRESENT = [ORDERS, TableName("Shop_1", "users"), TableName("Shop_2", "Order_1"), CUSTOMERS]


@pytest.mark.parametrize(
    ("schema", "table", "advice"),
    [
        ("shop_*", "oder_*", "Did you mean Shop_1.Order_1?"),
        ("shop_1", "usres", "Did you mean Shop_1.users?"),
        ("shpo_1", "users", "Did you mean Shop_1 or Shop_2?"),
        ("shpo_2", "", "Did you mean Shop_2 or Shop_1?"),
        ("shop_1", "zzz", "Check its spelling."),
    ],
)
def test_the_advice_names_tables_or_schemas_with_a_similar_name(schema: str, table: str, advice: str) -> None:
    rule = UnusedRule("route x", schema, table, case_sensitive=False)
    later = "If a table that the rule matches is created later, leave the rule as it is"
    assert rule.advice(PRESENT) == f"{advice} {later}"


def test_a_table_that_the_list_leaves_out_is_no_misspelling() -> None:
    rule = UnusedRule("route x", "crm_*", "cust*", case_sensitive=False)
    assert rule.advice(PRESENT).startswith("block-allow-list leaves out crm_1.customers: ")
    assert rule.advice([]).startswith("Check its spelling.")


def test_a_rule_may_be_for_schemas_that_the_account_does_not_see() -> None:
    rule = UnusedRule("route x", "hidden_*", "*", case_sensitive=False)
    assert rule.advice(PRESENT, sees_all=False).startswith(
        "The account sees only schemas on which it has a privilege: GRANT SELECT on the rule's schemas. Check its spell"
    )
    rule = UnusedRule("route x", "shop_1", "usres", case_sensitive=False)
    assert rule.advice(PRESENT, sees_all=False).startswith("Did you mean"), "the account sees a schema of the rule"
