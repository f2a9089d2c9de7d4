"""The halt of an ALTER that cuts digits of floating point numbers says how to round the rows on the source."""

from __future__ import annotations

from pidts.model import Table, TableName
from pidts.target.difference import refuse_rounded


def test_a_statement_for_the_source_has_no_name_of_the_target() -> None:
    halt = refuse_rounded("order", 2, Table(TableName("all", "orders"), ()))
    on_the_source, _, _ = halt.todo.partition(". Change the column on the target")
    assert "= ROUND(..., 2)" in on_the_source
    assert "orders" not in on_the_source, "the source's table may have another name"
    assert " order " not in on_the_source, "the source's column may have another name since the ALTER"
