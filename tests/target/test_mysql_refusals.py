"""The advice after MySQL or MariaDB has refused a row names the right table, or none."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from tests.target.conformance.samples import INT, create, rows, table

from pidts.model import ColumnType, Halted, Kind, TableName
from pidts.model.advice import COMPARE_TODO
from pidts.sandbox import Server
from pidts.target import MySqlTarget
from pidts.target.mysql.errors import refused_row_todo


def test_a_trigger_is_found_by_the_names_of_schema_and_table() -> None:
    assert "SHOW TRIGGERS FROM `shop` WHERE `Table` = 'orders'" in refused_row_todo(1644, "no", "shop.orders")


@pytest.mark.parametrize("table", ["shop.v2.orders", "shop.orders.old"])
def test_a_name_with_a_dot_is_in_no_statement_since_it_may_belong_to_schema_or_table(table: str) -> None:
    todo = refused_row_todo(1644, "no", table)
    assert f"SHOW TRIGGERS lists the triggers of {table}" in todo
    assert "FROM" not in todo
    assert refused_row_todo(4025, "CONSTRAINT `odd` failed for `a`.`b`", table) == COMPARE_TODO


@pytest.mark.parametrize("by", ["load", "insert"])
def test_a_time_that_only_mariadb_can_have_is_explained(
    mysql97: Server, database: str, run_sql: Callable[..., Any], by: str
) -> None:
    run_sql(mysql97, "SET GLOBAL local_infile = ON")
    structure = table(TableName(database, "t"), {"id": INT, "a": ColumnType(Kind.TIME, fsp=3)})
    longest = rows(structure, (1, -((838 * 60 + 59) * 60 + 59) * 1_000_000 - 999_000))
    with closing(MySqlTarget(mysql97.host, mysql97.port, mysql97.user, mysql97.password).connect()) as session:
        create(session, structure)
        session._loader._takes_files = by == "load"
        session.begin()
        with pytest.raises(Halted) as error:
            session.load(structure, longest)
        session.rollback()
    assert "A TIME of MySQL is between -838:59:59.000000 and 838:59:59.000000" in error.value.todo
    assert "--resync" in error.value.todo


@pytest.mark.parametrize(("added", "named"), [("KEY `by v` (v)", "index `by v`"), ("COLUMN v INT", "column `v`")])
@pytest.mark.parametrize("kind", ["mariadb", "mysql97"])
def test_a_name_that_the_target_has_already_is_named_with_the_ways_out(
    mariadb: Server, mysql97: Server, database: str, run_sql: Callable[..., Any], kind: str, added: str, named: str
) -> None:
    server = {"mariadb": mariadb, "mysql97": mysql97}[kind]
    run_sql(server, "CREATE TABLE t (id INT PRIMARY KEY, v INT, KEY `by v` (id))", database=database)
    login = (server.host, server.port, server.user, server.password)
    with closing(MySqlTarget(*login).connect()) as session, pytest.raises(Halted) as error:
        session.execute(f"ALTER TABLE `{database}`.t ADD {added}")
    assert error.value.todo.startswith(f"The target's table already has {named}. ")
    what, _, name = named.partition(" ")
    assert f"DROP {what.upper()} {name})" in error.value.todo
    assert [f"pidts ddl {one} TASK" in error.value.todo for one in ("skip", "retry", "replace")] == [True] * 3
