"""The owner of a range is read in the transaction of the rows. It changes only after all transactions that have read it
have ended.
"""

from __future__ import annotations

import threading
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from tests.target.conformance.samples import checkpoint

from pidts.apply import Retry, Target
from pidts.model import RangeOwner
from pidts.target import IcebergTarget
from pidts.task.zones.owner_move import OwnerMove, ZoneRecords

pytestmark = pytest.mark.repeats("values-journaled", "mysql56", "mysql97")

OWNER = RangeOwner(
    schema="shop",
    table="orders",
    where="region = 'eu'",
    zone="a",
    origin="a",
    to="b",
    settled=False,
    number=1,
    ranges="shop.orders where region = 'eu': a",
)


def test_a_record_is_overwritten_and_locked(target: Target, task: str) -> None:
    first = replace(OWNER, table=task)
    other = replace(first, where="", zone="")
    with closing(target.connect()) as session:
        session.meta.prepare()
        records = session.meta.range_owners
        session.begin()
        assert records.lock(first.id) is None
        records.save(first)
        records.save(other)
        session.commit()
        session.begin()
        assert records.lock(first.id) == first
        records.save(replace(first, zone="b", settled=True, number=2))
        session.rollback()
        assert {one for one in records.recorded() if one.table == task} == {first, other}
        session.begin()
        records.save(replace(first, zone="b", settled=True, number=2))
        session.commit()
        found = {one.where: one for one in records.read() if one.table == task}
    assert found == {first.where: replace(first, zone="b", settled=True, number=2), "": other}


def test_a_change_waits_for_transactions_that_have_read_the_owner(target: Target, task: str) -> None:
    """The worker's transaction has read the owner; the record changes when it has ended, and the next transaction reads it."""
    if isinstance(target, IcebergTarget) or not hasattr(target, "host"):
        pytest.skip("a busy lock is an error at once there")
    wanted = replace(OWNER, table=task)
    with closing(target.connect()) as session:
        session.meta.prepare()
        session.meta.checkpoints.claim(task, "s", 1, checkpoint(100))
    move = OwnerMove(
        [ZoneRecords("b", target.connect, ((task, "s"),))], wanted, _no_hold, lambda _: None, retry=Retry(attempts=1)
    )

    def owner(session: Any) -> list[str]:
        return [one.zone for one in session.meta.range_owners.read() if one.table == task]

    moving = threading.Thread(target=move.run)
    with closing(target.connect()) as worker:
        worker.begin()
        worker.meta.checkpoints.lock(task, "s", 0)
        assert owner(worker) == []
        moving.start()
        moving.join(1.0)
        assert moving.is_alive(), "it waits for the worker"
        assert owner(worker) == [], "and nothing has changed under the worker"
        worker.rollback()
        moving.join(30.0)
        assert not moving.is_alive()
        worker.begin()
        worker.meta.checkpoints.lock(task, "s", 0)
        assert owner(worker) == ["b"]
        worker.rollback()


def _no_hold(zone: str) -> Any:
    del zone
    return closing(_Nothing())


class _Nothing:
    def close(self) -> None:
        """Does nothing, since no change was held."""
