"""Tables with one target table are merged, and their rows stay distinct."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pidts.model import Column, ColumnType, Key, Kind, Table, TableName
from pidts.rules import ColumnMapping, Extract, RouteRule, Routes, Rules, merged, together

ONE, TWO, ALONE, LANDED = (TableName("shop_1", name) for name in ("t_1", "t_2", "x", "t"))
TEXT = ColumnType(Kind.VARCHAR, length=9, charset="utf8mb4")
TABLE = Table(
    ONE,
    (Column("id", ColumnType(Kind.BIGINT), nullable=False), Column("u", TEXT), Column("v", TEXT)),
    (Key("PRIMARY", ("id",), unique=True, primary=True), Key("u", ("u",), unique=True), Key("v", ("v",))),
)
ROUTE = RouteRule("shop_*", "t_*", "shop_1", "t", Extract("t_(.*)", "of_table"), None, Extract("(.*)", "of_source"))
RULES = Rules(routes=Routes((ROUTE,), "one"))
KEYED = replace(RULES, keyed=frozenset({LANDED}))


def test_tables_are_grouped_by_their_target_table() -> None:
    assert together(RULES, [TWO, ALONE, ONE]) == {LANDED: (ONE, TWO), ALONE: (ALONE,)}
    assert merged(RULES, [TWO, ALONE, ONE]) == {LANDED}
    assert merged(RULES, [TWO, ALONE]) == merged(Rules(), [ONE, TWO]) == frozenset()


def test_a_routed_table_shares_the_target_of_a_table_with_that_name() -> None:
    assert together(RULES, [LANDED, ONE]) == {LANDED: (LANDED, ONE)}


def test_extracted_columns_are_part_of_every_unique_key_where_the_target_has_them_in_its_own() -> None:
    target_table = KEYED.target_table(TABLE)
    assert target_table.identity == ("id", "of_table", "of_source")
    assert [key.columns for key in target_table.keys] == [target_table.identity, ("u", "of_table", "of_source"), ("v",)]
    assert [column.nullable for column in target_table.columns] == [False, True, True, False, False]
    plain = RULES.target_table(TABLE)
    assert (plain.identity, plain.keys) == (("id",), TABLE.keys)
    assert [column.nullable for column in plain.columns[3:]] == [True, True]
    assert KEYED.target_table(replace(TABLE, keys=())).keys == (), "rows without a key have none there, either"
    assert KEYED.target_table(TABLE.renamed(ALONE)) == TABLE.renamed(ALONE)


def test_a_row_under_a_longer_key_has_not_the_key_of_the_source() -> None:
    assert (RULES.keeps_keys(TABLE), KEYED.keeps_keys(TABLE)) == (True, False)
    mapped = replace(RULES, mappings=(ColumnMapping("shop_1", "", "id", "partition id", ("1", "", "")),))
    assert not mapped.keeps_keys(TABLE)


@pytest.mark.parametrize(("other", "alike"), [(TWO, False), (ALONE, False), (TableName("shop_2", "t_1"), True)])
def test_rows_of_a_table_that_is_renamed_may_be_under_other_keys(other: TableName, *, alike: bool) -> None:
    assert KEYED.maps_alike(ONE, other) is alike
    assert RULES.maps_alike(ONE, other)
