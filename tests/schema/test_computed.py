"""A structure keeps the expression of a generated column as long as the expression is right."""

from __future__ import annotations

import pytest

from pidts.model import Table, TableName
from pidts.schema import Dialect, apply, classify
from pidts.schema.computed import mentions, of_the_counter

NAME = TableName("shop", "t")
PIPES_AS_CONCAT = 1 << 1


def after(*statements: str, version: str = "8.0.36", sql_mode: int = 0) -> Table:
    known: dict[TableName, Table] = {}
    dialect = Dialect.of(version).under(sql_mode, utf8_literals=True)
    for sql in statements:
        changed = apply(classify(sql, "shop", dialect=dialect), known, {}, dialect=dialect)
        known |= {name: table for name, table in changed.items() if table is not None}
    return known[NAME]


CREATED = "CREATE TABLE t (id INT, a INT, g INT AS (a + 1) STORED, h VARCHAR(9) GENERATED ALWAYS AS (concat(id,'x')))"


def test_a_statement_shows_it_and_a_record_keeps_it() -> None:
    table = after(CREATED)
    assert [column.computed for column in table.columns] == ["", "", "(a + 1) STORED", "(concat(id,'x')) VIRTUAL"]
    assert [one.computed for one in Table.from_json(table.to_json()).columns] == [one.computed for one in table.columns]
    assert table.of_any_shard == table, "structures are compared without it"
    assert not any(column.computed for column in table.of_any_shard.columns)
    zeros = after("CREATE TABLE t (id INT, a INT UNSIGNED)")
    assert [column.type.may_have_zeros for column in zeros.columns] == [False, False]
    assert [column.type.may_have_zeros for column in zeros.of_any_shard.columns] == [False, True]
    assert "computed" not in table.to_json()["columns"][0]


@pytest.mark.parametrize(
    ("statement", "computed"),
    [
        ("ALTER TABLE t ADD b INT", "(a + 1) STORED"),
        ("ALTER TABLE t RENAME COLUMN a TO b", ""),
        ("ALTER TABLE t CHANGE a b INT", ""),
        ("ALTER TABLE t RENAME COLUMN id TO b", "(a + 1) STORED"),
        ("ALTER TABLE t MODIFY g INT AS (a + 2) STORED", "(a + 2) STORED"),
        ("ALTER TABLE t MODIFY g INT", ""),
    ],
)
def test_a_change_keeps_it_or_not(statement: str, computed: str) -> None:
    assert after(CREATED, statement).column("g").computed == computed


def test_expressions_that_servers_may_read_differently_are_left_out() -> None:
    for expression in ("concat(id,'é')", "concat(id,'\\\\')"):
        assert after(f"CREATE TABLE t (id INT, g VARCHAR(9) AS ({expression}))").column("g").computed == ""
    assert (
        after("CREATE TABLE t (id INT, g VARCHAR(9) AS (id || 'x'))", sql_mode=PIPES_AS_CONCAT).column("g").computed
        == ""
    )


def test_a_name_counts_as_a_word() -> None:
    computed = "(`a` + abs(`b``c`)) VIRTUAL"
    assert [name for name in ("a", "A", "b`c", "b", "virtual", "al") if mentions(computed, name)] == ["a", "A", "b`c"]


def test_columns_that_read_the_counter_are_found_through_other_columns() -> None:
    table = after(
        "CREATE TABLE t (`Id` INT AUTO_INCREMENT PRIMARY KEY, a INT, code VARCHAR(20) AS (concat('N', iD)) VIRTUAL, "
        "longer VARCHAR(30) AS (concat(`code`, '!')) VIRTUAL, other INT AS (a + 1) VIRTUAL, "
        "word VARCHAR(9) AS (concat('id', a)) VIRTUAL)",
        version="10.11.6-MariaDB",
    )
    assert of_the_counter(table) == {"code", "longer"}
    assert of_the_counter(after(CREATED)) == frozenset(), "no column is AUTO_INCREMENT"
