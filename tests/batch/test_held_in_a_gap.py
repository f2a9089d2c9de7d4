"""Held tables whose place is in a gap of the relay: no entry ends there, so the log cannot be read up to this place.

After a failover, a server does not send the transactions that the relay has already. The end of the server's log may be
behind these, and a copy that read rows at this end leaves its table there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.relay.sample_log import FORMAT_EVENT, ORIGIN, START, Piece, sample_log, store

from pidts.model import LogEntry, Lsn, TableName
from pidts.plan import HeldTables, Limits, PlanState, Relevance, RelevanceKind, next_state
from pidts.plan.batch import plan_between
from pidts.relay import RelayReader, RelayWriter

A, B = TableName("shop", "a"), TableName("shop", "b")
GAP = 100


def moved(lsn: Lsn) -> Lsn:
    return replace(lsn, offset=lsn.offset + GAP)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[list[Piece]]:
    """Returns a statement about `a`, rows of both tables, and behind a gap a statement about `b` and again rows."""
    pieces = []
    for piece, ddl in zip(sample_log(4), ("a", None, "b", None), strict=True):
        what = replace(piece.transaction, ddl=ddl, ddl_schema="", tables=() if ddl else (A, B))
        what = replace(what, row_events=0 if ddl else 1)
        if len(pieces) > 1:
            prev = what.prev_lsn if len(pieces) == 2 else moved(what.prev_lsn)
            what = replace(what, prev_lsn=prev, begin=moved(what.begin), lsn=moved(what.lsn))
        pieces.append(replace(piece, transaction=what))
    writer = RelayWriter.open(tmp_path, "s")
    writer.begin(ORIGIN, START, None)
    writer.start_segment(FORMAT_EVENT)
    store(writer, pieces)
    yield pieces
    writer.close()


def relevance_of(entry: LogEntry) -> Relevance:
    ddl = entry.transaction.ddl
    if ddl:
        return Relevance(RelevanceKind.DDL, frozenset({TableName("shop", ddl)}))
    return Relevance(RelevanceKind.ROWS, frozenset({A, B}))


def test_a_table_in_a_gap_is_read_apart_from_a_table_at_an_earlier_place(tmp_path: Path, log: list[Piece]) -> None:
    first, second, third, last = (piece.transaction for piece in log)
    place = moved(second.lsn)
    assert second.lsn < place == third.begin
    ddls = first.lsn, third.lsn
    held = PlanState(last.lsn, held=tuple(map(HeldTables, ({A}, {B}), (START, place), ddls)))
    reader = RelayReader(tmp_path, "s")
    free = next_state(held, reader.entries, {}, Limits(), relevance_of, None, ddls)
    assert free == PlanState(last.lsn)
    plan = plan_between(held, free, reader.entries, relevance_of)
    assert plan.row_events == 3
    assert [(piece.only, piece.begin) for piece in plan.log] == [({B}, last.begin), ({A}, second.begin)]
