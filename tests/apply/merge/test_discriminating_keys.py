"""A target table gets a key with its extracted columns if several tables may be routed to it, even if only one of them
exists now.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from tests.target.conformance.samples import create
from tests.values_target import ValuesTarget

from pidts.apply import TargetSession
from pidts.apply.merge.discriminating_keys import keyed_targets
from pidts.model import Column, ColumnType, Key, Kind, Table, TableName
from pidts.rules import Extract, RouteRule, Routes, Rules

KEY = (Key("PRIMARY", ("id",), unique=True, primary=True),)
ORDERS = Table(TableName("shop", "orders"), (Column("id", ColumnType(Kind.INT), nullable=False),), KEY)
LANDS = TableName("all", "orders")
OF_TABLE, OF_SOURCE = Extract("(.*)", "of_table"), Extract("(.*)", "of_source")


@pytest.fixture
def session() -> Iterator[TargetSession]:
    target = ValuesTarget("shard keys")
    with closing(target.connect()) as session:
        yield session
    target.forget()


def routed(schema: str, table: str, *, source: bool = False, others: tuple[RouteRule, ...] = ()) -> Rules:
    extracts = {"extract_source": OF_SOURCE} if source else {"extract_table": OF_TABLE}
    rule = RouteRule(schema, table, "all", "orders", **extracts)
    return Rules(routes=Routes((rule, *others), "one"))


@pytest.mark.parametrize(
    ("rules", "is_keyed"),
    [
        (routed("shop*", "orders"), True),
        (routed("shop", "orders*"), True),
        (routed("shop", "~^orders"), True),
        (routed("shop", ""), True),
        (routed("shop", "orders", source=True), True),
        (routed("shop", "orders", others=(RouteRule("shop", "old", "all", "orders"),)), True),
        (routed("shop", "orders", others=(RouteRule("shop", "old", "all", "old"),)), False),
        (routed("shop", "orders"), False),
    ],
)
def test_a_table_where_others_may_come_is_made_with_the_long_key(
    session: TargetSession, rules: Rules, *, is_keyed: bool
) -> None:
    assert keyed_targets(session, rules, [ORDERS]) == ({LANDS} if is_keyed else set())


def test_what_the_target_has_counts(session: TargetSession) -> None:
    create(session, routed("shop*", "orders").target_table(ORDERS))
    assert keyed_targets(session, routed("shop*", "orders"), [ORDERS]) == frozenset()
