"""Collects the measurements of one source's stages about once a second, from counters that cost almost nothing."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

from pidts.binlog.jit import is_compiling
from pidts.model import Lsn, PidtsError
from pidts.relay import RelayReader
from pidts.task.config.servers import TargetSpec
from pidts.task.measure.target_ping import Ping
from pidts.task.operate.stage_report import ReceiverMeasurements, RunMeasures, StageMeasures, StageReport, report_stages
from pidts.time_spent import CommitTime, StepTimes, shares, waited_for_cores

_WINDOW_SECONDS = 5.0
_COUNTED = 2000
"""At most this number of entries is counted, since counting a large backlog would take too much time."""


class MeasuredStream(Protocol):
    """The measured attributes of a stream."""

    @property
    def times(self) -> StepTimes:
        """The times of the steps of the stream's thread."""

    @property
    def commit_times(self) -> Sequence[CommitTime]:
        """The time of all commits so far, for each connection that commits."""

    @property
    def awaits_spark(self) -> bool:
        """Whether work waits until Spark has started."""

    @property
    def written(self) -> int | None:
        """The number of changes of a long batch that are written so far; None if there is no long batch."""


@dataclass(frozen=True, slots=True)
class _Reading:
    at: float
    steps: Mapping[str, float]
    commits: Sequence[CommitTime]
    no_core: float | None


class StageMeter:
    """Measures the stages of one attempt."""

    def __init__(self, source_id: str, source: str, target: TargetSpec) -> None:
        self._source_id, self._source, self._target = source_id, source, target
        self._readings: deque[_Reading] = deque()
        self._receiving = ReceiverMeasurements()
        self.log_warning = ""
        """The replicator's last warning that the source may remove log that was not received."""
        self._sizes: tuple[int | None, int | None, int | None] = (None, None, None)

    @property
    def receiving(self) -> ReceiverMeasurements:
        """The replicator's last measurements."""
        return self._receiving

    def look(self, stream: MeasuredStream, relay: RelayReader, at: Lsn, status: Mapping[str, Any] | None) -> None:
        """Reads all counters, about once a second."""
        now = time.monotonic()
        self._readings.append(_Reading(now, stream.times.reading(), stream.commit_times, waited_for_cores()))
        while len(self._readings) > 2 and self._readings[1].at < now - _WINDOW_SECONDS:
            self._readings.popleft()
        self._receiving = ReceiverMeasurements.of(status)
        self.log_warning = str((status or {}).get("warning") or "")
        self._sizes = _sizes(relay, at)

    @property
    def relay_bytes(self) -> int | None:
        """The size of the log in the relay at the last reading; None before the first."""
        return self._sizes[0]

    def report(
        self, stream: MeasuredStream, ping: Ping | None, *, lag: float | None, applying: float | None, rate: float
    ) -> StageReport:
        """Returns the report for the last seconds."""
        relay_bytes, backlog, transactions = self._sizes
        return report_stages(
            self._source_id,
            StageMeasures(
                source=self._source,
                target=self._target.place,
                is_warehouse=bool(self._target.warehouse),
                lag_seconds=lag,
                apply_seconds=applying,
                rows_a_second=rate,
                relay_bytes=relay_bytes,
                backlog_bytes=backlog,
                backlog_transactions=transactions,
                awaits_spark=stream.awaits_spark,
                written=stream.written,
                receiving=self._receiving,
                working=self._working(stream, ping),
            ),
        )

    def _working(self, stream: MeasuredStream, ping: Ping | None) -> RunMeasures:
        trip, ahead = (ping.seconds, ping.clock_ahead) if ping is not None else (None, None)
        if len(self._readings) < 2:
            return RunMeasures(compiles=is_compiling(), round_trip_seconds=trip, clock_ahead_seconds=ahead)
        before, after = self._readings[0], self._readings[-1]
        seconds = max(after.at - before.at, 1e-6)
        spent = [now - then for then, now in zip(before.commits, after.commits, strict=True)]
        each = sum(spent, CommitTime()) / len(spent)
        no_core = None
        if before.no_core is not None and after.no_core is not None:
            # The seconds of threads that have ended are missing, so the difference may be negative.
            no_core = max(0.0, after.no_core - before.no_core) / seconds
        return RunMeasures(
            steps=shares(before.steps, after.steps, seconds),
            waited=min(1.0, max(one.waited for one in spent) / seconds),
            trips_a_second=each.trips / seconds,
            commits_a_second=each.commits / seconds,
            no_core=no_core,
            compiles=is_compiling(),
            now_at=stream.times.now_at,
            round_trip_seconds=trip,
            clock_ahead_seconds=ahead,
        )


def _sizes(relay: RelayReader, at: Lsn) -> tuple[int | None, int | None, int | None]:
    """Returns the bytes of log in the relay, and the bytes and transactions of this log that are not applied.

    A number is None if it is not known, or if there are too many transactions to count.
    """
    numbers = relay.folder.numbers()
    sizes = [relay.folder.log_bytes(number) for number in numbers]
    received = relay.received
    backlog = transactions = None
    if received is not None:
        with suppress(PidtsError, OSError):
            backlog = _backlog(relay, at, received, sizes)
            if backlog:
                entries = list(islice(relay.entries(at, joined=True), _COUNTED + 1))
                transactions = sum(one.count for one in entries) if len(entries) <= _COUNTED else None
    return sum(sizes), backlog, transactions


def _backlog(relay: RelayReader, at: Lsn, received: Lsn, sizes: list[int]) -> int:
    if received <= at:
        return 0
    if (received.change_no, received.log_index) == (at.change_no, at.log_index):
        return received.offset - at.offset
    headers = list(relay.folder.headers())
    later = [size for header, size in zip(headers, sizes, strict=False) if header.start >= at]
    holding = [header.start for header in headers if header.start < at]
    rest = 0
    if holding and (holding[-1].change_no, holding[-1].log_index) == (at.change_no, at.log_index):
        size = sizes[len(holding) - 1]
        rest = max(0, size - (at.offset - holding[-1].offset))
    return rest + sum(later)
