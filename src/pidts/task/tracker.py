"""Keeps count of a run and tells about it: rows, rate, lag, the copy of each table."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any

from pidts.model import Lsn, PidtsError, Position, TableName
from pidts.plan import CopyState, PlanState
from pidts.reduce import Counts
from pidts.spark.stream import BatchDone
from pidts.task.progress import Progress, Stage, Summary, TableProgress

_RATE_SECONDS = 5.0


class Tracker:
    """Fed by the stream's thread, read by the task's."""

    def __init__(self, task: str, on_progress: Callable[[Progress], None]) -> None:
        self._task, self._on_progress = task, on_progress
        self._began = time.monotonic()
        self._counts = Counts()
        self._batches = 0
        self._recent: deque[tuple[float, int]] = deque()
        self._lsn: Lsn | None = None
        self._gtid = ""
        self._position: Position | None = None
        self._event_time = 0
        self._copy: Mapping[TableName, CopyState] = {}
        self._cause: PidtsError | None = None
        """What the last attempt ended with; until a batch is committed, nobody knows that it is over."""
        self._waiting_for = ""
        self._refetched = 0

    def resumed(self, state: PlanState, gtid: str, position: str) -> None:
        """A run or another attempt of it begins here."""
        self._lsn, self._gtid, self._copy = state.lsn, gtid, state.copy
        self._position = Position.parse(position) if position else None

    def batch(self, done: BatchDone) -> None:
        """A batch is committed."""
        self._cause = None
        self._batches += 1
        self._counts += done.counts
        self._recent.append((time.monotonic(), done.counts.total))
        self._event_time = done.plan.timestamp or self._event_time
        self.resumed(done.plan.end, done.checkpoint.gtid, done.checkpoint.position)

    @property
    def batches(self) -> int:
        """Batches committed in this run."""
        return self._batches

    def tell(self, stage: Stage, *, caught_up: bool = False, message: str = "") -> None:
        """Give the current picture to whoever watches."""
        if caught_up:
            self._cause = None
        if self._cause is not None and not message:
            stage, message = "paused", self._waiting_for
        self._on_progress(Progress(**self._picture(stage, caught_up=caught_up, message=message)))

    def paused(self, cause: PidtsError, seconds: float) -> None:
        """Nothing goes on before the cause is gone; in so many seconds it is tried again."""
        again = (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%H:%M:%S")
        self._cause, self._waiting_for = cause, f"{cause}. Trying again by itself, next at {again} UTC"
        self.tell("paused")

    def refetching(self, message: str, count: int) -> None:
        """The relay is mended, for the so-manieth time."""
        self._refetched = count
        self.tell("paused", message=message)

    def summary(self, *, synced: bool) -> Summary:
        """The last picture."""
        stage: Stage = "synced" if synced else "paused" if self._cause is not None else "stopped"
        return Summary(**self._picture(stage, caught_up=False, message=""))

    def _picture(self, stage: Stage, *, caught_up: bool, message: str) -> dict[str, Any]:
        now = time.monotonic()
        while self._recent and self._recent[0][0] < now - _RATE_SECONDS:
            self._recent.popleft()
        window = min(_RATE_SECONDS, now - self._began) or 1.0
        lag = 0.0 if caught_up else max(0.0, time.time() - self._event_time) if self._event_time else None
        return {
            "stage": stage,
            "task": self._task,
            "applied_lsn": self._lsn,
            "gtid": self._gtid,
            "position": self._position,
            "rows": {field.name: getattr(self._counts, field.name) for field in fields(Counts)},
            "batches": self._batches,
            "seconds": now - self._began,
            "lag_seconds": lag,
            "rate": sum(rows for _, rows in self._recent) / window,
            "tables": tuple(
                TableProgress(name=str(name), copied=state.rows, done=state.done)
                for name, state in sorted(self._copy.items())
            ),
            "message": message,
            "cause": self._cause,
            "refetched": self._refetched,
        }
