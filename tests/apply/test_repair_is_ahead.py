"""A repair writes rows as they are now, which is later than the applied log. Later batches find no row that differs."""

from __future__ import annotations

from contextlib import closing

import pyarrow as pa
import pytest
from tests.target.conformance.samples import create
from tests.values_target import ValuesTarget

from pidts.apply import ApplyRules, Committer, prepared
from pidts.apply.repair import RepairSource, repair
from pidts.model import Checkpoint, Halted, Lsn, OnDivergence, Op

from .table_history import PLAIN, Change, Row, batch_of


def row(value: int) -> Row:
    return {"id": 1, "a": value, "b": "x", "u": 1}


def lsn(offset: int) -> Lsn:
    return Lsn(0, 1, offset)


@pytest.mark.parametrize("compares", [True, False])
def test_changes_before_the_place_of_a_repair_are_not_compared(*, compares: bool) -> None:
    target = ValuesTarget(f"repair is ahead {compares}")
    with closing(target.connect()) as session:
        create(session, PLAIN)
        start = Checkpoint(task="t", source="s", worker=0, lsn=lsn(50))
        (claimed,) = session.meta.checkpoints.claim("t", "s", 1, start)
        now = pa.Table.from_pylist([row(3)], PLAIN.arrow)
        origin = RepairSource("s", PLAIN, lambda _: (now, lsn(150)), lambda _checkpoints, _place: False)
        repair(session, "t", PLAIN, [origin], now.select(["id"]), compares=compares)
    behind: list[Change] = [(Op.UPDATE, row(1), row(2)), (Op.UPDATE, row(2), row(3))]
    later: list[Change] = [(Op.UPDATE, row(4), row(5))]
    rules = ApplyRules(task="t", source="s", on_divergence=OnDivergence.HALT)
    with Committer(target, "t", "s", claimed.epoch, rules=rules) as committer:

        def commit(expected: int, reached: int, changes: list[Change], begin: int) -> None:
            batch = batch_of(PLAIN, changes, begin)
            done = Checkpoint(task="t", source="s", worker=0, lsn=lsn(reached))
            committer.commit(0, lsn(expected), done, lambda session: prepared(session, [batch], rules))

        if not compares:
            with pytest.raises(Halted, match="row-diverged"):
                commit(50, 140, behind, 0)
            return
        commit(50, 140, behind, 0)
        assert list(target.store.content(PLAIN.name).values()) == [row(3)]
        with pytest.raises(Halted, match="other values in a"):
            commit(140, 300, later, 100)
    target.forget()
