"""A table may join between two small transactions that the relay joins to one entry: the earlier one is left out.

If a table whose row was refused is copied again, it joins at the log's present end. If the refused row were in the
batch, the target would refuse it once more.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.relay.sample_log import FORMAT_EVENT, ORIGIN, START, Piece, sample_log, store

from pidts.batch.transaction_classifier import TransactionClassifier
from pidts.model import TableName
from pidts.plan import CopyMode, CopyState, HeldTables, Limits, PlanState, plan_between
from pidts.relay import RelayReader, RelayWriter
from pidts.rules import AllowList
from pidts.schema import Dialect
from pidts.spark.planning import Planner

T = TableName("a", "t")


def small(log: Sequence[Piece]) -> list[Piece]:
    """Returns the log as if all transactions had rows of one table, so that all of them are joined."""
    return [replace(piece, transaction=replace(piece.transaction, ddl=None, tables=(T,))) for piece in log]


@pytest.mark.parametrize("is_held", [False, True])
@pytest.mark.parametrize("number", [0, 9, 18, 19])
def test_only_rows_after_the_place_of_joining_are_in_the_batch(tmp_path: Path, *, is_held: bool, number: int) -> None:
    importlib.import_module("pidts.binlog.jit")  # A few transactions are joined only if the compiler is loaded already.
    log = small(sample_log(20))
    writer = RelayWriter.open(tmp_path, "s")
    writer.begin(ORIGIN, START, None)
    writer.start_segment(FORMAT_EVENT)
    store(writer, log)
    writer.close()
    reader = RelayReader(tmp_path, "s")
    assert [entry.count for entry in reader.entries(joined=True)] == [20]
    classifier = TransactionClassifier(AllowList(), Dialect())
    planner = Planner(reader, tmp_path / "staging", Limits(), classifier, None)
    since, end = log[number].transaction.lsn, log[-1].transaction.lsn
    copy = {T: CopyState(mode=CopyMode.REPAIR, since=since)}
    state = PlanState(end, copy, (HeldTables(frozenset({T}), START),)) if is_held else PlanState(START, copy)
    rows = 0
    while (after := planner.next(state)) is not None and after.at(T) > state.at(T):
        batch = plan_between(state, after, planner.entries, classifier)
        assert all(piece.begin >= since for piece in batch.log if piece.carries(T))
        rows += batch.row_events
        state = after
    assert state.at(T) == end
    assert rows == sum(piece.transaction.row_events for piece in log[number + 1 :])
