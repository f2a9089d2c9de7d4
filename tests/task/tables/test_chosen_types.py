"""A task file can choose the types of columns on its target. The types are read from the file, and the right columns
get them.
"""

from __future__ import annotations

import pytest

from pidts.model import Column, ColumnType, ConfigError, Halted, Kind, Table, TableName
from pidts.model.type_map import TypeChoice, TypeMap

TINY, FLAG = ColumnType(Kind.TINYINT), ColumnType(Kind.TINYINT, length=1)
BIG, UNSIGNED = ColumnType(Kind.BIGINT), ColumnType(Kind.BIGINT, unsigned=True)


def chosen(kind: ColumnType, *choices: tuple[str, str], name: str = "shop.orders", column: str = "c") -> str:
    table = Table(TableName(*name.split(".")), (Column(column, kind),))
    types = TypeMap(tuple(TypeChoice.parse(*choice) for choice in choices))
    return types.of(table).columns[0].type.chosen


@pytest.mark.parametrize(
    ("kind", "source", "target", "found"),
    [
        (FLAG, "tinyint(1)", "boolean", "boolean"),
        (TINY, "tinyint(1)", "boolean", ""),
        (TINY, "TINYINT", "boolean", "boolean"),
        (UNSIGNED, "bigint unsigned", "bigint", "bigint"),
        (UNSIGNED, "unsigned bigint", "bigint", "bigint"),
        (BIG, "bigint unsigned", "numeric(20)", ""),
        (ColumnType(Kind.JSON), "json of shop.*", "text", "text"),
        (ColumnType(Kind.JSON), "json of crm.*", "text", ""),
        (ColumnType(Kind.TIME, fsp=3), "shop.orders.C", "time", "time(3)"),
    ],
)
def test_a_choice_is_about_a_type_some_tables_or_one_column(
    kind: ColumnType, source: str, target: str, found: str
) -> None:
    assert chosen(kind, (source, target)) == found


def test_the_most_exact_choice_counts() -> None:
    all_of_them = (("tinyint", "integer"), ("tinyint(1)", "boolean"), ("tinyint of shop.*", "bigint"))
    assert chosen(FLAG, *all_of_them[:2]) == "boolean"
    assert chosen(FLAG, *all_of_them) == "bigint"
    assert chosen(FLAG, ("shop.orders.c", "smallint"), *all_of_them) == "smallint"


@pytest.mark.parametrize(
    ("source", "target", "words"),
    [
        ("tinyint(1)", "jsonb", "tinyint cannot become jsonb. Write one of boolean"),
        ("float", "text", "not a type whose target type can be chosen"),
        ("geometry", "text", "geometry cannot become text. Write one of postgis"),
        ("tinyint(1)", "money", "'money' is not a target type that can be chosen"),
    ],
)
def test_impossible_choices_are_refused_when_the_file_is_read(source: str, target: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        TypeChoice.parse(source, target)


def test_a_column_that_cannot_have_its_type_is_named() -> None:
    with pytest.raises(Halted, match=r"boolean for column c, which is text"):
        chosen(ColumnType(Kind.TEXT), ("shop.orders.c", "boolean"))
