"""The report finds the slow stage by the measurements."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from pidts.model import Lsn
from pidts.relay import RelayReader
from pidts.task.measure.stage_meter import StageMeter
from pidts.task.operate.stage_report import ReceiverMeasurements, RunMeasures, StageMeasures, report_stages, slow_stage
from pidts.time_spent import CommitMeter, CommitTime, StepTimes

if TYPE_CHECKING:
    from pidts.task.config.servers import TargetSpec

WORKING = RunMeasures(
    steps={"": 0.1, "plan": 0.1, "decode": 0.1, "apply": 0.7},
    waited=0.6,
    trips_a_second=20.0,
    commits_a_second=10.0,
    round_trip_seconds=0.0005,
)
BEHIND = StageMeasures(
    source="127.0.0.1:3306",
    target="postgresql 127.0.0.1:5432/shop",
    lag_seconds=8.0,
    receiving=ReceiverMeasurements(
        lag_seconds=0.01, waiting=0.8, cpu=0.1, bytes_a_second=2e6, unreceived_bytes=0, round_trip_seconds=0.001
    ),
    working=WORKING,
)


def receiving(**changes: float) -> StageMeasures:
    return replace(BEHIND, receiving=replace(BEHIND.receiving, lag_seconds=7.0, **changes))


def working(**changes: object) -> StageMeasures:
    return replace(BEHIND, working=replace(WORKING, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("found", "name", "why"),
    [
        (BEHIND, "target", "server is busy: its answers take 60% of the time, 60.0 ms for each commit"),
        (
            working(round_trip_seconds=0.03),
            "target",
            "network to the target is slow: 20 round trips a second of 30.0 ms",
        ),
        (
            working(now_at=("apply", 40.0)),
            "target",
            "for most of its 40 seconds: a lock, a full disk, a long statement or many",
        ),
        (
            replace(working(now_at=("apply", 40.0)), written=1_200_000),
            "target",
            "the target's server writes one large transaction: 1,200,000 changes in 40 seconds",
        ),
        (working(waited=0.1), "apply", "own processor is busy with decoding and preparing rows 70%"),
        (
            working(waited=0.1, no_core=0.9),
            "apply",
            "decoding and preparing rows takes 70% of the time, since other work takes this machine's cores",
        ),
        (working(waited=0.1, no_core=0.9, compiles=True), "apply", "code that decodes rows is being compiled, once"),
        (working(steps={"job": 0.8}, waited=0.1), "apply", "jobs of Spark decode and prepare rows 70% of the time"),
        (working(steps={"plan": 0.8, "apply": 0.1}), "plan", "busy with planning 80%"),
        (working(steps={"ddl": 0.9, "apply": 0.1}), "plan", "a schema change runs"),
        (working(steps={"copy": 0.9, "apply": 0.1}), "plan", "existing rows are copied"),
        (working(steps={"copy": 0.9}, no_core=0.5), "plan", "wait for it; other work takes this machine's cores"),
        (replace(BEHIND, awaits_spark=True), "apply", "until Spark has started"),
        (receiving(), "source", "server sends only 2.0 MB/s"),
        (receiving(round_trip_seconds=0.08), "source", "network from the source is slow"),
        (receiving(waiting=0.1, cpu=0.8), "relay", "replicator is limited by the processor"),
        (receiving(waiting=0.1, cpu=0.2), "relay", "disk is slow: the replicator writes 70%"),
    ],
)
def test_the_slow_stage_is_named_with_the_reason(found: StageMeasures, name: str, why: str) -> None:
    slow = slow_stage(found)
    assert slow is not None
    assert slow.name == name
    assert why in slow.why


def test_a_warehouse_has_no_server_and_no_network() -> None:
    found = report_stages("s", replace(BEHIND, is_warehouse=True))
    assert found.slow is not None
    assert found.slow.why == "reading and writing the warehouse's files takes 60% of the time, 60.0 ms for each commit"
    assert found.stages[-1].detail == ""
    slow = slow_stage(replace(working(round_trip_seconds=0.03, no_core=0.9), is_warehouse=True))
    assert slow is not None
    assert slow.why.endswith("other work takes this machine's cores")


@pytest.mark.parametrize("waiting", [[0.0, 1.0], [1.0, 1.0], [0.0, 0.0, 1.0, 0.0]])
def test_one_worker_that_waits_for_the_target_is_enough_to_name_the_target(
    tmp_path: Path, waiting: list[float]
) -> None:
    """A batch ends with its last worker, so the processor is not busy while another worker has nothing to do."""
    times, commits = StepTimes(), [CommitMeter() for _ in waiting]
    stream: Any = SimpleNamespace(
        times=times, commit_times=[CommitTime() for _ in waiting], awaits_spark=False, written=None
    )
    meter = StageMeter("s", "h:1", cast("TargetSpec", SimpleNamespace(place="mysql h:2", warehouse="")))
    with closing(RelayReader(tmp_path, "s")) as relay:
        meter.look(stream, relay, Lsn(0, 1, 4), None)
        times.step("apply")
        time.sleep(0.3)
        for one, share in zip(commits, waiting, strict=True):
            one.add(CommitTime(0.3 * share, 0.0, 6, 3))
        stream.commit_times = [one.reading() for one in commits]
        meter.look(stream, relay, Lsn(0, 1, 4), None)
    found = meter.report(stream, None, lag=5.0, applying=None, rate=0.0)
    assert found.slow is not None
    assert found.slow.name == "target"
    assert found.stages[2].rate == pytest.approx(10, rel=0.3), "of each worker"


def test_a_task_that_is_not_behind_has_no_slow_stage_however_busy_it_is() -> None:
    assert slow_stage(replace(BEHIND, lag_seconds=0.4)) is None
    assert slow_stage(replace(BEHIND, lag_seconds=None)) is None


def test_no_stage_is_named_if_all_are_similar() -> None:
    assert slow_stage(working(steps={"": 0.9, "apply": 0.1}, waited=0.05)) is None


def test_the_report_has_five_stages_with_the_known_facts_of_each() -> None:
    known = replace(
        BEHIND,
        rows_a_second=500.0,
        relay_bytes=3_000_000,
        backlog_bytes=200_000,
        backlog_transactions=1234,
        apply_seconds=7.5,
        receiving=replace(BEHIND.receiving, unreceived_bytes=5_000_000, clock_ahead_seconds=-3.0),
    )
    found = report_stages("north", known).to_json()
    stages = {stage["name"]: stage for stage in found["stages"]}
    assert [*stages] == ["source", "relay", "plan", "apply", "target"]
    assert found["source"] == "north"
    assert found["slow"]["name"] == "target"
    assert stages["source"]["place"] == "127.0.0.1:3306"
    assert stages["source"]["detail"] == (
        "5.0 MB of its log have not been received yet, a round trip takes 1.0 ms, its clock is 3.0 s behind this machine's"
    )
    assert stages["relay"]["detail"] == "3.0 MB kept, 0.2 MB in 1,234 transactions not applied"
    assert (stages["relay"]["busy"], stages["plan"]["busy"]) == (0.2, 0.1)
    assert (stages["apply"]["busy"], stages["target"]["busy"]) == (0.2, 0.6)
    assert (stages["source"]["lag_seconds"], stages["apply"]["lag_seconds"]) == (0.01, 7.5)
    assert (stages["source"]["rate"], stages["target"]["rate"]) == (2e6, 500.0)


def test_a_replicator_that_reports_nothing_leaves_its_stages_without_figures() -> None:
    for status in (None, {}, {"connected": False, "lag_seconds": 3.0}, {"connected": True}):
        found = report_stages("s", StageMeasures(receiving=ReceiverMeasurements.of(status)))
        assert [stage.busy for stage in found.stages] == [None] * 5
        assert found.slow is None
