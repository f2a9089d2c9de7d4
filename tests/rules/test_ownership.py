"""Zones own rows by tables or by ranges of rows, and a check finds mistakes in the ranges."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from pidts.model import (
    ChangeBatch,
    Column,
    ColumnType,
    ConfigError,
    Key,
    Kind,
    Lsn,
    Op,
    Table,
    TableName,
    change_schema,
)
from pidts.rules import OwnedRange, Owners
from pidts.rules.border_rows import border_rows
from pidts.rules.ownership import NOBODY, SEVERAL, check_conditions

TEXT = ColumnType(Kind.VARCHAR, length=10, charset="utf8mb4", collation="utf8mb4_bin")
TABLE = Table(
    TableName("shop", "orders"),
    (Column("id", ColumnType(Kind.INT), nullable=False), Column("region", TEXT)),
    (Key("PRIMARY", ("id",), unique=True, primary=True),),
)


def owners(*ranges: tuple[str, str], table: str = "orders") -> Owners:
    return Owners(tuple(OwnedRange(schema="shop", table=table, zone=zone, where=where) for zone, where in ranges))


def owned_by(found: Owners, *rows: dict[str, Any]) -> list[str | int]:
    after = pa.array(rows, pa.struct(list(TABLE.arrow)))
    count = len(rows)
    lsns = pa.array([Lsn(0, 1, 4).to_bytes()] * count, pa.binary(Lsn.SIZE))
    arrays = [lsns, pa.array([int(Op.INSERT)] * count, pa.int8()), pa.nulls(count, after.type), after]
    batch = pa.RecordBatch.from_arrays([*arrays, pa.nulls(count, pa.binary())], schema=change_schema(TABLE))
    owned = found.owned(ChangeBatch(TABLE, batch), "after")
    return [place if place < 0 else owned.zones[place] for place in owned.places.tolist()]


def test_a_row_is_owned_by_the_condition_that_is_true_of_it_or_by_the_rest() -> None:
    rows = [{"id": 1, "region": "eu"}, {"id": 2, "region": "us"}, {"id": 3, "region": None}]
    assert owned_by(owners(("a", "region = 'eu'"), ("b", "region = 'us'")), *rows) == ["a", "b", NOBODY]
    assert owned_by(owners(("a", "region = 'eu'"), ("b", "")), *rows) == ["a", "b", "b"]
    assert owned_by(owners(("a", "region = 'eu'"), ("a", "id = 3"), ("b", "id > 1")), *rows) == ["a", "b", SEVERAL]
    assert owned_by(owners(("a", ""), table="others"), *rows) == [NOBODY] * 3


def test_the_ranges_of_a_table_count_before_those_of_its_schema() -> None:
    both = Owners((*owners(("a", ""), table="*").ranges, *owners(("b", "")).ranges))
    assert both.sole(TableName("SHOP", "Orders")) == "b"
    assert both.sole(TableName("shop", "others")) == "a"
    assert both.sole(TableName("sales", "others")) == ""
    assert owners(("a", "id < 5"), ("b", "")).sole(TABLE.name) == ""
    assert owners(("a", "id < 5")).sole(TABLE.name) == "", "nobody owns the rest"


@pytest.mark.parametrize(
    ("table", "where", "said"),
    [
        ("*", "id < 5", "one table"),
        ("orders", "at < NOW()", "depend on the time"),
        ("orders", "id <", "not understood"),
        ("orders", "id < RAND()", "RAND"),
    ],
)
def test_a_condition_is_refused_where_no_owner_follows_from_it(table: str, where: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        owners(("a", where), table=table)


def test_ranges_that_are_the_same_rows_are_refused() -> None:
    for ranges in ([("a", ""), ("b", "")], [("a", "id < 5"), ("b", "id  < 5")]):
        with pytest.raises(ConfigError, match="owned twice") as caught:
            owners(*ranges).demand_one_owner()
        assert caught.value.code == "owners-overlap"
    owners(("a", "id < 5"), ("b", "")).demand_one_owner()


@pytest.mark.parametrize(
    ("ranges", "several", "nobody"),
    [
        ([("a", "id < 5"), ("b", "id >= 5")], "", ""),
        ([("a", "id <= 5"), ("b", "id >= 5")], "id=5", ""),
        ([("a", "id < 5"), ("b", "id > 5")], "", "id=5"),
        ([("a", "region = 'eu'"), ("b", "region = 'us'")], "", "region=NULL"),
        ([("a", "region = 'eu'"), ("b", "region IN ('us', 'eu')"), ("c", "")], "region='eu'", ""),
        ([("a", "id BETWEEN 1 AND 9"), ("b", "region = 'eu'"), ("c", "")], "id=", ""),
        ([("a", "")], "", ""),
    ],
)
def test_overlaps_and_gaps_are_found_at_the_borders(ranges: list[tuple[str, str]], several: str, nobody: str) -> None:
    found = border_rows(owners(*ranges), TABLE)
    for text, wanted in zip(found, (several, nobody), strict=True):
        assert (wanted in text) if wanted else not text, found


def test_a_table_is_named_whose_owners_cannot_be_known() -> None:
    assert check_conditions(owners(("a", "id < 5")), TABLE) == ""
    assert "no zone owns it" in check_conditions(owners(("a", ""), table="others"), TABLE)
    assert "no column shop" in check_conditions(owners(("a", "shop = 5"), ("b", "")), TABLE)
    keyless = Table(TABLE.name, TABLE.columns, ())
    assert "no key" in check_conditions(owners(("a", "")), keyless)
