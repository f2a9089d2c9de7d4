"""A schema change that alters values on the source without row events halts; one that keeps all values is made."""

from __future__ import annotations

from contextlib import closing
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.target.conformance.samples import change, create, write

from pidts.model import Halted, TableName
from pidts.schema import apply, classify
from pidts.schema.statement_time import StatementTime

pytest.importorskip("pyiceberg")

from pidts.target import IcebergTarget

NAME = TableName("shop", "t")
REFUSED = [
    ("v INT", None, "MODIFY v INT NOT NULL"),
    ("v FLOAT", 1234.5678, "MODIFY v FLOAT(7,2)"),
    ("v DOUBLE", 1234.5678, "MODIFY v DOUBLE(8,1)"),
    ("v DOUBLE", -1.5, "MODIFY v DOUBLE UNSIGNED"),
    ("v DECIMAL(10,2)", Decimal("-1.50"), "MODIFY v DECIMAL(10,2) UNSIGNED"),
    ("v TEXT CHARACTER SET utf8mb4", "a" * 256, "MODIFY v TINYTEXT CHARACTER SET utf8mb4"),
    ("v VARCHAR(10) CHARACTER SET utf8mb4", "\u0436", "MODIFY v VARCHAR(10) CHARACTER SET latin1"),
    ("v VARCHAR(10) CHARACTER SET utf8mb4", "\u0436", "CONVERT TO CHARACTER SET latin1"),
    ("v VARCHAR(10)", "x,x", "MODIFY v SET('x','y')"),
    ("v VARCHAR(10)", "z", "MODIFY v SET('x','y')"),
    ("v INT UNSIGNED ZEROFILL", 5, "MODIFY v VARCHAR(10)"),
    ("v INT", -100000, "MODIFY v VARCHAR(6)"),
    ("v INT", 1, "MODIFY v ENUM('2','1')"),
    ("v INT", 5, "MODIFY v SET('5','6','7')"),
    ("v DECIMAL(10,2)", Decimal("127.50"), "MODIFY v TINYINT"),
    ("v INT", 16777217, "MODIFY v FLOAT"),
    ("v INT", 70, "MODIFY v YEAR"),
    ("v INT", -1, "MODIFY v BIT(3)"),
    ("v DATE", 20_000, "MODIFY v TIMESTAMP NULL"),
    ("v BINARY(4)", b"abcd", "MODIFY v BINARY(3)"),
    ("v VARCHAR(10) CHARACTER SET utf8mb4", "\u0081", "MODIFY v VARCHAR(10) CHARACTER SET latin1"),
    ("v TIMESTAMP NULL", None, "MODIFY v TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP"),
    ("v INT", 1, "ADD e TIMESTAMP NOT NULL DEFAULT '2020-01-02 00:00:00'"),
    ("v DATETIME", None, "MODIFY v TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP"),
    ("v INT", 1, "ADD e JSON NOT NULL"),
    ("v VARCHAR(10) CHARACTER SET utf8mb4", "\U0001f600", "MODIFY v VARCHAR(10) CHARACTER SET utf8mb3"),
    ("v VARCHAR(10) CHARACTER SET utf8mb4", "a\U00010000", "CONVERT TO CHARACTER SET ucs2"),
]
KEPT = [
    ("v VARCHAR(10)", "a b", "MODIFY v CHAR(10)"),
    ("v INT", 5, "MODIFY v INT NOT NULL"),
    ("v DATE", None, "MODIFY v DATE NOT NULL"),
    ("v FLOAT(7,2)", 1.5, "MODIFY v FLOAT"),
    ("v SET('x','y')", "x,y", "MODIFY v SET('x','y','z')"),
    ("v VARCHAR(10)", "x,y", "MODIFY v SET('x','y')"),
    ("v DOUBLE", None, "MODIFY v DOUBLE(8,1)"),
    ("v DECIMAL(10,2)", Decimal("1.50"), "MODIFY v DECIMAL(10,2) UNSIGNED"),
    ("v TEXT CHARACTER SET utf8mb4", "a" * 255, "MODIFY v TINYTEXT CHARACTER SET utf8mb4"),
    ("v VARCHAR(10) CHARACTER SET utf8mb4", "abc", "MODIFY v VARCHAR(10) CHARACTER SET latin1"),
    ("v VARCHAR(10) CHARACTER SET utf8mb4", "\u00e9\uffff", "MODIFY v VARCHAR(10) CHARACTER SET utf8mb3"),
    ("v VARCHAR(10) CHARACTER SET latin1", "\u00e9", "MODIFY v VARCHAR(10) CHARACTER SET utf8mb4"),
]


MADE = [
    ("v VARCHAR(10)", "ab ", "MODIFY v CHAR(2)", "ab"),
    ("v SET('x','y')", "x,y", "MODIFY v SET('y','x')", "y,x"),
    ("v VARCHAR(10)", "y,x", "MODIFY v SET('x','y')", "x,y"),
    ("v INT", -5, "MODIFY v VARCHAR(2)", "-5"),
    ("v INT UNSIGNED", 5, "MODIFY v VARCHAR(10)", "5"),
    ("v BIGINT", 9007199254740993, "MODIFY v DOUBLE", 9007199254740992.0),
    ("v DECIMAL(10,2)", Decimal("-2.50"), "MODIFY v INT", -3),
    ("v DECIMAL(10,3)", Decimal("2.345"), "MODIFY v DECIMAL(9,2)", Decimal("2.35")),
    ("v INT", 2024, "MODIFY v YEAR", 2024),
    ("v TINYINT", 1, "MODIFY v BIT(1)", 1),
    ("v BINARY(2)", b"ab", "MODIFY v BINARY(4)", b"ab\0\0"),
    ("v VARBINARY(9)", b"", "MODIFY v BINARY(2)", b"\0\0"),
    ("v DATE", 19_782, "MODIFY v DATETIME", datetime(2024, 2, 29)),
]


def altered(folder: Path, columns: str, values: tuple[object, ...], action: str) -> list[dict[str, Any]]:
    """Returns the rows of a table of one row after an ALTER."""
    with closing(IcebergTarget(str(folder)).connect()) as session:
        session.meta.prepare()
        table = apply(classify(f"CREATE TABLE t (id INT PRIMARY KEY, {columns})", "shop"), {}, {})[NAME]
        assert table is not None
        create(session, table)
        write(session, change(table, upserts=[(1, *values)]))
        statement = classify(f"ALTER TABLE t {action}", "shop")
        after = apply(statement, {NAME: table}, {})
        for sql in session.schema.ddl_statements(
            statement, {NAME: table}, after, StatementTime(1_700_000_000)
        ).statements:
            session.execute(sql)
        stored = session.schema.structure(NAME)
        assert stored is not None
        rows: list[dict[str, Any]] = session.read_rows(stored).to_pylist()
        return rows


@pytest.mark.parametrize(("column", "value", "action"), REFUSED, ids=[one[2] for one in REFUSED])
def test_values_that_only_the_source_knows_halt(tmp_path: Path, column: str, value: object, action: str) -> None:
    """The target never keeps a value that the source has changed, or may have changed: the table halts instead."""
    with pytest.raises(Halted) as caught:
        altered(tmp_path, column, (value,), action)
    assert caught.value.code == "ddl-not-translatable"


@pytest.mark.parametrize(("column", "value", "action"), KEPT, ids=[one[2] for one in KEPT])
def test_changes_that_keep_all_values_are_made(tmp_path: Path, column: str, value: object, action: str) -> None:
    """A change that alters no values is made."""
    assert altered(tmp_path, column, (value,), action) == [{"id": 1, "v": value}]


@pytest.mark.parametrize(("column", "value", "action", "new"), MADE, ids=[one[2] for one in MADE])
def test_values_that_the_source_certainly_has_are_written(
    tmp_path: Path, column: str, value: object, action: str, new: object
) -> None:
    assert altered(tmp_path, column, (value,), action) == [{"id": 1, "v": new}]


def test_a_generated_column_whose_base_changes_halts(tmp_path: Path) -> None:
    """The source computes the column anew, and its log does not have the new values."""
    with pytest.raises(Halted) as caught:
        altered(tmp_path, "v DECIMAL(10,2), g INT AS (length(v))", (Decimal("1.50"), 4), "MODIFY v DECIMAL(12,3)")
    assert caught.value.code == "ddl-not-translatable"
