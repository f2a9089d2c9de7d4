"""Workers that a crash has left at different places begin again together. No row is lost, and none comes twice."""

from __future__ import annotations

import itertools
import pickle
import random
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.crashes import ProcessDied
from tests.examples import examples

from pidts.apply import Outcome, settle
from pidts.batch.workers import Commit, Workers, resume_point
from pidts.model import Checkpoint, Halted, LogEntry, LogFile, LogPlace, Lsn, TableName
from pidts.plan import (
    ChunkRequest,
    CopyState,
    HeldTables,
    Limits,
    Phase,
    Places,
    PlanState,
    StagedChunk,
    copies_of,
    next_state,
    plan_between,
)

from .small_log import START, behind, checkpoint, log, relevance_of, table, tables_of

CHUNKS = 3
PLACE = LogPlace("bin.000001:104")


def test_a_run_begins_at_what_all_workers_have_table_by_table():
    at = [START, *(entry.transaction.lsn for entry in log("a a a a a"))]
    states = [
        PlanState(at[5], {}, (HeldTables(frozenset({table("a")}), at[1]),)),
        PlanState(at[3], {}, (HeldTables(frozenset({table("b")}), at[2]),)),
        PlanState(at[3]),
    ]
    rows = tuple(checkpoint(state, worker=number) for number, state in enumerate(states))
    workers, state, _ = Workers.claimed(rows)
    assert {name: state.at(table(name)) for name in "abc"} == {"a": at[1], "b": at[2], "c": at[3]}
    moved = workers.moved(PlanState(at[4], {}, (HeldTables(frozenset({table("b")}), at[3]),)))
    places = [PlanState.from_checkpoint(one.lsn, one.copy) for one in moved.checkpoints]
    assert [[one.at(table(name)) for name in "abc"] for one in places] == [
        [at[4], at[5], at[5]],
        [at[4], at[3], at[4]],
        [at[4], at[3], at[4]],
    ]


def test_the_text_of_equal_states_is_parsed_once_however_many_workers_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copy = {table(f"t{number}"): CopyState(rows=number, phase=Phase.EXTRAS) for number in range(20)}
    state = PlanState(START, copy)
    workers = Workers(tuple(checkpoint(state, worker=number) for number in range(8)))
    end = replace(state, copy={**copy, table("t0"): CopyState(rows=7)})
    wanted = [replace(one, batch=one.batch + 1, copy=end.copy_json(one.epoch)) for one in workers.checkpoints]
    parsed = []
    parse = CopyState.from_json
    monkeypatch.setattr(CopyState, "from_json", lambda data: (parsed.append(data), parse(data))[1])
    moved = workers.moved(end)
    assert list(moved.checkpoints) == wanted
    assert not parsed, "the progress of copies is not needed to move workers"
    commit = Commit.of(workers, moved)
    for before, after in zip(commit.before, commit.after, strict=True):
        assert (commit.copies(before), commit.copies(after)) == (state.copy, end.copy)
        assert (commit.places(before), commit.places(after)) == (state.places, end.places)
    assert len(parsed) == len(copy), "the texts after the batch were made here"


@pytest.mark.parametrize("stored", [PlanState(START), PlanState(Lsn(0, 1, 10**6))])
def test_workers_without_copies_move_as_those_with_a_copy_that_is_done(stored: PlanState) -> None:
    (at,) = [entry.transaction.lsn for entry in log("a")]
    workers = Workers((replace(checkpoint(stored), epoch=3),))
    done = PlanState(at, {table("b"): CopyState(done=True)})
    assert workers.moved(PlanState(at), "0-1-1", PLACE) == workers.moved(done, "0-1-1", PLACE)


@pytest.mark.parametrize("copy", [{}, {table("b"): CopyState()}])
def test_the_log_file_moves_with_the_position_of_all_workers(copy: dict[TableName, CopyState]) -> None:
    at = [START, *(entry.transaction.lsn for entry in log("a a a"))]
    rows = [checkpoint(PlanState(place, copy), worker=number) for number, place in enumerate((at[1], at[3]))]
    first, second = LogFile("bin.000001", 1, 7, "s"), LogFile("bin.000002", 2, 7, "s")
    moved = Workers(tuple(replace(row, log_file=first) for row in rows)).moved(
        PlanState(at[2], copy), place=LogPlace("", second)
    )
    assert [row.log_file for row in moved.checkpoints] == [second, second]
    kept = moved.moved(PlanState(at[2], copy))
    assert [row.log_file for row in kept.checkpoints] == [second, second], "this batch has no log"
    assert resume_point(kept.checkpoints).log_file == second


def test_a_chunk_that_one_worker_lacks_is_not_taken_for_written_because_another_is_ahead():
    copied, before = {table("a"): CopyState((9,))}, {table("a"): CopyState()}
    ahead = replace(checkpoint(PlanState(Lsn(0, 1, 900), before), run=1), batch=5)
    wrote = replace(checkpoint(PlanState(Lsn(0, 1, 500), copied), worker=1, run=1), batch=7)
    _, state, _ = Workers.claimed((ahead, wrote))
    assert (state.lsn, state.copy) == (wrote.lsn, before)


def test_a_copy_is_taken_with_the_place_at_which_it_was_stored():
    """The worker that is ahead stores the copy's progress of a batch in which the table still had its former name."""
    at = [START, *(entry.transaction.lsn for entry in log("a a a a"))]
    old, new = {table("a"): CopyState()}, {table("b"): CopyState()}
    crashed = PlanState(at[1], old), PlanState(at[4], new)
    rows = [checkpoint(state, worker=number, run=1) for number, state in enumerate(crashed)]
    workers, state, _ = Workers.claimed(tuple(replace(row, epoch=2) for row in rows))
    assert (state.lsn, state.copy) == (at[1], old)
    first = workers.moved(PlanState(at[3], old), gtid="1-3", place=LogPlace("bin.000001:500"))
    second = first.moved(PlanState(at[4], new), gtid="1-4", place=LogPlace("bin.000001:600"))
    again = second.checkpoints[0], first.checkpoints[1]
    assert [row.lsn for row in again] == [at[4], at[4]]
    _, state, found = Workers.claimed(again)
    assert (state.lsn, state.copy, found.gtid) == (at[3], old, "1-3")
    assert resume_point(again).lsn <= at[3]


def test_a_chunk_that_one_worker_wrote_in_an_earlier_run_is_not_taken_for_written():
    copied, again = {table("a"): CopyState((9,), reads=1)}, {table("a"): CopyState(reads=2)}
    wrote = replace(checkpoint(PlanState(START, copied), run=1), batch=2)
    others = [replace(checkpoint(PlanState(START, again), worker=number, run=2), batch=3) for number in (1, 2)]
    _, state, _ = Workers.claimed((wrote, *others))
    assert state.copy == again


def test_workers_at_different_lsns_do_not_continue_if_the_target_distributes_rows_differently():
    at = [START, *(entry.transaction.lsn for entry in log("a a"))]
    rows = tuple(checkpoint(PlanState(START), worker=number) for number in range(2))
    workers, _, _ = Workers.claimed(rows, "spread")
    moved = workers.moved(PlanState(at[1]), dealing="spread").checkpoints
    torn = (moved[0], rows[1])
    Workers.claimed(torn, "spread")
    Workers.claimed(moved, "whole")
    Workers.claimed(torn)
    with pytest.raises(Halted, match="unique keys"):
        Workers.claimed(torn, "whole")


def test_an_empty_relay_begins_after_what_held_tables_have():
    at = [START, *(entry.transaction.lsn for entry in log("a a a a"))]
    main = replace(checkpoint(PlanState(at[3])), position="bin.000001:304", gtid="0-1-3")
    behind_it = PlanState(at[4], held=(HeldTables(frozenset({table("a")}), at[1]),))
    held = replace(checkpoint(behind_it), position="bin.000001:404", gtid="0-1-4")
    assert resume_point([main]) == main
    found = resume_point([main, held])
    assert (found.lsn, found.position, found.gtid) == (at[1], "bin.000001:104", "")


def test_an_empty_relay_begins_where_a_source_can_send_though_a_worker_is_within_a_transaction():
    within = Lsn(0, 1, 350, 7)
    split = replace(checkpoint(PlanState(within)), position="bin.000001:304", gtid="0-1-3")
    ahead = replace(checkpoint(PlanState(Lsn(0, 1, 900)), worker=1), position="bin.000001:304", gtid="0-1-3")
    found = resume_point([ahead, split])
    assert (found.lsn, found.position, found.gtid) == (Lsn(0, 1, 304), "bin.000001:304", "0-1-3")


class TaskWithWorkers:
    """A target with several workers, its journal, and the runs of a task, one after the other.

    It checks each claim where it could fail: rows arrive once and in order, at a table with their structure. A schema
    change begins when everything before it is there. The batch that settles a chunk has the chunk's whole window of
    log, and no schema change of its table.
    """

    def __init__(self, entries: list[LogEntry], workers: int, limits: Limits, chance: random.Random, *, copy: bool):
        self.entries, self.limits, self.chance = entries, limits, chance
        self.names = [table(letter) for letter in "abc"]
        first = PlanState(START, {name: CopyState() for name in self.names} if copy else {})
        self.rows = [checkpoint(first, worker) for worker in range(workers)]
        self.applied: list[dict[TableName, list[Lsn]]] = [{name: [] for name in self.names} for _ in range(workers)]
        self.chunks: list[dict[TableName, set[int]]] = [{name: set() for name in self.names} for _ in range(workers)]
        self.journal: set[Lsn] = set()
        self.shown = 0
        self.crashes = 0
        self.overtaken = 0

    def ddls(self, name: TableName) -> list[Lsn]:
        found = []
        for entry in self.entries:
            ddl = entry.transaction.ddl
            names = tables_of(ddl) if ddl else frozenset()
            if names is None or name in names:
                found.append(entry.transaction.lsn)
        return found

    def maybe_crash(self) -> None:
        if self.crashes and self.chance.random() < 0.15:
            self.crashes -= 1
            raise ProcessDied

    def run(self) -> None:
        """Runs one process until there is nothing left to do, or until it crashes."""
        self.rows = [replace(row, epoch=row.epoch + 1) for row in self.rows]
        workers, state, _ = Workers.claimed(tuple(self.rows))
        running: set[Lsn] = set()
        done: set[Lsn] = set()
        chunks: dict[ChunkRequest, StagedChunk] = {}
        windows: dict[ChunkRequest, Lsn] = {}
        while True:
            self.shown = self.chance.randint(self.shown, len(self.entries))
            shown = self.entries[: self.shown]
            for lsn in [lsn for lsn in running if self.chance.random() < 0.3]:
                running.discard(lsn)
                self.journal.add(lsn)
                self.maybe_crash()
                done.add(lsn)
            staged = {request.table: chunks[request] for request in state.reading if request in chunks}
            known = done & set(state.dues)
            arguments = (state, partial(behind, shown), staged, self.limits, relevance_of, None, known)
            end, again = next_state(*arguments), next_state(*arguments)
            assert end == again
            if end is None:
                if self.shown == len(self.entries) and not running:
                    self.state = state
                    return
                continue
            self.check(end)
            moved = workers.moved(PlanState.from_json(end.to_json()))
            for row in moved.checkpoints:
                assert moved.places.of(row) == Places.of_text(row.lsn, row.copy), "the text has other places"
            plan = plan_between(state, end, partial(behind, self.entries), relevance_of)
            for request in chunks_of(plan.settled):
                start, high, last = state.at(request.table), chunks[request].high, end.at(request.table)
                assert start <= windows[request] <= high <= last
                assert not any(start < lsn <= last for lsn in self.ddls(request.table))
            for worker in self.chance.sample(range(len(self.rows)), len(self.rows)):
                self.maybe_crash()
                self.commit(worker, workers.checkpoints[worker], moved.checkpoints[worker], plan)
            for request in plan.read:
                assert request.table not in end.exceptions
                # Everything of this batch has happened on the source before the chunk is read.
                if request.phase is Phase.FINISH:
                    chunks[request] = StagedChunk(request, START, 0, None, None, is_last=True)
                    continue
                windows[request] = max(end.lsn, self.seen())
                high = self.chance.choice([self.seen(), self.entries[-1].transaction.lsn if self.entries else START])
                number = request.after[0] + 1 if request.after else 0
                chunks[request] = StagedChunk(
                    request,
                    max(high, end.lsn),
                    1,
                    (number,),
                    (CHUNKS,),
                    is_last=number == CHUNKS - 1,
                    waiting=self.chance.randrange(2),
                )
                if self.chance.random() < 0.1:
                    del chunks[request]
            self.overtaken += len(end.held) > len(state.held)
            state, workers = end, moved
            self.maybe_crash()
            for lsn in set(state.dues) - running - done:
                self.begin(lsn)
                running.add(lsn)

    def seen(self) -> Lsn:
        return self.entries[self.shown - 1].transaction.lsn if self.shown else START

    def check(self, state: PlanState) -> None:
        for one, other in itertools.combinations(state.held, 2):
            assert not one.tables & other.tables
        for waiting in state.held:
            assert waiting.lsn <= state.lsn

    def commit(self, worker: int, before: Checkpoint, after: Checkpoint, plan) -> None:
        floor = PlanState.from_checkpoint(before.lsn, before.copy)
        rows = [
            (entry.transaction.lsn, name)
            for piece in plan.log
            for entry in self.entries
            if piece.extent.offset <= entry.extent.offset < piece.extent.end
            for name in entry.transaction.tables
            # A row is before the end of its transaction, so it is new if this end is after the table's place.
            if name in self.names and piece.carries(name) and entry.transaction.lsn > floor.at(name)
        ]
        stored = self.rows[worker]
        if settle(stored, before.lsn, after, rows=len(rows)) is Outcome.ALREADY:
            assert not rows
            return
        for lsn, name in rows:
            ddls = self.ddls(name)
            assert {ddl for ddl in ddls if ddl <= lsn} <= self.journal, "rows before their structure"
            assert not {ddl for ddl in ddls if ddl > lsn} & self.journal, "rows of a structure that is gone"
            self.applied[worker][name].append(lsn)
        for request in chunks_of(plan.settled):
            self.chunks[worker][request.table].add(request.after[0] + 1 if request.after else 0)
        self.rows[worker] = after
        reached = PlanState.from_checkpoint(after.lsn, after.copy)
        for name in self.names:
            assert self.applied[worker][name] == self.of(name, reached.at(name)), "lost, twice or out of order"

    def of(self, name: TableName, upto: Lsn) -> list[Lsn]:
        transactions = (entry.transaction for entry in self.entries)
        return [one.lsn for one in transactions if name in one.tables and one.lsn <= upto]

    def begin(self, lsn: Lsn) -> None:
        """Begins a schema change, which does not run again if it is in the journal."""
        if lsn in self.journal:
            return
        ddl = next(entry.transaction.ddl for entry in self.entries if entry.transaction.lsn == lsn)
        for name in tables_of(ddl) or self.names:
            assert {other for other in self.ddls(name) if other < lsn} <= self.journal
            for applied in self.applied:
                assert applied[name] == [at for at in self.of(name, lsn) if at < lsn]


def chunks_of(requests: Iterable[ChunkRequest]) -> list[ChunkRequest]:
    return [request for request in requests if request.phase is Phase.ROWS]


words = st.lists(
    st.sampled_from(["a", "b", "c", "ab", "bc", "abc", "x", "A", "A", "B", "C", "AB", "BC", "*", "A+a", "x"]),
    max_size=14,
)


@settings(max_examples=examples(60), deadline=None)
@given(
    words=words,
    workers=st.integers(1, 3),
    size=st.integers(1, 4),
    idle=st.sampled_from([1, 3, 1000]),
    crashes=st.integers(0, 4),
    copy=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_whatever_waits_and_crashes_every_row_comes_once_and_in_order(words, workers, size, idle, crashes, copy, seed):
    entries = log(" ".join(words))
    limits = Limits(transactions=size, idle_entries=idle, chunks=2)
    task = TaskWithWorkers(entries, workers, limits, random.Random(seed), copy=copy)
    task.crashes = crashes
    for _ in range(crashes + 1):
        try:
            task.run()
            break
        except ProcessDied:
            continue
    state = task.state
    assert state.held == ()
    for applied, chunks in zip(task.applied, task.chunks, strict=True):
        for name in task.names:
            assert applied[name] == task.of(name, entries[-1].transaction.lsn if entries else START)
            assert chunks[name] == (set(range(CHUNKS)) if copy else set())
    ddls = [entry.transaction.lsn for entry in entries if entry.transaction.ddl]
    assert task.journal == set(ddls)


def test_a_run_knows_the_gtid_set_of_the_place_in_which_it_begins():
    """After a crash, one worker is ahead. In the next run, it stores the GTID set of a batch that ends before the
    worker's own Lsn. The run after that must not take this GTID set for the one at the worker's Lsn.
    """
    at = [START, *(entry.transaction.lsn for entry in log("a a a a"))]
    rows = tuple(checkpoint(PlanState(lsn), worker=number) for number, lsn in enumerate((at[1], at[4])))
    workers, state, _ = Workers.claimed(rows)
    assert state.lsn == at[1]
    first = workers.moved(PlanState(at[3]), gtid="0-1-3", place=LogPlace("bin.000001:300"))
    second = first.moved(PlanState(at[4]), gtid="0-1-4", place=LogPlace("bin.000001:400"))
    for torn in ((first.checkpoints[0], rows[1]), (rows[0], first.checkpoints[1])):
        assert Workers.claimed(torn)[1].lsn in (at[1], at[3])
    torn = second.checkpoints[0], first.checkpoints[1]
    for rows in (torn, torn[::-1], first.checkpoints, second.checkpoints):
        _, state, found = Workers.claimed(rows)
        assert (state.lsn, found.gtid) in ((at[3], "0-1-3"), (at[4], "0-1-4"))


def test_the_text_of_a_table_s_progress_is_made_once() -> None:
    name, one = table("a"), CopyState(rows=7)
    text = one.text(name)
    assert one.text(name) is one.unread.text(name) is text
    assert replace(one, rows=8).text(name) != text


def test_a_state_of_two_tables_has_the_text_of_each() -> None:
    one = CopyState(rows=7)
    copy = {table("a"): one, table("b"): one}
    assert copies_of(PlanState(START, copy).copy_json()) == copy


def test_another_process_parses_the_progress_itself() -> None:
    state = PlanState(START, {table("a"): CopyState(rows=7)})
    workers = Workers((checkpoint(state),))
    commit = pickle.loads(pickle.dumps(Commit.of(workers, workers.moved(state))))
    assert commit.copies(commit.after[0]) == state.copy
