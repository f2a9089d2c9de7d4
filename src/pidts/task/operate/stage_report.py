"""Reports the stages that changes pass between source and target, which stage is slow, and why.

The stages:

1. source: it sends its log over the network.
2. relay: the replicator receives and stores the log.
3. plan: the planner chooses the next batch.
4. apply: the batch is decoded, prepared and reduced.
5. target: it writes the batch.

A stage is called slow only while the task is behind. If the target does not answer, the target is slow. Otherwise the
shares of time in which the stages work decide:

- The log comes into the relay late. If the replicator waits for the source nearly all the time, the source or its
  network is slow. Otherwise the replicator's processor or its disk is slow.
- The log comes into the relay in time. The time in which commits wait counts for the target. If round trips explain
  this time, the target's network is slow, otherwise its server. (A warehouse has no server: its commits wait for
  files.) All other time counts for the run, which plans or applies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from pidts.model.errors import utc_time

StageName = Literal["source", "relay", "plan", "apply", "target"]

BEHIND_SECONDS = 1.0
"""With a smaller lag, in seconds, no stage of a task is called slow."""
_FULL, _HALF = 0.7, 0.5
_FAR_SECONDS = 0.005
"""The round trip, in seconds, above which the network to a server counts as slow."""
_CROWDED = 0.3
_LONG_STEP_SECONDS = 5.0
_CLOCK_SECONDS = 0.5
_WORK = ("decode", "apply", "job")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiverMeasurements:
    """The replicator's measurements; None if a value was not measured."""

    lag_seconds: float | None = None
    waiting: float | None = None
    """The share of time in which the replicator waits for the source."""
    cpu: float | None = None
    bytes_a_second: float | None = None
    unreceived_bytes: int | None = None
    """The bytes of log that the source has and the relay does not have yet."""
    round_trip_seconds: float | None = None
    clock_ahead_seconds: float | None = None

    @classmethod
    def of(cls, status: Mapping[str, Any] | None) -> ReceiverMeasurements:
        """Reads the replicator's status, which an earlier version may have written."""
        known = status if status is not None and status.get("connected") else {}
        return cls(**{name: known.get(name) for name in cls.__slots__})


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMeasures:
    """The run's measurements of the last seconds."""

    steps: Mapping[str, float] = field(default_factory=dict)
    """The share of time of each step of the thread that runs batches."""
    waited: float = 0.0
    """The share of time in which a worker waited for the target's answers: the largest share of all workers, since a
    batch ends with its last worker.
    """
    trips_a_second: float = 0.0
    """The number of round trips per second that one worker makes to the target."""
    commits_a_second: float = 0.0
    no_core: float | None = None
    """The share of time in which a thread was ready to run and had no core."""
    compiles: bool = False
    """Whether the code that decodes rows is being compiled."""
    now_at: tuple[str, float] = ("", 0.0)
    """The current step, and its duration so far."""
    round_trip_seconds: float | None = None
    """The duration of the target's fastest answer."""
    clock_ahead_seconds: float | None = None
    """The seconds by which the target's clock is ahead of this machine's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMeasures:
    """All measurements of one source's stages."""

    source: str = ""
    """The source's product and address."""
    target: str = ""
    is_warehouse: bool = False
    """Whether the target is a warehouse, which consists of files and has no server."""
    lag_seconds: float | None = None
    """The time from a commit on the source until the target has it."""
    apply_seconds: float | None = None
    """The part of the lag between the relay and the target, for the last transactions."""
    rows_a_second: float = 0.0
    relay_bytes: int | None = None
    backlog_bytes: int | None = None
    """The bytes of log that the relay has and the target does not have yet."""
    backlog_transactions: int | None = None
    """The number of transactions in the backlog; None if they were not counted, or are too many to count."""
    awaits_spark: bool = False
    written: int | None = None
    """The number of changes of a long batch that are written so far; None if there is no long batch."""
    receiving: ReceiverMeasurements
    working: RunMeasures = field(default_factory=RunMeasures)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedStage:
    """One stage of the report."""

    name: StageName
    place: str = ""
    rate: float | None = None
    """Per second: the bytes of the source and the relay, the batches of the planner, the rows of the later stages."""
    lag_seconds: float | None = None
    """The part of the lag that arises in this stage."""
    busy: float | None
    """The share of time in which this stage works."""
    detail: str = ""

    def to_json(self) -> dict[str, Any]:
        """Returns plain values for JSON."""
        return {
            "name": self.name,
            "place": self.place,
            "rate": _rounded(self.rate, 1),
            "lag_seconds": _rounded(self.lag_seconds, 3),
            "busy": _rounded(self.busy, 2),
            "detail": self.detail,
        }


@dataclass(frozen=True, slots=True)
class SlowStage:
    """The stage that all others wait for."""

    name: StageName
    why: str

    def to_json(self) -> dict[str, Any]:
        """Returns plain values for JSON."""
        return {"name": self.name, "why": self.why}


@dataclass(frozen=True, slots=True)
class StageReport:
    """The stages of one source in the order in which a change passes them."""

    stages: tuple[ReportedStage, ...]
    slow: SlowStage | None
    source: str = ""
    """The source's name in the task."""

    def to_json(self) -> dict[str, Any]:
        """Returns plain values for JSON."""
        return {
            "source": self.source,
            "stages": [stage.to_json() for stage in self.stages],
            "slow": self.slow.to_json() if self.slow is not None else None,
        }


def report_stages(source_id: str, found: StageMeasures) -> StageReport:
    """Returns the report about these measurements."""
    receiving, working = found.receiving, found.working
    own = sum(working.steps.get(name, 0.0) for name in _WORK)
    waited = min(working.waited, own)
    unreceived = receiving.unreceived_bytes
    stages = (
        ReportedStage(
            name="source",
            place=found.source,
            rate=receiving.bytes_a_second,
            lag_seconds=receiving.lag_seconds,
            busy=None,
            detail=_sentences(
                f"{_bytes(unreceived)} of its log have not been received yet" if unreceived else "",
                _round_trip(receiving.round_trip_seconds),
                _clock(receiving.clock_ahead_seconds),
            ),
        ),
        ReportedStage(
            name="relay",
            rate=receiving.bytes_a_second,
            lag_seconds=None,
            busy=None if receiving.waiting is None else max(0.0, 1.0 - receiving.waiting),
            detail=_sentences(
                f"{_bytes(found.relay_bytes)} kept" if found.relay_bytes is not None else "",
                _backlog(found),
            ),
        ),
        ReportedStage(
            name="plan",
            rate=working.commits_a_second,
            busy=working.steps.get("plan"),
            detail=_sentences(
                _step("waits for a schema change", working.steps.get("ddl", 0.0)),
                _step("reads existing rows", working.steps.get("copy", 0.0)),
            ),
        ),
        ReportedStage(
            name="apply",
            rate=found.rows_a_second,
            lag_seconds=found.apply_seconds,
            busy=max(0.0, own - waited) if working.steps else None,
            detail=_sentences(
                "waits for Spark" if found.awaits_spark else "",
                _step("decodes", working.steps.get("decode", 0.0)),
                _step("runs jobs of Spark", working.steps.get("job", 0.0)),
                "compiles code" if working.compiles else "",
                "other work takes this machine's cores" if (working.no_core or 0.0) > _CROWDED else "",
            ),
        ),
        ReportedStage(
            name="target",
            place=found.target,
            rate=found.rows_a_second,
            busy=waited if working.steps else None,
            detail=""
            if found.is_warehouse
            else _sentences(
                _round_trip(working.round_trip_seconds),
                f"{working.trips_a_second:,.0f} round trips a second" if working.trips_a_second >= 1 else "",
                _clock(working.clock_ahead_seconds),
            ),
        ),
    )
    return StageReport(stages, slow_stage(found), source_id)


def with_silent_target(report: StageReport, since: float) -> StageReport:
    """Returns the report for a target that has not answered since this time, in seconds since 1970.

    The report leaves out the measurements of the target, which are from before this time.
    """
    *others, target = report.stages
    why = f"{target.place or 'its server'} has not answered since {utc_time(since)}"
    stages = (*others, replace(target, busy=None, rate=None, detail=""))
    return replace(report, stages=stages, slow=SlowStage("target", why))


def slow_stage(found: StageMeasures) -> SlowStage | None:
    """Returns the stage that the others wait for; None while the task is not behind, or if no stage stands out."""
    lag, received_late = found.lag_seconds, found.receiving.lag_seconds or 0.0
    if lag is None or lag < BEHIND_SECONDS:
        return None
    if received_late >= lag * _HALF:
        return _slow_receiving(found.receiving)
    return _slow_working(found)


def _slow_receiving(receiving: ReceiverMeasurements) -> SlowStage:
    waiting = receiving.waiting if receiving.waiting is not None else 1.0
    if waiting < 1 - _FULL:
        cpu = receiving.cpu or 0.0
        if cpu > _HALF:
            return SlowStage("relay", f"the replicator is limited by the processor: it computes {cpu:.0%} of the time")
        return SlowStage(
            "relay", f"the relay's disk is slow: the replicator writes {1 - waiting - cpu:.0%} of the time"
        )
    rate = f"{_bytes(receiving.bytes_a_second or 0)}/s"
    trip = receiving.round_trip_seconds
    if trip is not None and trip >= _FAR_SECONDS:
        why = (
            f"the network from the source is slow: it carries {rate}, a round trip takes {_millis(trip)}, and the "
            f"replicator waits {waiting:.0%} of the time"
        )
    else:
        why = (
            f"the source's server sends only {rate}, though its network answers at once: the replicator waits for it "
            f"{waiting:.0%} of the time"
        )
    return SlowStage("source", why)


def _slow_working(found: StageMeasures) -> SlowStage | None:
    working = found.working
    steps = working.steps
    own = sum(steps.get(name, 0.0) for name in _WORK)
    waited = min(working.waited, own)
    if found.awaits_spark:
        return SlowStage("apply", "a large batch waits until Spark has started")
    shares: dict[StageName, float] = {
        "plan": steps.get("plan", 0.0),
        "apply": own - waited,
        "target": waited,
    }
    name = max(get_args(StageName)[2:], key=lambda one: shares[one])
    share = shares[name]
    step, seconds = working.now_at
    others = max(steps.get("ddl", 0.0), steps.get("copy", 0.0))
    if others > share or (step in {"ddl", "copy"} and seconds > _LONG_STEP_SECONDS):
        what = "a schema change runs" if step == "ddl" or steps.get("ddl", 0) > share else "existing rows are copied"
        crowded = "; other work takes this machine's cores" if (working.no_core or 0.0) > _CROWDED else ""
        return SlowStage("plan", f"{what}, and changes wait for it{crowded}")
    if share < _HALF / 2:
        return None
    if name == "target":
        why = _why_warehouse(working, waited) if found.is_warehouse else _why_target(found, waited)
        return SlowStage("target", why)
    return SlowStage(name, _why_own(working, name, share))


def _why_own(working: RunMeasures, name: StageName, share: float) -> str:
    is_crowded = (working.no_core or 0.0) > _CROWDED
    crowded = "; other work takes this machine's cores" if is_crowded else ""
    if working.compiles:
        return f"code that decodes rows is being compiled, once after an installation or an upgrade{crowded}"
    if name == "apply" and working.steps.get("job", 0.0) > share * _HALF:
        return f"jobs of Spark decode and prepare rows {share:.0%} of the time{crowded}"
    doing = "planning" if name == "plan" else "decoding and preparing rows"
    if is_crowded:
        return f"{doing} takes {share:.0%} of the time, since other work takes this machine's cores"
    return f"this machine's own processor is busy with {doing} {share:.0%} of the time"


def _why_target(found: StageMeasures, waited: float) -> str:
    working = found.working
    (step, seconds), trip = working.now_at, working.round_trip_seconds
    on_network = min(1.0, working.trips_a_second * trip) if trip is not None else 0.0
    if trip is not None and on_network >= waited * _HALF:
        return (
            f"the network to the target is slow: {working.trips_a_second:,.0f} round trips a second of {_millis(trip)} "
            f"take {on_network:.0%} of the time"
        )
    if step in _WORK and seconds > _LONG_STEP_SECONDS and found.written:
        return f"the target's server writes one large transaction: {found.written:,} changes in {seconds:,.0f} seconds"
    if step in _WORK and seconds > _LONG_STEP_SECONDS:
        return (
            f"one transaction has waited for the target's server for most of its {seconds:,.0f} seconds: a lock, a "
            "full disk, a long statement or many statements take this time"
        )
    each = _each_commit(working, waited)
    network = f"; a round trip takes only {_millis(trip)}" if trip is not None else ""
    return f"the target's server is busy: its answers take {waited:.0%} of the time{each}{network}"


def _why_warehouse(working: RunMeasures, waited: float) -> str:
    each = _each_commit(working, waited)
    crowded = "; other work takes this machine's cores" if (working.no_core or 0.0) > _CROWDED else ""
    return f"reading and writing the warehouse's files takes {waited:.0%} of the time{each}{crowded}"


def _each_commit(working: RunMeasures, waited: float) -> str:
    return f", {_millis(waited / working.commits_a_second)} for each commit" if working.commits_a_second else ""


def _backlog(found: StageMeasures) -> str:
    if not found.backlog_bytes:
        return ""
    count = found.backlog_transactions
    transactions = f" in {count:,} transactions" if count else ""
    return f"{_bytes(found.backlog_bytes)}{transactions} not applied"


def _round_trip(seconds: float | None) -> str:
    return "" if seconds is None else f"a round trip takes {_millis(seconds)}"


def _clock(ahead: float | None) -> str:
    if ahead is None or abs(ahead) < _CLOCK_SECONDS:
        return ""
    return f"its clock is {abs(ahead):,.1f} s {'ahead of' if ahead > 0 else 'behind'} this machine's"


def _step(what: str, share: float) -> str:
    return f"{what} {share:.0%} of the time" if share >= 0.01 else ""


def _sentences(*parts: str) -> str:
    return ", ".join(filter(None, parts))


def _bytes(count: float) -> str:
    return f"{count / 1e6:,.1f} MB" if count >= 1e5 else f"{count / 1e3:,.1f} kB"


def _millis(seconds: float) -> str:
    return f"{seconds * 1e3:,.1f} ms"


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
