"""Schema changes that run beside the batches, each in a thread with connections of its own.

The planner works in another process and has to learn that a change is done: a file in the staging folder says so, as
one does for a chunk that was read. It is a message of this run, nothing more. The truth is the journal on the target,
and the next run asks it.

Crash points: a change begins when the batch that names it as due is in the target. Until its tables are moved over it
by the commit of a later batch, a restart finds it due again and runs it again, or finds in the journal that it is done.
When the process ends while a change runs, the target's server breaks it off or brings it to its end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import structlog

from pidts.batch.context import JobContext
from pidts.batch.ddl import Changed, Concerns, run_ddl
from pidts.model import DecodeError, LogEntry, Lsn, TableName
from pidts.plan import PlanState, Way
from pidts.relay import RelayReader
from pidts.rules import AllowList

_log = structlog.get_logger(__name__)

_LOOK_SECONDS = 0.1


class _ClosedError(Exception):
    """The run has ended, and with it its attempts at a change."""


class DdlLane:
    """The schema changes of one run."""

    def __init__(self, allow: AllowList) -> None:
        self._allow = allow
        self._begun: set[Lsn] = set()
        self._running: set[Lsn] = set()
        self._finished: list[Changed] = []
        self._failure: Exception | None = None
        self._moved = threading.Condition()
        self._closed = threading.Event()

    @property
    def failure(self) -> Exception | None:
        """Why a change could not be made."""
        return self._failure

    def start(self, context: JobContext, state: PlanState) -> None:
        """Begin those of a state that have not begun; all that lies before them is in the target."""
        filling = frozenset(name for name, copy in state.copy.items() if not copy.done and copy.way is Way.NEW)
        for lsn in state.dues:
            if lsn not in self._begun:
                # A daemon: a statement that takes hours must not keep the process from ending.
                thread = threading.Thread(
                    target=self._run,
                    args=(context, lsn, partial(state.concerns, lsn=lsn), filling),
                    name=f"ddl {lsn}",
                    daemon=True,
                )
                self._begun.add(lsn)
                self._running.add(lsn)
                thread.start()

    def wait(self, due: Collection[Lsn], seconds: float, stop: Callable[[], bool]) -> None:
        """Until these have ended, the time is over, or somebody wants to stop; raises what one of them raised."""
        deadline = time.monotonic() + seconds
        with self._moved:
            while self._failure is None and not self._running.isdisjoint(due):
                left = deadline - time.monotonic()
                if left <= 0 or stop():
                    break
                self._moved.wait(min(left, _LOOK_SECONDS))
        if self._failure is not None:
            raise self._failure

    def collect(self, context: JobContext) -> JobContext:
        """With the structures that changes have left since the last time."""
        with self._moved:
            finished, self._finished = self._finished, []
        for changed in finished:
            context = changed.applied_to(context)
        return context

    def close(self, seconds: float) -> None:
        """Wait so long for what runs, then leave it to the next run."""
        with suppress(Exception):  # whoever closes has heard of it or does not want to
            self.wait(self._begun, seconds, lambda: False)
        self._closed.set()
        with self._moved:
            left = sorted(map(str, self._running))
        if left:
            _log.warning("a schema change is still running on the target; the next run goes on with it", at=left)

    def _run(self, context: JobContext, lsn: Lsn, concerns: Concerns, filling: Collection[TableName]) -> None:
        try:
            with closing(RelayReader(context.relay, context.source.source_id)) as relay:
                changed = run_ddl(
                    context, self._allow, relay, _found(relay, lsn), self._pause, concerns=concerns, filling=filling
                )
            with self._moved:
                self._finished.append(changed)
            if not self._closed.is_set():
                mark_done(context.staging, lsn)
        except Exception as error:  # noqa: BLE001 - told to the thread that runs the batches
            if self._closed.is_set():
                _log.warning("a schema change was left", at=str(lsn), error=str(error))
            self._failure = self._failure or error
        finally:
            with self._moved:
                self._running.discard(lsn)
                self._moved.notify_all()

    def _pause(self, seconds: float) -> None:
        if self._closed.wait(seconds):
            raise _ClosedError


def _found(relay: RelayReader, lsn: Lsn) -> LogEntry:
    entry = relay.find(lsn)
    if entry is None or entry.transaction.lsn != lsn:
        raise DecodeError("no-statement", f"the relay has no schema change that ends at {lsn}")
    return entry


def mark_done(staging: Path, lsn: Lsn) -> None:
    """Tell the planner."""
    path = _mark(staging, lsn)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


def done_of(staging: Path, due: Collection[Lsn]) -> frozenset[Lsn]:
    """Those of which this run knows that they are done."""
    return frozenset(lsn for lsn in due if _mark(staging, lsn).exists())


def _mark(staging: Path, lsn: Lsn) -> Path:
    return staging / "ddl" / f"{lsn}.done"
