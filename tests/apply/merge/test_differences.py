"""The message about two different structures says how they differ, and not only where."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pidts.apply.merge.differences import differences_text
from pidts.model import Column, ColumnType, Key, Kind, Table, TableName

INT = ColumnType(Kind.INT)
V = Column("v", INT)
LONG = "longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"


def table(*columns: Column, keys: tuple[Key, ...] = (), charset: str = "utf8mb4") -> Table:
    return Table(TableName("shop", "t"), columns, keys, charset)


@pytest.mark.parametrize(
    ("here", "there", "words"),
    [
        (table(V), table(V, Column("b", INT)), "column b (nothing here, int there)"),
        (table(V), table(replace(V, type=ColumnType(Kind.BIGINT))), "column v (int here, bigint there)"),
        (
            table(replace(V, type=ColumnType(Kind.INT, length=11))),
            table(replace(V, nullable=False)),
            "column v (NULL here, NOT NULL there)",
        ),
        (
            table(replace(V, type=ColumnType(Kind.TINYINT, length=1))),
            table(replace(V, type=ColumnType(Kind.TINYINT, length=4))),
            "column v (tinyint(1) here, tinyint there)",
        ),
        (table(V), table(replace(V, nullable=False)), "column v (NULL here, NOT NULL there)"),
        (table(V), table(replace(V, default="5")), "column v (without a default here, DEFAULT 5 there)"),
        (
            table(V, keys=(Key("k", ("v",)),)),
            table(V, keys=(Key("K", ("v", "b"), unique=True),)),
            "key k ((v) here, unique (v, b) there)",
        ),
        (table(V), table(V, keys=(Key("PRIMARY", ("v",), primary=True),)), "key primary (nothing here, (v) there)"),
        (table(V), table(V, charset="latin1"), "the default character set (utf8mb4 here, latin1 there)"),
        (table(V, Column("b", INT)), table(Column("b", INT), V), "the order of columns"),
        (table(V), table(V), ""),
    ],
)
def test_differences_are_described_for_both_tables(here: Table, there: Table, words: str) -> None:
    assert differences_text(here, there) == words


def test_json_columns_of_mysql_and_mariadb_differ_although_their_sql_is_equal() -> None:
    mysql = table(Column("j", ColumnType(Kind.JSON)))
    mariadb = table(Column("j", ColumnType(Kind.LONGTEXT, charset="utf8mb4", collation="utf8mb4_bin")))
    assert differences_text(mysql, mariadb) == f"column j (json here, {LONG} there)"
