"""The progress of a running copy shows rows, rate, remaining time, the tables that are being copied and the tables that
wait.
"""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from pidts.batch.batch_done import BatchDone
from pidts.model import Checkpoint, Lsn, TableName, Transient
from pidts.plan import BatchPlan, CopyMode, CopyState, Phase, PlanState
from pidts.reduce import Counts
from pidts.replicate import ReceiveProblem
from pidts.task.operate.alert_conditions import conditions_of
from pidts.task.operate.progress import Progress, TableProgress
from pidts.task.operate.stage_report import ReportedStage, SlowStage, StageReport
from pidts.task.run.tracker import Tracker, combined

LSN = Lsn(0, 1, 4)


def name(table: str) -> TableName:
    return TableName("a", table)


def state(**copy: CopyState) -> PlanState:
    return PlanState(LSN, {name(table): one for table, one in copy.items()})


def done(end: PlanState) -> BatchDone:
    plan = BatchPlan(end, end, (), 0, 0, 0, (), frozenset())
    return BatchDone(plan, Checkpoint(task="t", source="s", worker=0, lsn=LSN), Counts())


class Clock:
    """A clock that a test sets."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock(100.0)


def test_the_pace_of_a_copy_and_its_time_to_go(clock: Clock) -> None:
    shown: list[Progress] = []
    tracker = Tracker("t", "s", shown.append, clock=clock)
    before = state(
        big=CopyState(rows=1000, estimate=9000), small=CopyState(estimate=500), fixed=CopyState(mode=CopyMode.REPAIR)
    )
    tracker.resumed(before, "", "", [name("big"), name("small"), name("fixed"), name("long_done")])
    tracker.show("copy")
    assert shown[-1].eta_seconds is None
    clock.seconds += 4
    tracker.batch(
        done(
            state(
                big=CopyState(rows=3000, estimate=9000),
                small=CopyState(rows=500, estimate=500, done=True),
                fixed=CopyState(mode=CopyMode.REPAIR, phase=Phase.EXTRAS, rows=70),
            )
        )
    )
    tracker.show("copy")
    tables = {table.name: table for table in shown[-1].tables}
    assert tables["a.long_done"] == TableProgress(name="a.long_done", done=True, phase=Phase.FINISH)
    assert (tables["a.big"].rate, tables["a.big"].eta_seconds) == (500.0, 12.0)
    assert (tables["a.small"].done, tables["a.small"].eta_seconds) == (True, 0.0)
    assert (tables["a.fixed"].phase, tables["a.fixed"].eta_seconds) == (Phase.EXTRAS, None)
    assert shown[-1].copy_rate == pytest.approx((2000 + 500 + 70) / 4)
    assert shown[-1].eta_seconds == pytest.approx(6000 / shown[-1].copy_rate)

    tracker.batch(done(PlanState(LSN)))
    summary = tracker.summary(synced=True).to_json()
    assert {table["name"]: (table["copied"], table["done"]) for table in summary["tables"]} == {
        "a.big": (3000, True),
        "a.fixed": (70, True),
        "a.long_done": (0, True),
        "a.small": (500, True),
    }
    assert summary["eta_seconds"] == 0


def test_a_batch_after_the_copy_looks_at_no_table(clock: Clock) -> None:
    shown: list[Progress] = []
    tracker = Tracker("t", "s", shown.append, clock=clock)
    tracker.resumed(state(big=CopyState(rows=1000)), "", "", [name("big"), *(name(f"t{n}") for n in range(50))])
    tracker.batch(done(state(big=CopyState(rows=3000, done=True))))
    tracker.batch(done(PlanState(LSN)))
    for _ in range(30):
        clock.seconds += 1
        tracker.batch(done(PlanState(LSN)))
        tracker.show("sync")
    assert shown[-1].tables is shown[-2].tables, "no table was looked at"
    tables = {table.name: table for table in shown[-1].tables}
    assert (tables["a.big"].copied, tables["a.big"].done, tables["a.big"].rate) == (3000, True, 0.0)
    tracker.batch(done(state(late=CopyState(rows=5))))
    tracker.show("copy")
    tables = {table.name: table for table in shown[-1].tables}
    assert (tables["a.late"].copied, tables["a.late"].done, len(tables)) == (5, False, 52)


@pytest.mark.slow
def test_batches_may_end_while_the_progress_is_looked_at() -> None:
    shown: list[Progress] = []
    tracker = Tracker("t", "s", shown.append)
    one, enough = done(state(big=CopyState(rows=1))), threading.Event()

    def work() -> None:
        while not enough.is_set():
            tracker.batch(one)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    batches = threading.Thread(target=work)
    try:
        batches.start()
        for _ in range(300):
            tracker.show("sync")
    finally:
        enough.set()
        batches.join()
        sys.setswitchinterval(interval)
    assert shown[-1].batches > 0


def test_the_progress_says_that_work_waits_for_spark(clock: Clock) -> None:
    shown: list[Progress] = []
    tracker = Tracker("t", "s", shown.append, clock=clock)
    tracker.resumed(state(), "", "")
    tracker.show("sync")
    assert shown[-1].message == ""
    tracker.show("copy", awaits_spark=True)
    assert shown[-1].message == "waiting for Spark"
    tracker.note("a table has joined")
    tracker.show("copy", awaits_spark=True)
    assert shown[-1].message == "a table has joined"


def test_the_progress_says_how_far_a_large_transaction_is(clock: Clock) -> None:
    shown: list[Progress] = []
    tracker = Tracker("t", "s", shown.append, clock=clock)
    tracker.resumed(state(), "", "")
    tracker.show("sync", written=1_200_000)
    assert shown[-1].message == "one large transaction is being written: 1,200,000 changes so far"


def test_the_progress_counts_the_rows_that_were_looked_up_on_the_source(clock: Clock) -> None:
    shown: list[Progress] = []
    tracker = Tracker("t", "s", shown.append, clock=clock)
    again = CopyState(rows=9000, estimate=9000, mode=CopyMode.REPAIR, phase=Phase.EXTRAS)
    tracker.resumed(state(big=again), "", "")
    for rows in (500, 400):
        tracker.batch(replace(done(state(big=again)), looked_up={name("big"): rows}))
    tracker.show("copy")
    assert [table.looked_up for table in shown[-1].tables] == [900]


def test_old_batches_do_not_count_for_the_pace(clock: Clock) -> None:
    shown: list[Progress] = []
    tracker = Tracker("t", "s", shown.append, clock=clock)
    tracker.resumed(state(big=CopyState(estimate=9000)), "", "")
    for rows in (5000, 5000, 5100, 5200):
        clock.seconds += 15
        tracker.batch(done(state(big=CopyState(rows=rows, estimate=9000))))
    tracker.show("copy")
    assert shown[-1].copy_rate == pytest.approx(200 / 30, rel=0.01)


def test_the_pace_of_each_table_that_the_log_changes(clock: Clock) -> None:
    shown: list[Progress] = []
    tracker = Tracker("t", "s", shown.append, clock=clock)
    tracker.resumed(state(), "", "")
    for counts in (
        Counts(inserted=60, by_table={"a.idle": 60}),
        Counts(updated=30, deleted=2, by_table={"a.busy": 30, "a.calm": 2}),
        Counts(updated=20, by_table={"a.busy": 20}),
    ):
        tracker.batch(replace(done(state()), counts=counts))
        clock.seconds += 4
    tracker.show("sync")
    assert [(one.name, one.rows, one.rate) for one in shown[-1].changed] == [
        ("a.busy", 50, 4.0),
        ("a.idle", 60, 0.0),
        ("a.calm", 2, 0.0),
    ]
    assert shown[-1].rows["updated"] == 50
    assert "by_table" not in shown[-1].to_json()["rows"]
    both = combined([shown[-1], shown[-1]])
    assert both.changed[0].to_json() == {"name": "a.busy", "rows": 100, "rate": 8.0}


def test_a_note_is_shown_for_a_while_and_gives_way_to_news(clock: Clock) -> None:
    shown: list[tuple[str, bool]] = []

    def take(progress: Progress) -> None:
        shown.append((progress.message, progress.is_notice))

    tracker = Tracker("t", "s", take, clock=clock)
    tracker.note("a.u joins")
    tracker.show("sync")
    tracker.show("starting", message="news")
    clock.seconds += 60
    tracker.show("sync")
    assert shown == [("a.u joins", True), ("news", False), ("", False)]


def test_a_task_without_a_copy_has_nothing_to_go(clock: Clock) -> None:
    shown: list[Any] = []
    Tracker("t", "s", shown.append, clock=clock).show("sync")
    assert (shown[0].to_json()["tables"], shown[0].to_json()["eta_seconds"]) == ([], 0)


def test_a_source_that_was_silent_for_long_is_not_far_ahead() -> None:
    shown: list[Progress] = []
    tracker = Tracker("t", "s", shown.append, now=lambda: 5000.0)
    end = PlanState(LSN)
    plan = BatchPlan(end, end, (), 0, 0, 1000, (), frozenset())
    tracker.batch(BatchDone(plan, done(end).checkpoint, Counts()))
    tracker.show("sync", waits_since=4998)
    assert shown[-1].lag_seconds == 2.0
    tracker.show("sync", caught_up=True)
    assert shown[-1].lag_seconds == 0.0
    tracker.show("sync", only_waiting=True)
    assert shown[-1].lag_seconds == 0.0, "a table that catches up has a lag of its own"


def test_while_the_target_does_not_answer_the_lag_counts_from_the_first_change_that_it_lacks() -> None:
    shown: list[Progress] = []
    now = Clock(1000.0)
    tracker = Tracker("t", "s", shown.append, now=now)
    end = state()
    tracker.batch(BatchDone(BatchPlan(end, end, (), 0, 0, 1000, (), frozenset()), done(end).checkpoint, Counts()))
    now.seconds = 1055.0
    tracker.show("sync", caught_up=True, waits_since=0.0)
    now.seconds = 1060.0
    tracker.paused(Transient("target-unreachable", "no answer"), 1.0)
    assert shown[-1].lag_seconds == 5.0, "the source may have had changes since the target had the whole relay"
    tracker.show("sync", waits_since=1057.0)
    later = state()
    plan = BatchPlan(later, later, (), 0, 0, 1058, (), frozenset())
    now.seconds = 1070.0
    tracker.paused(Transient("target-unreachable", "no answer"), 1.0)
    tracker.begins()
    assert shown[-1].lag_seconds == 13.0
    tracker.batch(BatchDone(plan, done(later).checkpoint, Counts()))
    tracker.paused(Transient("target-unreachable", "no answer"), 1.0)
    assert shown[-1].lag_seconds == 12.0, "the batch had the oldest change"


def test_a_target_that_does_not_answer_is_the_slow_stage_until_it_answers() -> None:
    shown: list[Progress] = []
    now = Clock(1796004529.0)
    tracker = Tracker("t", "s", shown.append, now=now)
    busy = StageReport((ReportedStage(name="target", place="postgresql h:1/shop", busy=0.9),), SlowStage("target", "x"))
    gone = SlowStage("target", "postgresql h:1/shop has not answered since 2026-11-30 02:08:49 UTC")

    def slow() -> SlowStage | None:
        found = shown[-1].stage_report
        assert found is not None
        assert found.stages[-1].busy == (None if found.slow == gone else 0.9)
        return found.slow

    tracker.show("sync", report=lambda *_: busy)
    tracker.target_seen(Transient("target-lost", "the connection is gone"))
    tracker.show("sync", report=lambda *_: busy)
    assert slow() == busy.slow, "a lost connection may be a restart of the connection alone"
    now.seconds += 5.0
    tracker.target_seen(Transient("target-unreachable", "refused"))
    tracker.show("sync", report=lambda *_: busy)
    assert slow() == gone
    tracker.paused(Transient("target-unreachable", "refused"), 1.0)
    assert slow() == gone
    lag = next(one for one in conditions_of(replace_lag(shown[-1], 60.0), 10.0) if one.key.kind == "lag")
    assert lag.what.endswith(f"the slow stage is target, because {gone.why}")
    tracker.batch(done(state()))
    tracker.show("sync")
    assert slow() == busy.slow
    for error in ("target-lost", "target-unreachable", "target-connections-used"):
        tracker.target_seen(Transient(error, "no"))
    tracker.show("sync")
    assert slow() == busy.slow, "a target without a free connection answers"


def test_while_the_cause_of_a_pause_is_known_no_slow_stage_is_guessed() -> None:
    shown: list[Progress] = []
    tracker = Tracker("t", "s", shown.append, now=Clock(1000.0))
    busy = StageReport((ReportedStage(name="target", busy=0.9),), SlowStage("target", "a lock takes this time"))
    tracker.show("sync", report=lambda *_: busy)
    tracker.paused(Transient("target-connections-used", "no free connection"), 1.0)
    assert shown[-1].stage_report == replace(busy, slow=None)
    tracker.show("sync", report=lambda *_: busy)
    assert shown[-1].stage_report == replace(busy, slow=None), "another attempt, which may fail again"
    tracker.batch(done(state()))
    tracker.show("sync", report=lambda *_: busy)
    assert shown[-1].stage_report == busy


def test_a_pause_lasts_from_the_first_error_until_a_batch_is_committed() -> None:
    shown: list[Progress] = []
    now = Clock(1000.0)
    tracker = Tracker("t", "s", shown.append, now=now)

    def pause() -> tuple[str, float, float] | None:
        found = shown[-1].sources[0].pause
        return None if found is None else (found.error.code, found.since, found.next_attempt)

    tracker.show("sync")
    assert pause() is None
    tracker.paused(Transient("target-unreachable", "refused"), 1.0)
    assert pause() == ("target-unreachable", 1000.0, 1001.0)
    now.seconds = 1020.0
    tracker.resumed(state(), "", "")
    tracker.show("copy")
    assert pause() == ("target-unreachable", 1000.0, 1001.0), "an attempt has begun, and may fail again"
    tracker.paused(Transient("target-full", "no space"), 30.0)
    assert pause() == ("target-full", 1000.0, 1050.0)
    assert shown[-1].message == "[target-full] no space. The task tries again by itself at 00:17:30 UTC"
    tracker.batch(done(state()))
    tracker.show("sync")
    assert pause() is None
    now.seconds = 2000.0
    tracker.paused(Transient("target-full", "no space"), 30.0)
    assert pause() == ("target-full", 2000.0, 2030.0)
    tracker.show("sync", caught_up=True)
    assert pause() is None


def replace_lag(progress: Progress, seconds: float) -> Progress:
    return replace(progress, sources=(replace(progress.sources[0], lag_seconds=seconds),))


def test_a_target_that_does_not_answer_hides_no_lag_of_the_source() -> None:
    shown: list[Progress] = []
    now = Clock(5000.0)
    tracker = Tracker("t", "s", shown.append, now=now)

    def lag_while_paused() -> float | None:
        tracker.show("sync", caught_up=True, waits_since=0.0, delay=delay)
        tracker.paused(Transient("target-unreachable", "no answer"), 1.0)
        return shown[-1].lag_seconds

    delay = 0.0
    tracker.lacks(None, has_connected=False)
    assert lag_while_paused() is None
    delay = 600.0
    tracker.lacks(None)
    assert lag_while_paused() == 600.0
    tracker.lacks(ReceiveProblem(Transient("source-lost", "gone"), since=1400.0, heard_at=1400.0))
    assert lag_while_paused() == 3600.0


def test_the_age_of_a_waiting_change_grows_also_while_the_run_is_paused() -> None:
    shown: list[Progress] = []
    now = Clock(5000.0)
    tracker = Tracker("t", "s", shown.append, now=now)
    tracker.show("sync", caught_up=True)
    assert (shown[-1].held_lag_seconds, shown[-1].held_tables) == (None, 0)
    tracker.waits(2, 4990.0)
    tracker.show("sync", caught_up=True)
    assert (shown[-1].lag_seconds, shown[-1].held_lag_seconds, shown[-1].held_tables) == (0.0, 10.0, 2)
    now.seconds = 5060.0
    tracker.paused(Transient("target-lost", "no answer"), 1.0)
    assert shown[-1].held_lag_seconds == 70.0
    tracker.waits(0, 0.0)
    tracker.show("sync", caught_up=True)
    assert (shown[-1].held_lag_seconds, shown[-1].held_tables) == (None, 0)


def test_a_log_that_does_not_come_in_is_no_source_without_changes() -> None:
    reported: list[Progress] = []
    tracker = Tracker("t", "s", reported.append)
    tracker.resumed(state(), "", "")
    tracker.batch(done(state()))
    tracker.show("sync", caught_up=True)
    assert (reported[-1].stage, reported[-1].lag_seconds, reported[-1].message) == ("sync", 0.0, "")
    error = Transient("relay-full", "no room for the relay", todo="Make room.")
    lack = ReceiveProblem(error, since=time.time() - 300, heard_at=time.time())
    tracker.lacks(lack)
    tracker.show("sync", caught_up=True)
    shown = reported[-1]
    assert (shown.stage, shown.cause) == ("paused", error)
    assert shown.lag_seconds == pytest.approx(300, abs=20)
    assert "[relay-full] no room for the relay. Make room." in shown.message
    assert shown.to_json()["sources"][0]["not_receiving"]["code"] == "relay-full"
    tracker.show("sync")
    assert (reported[-1].stage, "[relay-full]" in reported[-1].message) == ("sync", True), (
        "what came in is still applied"
    )
    assert tracker.summary(synced=False).stage == "paused"
    tracker.lacks(None)
    tracker.show("sync", caught_up=True)
    assert (reported[-1].stage, reported[-1].lag_seconds, reported[-1].message) == ("sync", 0.0, "")


def test_the_lag_is_not_known_before_something_was_applied_to_a_task_that_copies(clock: Clock) -> None:
    shown: list[Progress] = []
    tracker = Tracker("t", "s", shown.append, clock=clock)
    tracker.resumed(state(big=CopyState(estimate=9)), "", "")
    tracker.show("copy", caught_up=True)
    assert shown[-1].lag_seconds is None
    tracker.batch(done(state(big=CopyState(rows=3, estimate=9))))
    tracker.show("copy", caught_up=True)
    assert shown[-1].lag_seconds == 0.0


def test_the_lag_is_not_known_before_the_replicator_has_been_connected() -> None:
    shown: list[Progress] = []
    now = Clock(5000.0)
    tracker = Tracker("t", "s", shown.append, now=now)
    tracker.resumed(state(), "", "")
    error = Transient("source-unreachable", "no answer")

    def lag(lack: ReceiveProblem | None, *, has_connected: bool, **about: Any) -> float | None:
        tracker.lacks(lack, has_connected=has_connected)
        tracker.show("sync", **about)
        shown_lag = shown[-1].to_json()["sources"][0]["lag_seconds"]
        assert shown_lag == shown[-1].lag_seconds
        return shown[-1].lag_seconds

    absent = ReceiveProblem(error, since=4990.0, heard_at=5000.0)
    assert lag(None, has_connected=False, caught_up=True) is None
    assert lag(absent, has_connected=False, caught_up=True) is None, "it was absent when the run began"
    assert lag(None, has_connected=False, waits_since=4000.0) == 1000.0, "the relay has changes of this age"
    assert lag(None, has_connected=True, caught_up=True) == 0.0
    assert lag(absent, has_connected=True, caught_up=True) == 10.0
    others = Tracker("t", "other", shown.append, now=now)
    others.lacks(None, has_connected=False)
    others.show("sync", caught_up=True)
    assert combined(shown[-2:]).lag_seconds is None, "the lag of one source is not known"


def test_a_cutover_in_progress_is_reported_until_it_is_undone(clock: Clock) -> None:
    shown: list[Progress] = []
    tracker = Tracker("t", "s", shown.append, clock=clock)
    tracker.being_cut_over("is being cut over; PiDTS has made source one read-only for it")
    tracker.show("sync")
    assert shown[-1].message == "the task is being cut over; PiDTS has made source one read-only for it"
    tracker.being_cut_over("")
    tracker.show("sync")
    assert shown[-1].message == ""


def test_the_rate_counts_the_last_seconds_of_many_small_batches(clock: Clock) -> None:
    shown: list[Progress] = []
    tracker = Tracker("t", "s", shown.append, clock=clock)
    tracker.resumed(state(), "", "")
    for table in ("a.first", "a.second"):
        for _ in range(6 * 256):
            tracker.batch(replace(done(state()), counts=Counts(inserted=2, by_table={table: 2})))
            clock.seconds += 1 / 256
    tracker.show("sync")
    assert shown[-1].rate == pytest.approx(512, rel=0.06)
    rates = {one.name: one.rate for one in shown[-1].changed}
    assert rates == {"a.second": pytest.approx(512, rel=0.06), "a.first": 0.0}
