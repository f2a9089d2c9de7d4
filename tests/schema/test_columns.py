"""Parses column types as information_schema writes them."""

from __future__ import annotations

import pytest

from pidts.model import ColumnType, Halted, Kind
from pidts.schema import Dialect, column_type

MARIADB = Dialect.of("10.11.6-MariaDB")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("int(10) unsigned zerofill", ColumnType(Kind.INT, unsigned=True, length=10)),
        ("tinyint(1)", ColumnType(Kind.TINYINT, length=1)),
        ("bigint unsigned", ColumnType(Kind.BIGINT, unsigned=True)),
        ("decimal(65,30)", ColumnType(Kind.DECIMAL, precision=65, scale=30)),
        ("decimal(10,0) unsigned", ColumnType(Kind.DECIMAL, unsigned=True, precision=10, scale=0)),
        ("float(7,4)", ColumnType(Kind.FLOAT, precision=7, scale=4)),
        ("double", ColumnType(Kind.DOUBLE)),
        ("bit(64)", ColumnType(Kind.BIT, length=64)),
        ("year(4)", ColumnType(Kind.YEAR)),
        ("time(3)", ColumnType(Kind.TIME, fsp=3)),
        ("timestamp", ColumnType(Kind.TIMESTAMP)),
        ("datetime(6)", ColumnType(Kind.DATETIME, fsp=6)),
        ("binary(16)", ColumnType(Kind.BINARY, length=16)),
        ("longblob", ColumnType(Kind.LONGBLOB)),
        ("json", ColumnType(Kind.JSON)),
        ("geomcollection", ColumnType(Kind.GEOMETRY)),
        ("multipolygon", ColumnType(Kind.GEOMETRY)),
        ("vector(3)", ColumnType(Kind.VECTOR, length=3)),
    ],
)
def test_types_without_a_charset(text, expected) -> None:
    assert column_type(text) == expected


def test_types_with_a_charset() -> None:
    assert column_type("varchar(20)", "utf8", "utf8_bin") == ColumnType(
        Kind.VARCHAR, length=20, charset="utf8mb3", collation="utf8mb3_bin"
    )
    assert column_type("text", "latin1").collation == "latin1_swedish_ci"


def test_labels_come_out_of_their_quotes() -> None:
    kind = column_type(r"enum('a','it''s','b\\c','d\ne',',)','')", "latin1", "latin1_bin")
    assert kind.labels == ("a", "it's", "b\\c", "d\ne", ",)", "")


def test_labels_of_bytes_keep_their_spaces() -> None:
    assert column_type("enum('x','y ')", "binary", "binary").labels == ("x", "y ")
    assert column_type("set('x','y ')").labels == ("x", "y ")  # For this type, MySQL 8 and later show no charset.
    assert column_type("enum('x','y ')", "latin1").labels == ("x", "y")


def test_types_of_mariadb() -> None:
    assert column_type("uuid", dialect=MARIADB).kind is Kind.UUID
    assert column_type("inet4", dialect=MARIADB).kind is Kind.INET4
    assert column_type("year(2)", dialect=MARIADB).length == 2
    assert column_type("varchar(9) /*M!100301 COMPRESSED*/", "latin1", dialect=MARIADB).length == 9
    assert column_type("blob /*M!100301 COMPRESSED*/", dialect=MARIADB) == ColumnType(Kind.BLOB)


@pytest.mark.parametrize("text", ["", "hologram", "int(", "int(10) shiny", "varchar"])
def test_a_type_that_is_not_known_halts(text) -> None:
    with pytest.raises(Halted) as error:
        column_type(text)
    assert error.value.code == "unknown-type"


def test_a_type_says_whether_its_numbers_have_zeros_before_them() -> None:
    for sql, known, possible in (
        ("int(10) unsigned zerofill", True, True),
        ("int zerofill unsigned", True, True),
        ("decimal(9,2) zerofill", True, True),
        ("bigint unsigned", False, False),
        ("double unsigned", False, False),
        ("int", None, False),
    ):
        kind = column_type(sql)
        assert (kind.zerofill, kind.may_have_zeros) == (known, possible), sql
        assert ColumnType.from_json(kind.to_json()).zerofill is known, sql
        older = {name: value for name, value in kind.to_json().items() if name != "zerofill"}
        assert ColumnType.from_json(older) == kind, "a record without this fact is the same structure"
        assert ColumnType.from_json(older).may_have_zeros is kind.unsigned, sql
