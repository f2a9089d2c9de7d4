"""Records made in advance are used if they were made for the same place and the same structures. Otherwise the records
are made again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from tests.values_target import ValuesTarget

from pidts.batch.context import JobContext
from pidts.batch.decoding import AT_ONCE
from pidts.gate import record_batch
from pidts.gate.record_batch import Records, TransactionRange
from pidts.gate.record_prefetch import PreparedRecords, RecordPrefetch
from pidts.gate.records import SchemaRecord, of_schema_change
from pidts.model import Extent, LogEntry, Lsn, Transaction
from pidts.plan import BatchPlan, LogSlice, PlanState
from pidts.relay import RelayReader
from pidts.schema import Dialect
from pidts.source import SourceConfig
from pidts.target.mysql.datacenter import Numbers

BEGIN, PLACE, END = Lsn(0, 1, 100), Lsn(0, 1, 200), Lsn(0, 1, 300)


@pytest.fixture
def context(tmp_path: Path) -> JobContext:
    return JobContext(
        task="t", source=SourceConfig("memory", 1, source_id="s"), relay=tmp_path, staging=tmp_path,
        target=ValuesTarget("never asked"), workers=1, epoch=1, change_no=0, structures={}, dialect=Dialect(), charsets={},
    )  # fmt: skip


@pytest.fixture
def ahead() -> Iterator[RecordPrefetch]:
    with closing(RecordPrefetch()) as made:
        yield made


def _plan(*log: LogSlice) -> BatchPlan:
    return BatchPlan(PlanState(PLACE), PlanState(END), log, 1, 1, 0, (), frozenset())


def _records(context: JobContext, *log: LogSlice) -> Records:
    """Returns the records of a schema change. No log is read for them."""
    entry = LogEntry(Transaction(lsn=END, prev_lsn=PLACE, begin=PLACE), Extent(0, 0, 0))
    first = of_schema_change([SchemaRecord("TRUNCATE", "d", name, "") for name in ("t", "u")], Lsn(0, 1, 250), 10)
    relay = RelayReader(context.relay, "s")
    return Records(context, relay, _plan(*log), (entry,), lambda _: "127.0.0.1:1", "+00:00", first)


def _made(context: JobContext) -> PreparedRecords:
    return PreparedRecords(TransactionRange(END), _plan(), _records(context))


def test_records_for_this_place_are_used_once(ahead: RecordPrefetch, context: JobContext) -> None:
    made = _made(context)
    ahead.begin(PLACE, lambda: made)
    assert ahead.take(PLACE, context) is made
    assert ahead.take(PLACE, context) is None


def test_the_commit_waits_for_records_that_are_being_made(ahead: RecordPrefetch, context: JobContext) -> None:
    made, go = _made(context), threading.Event()

    def make() -> PreparedRecords:
        assert go.wait(10)
        return made

    ahead.begin(PLACE, make)
    threading.Timer(0.1, go.set).start()
    assert ahead.take(PLACE, context) is made


@pytest.mark.parametrize("place", [BEGIN, END])
def test_records_for_another_place_are_discarded(ahead: RecordPrefetch, context: JobContext, place: Lsn) -> None:
    ahead.begin(PLACE, lambda: _made(context))
    assert ahead.take(place, context) is None
    assert ahead.take(PLACE, context) is None


def test_records_made_with_other_structures_are_discarded(ahead: RecordPrefetch, context: JobContext) -> None:
    """Equal contexts may belong to different places of the log: only the same context object counts."""
    ahead.begin(PLACE, lambda: _made(context))
    assert ahead.take(PLACE, replace(context)) is None


def test_an_error_is_left_to_the_next_attempt_at_the_range(ahead: RecordPrefetch, context: JobContext) -> None:
    def fails() -> PreparedRecords:
        raise OSError("the relay's disk")

    ahead.begin(PLACE, fails)
    assert ahead.take(PLACE, context) is None
    made = _made(context)
    ahead.begin(PLACE, lambda: made)
    assert ahead.take(PLACE, context) is made


def test_records_that_could_not_be_made_in_advance_are_not_there(ahead: RecordPrefetch, context: JobContext) -> None:
    assert ahead.take(PLACE, context) is None
    ahead.begin(PLACE, lambda: None)
    assert ahead.take(PLACE, context) is None


def test_closing_waits_for_what_is_made_now(context: JobContext) -> None:
    ahead, has_begun, is_made = RecordPrefetch(), threading.Event(), threading.Event()

    def make() -> None:
        has_begun.set()
        assert not is_made.wait(0.2)
        is_made.set()

    ahead.begin(PLACE, make)
    assert has_begun.wait(10)
    ahead.close()
    assert is_made.is_set()


def test_records_that_were_made_ahead_get_the_numbers_of_the_place_where_they_are_written(context: JobContext) -> None:
    records = _records(context)
    made = records.ahead()
    assert made is not None
    for last in (Numbers(0, 0), Numbers(70, 7)):
        expected, found = list(records(last)), list(made(last))
        assert [rows.to_pylist() for rows, _ in found] == [rows.to_pylist() for rows, _ in expected]
        assert found[-1][1] == expected[-1][1] == Numbers(last.id + 2, last.tid + 1)


@pytest.mark.parametrize("size", [AT_ONCE, AT_ONCE + 1])
def test_a_log_that_is_read_in_pieces_does_not_wait_in_memory(
    context: JobContext, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """One transaction may be larger than memory, so it is not read in advance."""
    read = []

    def of_slice(_: Records, piece: LogSlice) -> Iterator[pa.Table]:
        read.append(piece)
        return iter(())

    monkeypatch.setattr(Records, "_of_slice", of_slice)
    made = _records(context, LogSlice(Extent(0, 0, size), PLACE, 0)).ahead()
    assert (made is None, len(read)) == ((False, 1) if size == AT_ONCE else (True, 0))


def test_records_that_are_too_large_do_not_wait_in_memory(context: JobContext, monkeypatch: pytest.MonkeyPatch) -> None:
    records = _records(context)
    assert records.first is not None
    size = records.first.nbytes
    monkeypatch.setattr(record_batch, "_AHEAD_BYTES", size)
    assert records.ahead() is not None
    monkeypatch.setattr(record_batch, "_AHEAD_BYTES", size - 1)
    assert records.ahead() is None
