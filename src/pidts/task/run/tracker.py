"""Counts the progress of a run and reports it: rows, rate, lag, the copy of each table."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType

from pidts.batch.batch_done import BatchDone
from pidts.model import Halt, Lsn, PidtsError, Position, TableName
from pidts.model.errors import TARGET_LOST
from pidts.plan import PlanState
from pidts.reduce import Counts
from pidts.replicate import ReceiveProblem
from pidts.target.refusals import NO_CONNECTION
from pidts.task.measure.copy_progress import CopyProgress
from pidts.task.operate.pause import Pause
from pidts.task.operate.progress import Progress, SourceProgress, Stage, TableChanges
from pidts.task.operate.stage_report import StageReport, with_silent_target

_RATE_SECONDS = 5.0
_INTERVAL_SECONDS = 0.25
"""Batches that end within one interval are counted together, since hundreds of batches can end in a second."""
_NOTE_SECONDS = 30.0
_CHANGED = 100
"""The largest number of target tables whose changes are reported separately."""
_UNREACHABLE = "target-unreachable"


@dataclass(slots=True)
class _Interval:
    """The number of changes in the batches of one interval: in total, and by target table."""

    began: float
    total: int = 0
    by_table: Counter[str] = field(default_factory=Counter)


class Tracker:
    """The progress of one source."""

    def __init__(
        self,
        task: str,
        source: str,
        on_progress: Callable[[Progress], None],
        *,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`now` returns the seconds since 1970; `clock` never goes back."""
        self._task, self._source, self._on_progress = task, source, on_progress
        self._now, self._clock = now, clock
        self._began = self._clock()
        self._lock = threading.Lock()
        """Protects the progress: one thread adds batches, another thread reads the progress."""
        self._counts = Counts()
        self._by_table: Counter[str] = Counter()
        """The rows applied to each target table."""
        self._batches = 0
        self._recent: deque[_Interval] = deque()
        """The changes of the last seconds, in intervals."""
        self._lsn: Lsn | None = None
        self._gtid = ""
        self._position = ""
        self._event_time = 0
        self._waits_since = 0.0
        """The commit time of the first transaction that the target lacks; 0 if none is known."""
        self._caught_up_at = 0.0
        """The target has had all changes up to this time; 0 if no such time is known."""
        self._delay = 0.0
        self._stage_report: StageReport | None = None
        """The latest measurement of the stages from source to target."""
        self._copy = CopyProgress()
        self._note, self._note_until = "", 0.0
        self._cutover = ""
        self._pause: Pause | None = None
        """The pause after the last attempt, until a batch is committed or the target has caught up."""
        self._silent_since = 0.0
        """When the target first failed to answer, in seconds since 1970; 0 while it answers."""
        self._is_unreachable = False
        """Whether a new connection to the target has failed since `_silent_since`. A lost connection proves little."""
        self._lack: ReceiveProblem | None = None
        """The reason why the source's log is not received; None if it is received."""
        self._has_connected = True
        """Whether the replicator has been connected to the source since its start."""
        self._relay_bytes: int | None = None
        self._warnings = "", ""
        self._refetched = 0
        self._halts: tuple[Halt, ...] = ()
        self._held_tables = 0
        """The number of waiting tables."""
        self._held_since = 0.0
        """The commit time of the oldest change that waits with its table; 0 if there is none, or if it is not known."""
        self._locked: Mapping[TableName, int] = {}
        self._catalog_lag: float | None = None

    def resumed(self, state: PlanState, gtid: str, position: str, copied: Iterable[TableName] = ()) -> None:
        """Notes that an attempt begins. The copy of a table in `copied` is done if the state has no copy of it."""
        self.target_seen(None)
        with self._lock:
            self._copy.begin(copied, state.copy, self._clock())
            self._reached(state, gtid, position)

    def _count_recent(self, counts: Counts) -> None:
        now = self._clock()
        if not self._recent or now - self._recent[-1].began >= _INTERVAL_SECONDS:
            self._recent.append(_Interval(now))
        self._recent[-1].total += counts.total
        self._recent[-1].by_table.update(counts.by_table)

    def _reached(self, state: PlanState, gtid: str, position: str) -> None:
        self._lsn, self._gtid, self._position = state.lsn, gtid, position

    def batch(self, done: BatchDone) -> None:
        """Counts a committed batch."""
        self.target_seen(None)
        with self._lock:
            self._pause = None
            self._batches += 1
            self._counts += replace(done.counts, by_table={})
            self._by_table.update(done.counts.by_table)
            self._count_recent(done.counts)
            self._event_time = done.plan.timestamp or self._event_time
            if self._waits_since:
                self._waits_since = max(self._waits_since, self._event_time)
            self._copy.looked_up(done.looked_up)
            self._copy.reached(done.plan.end.copy, self._clock())
            self._reached(done.plan.end, done.checkpoint.gtid, done.checkpoint.position)

    @property
    def batches(self) -> int:
        """The number of batches that this run has committed."""
        return self._batches

    def show(
        self,
        stage: Stage,
        *,
        caught_up: bool = False,
        only_waiting: bool = False,
        message: str = "",
        waits_since: float | None = None,
        delay: float = 0.0,
        report: Callable[[float | None, float], StageReport] | None = None,
        awaits_spark: bool = False,
        written: int | None = None,
        being_copied: Mapping[TableName, int] = MappingProxyType({}),
    ) -> None:
        """Reports the current progress.

        - `only_waiting`: the target lacks only changes of waiting tables, which have a lag of their own.
        - `waits_since`: the commit time of the first transaction that the target lacks; None: as reported before. The
          lag counts from this time. So a source without changes for an hour does not cause a lag of an hour.
        - `delay`: the larger of two times. One is the time from COMMIT on the source to COMMIT on the target, for the
          last transactions. The other is the time since which the relay has lacked log.
        - `report` returns the report of the stages for a given lag and rate.
        - `written`: how many changes of a long batch are written so far; None: there is no long batch.
        - `being_copied`: how many rows the copy has read of each table, beside those that are settled.
        """
        self._delay = delay
        if waits_since is not None:
            self._waits_since = waits_since
        if caught_up or only_waiting:
            self._waits_since = 0.0
            if self._has_connected:
                received = self._now() if self._lack is None else self._lack.since
                self._caught_up_at = min(self._now() - delay, received)
        if caught_up:
            self._pause = None
        if self._pause is not None and not message:
            stage, message = "paused", str(self._pause)
        elif self._lack is not None and not message:
            message = str(self._lack)
            stage = "paused" if caught_up else stage
        is_notice = not message and self._clock() < self._note_until and bool(self._note)
        message = self._note if is_notice else message or self._cutover
        if not message and awaits_spark:
            message = "waiting for Spark"
        if not message and written is not None:
            message = f"one large transaction is being written: {written:,} changes so far"
        with self._lock:
            self._copy.being_copied(being_copied, self._clock())
            picture = self._picture(stage, caught_up=caught_up or only_waiting, message=message, report=report)
        self._on_progress(replace(picture, is_notice=is_notice))

    def note(self, text: str) -> None:
        """Shows a text to the user for a while."""
        self._note, self._note_until = text, self._clock() + _NOTE_SECONDS

    def being_cut_over(self, text: str) -> None:
        """Notes the state of a cutover that is under way; an empty text if there is none."""
        self._cutover = f"the task {text}" if text else ""

    def target_seen(self, failure: PidtsError | None) -> None:
        """Notes whether the target answers, by its last error; None: it has answered without an error.

        A target that has no free connection does answer. Other errors may come from a source, or prove nothing.
        """
        if failure is None or failure.code == NO_CONNECTION:
            self._silent_since, self._is_unreachable = 0.0, False
        elif failure.code in {_UNREACHABLE, TARGET_LOST}:
            self._silent_since = self._silent_since or self._now()
            self._is_unreachable |= failure.code == _UNREACHABLE

    def paused(self, cause: PidtsError, seconds: float) -> None:
        """Reports that the run waits until the cause is over. The next attempt begins after `seconds`."""
        self.target_seen(cause)
        since = self._pause.since if self._pause is not None else self._now()
        self._pause = Pause(cause, since, self._now() + seconds)
        self.show("paused")

    def begins(self) -> None:
        """Reports that the servers are being checked. Earlier pauses are over."""
        self._pause, self._lack = None, None
        self.show("starting", message="step 1 of 3: checking the servers")

    def lacks(self, lack: ReceiveProblem | None, relay_bytes: int | None = None, *, has_connected: bool = True) -> None:
        """Notes the relay's size, and the reason why the source's log is not received; None if it is received.

        `has_connected`: whether the replicator has been connected to the source since its start.
        """
        self._lack, self._relay_bytes, self._has_connected = lack, relay_bytes, has_connected

    def warns(self, log: str, disk: str) -> None:
        """Notes two dangers: the source may remove log that was not received; the relay's disk is nearly full."""
        self._warnings = log, disk

    def halted(self, halts: tuple[Halt, ...]) -> None:
        """Notes the halts that need an operator now."""
        self._halts = halts

    def waits(self, tables: int, since: float) -> None:
        """Notes the number of waiting tables, and the commit time of the oldest of their changes; 0 if unknown."""
        self._held_tables, self._held_since = tables, since

    def catalog_lag(self, seconds: float) -> None:
        """Notes the time by which a server's catalog lags behind the warehouse."""
        self._catalog_lag = seconds

    def locked(self, rows: Mapping[TableName, int]) -> None:
        """Notes the current number of locked rows of each target table."""
        self._locked = rows

    def refetching(self, message: str, count: int) -> None:
        """Reports that damaged parts of the relay are fetched again; `count` parts so far."""
        self._refetched = count
        self.show("paused", message=message)

    def summary(self, *, synced: bool) -> Progress:
        """Returns the last snapshot."""
        stage: Stage = "paused" if self._pause is not None or self._lack is not None else "stopped"
        if synced:
            stage = "halted" if self._halts else "synced"
        with self._lock:
            return self._picture(stage, caught_up=False, message="")

    def _picture(
        self,
        stage: Stage,
        *,
        caught_up: bool,
        message: str,
        report: Callable[[float | None, float], StageReport] | None = None,
    ) -> Progress:
        now = self._clock()
        while self._recent and self._recent[0].began < now - _RATE_SECONDS:
            self._recent.popleft()
        window = min(_RATE_SECONDS, now - self._began) or 1.0
        rate = sum(interval.total for interval in self._recent) / window
        lag = self._lag(caught_up=caught_up)
        if report is not None:
            self._stage_report = report(lag, rate)
        stages = self._stage_report
        if stages is not None and self._is_unreachable:
            stages = with_silent_target(stages, self._silent_since)
        elif stages is not None and self._pause is not None:
            stages = replace(stages, slow=None)  # the cause is known, and the measurements are from before the pause
        source = SourceProgress(
            source=self._source,
            stage=stage,
            applied_lsn=self._lsn,
            gtid=self._gtid,
            position=Position.parse(self._position) if self._position else None,
            lag_seconds=lag,
            held_lag_seconds=max(0.0, self._now() - self._held_since) if self._held_since else None,
            held_tables=self._held_tables,
            halted=self._halts,
            locked={str(table): count for table, count in self._locked.items()},
            catalog_lag_seconds=self._catalog_lag,
            lack=self._lack,
            pause=self._pause,
            relay_bytes=self._relay_bytes,
            log_warning=self._warnings[0],
            disk_warning=self._warnings[1],
            stage_report=stages,
        )
        return Progress(
            task=self._task,
            sources=(source,),
            rows={name: count for name, count in asdict(self._counts).items() if name != "by_table"},
            batches=self._batches,
            seconds=now - self._began,
            rate=rate,
            tables=self._copy.tables(now),
            changed=self._changed(window),
            message=message,
            cause=self._cause(stage),
            refetched=self._refetched,
        )

    def _cause(self, stage: Stage) -> PidtsError | None:
        if self._pause is not None:
            return self._pause.error
        return self._lack.error if self._lack is not None and stage == "paused" else None

    def _lag(self, *, caught_up: bool) -> float | None:
        """Returns the lag in seconds; None if it is not known.

        The lag is not known in these cases:

        - A copy is not done, and this run has committed no batch: the target lacks rows of any age.
        - The target has the whole relay, but the replicator has not been connected to the source yet: the source may
          have changes of any age.
        - The target lacks changes, and two times are unknown: when the first of them was committed, and when the target
          last had all changes.

        If the target has the whole relay, but log is no longer received, the lag counts from the time since which no
        log is received: the source may have changes since then. If the target lacks changes, the lag counts from the
        oldest change that it is known to lack. If none is known, the lag counts from the last time at which the target
        had all changes.
        """
        if not self._batches and self._copy.is_copying:
            return None
        if caught_up:
            if not self._has_connected:
                return None
            if self._lack is None:
                return self._delay
            return max(0.0, self._now() - max(self._lack.since, self._event_time))
        since = self._waits_since or max(self._event_time, self._caught_up_at)
        return max(self._delay, self._now() - since) if since else None

    def _changed(self, window: float) -> tuple[TableChanges, ...]:
        lately: Counter[str] = Counter()
        for interval in self._recent:
            lately.update(interval.by_table)
        found = lately.most_common(_CHANGED)
        if len(found) < _CHANGED:
            found += ((name, 0) for name, _ in self._by_table.most_common(_CHANGED) if name not in lately)
        return tuple(TableChanges(name, self._by_table[name], rows / window) for name, rows in found[:_CHANGED])


class CombinedProgress:
    """Receives the progress of each part from the part's thread, and passes on the progress of the whole task."""

    def __init__(self, on_progress: Callable[[Progress], None]) -> None:
        self._on_progress = on_progress
        self._latest: dict[str, Progress] = {}
        self._lock = threading.Lock()

    def of(self, source: str) -> Callable[[Progress], None]:
        """Returns the function to which one part reports its progress."""

        def take(progress: Progress) -> None:
            with self._lock:
                self._latest[source] = progress
                self._on_progress(combined(list(self._latest.values())))

        return take


def combined(parts: Sequence[Progress]) -> Progress:
    """Returns the progress of the task."""
    if len(parts) == 1:
        return parts[0]
    return Progress(
        task=parts[0].task,
        sources=tuple(source for part in parts for source in part.sources),
        rows={name: sum(part.rows[name] for part in parts) for name in parts[0].rows},
        batches=sum(part.batches for part in parts),
        seconds=max(part.seconds for part in parts),
        rate=sum(part.rate for part in parts),
        tables=tuple(replace(table, source=_source(part)) for part in parts for table in part.tables),
        changed=_changed(parts),
        message=_message(parts),
        is_notice=all(part.is_notice for part in parts if part.message),
        cause=next((part.cause for part in parts if part.cause is not None), None),
        refetched=sum(part.refetched for part in parts),
    )


def _changed(parts: Sequence[Progress]) -> tuple[TableChanges, ...]:
    found: dict[str, TableChanges] = {}
    for one in (one for part in parts for one in part.changed):
        before = found.get(one.name, TableChanges(one.name))
        found[one.name] = TableChanges(one.name, before.rows + one.rows, before.rate + one.rate)
    return tuple(sorted(found.values(), key=lambda one: -one.rate))


def _source(part: Progress) -> str:
    return part.sources[0].source


def _message(parts: Sequence[Progress]) -> str:
    """Returns the messages of all parts in one text. Messages that differ follow the names of their sources."""
    said = {part.message for part in parts}
    if len(said) == 1:
        return parts[0].message
    return "; ".join(f"{_source(part)}: {part.message}" for part in parts if part.message)
