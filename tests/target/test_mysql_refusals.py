"""The advice after MySQL or MariaDB has refused a row names the right table, or none."""

from __future__ import annotations

import pytest

from pidts.model.advice import COMPARE_TODO
from pidts.target.mysql.errors import refused_row_todo


def test_a_trigger_is_found_by_the_names_of_schema_and_table() -> None:
    assert "SHOW TRIGGERS FROM `shop` WHERE `Table` = 'orders'" in refused_row_todo(1644, "no", "shop.orders")


@pytest.mark.parametrize("table", ["shop.v2.orders", "shop.orders.old"])
def test_a_name_with_a_dot_is_in_no_statement_since_it_may_belong_to_schema_or_table(table: str) -> None:
    todo = refused_row_todo(1644, "no", table)
    assert f"SHOW TRIGGERS lists the triggers of {table}" in todo
    assert "FROM" not in todo
    assert refused_row_todo(4025, "CONSTRAINT `odd` failed for `a`.`b`", table) == COMPARE_TODO
