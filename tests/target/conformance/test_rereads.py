"""The keys of rows to read again are recorded in the transaction of their changes, and are renamed with their tables."""

from __future__ import annotations

import pytest

from pidts.apply import Target
from pidts.model import TableName

from .samples import checkpoint, lsn

pytestmark = pytest.mark.repeats("mysql56", "mysql97")
A, B, LONG = TableName("Shop", "ä'`\"\\%s"), TableName("shop", "b"), TableName("ü" * 64, "t" * 64)


def test_keys_are_recorded_with_the_transaction_and_read_in_the_order_of_the_log(target: Target, task: str) -> None:
    session, other = target.connect(), target.connect()
    session.begin()
    session.meta.rereads.add(task, "s", A, lsn(20), "x" * 100_000)
    session.rollback()
    assert other.meta.rereads.read(task, "s", A, lsn(0), 9) == []
    session.begin()
    for offset in (30, 9, 20):
        session.meta.rereads.add(task, "s", A, lsn(offset), f"keys {offset}")
    session.meta.rereads.add(task, "s", LONG, lsn(20), "ä")
    session.meta.rereads.add(task, "other", A, lsn(20), "")
    session.commit()
    assert other.meta.rereads.read(task, "s", A, lsn(9), 9) == [(lsn(20), "keys 20"), (lsn(30), "keys 30")]
    assert other.meta.rereads.read(task, "s", A, lsn(0), 1) == [(lsn(9), "keys 9")]
    session.begin()
    session.meta.rereads.add(task, "s", A, lsn(20), "again")
    session.commit()
    session.meta.rereads.forget(task, "s", A, lsn(9))
    assert other.meta.rereads.read(task, "s", A, lsn(0), 9) == [(lsn(20), "again"), (lsn(30), "keys 30")]
    assert other.meta.rereads.read(task, "s", LONG, lsn(0), 9) == [(lsn(20), "ä")]
    session.close()
    other.close()


def test_recorded_keys_follow_their_tables_even_if_names_are_swapped(target: Target, task: str) -> None:
    session = target.connect()
    session.begin()
    for number, name in enumerate((A, B, LONG), 1):
        session.meta.rereads.add(task, "s", name, lsn(number), str(number))
    session.commit()
    session.begin()
    session.meta.rereads.rename(task, "s", {A: B, B: A})
    session.commit()
    found = {name: session.meta.rereads.read(task, "s", name, lsn(0), 9) for name in (A, B, LONG)}
    assert found == {A: [(lsn(2), "2")], B: [(lsn(1), "1")], LONG: [(lsn(3), "3")]}
    session.begin()
    session.meta.rereads.rename(task, "s", {A: LONG})
    session.commit()
    assert session.meta.rereads.read(task, "s", A, lsn(0), 9) == []
    assert session.meta.rereads.read(task, "s", LONG, lsn(0), 9) == [(lsn(2), "2")]
    session.close()


def test_a_new_task_of_the_same_name_begins_without_them(target: Target, task: str) -> None:
    session = target.connect()
    session.begin()
    session.meta.rereads.add(task, "s", A, lsn(20), "keys")
    session.commit()
    session.meta.checkpoints.claim(task, "s", 1, checkpoint(100))
    assert session.meta.rereads.read(task, "s", A, lsn(0), 9) == []
    session.close()
