"""Schema changes that run beside the batches, each in a thread with connections of its own.

The planner works in another process and has to learn that a change is done: a file in the staging folder says so, as
one does for a chunk that was read. It is a message of this run, nothing more. The truth is the journal on the target,
and the next run asks it.

Crash points: a change begins when the batch that names it as due is in the target. Until its tables are moved over it
by the commit of a later batch, a restart finds it due again and runs it again, or finds in the journal that it is done.
When the process ends while a change runs, the target's server breaks it off or brings it to its end.

A change that fails for good *halts* its tables, where it is known which those are: they stay before it, everything else
goes on, and its thread waits for an operator's order. Otherwise it is the failure of the run. What holds where:

1. It fails, and the process dies before anybody has heard of it: the next run meets it again, and it fails again.
2. It has failed, its tables are held in the checkpoint: the next run finds them before it, has it run again (what it
   failed for may be gone), and it halts again if not.
3. An order is given while nobody runs: it is read before the change begins. While the change fails: within a second.
   While it runs: when it fails, or never, where it does not.
4. An order is read, and another one given before it is begun: the commit that would begin it finds out, and the newer
   one is read (see `pidts.apply.ddl`, also for a crash while an order is carried out).
5. What is ordered fails, too: the order was taken or stays given, and nothing happens before another one is given.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import structlog

from pidts.apply import OrderChanged
from pidts.batch.context import JobContext
from pidts.batch.ddl import Changed, Concerns, run_ddl
from pidts.batch.meaning import Meaning
from pidts.model import DdlOrder, DecodeError, Halt, Halted, LogEntry, Lsn, TableName, Transient
from pidts.plan import PlanState, Way
from pidts.plan.continuity import Discontinuity
from pidts.relay import RelayReader

_log = structlog.get_logger(__name__)

_LOOK_SECONDS = 0.1
_ORDER_SECONDS = 1.0
"""So often a change that has failed looks for an order."""


class _ClosedError(Exception):
    """The run has ended, and with it its attempts at a change."""


@dataclass(frozen=True, slots=True)
class _Change:
    """What one thread is about."""

    context: JobContext
    lsn: Lsn
    concerns: Concerns
    filling: Collection[TableName]


class DdlLane:
    """The schema changes of one run."""

    def __init__(self, meaning: Meaning, halts: Callable[[Halted], bool] = lambda _: True) -> None:
        self._meaning, self._halts_alone = meaning, halts
        self._halts: dict[Lsn, Halt] = {}
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

    @property
    def halts(self) -> Mapping[Lsn, Halt]:
        """Changes that have failed, and wait for an operator."""
        with self._moved:
            return dict(self._halts)

    def start(self, context: JobContext, state: PlanState) -> None:
        """Begin those of a state that have not begun; all that lies before them is in the target."""
        filling = frozenset(name for name, copy in state.copy.items() if not copy.done and copy.way is Way.NEW)
        for lsn in state.dues:
            if lsn not in self._begun:
                # A daemon: a statement that takes hours must not keep the process from ending.
                change = _Change(context, lsn, partial(state.concerns, lsn=lsn), filling)
                thread = threading.Thread(target=self._run, args=(change,), name=f"ddl {lsn}", daemon=True)
                self._begun.add(lsn)
                self._running.add(lsn)
                thread.start()

    def wait(self, due: Collection[Lsn], seconds: float, stop: Callable[[], bool]) -> None:
        """Until these have ended or halted, the time is over, or one wants to stop; raises what one of them raised."""
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
            left = sorted(map(str, self._running - self._halts.keys()))
        if left:
            _log.warning("a schema change is still running on the target; the next run goes on with it", at=left)

    def _run(self, change: _Change) -> None:
        context, lsn = change.context, change.lsn
        try:
            with closing(RelayReader(context.relay, context.source.source_id)) as relay:
                changed = self._made(change, relay, _found(relay, lsn))
            with self._moved:
                self._finished.append(changed)
            if not self._closed.is_set():
                mark_done(context.staging, lsn)
        except Exception as error:  # noqa: BLE001 - told to the thread that runs the batches
            if not self._closed.is_set():
                self._failure = self._failure or error
            elif lsn not in self._halts:
                _log.warning("a schema change was left", at=str(lsn), error=str(error))
        finally:
            with self._moved:
                self._running.discard(lsn)
                self._moved.notify_all()

    def _made(self, change: _Change, relay: RelayReader, entry: LogEntry) -> Changed:
        """However long that takes, and whatever an operator has to say about it."""
        while True:
            order = self._order(change)
            try:
                changed = run_ddl(
                    change.context,
                    self._meaning.allow,
                    relay,
                    entry,
                    self._pause,
                    concerns=change.concerns,
                    filling=change.filling,
                    order=order,
                )
            except OrderChanged:
                continue
            except Halted as error:
                if isinstance(error, DecodeError | Discontinuity) or not self._halts_alone(error):
                    raise
                self._tell(change, self._halt(change, relay, entry, error), error)
                self._wait_for_order(change, order)
            else:
                self._resolve(change)
                return changed

    def _halt(self, change: _Change, relay: RelayReader, entry: LogEntry, error: Halted) -> Halt:
        """Of all tables, where nobody knows of which; what names none was not refused for the statement's sake."""
        tables = self._meaning(entry).tables if error.where.table else None
        return Halt.of(
            error,
            tuple(sorted(filter(change.concerns, tables or ()))),
            change.lsn,
            position=str(relay.position(change.lsn) or ""),
            statement=entry.transaction.ddl or "",
        )

    def _tell(self, change: _Change, halt: Halt, error: Halted) -> None:
        """All who may want to know; an error that concerns all tables is raised."""
        context = change.context
        with suppress(Transient), closing(context.target.connect()) as session:
            session.halts.tell(context.task, context.source.source_id, halt)
        if not halt.tables:
            raise error
        _log.error("a schema change fails, its tables wait for an operator", halt=str(halt), statement=halt.statement)
        mark_halted(context.staging, change.lsn)
        with self._moved:
            self._halts[change.lsn] = halt
            self._running.discard(change.lsn)
            self._moved.notify_all()

    def _wait_for_order(self, change: _Change, tried: DdlOrder | None) -> None:
        number = tried.number if tried is not None else 0
        while True:
            self._pause(_ORDER_SECONDS)
            order = self._order(change)
            if order is not None and order.number > number and not order.taken:
                _log.info("an operator has decided about a schema change", at=str(change.lsn), order=order.kind.value)
                return

    def _resolve(self, change: _Change) -> None:
        with self._moved:
            halt = self._halts.pop(change.lsn, None)
        if halt is not None:
            with suppress(Transient), closing(change.context.target.connect()) as session:
                session.halts.resolve(change.context.task, change.context.source.source_id, [halt.place])

    def _order(self, change: _Change) -> DdlOrder | None:
        """As it stands on the target, which may be down for a while."""
        context = change.context
        while True:
            try:
                with closing(context.target.connect()) as session:
                    return session.halts.order(context.task, context.source.source_id, change.lsn)
            except Transient as error:
                _log.warning("orders cannot be read", at=str(change.lsn), error=str(error))
                self._pause(_ORDER_SECONDS)

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
    _touch(_mark(staging, lsn, "done"))


def mark_halted(staging: Path, lsn: Lsn) -> None:
    """Tell the planner; it stands for as long as the change is not done."""
    _touch(_mark(staging, lsn, "halted"))


def done_of(staging: Path, due: Collection[Lsn]) -> frozenset[Lsn]:
    """Those of which this run knows that they are done."""
    return frozenset(lsn for lsn in due if _mark(staging, lsn, "done").exists())


def halted_of(staging: Path, due: Collection[Lsn]) -> frozenset[Lsn]:
    """Those that have failed in this run."""
    return frozenset(lsn for lsn in due if _mark(staging, lsn, "halted").exists()) - done_of(staging, due)


def _touch(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


def _mark(staging: Path, lsn: Lsn, what: str) -> Path:
    return staging / "ddl" / f"{lsn}.{what}"
