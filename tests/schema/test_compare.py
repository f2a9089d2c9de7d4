"""Differences are reported only if rows or keys would differ."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pidts.model import TableName
from pidts.schema import Dialect, apply, classify, differences


def table(definition, dialect=None):
    dialect = dialect or Dialect(charset="latin1")
    statement = classify(f"CREATE TABLE a {definition}", "d", dialect=dialect)
    return apply(statement, {}, {}, dialect=dialect)[TableName("d", "a")]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("(a int(10) unsigned)", "(a int unsigned)"),
        ("(a tinyint(1) unsigned)", "(a tinyint unsigned)"),
        ("(a int DEFAULT 3 COMMENT 'x') COMMENT 'y'", "(A int)"),
        ("(a int, b int, KEY x (a), KEY y (b))", "(a int, b int, KEY y (b), KEY X (A))"),
        ("(a text CHARACTER SET utf8 COLLATE utf8_bin)", "(a text CHARACTER SET utf8mb3 COLLATE utf8mb3_bin)"),
    ],
)
def test_tables_that_hold_the_same_rows_do_not_differ(one, other) -> None:
    assert differences(table(one), table(other)) == []


@pytest.mark.parametrize(
    ("expected", "actual", "reported"),
    [
        ("(a int, b int)", "(a int)", ["column b is missing"]),
        ("(a int)", "(a int, b int)", ["column b should not exist"]),
        ("(a int, b int)", "(b int, a int)", ["the order of the columns should be a, b"]),
        ("(a tinyint(1))", "(a tinyint)", ["column a is tinyint instead of tinyint(1)"]),
        ("(a int)", "(a bigint unsigned)", ["column a is bigint unsigned instead of int"]),
        ("(a decimal(5,2))", "(a decimal(5,1))", ["column a is decimal(5,1) instead of decimal(5,2)"]),
        (
            "(a char(3))",
            "(a char(3) COLLATE latin1_bin)",
            [
                "column a is char(3) CHARACTER SET latin1 COLLATE latin1_bin instead of char(3) CHARACTER SET latin1 COLLATE latin1_swedish_ci"
            ],
        ),
        ("(a int NOT NULL)", "(a int)", ["column a takes NULL"]),
        ("(a int)", "(a int NOT NULL)", ["column a does not take NULL"]),
        (
            "(a int NOT NULL AUTO_INCREMENT, KEY (a))",
            "(a int NOT NULL, KEY (a))",
            ["column a is not AUTO_INCREMENT or an identity column"],
        ),
        ("(a int AS (1))", "(a int)", ["column a is not generated"]),
        ("(a int, KEY k (a))", "(a int)", ["key k (a) is missing"]),
        ("(a int)", "(a int, UNIQUE k (a))", ["unique key k (a) should not exist"]),
        ("(a int, UNIQUE k (a))", "(a int, KEY k (a))", ["key k (a) should be unique key k (a)"]),
        (
            "(a int NOT NULL, b int NOT NULL, PRIMARY KEY (a, b))",
            "(a int NOT NULL, b int NOT NULL, PRIMARY KEY (b, a))",
            ["primary key (b, a) should be primary key (a, b)"],
        ),
    ],
)
def test_differences_are_sentences(expected, actual, reported) -> None:
    assert differences(table(expected), table(actual)) == reported


def test_an_enum_of_bytes_has_no_charset_on_newer_servers() -> None:
    made = table("(a enum('x') CHARACTER SET binary)")
    [column] = made.columns
    bare = replace(made, columns=(replace(column, type=replace(column.type, charset=None, collation=None)),))
    assert differences(made, bare) == []
