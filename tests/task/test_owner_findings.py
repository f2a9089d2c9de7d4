"""`pidts check` reports mistakes about zones that own rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pidts.model import Column, ColumnType, Key, Kind, RangeOwner, Table, TableName
from pidts.rules import OwnedRange, Owners
from pidts.task.checks.owners import owner_findings, record_findings

TABLE = Table(
    TableName("shop", "orders"),
    (Column("id", ColumnType(Kind.INT), nullable=False), Column("shop", ColumnType(Kind.INT))),
    (Key("PRIMARY", ("id",), unique=True, primary=True),),
)
OTHER = replace(TABLE, name=TableName("shop", "other"))


def owners(*ranges: tuple[str, str]) -> Owners:
    return Owners(tuple(OwnedRange(schema="shop", table="orders", zone=zone, where=where) for zone, where in ranges))


@pytest.mark.parametrize(
    ("found", "tables", "image", "said"),
    [
        (owners(("a", "")), [TABLE, OTHER], "FULL", "the owner of shop.other is not known: no zone owns it"),
        (owners(("a", "")), [replace(TABLE, keys=())], "FULL", "it has no key"),
        (owners(("a", "part = 1"), ("b", "")), [TABLE], "FULL", "it has no column part"),
        (owners(("a", "shop < 9"), ("b", "shop > 7"), ("b", "")), [TABLE], "FULL", "would own a row with shop=8"),
        (owners(("a", "shop = 9"), ("b", "")), [TABLE], "MINIMAL", "the log may lack shop"),
    ],
)
def test_rules_that_give_a_row_no_single_owner_are_refused(
    found: Owners, tables: list[Table], image: str, said: str
) -> None:
    refused = [one for one in owner_findings(found, tables, image, resumed=False) if not one.ok]
    assert len(refused) == 1
    assert said in refused[0].message
    assert refused[0].fix


def test_a_key_alone_needs_no_whole_rows_and_a_gap_is_reported() -> None:
    first, gap = owner_findings(owners(("a", "id < 5"), ("b", "id > 5")), [TABLE], "MINIMAL", resumed=False)
    assert (first.ok, first.message) == (True, "1 table has an owner")
    assert gap.ok
    assert "no zone owns a row of shop.orders with id=5" in gap.message


def record(**about: Any) -> RangeOwner:
    given = {"schema": "shop", "table": "orders", "where": "", "zone": "a", "origin": "a", "to": "b", "number": 1}
    return RangeOwner(**{**given, "settled": False, "ranges": owners(("a", "")).text(), **about})


def test_records_of_moves_are_looked_at() -> None:
    mine = owners(("a", ""))
    assert record_findings(mine, []) == []
    (moving,) = record_findings(mine, [record()])
    assert moving.ok
    assert "under way, or was interrupted" in moving.message
    (moved,) = record_findings(mine, [record(zone="b", settled=True)])
    assert moved.ok
    assert "zone b owns shop.orders since `pidts zones move`" in moved.message
    (differs,) = record_findings(mine, [record(zone="b", settled=True, ranges="other ranges")])
    assert (differs.ok, differs.code) == (False, "owners-differ")


def test_a_table_that_was_made_meanwhile_does_not_keep_a_task_from_starting_again() -> None:
    found = owner_findings(owners(("a", "")), [TABLE, OTHER], "FULL", resumed=True)
    assert all(one.ok for one in found)
    assert any("shop.other" in one.message for one in found)
