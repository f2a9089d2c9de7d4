"""Hints about effects of rules that their writer may not expect: each names its tables, and refuses nothing."""

from __future__ import annotations

import pytest

from pidts.model import Column, ColumnType, Key, Kind, Table, TableName
from pidts.rules import (
    EventFilter,
    ExpressionFilter,
    ExpressionRule,
    Extract,
    FilterRule,
    RouteRule,
    Routes,
    Rules,
)
from pidts.task.checks.rule_hints import rule_findings, rule_hints

INT = ColumnType(Kind.INT)
ORDERS = Table(
    TableName("shop", "orders"),
    (Column("id", INT, nullable=False), Column("State", INT)),
    (Key("PRIMARY", ("id",), unique=True, primary=True),),
)


def expressions(**texts: str) -> Rules:
    return Rules(expressions=ExpressionFilter((ExpressionRule(schema="shop", table="orders", **texts),)))


def events(action: str, *names: str) -> Rules:
    return Rules(events=EventFilter((FilterRule("shop", "*", names, (), action),)))


def test_a_column_that_the_table_has_not_is_reported_with_the_one_that_is_meant() -> None:
    (note,) = rule_hints(expressions(insert="statee = 1 OR statee = 2"), ORDERS)
    assert "no column statee" in note
    assert note.endswith("Did you mean 'State'?")
    (note,) = rule_hints(expressions(update_old="state = 1", update_new="zzz = 1"), ORDERS)
    assert "no column zzz" in note
    assert rule_hints(expressions(delete="state = 1 AND orders.ID > 2"), ORDERS) == []
    assert rule_hints(expressions(delete="nothing = 1"), ORDERS.renamed(TableName("shop", "other"))) == []


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        (events("Do", "insert"), True),
        (events("Do", "all dml"), True),
        (events("Do", "all dml", "all ddl"), False),
        (events("Ignore", "all ddl"), True),
        (events("Ignore", "drop table"), False),
        (events("Ignore", "all"), False),
        (events("Do", "delete"), False),
        (Rules(), False),
    ],
)
def test_rows_without_their_schema_changes_are_reported(rules: Rules, said: bool) -> None:
    assert bool(rule_hints(rules, ORDERS)) is said


def test_an_expression_without_a_group_extracts_nothing() -> None:
    def route(text: str) -> Rules:
        return Rules(routes=Routes((RouteRule("shop", "*", "", "", Extract(text, "shard")),)))

    (note,) = rule_hints(route("ord.*"), ORDERS)
    assert "nothing for column shard" in note
    assert rule_hints(route("ord(.*)"), ORDERS) == []


def test_a_hint_about_many_tables_is_reported_once() -> None:
    tables = [ORDERS.renamed(TableName("shop", name)) for name in "abc"]
    (finding,) = rule_findings(events("Do", "insert"), tables)
    assert finding.ok
    assert finding.message.startswith("shop.a and 2 more tables: ")
