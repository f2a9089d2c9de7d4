"""PiDTS knows which types can store all values of another type."""

from __future__ import annotations

import pytest

from pidts.model import Column, ColumnType, Table
from pidts.schema import column_type
from pidts.shards.preview import effect_of_unlock, lacking_if_skipped, takes

from .test_decide import KEY, T, arrival, group, member


def typed(text: str) -> ColumnType:
    text, _, charset = text.partition(" charset ")
    return column_type(text, charset or "utf8mb4")


@pytest.mark.parametrize(
    ("here", "there"),
    [
        ("char(5)", "varchar(5)"),
        ("varchar(5)", "varchar(10)"),
        ("varchar(63)", "tinytext"),
        ("tinytext", "varchar(256)"),
        ("char(5)", "char(9)"),
        ("text", "mediumtext"),
        ("varchar(5) charset latin1", "varchar(5) charset utf8mb4"),
        ("varchar(5) charset utf8mb3", "varchar(5) charset utf8mb4"),
        ("int", "bigint"),
        ("int unsigned", "bigint"),
        ("bigint", "decimal(19,0)"),
        ("int", "decimal(12,2)"),
        ("int", "double"),
        ("decimal(8,2)", "decimal(10,4)"),
        ("float", "double"),
        ("enum('a','b')", "enum('b','c','a')"),
        ("binary(4)", "varbinary(4)"),
        ("varbinary(4)", "blob"),
    ],
)
def test_a_wider_type_takes_all_values_and_not_the_other_way_round(here: str, there: str) -> None:
    assert takes(typed(there), typed(here))
    assert not takes(typed(here), typed(there))


@pytest.mark.parametrize(
    ("here", "there"),
    [
        ("varchar(64)", "tinytext"),
        ("varchar(255)", "char(255)"),
        ("varchar(5) charset latin1", "varchar(5) charset latin2"),
        ("int", "bigint unsigned"),
        ("int unsigned", "int"),
        ("bigint", "decimal(18,0)"),
        ("bigint", "double"),
        ("decimal(8,2)", "decimal(9,4)"),
        ("varbinary(4)", "binary(4)"),
        ("blob", "text"),
        ("date", "int"),
    ],
)
def test_statements_that_may_lose_values_are_not_accepted(here: str, there: str) -> None:
    assert not takes(typed(there), typed(here))


def test_rows_that_fit_cause_no_warning() -> None:
    def table(text: str) -> Table:
        return Table(T, (Column("id", typed("int"), nullable=False), Column("a", typed(text))), KEY)

    narrow, wide = table("char(5)"), table("varchar(9)")
    own = arrival(0, wide, narrow)
    assert lacking_if_skipped(group(wide, [wide, wide], own), own) == ()
    own = arrival(0, narrow, wide)
    assert effect_of_unlock(group(narrow, [narrow, narrow], own), own).unfit == ()
    assert lacking_if_skipped(group(narrow, [narrow, narrow], own), own) == ("column a cannot hold all values",)
    own = arrival(0, wide, narrow)
    assert effect_of_unlock(group(wide, [wide, wide], own), own).unfit == (member(1),)
