"""Converts the target's values back into the source's values, or finds that no row of the table can have the value."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pidts.model import Column, ColumnType, Key, Kind, Table, TableName
from pidts.rules import ColumnMapping

TEXTS = ["", "x", "ab.", "a\n", "ä"]
SMALL = [0, 1, 127]
PARTITION = ("partition id", ("3", "shop", "orders", "_"))


def table(kind: ColumnType) -> Table:
    return Table(TableName("shop_2", "orders_7"), (Column("id", kind),), (Key("PRIMARY", ("id",), True, True),))


@pytest.mark.parametrize("kind", [Kind.TINYINT, Kind.INT, Kind.BIGINT])
@pytest.mark.parametrize("unsigned", [True, False])
def test_a_partition_id_is_distinguished_from_those_of_others(kind: Kind, *, unsigned: bool) -> None:
    one = table(ColumnType(kind, unsigned=unsigned))
    mapping = ColumnMapping("shop_*", "orders_*", "id", *PARTITION)
    values = pa.array(SMALL, one.columns[0].type.arrow)
    made = mapping.mapped(pa.StructArray.from_arrays([values], names=["id"]), one).field(0)
    assert mapping.unmapped(made, one).to_pylist() == SMALL
    base = mapping.base(one.name)
    others = pa.array([base - 1, base + (1 << 44), 5, None], made.type)
    assert mapping.unmapped(others, one).to_pylist() == [None] * 4
    too_large = 128 if kind is Kind.TINYINT and not unsigned else 1 << 44
    assert mapping.unmapped(pa.array([base + too_large], made.type), one).to_pylist() == [None]
    assert mapping.is_reversible(one)


@pytest.mark.parametrize("expression", ["add prefix", "add suffix"])
@pytest.mark.parametrize("argument", ["b.", "ä_"])
def test_a_prefix_or_suffix_is_removed_once(expression: str, argument: str) -> None:
    one = table(ColumnType(Kind.VARCHAR, length=20, charset="utf8mb4"))
    mapping = ColumnMapping("shop_*", "orders_*", "id", expression, (argument,))
    made = mapping.mapped(pa.StructArray.from_arrays([pa.array(TEXTS)], names=["id"]), one).field(0)
    assert mapping.unmapped(pa.chunked_array([made, pa.array(["x", None])]), one).to_pylist() == [*TEXTS, None, None]


def test_a_number_made_of_digits_does_not_show_how_they_were_written() -> None:
    mapping = ColumnMapping("shop_*", "orders_*", "id", *PARTITION)
    assert not mapping.is_reversible(table(ColumnType(Kind.VARCHAR, length=20)))
