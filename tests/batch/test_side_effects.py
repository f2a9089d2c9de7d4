"""The statements of a transaction are judged one by one, each by the databases that the log names for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

from pidts.batch.side_effects import SideEffects
from pidts.binlog import Query
from pidts.model import Lsn, TableName, Transaction
from pidts.rules import AllowList
from pidts.schema import Dialect

OTHER, OURS = frozenset({"other"}), frozenset({"ours", "other"})
TABLES = (TableName("other", "t"),)


class Counted(Query):
    """A statement that counts how many of its kind are in the memory."""

    alive = most = 0

    def __init__(self, sql: str, databases: frozenset[str]) -> None:
        super().__init__("other", sql, databases=databases)
        Counted.alive += 1
        Counted.most = max(Counted.most, Counted.alive)

    def __del__(self) -> None:
        Counted.alive -= 1


def may_reach(*statements: tuple[str, frozenset[str]]) -> bool:
    def logged() -> Iterator[Query]:
        for sql, databases in statements:
            yield Counted(sql, databases)

    def source() -> AbstractContextManager[Any]:
        pytest.fail("the log says enough")

    effects = SideEffects(AllowList(do_dbs=("ours",)), Dialect(), source)
    transaction = Transaction(lsn=Lsn(0, 1, 9), prev_lsn=Lsn(0, 1, 4), begin=Lsn(0, 1, 4), ddl="…", ddl_schema="other")
    return effects.may_reach(transaction, TABLES, logged)


def test_a_transaction_may_have_more_statements_than_fit_into_the_memory() -> None:
    Counted.alive = Counted.most = 0
    assert not may_reach(*[("INSERT INTO t VALUES (1)", OTHER)] * 500)
    assert Counted.most <= 2


def test_only_a_statement_that_has_used_a_database_of_the_task_may_have_changed_its_tables() -> None:
    plain, call = "INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (f(1))"
    assert not may_reach((plain, OTHER), (call, OTHER))
    assert may_reach((plain, OTHER), (call, OURS))
    assert may_reach((call, OURS), (plain, OTHER))


def test_a_transaction_whose_statements_are_not_in_the_log_may_have_changed_the_tables() -> None:
    assert may_reach()
