"""The batch gets the entries that the planner has read from the relay, and does not read them again."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.relay.sample_log import FORMAT_EVENT, ORIGIN, START, Piece, sample_log, store

from pidts.batch.transaction_classifier import TransactionClassifier
from pidts.ddl.planner_signals import signal_done
from pidts.model import LogEntry, Lsn, TableName, Transient
from pidts.plan import Limits, PlanState
from pidts.relay import RelayReader, RelayWriter
from pidts.relay.folder import Folder
from pidts.relay.refetch import ask_to_refetch
from pidts.rules import AllowList
from pidts.schema import Dialect
from pidts.spark.planning import Planner


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[RelayWriter]:
    writer = RelayWriter.open(tmp_path, "s")
    writer.begin(ORIGIN, START, None)
    writer.start_segment(FORMAT_EVENT)
    yield writer
    writer.close()


class CountedReader(RelayReader):
    """A reader that counts how often it is asked for entries."""

    asked = 0

    def entries(
        self,
        after: Lsn | None = None,
        to: Lsn | None = None,
        *,
        joined: bool = False,
        most: tuple[int, int] | None = None,
    ) -> Iterator[LogEntry]:
        self.asked += 1
        return super().entries(after, to, joined=joined, most=most)


Make = Callable[[int], tuple[CountedReader, Planner]]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def made(transactions: int) -> tuple[CountedReader, Planner]:
        reader = CountedReader(tmp_path, "s")
        limits = Limits(transactions=transactions)
        return reader, Planner(
            reader, tmp_path / "staging", limits, TransactionClassifier(AllowList(), Dialect()), None
        )

    return made


def test_the_batch_has_what_the_relay_holds(writer: RelayWriter, make: Make, tmp_path: Path) -> None:
    store(writer, sample_log(30))
    reader, planner = make(4)
    state = PlanState(START)
    while (after := planner.next(state)) is not None:
        before = reader.asked
        handed = list(planner.entries(state.lsn, after.lsn))
        assert reader.asked == before
        assert handed == list(RelayReader(tmp_path, "s").entries(state.lsn, after.lsn, joined=True))
        state = after
    assert state.lsn > START


def test_another_part_of_the_log_is_read(writer: RelayWriter, make: Make) -> None:
    log = sample_log(10)
    store(writer, log)
    reader, planner = make(100)
    after = planner.next(PlanState(START))
    assert after is not None
    begin = log[0].transaction.lsn
    assert begin < after.lsn
    assert next(entry.transaction.prev_lsn for entry in planner.entries(begin, after.lsn)) == begin
    assert reader.asked > 1


@pytest.mark.parametrize("looks", [False, True])
def test_after_a_cut_it_is_read_again(writer: RelayWriter, make: Make, tmp_path: Path, *, looks: bool) -> None:
    """When the end of the relay was cut off, the planner reads again and notices this, even if the reader has already
    noticed it for other code.
    """
    log = sample_log(10)
    store(writer, log)
    reader, planner = make(100)
    after = planner.next(PlanState(START))
    assert after is not None
    ask_to_refetch(Folder.of(tmp_path, "s"), log[0].transaction.lsn, log[9].transaction.lsn, "damaged")
    if looks:
        assert reader.received == log[0].transaction.lsn
    before = reader.asked
    with pytest.raises(Transient, match="cut back"):
        list(planner.entries(START, after.lsn))
    assert reader.asked == before + 1


def small(log: Sequence[Piece]) -> list[Piece]:
    """Returns the log as if no transaction had a statement and all had the same table, so that neighbours can be
    joined.
    """
    tables = (TableName("a", "t"),)
    return [replace(piece, transaction=replace(piece.transaction, ddl=None, tables=tables)) for piece in log]


@pytest.mark.parametrize("limit", [1, 2, 5, 50])
def test_a_batch_of_small_transactions_keeps_its_limit(writer: RelayWriter, make: Make, limit: int) -> None:
    importlib.import_module("pidts.binlog.jit")  # A few transactions are joined only if the compiler is loaded already.
    store(writer, small(sample_log(40)))
    _, planner = make(limit)
    state, counts = PlanState(START), []
    while (after := planner.next(state)) is not None:
        counts.append(sum(entry.count for entry in planner.entries(state.lsn, after.lsn)))
        state = after
    assert counts == [limit] * (40 // limit) + ([40 % limit] if 40 % limit else [])


def test_nothing_is_read_again_after_a_batch_with_all_there_is(writer: RelayWriter, make: Make) -> None:
    log = small(sample_log(30))
    reader, planner = make(1000)
    state = PlanState(START)
    for begin, end in itertools.pairwise((0, 10, 11, 20, 30)):
        store(writer, log[begin:end])
        after = planner.next(state)
        assert after is not None
        assert after.lsn == log[end - 1].transaction.lsn
        before, state = reader.asked, after
        assert planner.next(state) is None
        assert reader.asked == before or begin == 0  # At its first call, the reader does not know yet which file grows.


def test_what_comes_in_another_segment_is_found_at_once(writer: RelayWriter, make: Make) -> None:
    log = small(sample_log(30))
    reader, planner = make(1000)
    state = PlanState(START)
    for number, piece in enumerate(log):
        if number % 4 == 3:
            writer.start_segment(FORMAT_EVENT)
        store(writer, [piece])
        after = planner.next(state)
        assert after is not None
        assert after.lsn == piece.transaction.lsn
        state = after
    assert reader.received == log[-1].transaction.lsn


def other(log: Sequence[Piece]) -> list[Piece]:
    """Returns the transactions of the log as transactions of a table that the task does not take."""
    tables = (TableName("other", "t"),)
    return [replace(piece, transaction=replace(piece.transaction, ddl=None, tables=tables)) for piece in log]


class CountedEntries(CountedReader):
    """A reader that counts the entries that it returns."""

    returned = 0

    def entries(
        self,
        after: Lsn | None = None,
        to: Lsn | None = None,
        *,
        joined: bool = False,
        most: tuple[int, int] | None = None,
    ) -> Iterator[LogEntry]:
        for entry in super().entries(after, to, joined=joined, most=most):
            self.returned += entry.count
            yield entry


def planner_of_schema_a(reader: RelayReader, folder: Path, limits: Limits, goal: Lsn | None = None) -> Planner:
    return Planner(reader, folder / "staging", limits, TransactionClassifier(AllowList(do_dbs=("a",)), Dialect()), goal)


def test_entries_of_other_tables_are_read_once(writer: RelayWriter, tmp_path: Path) -> None:
    log, state = other(sample_log(60)), PlanState(START)
    reader = CountedEntries(tmp_path, "s")
    planner = planner_of_schema_a(reader, tmp_path, Limits())
    for piece in log[:50]:
        store(writer, [piece])
        assert planner.next(state) is None
    assert reader.returned == 50
    store(writer, [*log[50:-1], *small(log[-1:])])
    after = planner.next(state)
    assert after is not None
    assert after.lsn == log[-1].transaction.lsn


@pytest.mark.slow
@settings(max_examples=examples(400))
@given(
    words=st.lists(st.sampled_from(["other", "other", "other", "mine", "statement"]), min_size=1, max_size=25),
    steps=st.lists(st.integers(0, 4), max_size=25),
    transactions=st.integers(1, 30),
    idle_entries=st.integers(1, 30),
    idle_bytes=st.integers(1, 3000),
    goal=st.none() | st.integers(0, 24),
)
def test_a_planner_that_reads_once_plans_what_a_new_planner_does(
    words: list[str],
    steps: list[int],
    transactions: int,
    idle_entries: int,
    idle_bytes: int,
    goal: int | None,
) -> None:
    """The relay grows by some entries before each plan, among them entries with nothing for the task."""
    importlib.import_module("pidts.binlog.jit")  # A few transactions are joined only if the compiler is loaded already.
    kinds = {"other": other, "mine": small, "statement": stated}
    pieces = [kinds[word]([piece])[0] for word, piece in zip(words, sample_log(len(words)), strict=True)]
    limits = Limits(transactions=transactions, idle_entries=idle_entries, idle_bytes=idle_bytes)
    end = pieces[min(goal, len(pieces) - 1)].transaction.lsn if goal is not None else None
    with TemporaryDirectory() as name, closing(RelayWriter.open(folder := Path(name), "s")) as writer:
        writer.begin(ORIGIN, START, None)
        writer.start_segment(FORMAT_EVENT)
        planner = planner_of_schema_a(RelayReader(folder, "s"), folder, limits, end)
        state, at = PlanState(START), 0
        for count in [*steps, len(pieces)]:
            store(writer, pieces[at : at + count])
            at += count
            while True:
                after = planner.next(state)
                assert after == planner_of_schema_a(RelayReader(folder, "s"), folder, limits, end).next(state)
                if after is None:
                    break
                state = after
                if after.due is not None:
                    signal_done(folder / "staging", after.due)


def stated(log: Sequence[Piece]) -> list[Piece]:
    """Returns the transactions of the log as statements that alter a table of the task."""
    return [
        replace(piece, transaction=replace(piece.transaction, ddl="ALTER TABLE a.t ADD c INT", row_events=0, tables=()))
        for piece in log
    ]


def test_a_batch_that_leaves_something_is_followed_by_another(writer: RelayWriter, make: Make) -> None:
    store(writer, small(sample_log(10)))
    _, planner = make(5)
    state = planner.next(PlanState(START))
    assert state is not None
    assert planner.next(state) is not None
