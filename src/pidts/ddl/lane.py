"""Runs schema changes beside the batches, each in a thread with connections of its own.

The planner works in another process and has to learn that a change is done (`planner_signals`). That is a message of
this run, nothing more. The truth is the journal on the target, and the next run reads it.

Crash points: a change begins when the batch that names it as due is in the target. Until the commit of a later batch
moves its tables over it, a restart finds it due again. The restart then runs it again, or finds in the journal that it
is done. When the process ends while a change runs, the target's server breaks it off or completes it.

A change that fails for good *halts* its tables, where it is known which those are. They stay before it, all other
tables go on, and its thread waits for an operator's order. Otherwise the run fails with it. These cases are covered:

1. It fails, and the process dies before the failure is reported: the next run meets it again, and it fails again.
2. It has failed, and its tables are held in the checkpoint: the next run finds them before it and runs it again, since
   the reason for the failure may be gone. If not, it halts again.
3. An order is given while no run is active: it is read before the change begins. While the change fails: it is read
   within a second. While it runs: it is read when the change fails or is tried again, or never, where the change
   succeeds.
4. An order is read, and another one given before the first is begun: the commit that would begin it finds out, and the
   newer one is read (see `pidts.apply.ddl.runner`, also for a crash while an order is carried out).
5. The ordered statement fails, too: the order was taken or is still there, and nothing happens before another one is
   given.

A change that **waits for other shards** halts in the same way, without the three seconds that every other change gets
to finish. It continues by itself when its group lets it (see `pidts.ddl.shards.coordinator`, `pidts.shards.decide`); an
order counts as well.

6. The process dies while some wait: the checkpoints hold their tables before their changes. The next run meets these
   again, and they arrive again. Of the group nothing else was known but the structure that it had agreed on before.
7. It dies while the leader's statement runs, or after it: see `pidts.apply.ddl.runner`. Either all members that had
   arrived are done, or all arrive again.
8. It dies after the statement, before the other members know: each of them asks the journal, and finds itself done.
9. One part's attempt ends while others wait: its members arrive again in the next attempt. A statement that it leads
   goes on in its thread, and the others learn how it ends. Where it ends because its attempt has ended, they wait for
   the leader to arrive again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial

import structlog
from structlog.contextvars import bound_contextvars

from pidts.apply import JournalOpen, OrderChanged, PartyLeft
from pidts.batch.context import JobContext
from pidts.batch.relevance import Meaning
from pidts.ddl.operator_orders import Orders
from pidts.ddl.pending_change import DueChange, found_in
from pidts.ddl.planner_signals import mark_done, mark_halted
from pidts.ddl.runner import Changed, run_ddl
from pidts.ddl.shards.admission import ShardWaits, landed
from pidts.ddl.shards.coordinator import ShardGroups
from pidts.ddl.shards.halt_messages import standing_halt
from pidts.model import Arrival, DecodeError, Halt, Halted, LogEntry, Lsn, TableName, Transient
from pidts.plan import PlanState, Way
from pidts.plan.blocked import standing
from pidts.plan.continuity import Discontinuity
from pidts.relay import RelayReader
from pidts.shards.decide import Wait

_log = structlog.get_logger(__name__)

_LOOK_SECONDS = 0.1
_ORDER_SECONDS = 1.0
"""The time between two looks for an order, while a change has failed."""
_LEADER_SECONDS = 3.0
"""The time for which shards wait for a change that another shard makes, as for one of their own that runs."""
_TELL_SECONDS = 2.0
"""The least time between two reports of what a change waits for."""


class _ClosedError(Exception):
    """The error that the run has ended, and with it its attempts at a change."""


class DdlLane:
    """The schema changes of one run."""

    def __init__(
        self,
        meaning: Meaning,
        halts: Callable[[Halted], bool] = lambda _: True,
        shards: ShardGroups | None = None,
        told: Sequence[Halt] = (),
    ) -> None:
        """Takes the recorded halts of earlier attempts (`told`): tables still halted have been so since."""
        self._meaning, self._halts_alone, self._shards = meaning, halts, shards
        self._since = {halt.lsn: halt.since for halt in told if halt.statement}
        self._halts: dict[Lsn, Halt] = {}
        self._arrivals: dict[Lsn, Arrival] = {}
        """The halts that wait for other shards, with the arrival of each."""
        self._told: dict[Lsn, float] = {}
        """The time at which each waiting halt was last reported."""
        self._moving: set[Lsn] = set()
        """The halts for which something is being done now."""
        self._standing: dict[Lsn, Halt] = {}
        """Statements that have not begun, since some of their tables wait before others."""
        self._state: PlanState | None = None
        self._begun: set[Lsn] = set()
        self._running: set[Lsn] = set()
        self._finished: list[Changed] = []
        self._failure: Exception | None = None
        self._moved = threading.Condition()
        self._closed = threading.Event()

    @property
    def failure(self) -> Exception | None:
        """The reason for which a change could not be made."""
        return self._failure

    @property
    def halts(self) -> Mapping[Lsn, Halt]:
        """Returns the changes that have failed and wait for an operator, and the statements that wait for these."""
        with self._moved:
            return {**self._standing, **self._halts}

    @property
    def resting(self) -> frozenset[Lsn]:
        """Returns the halted changes that only an operator's order or another shard can move on."""
        with self._moved:
            halts, arrivals = self._halts.keys() - self._moving, dict(self._arrivals)
        shards = self._shards
        return frozenset(
            lsn for lsn in halts if shards is None or lsn not in arrivals or shards.stands(arrivals[lsn]) is not None
        )

    @property
    def awaits_shards(self) -> bool:
        """Whether some of them continue by themselves when other shards arrive."""
        with self._moved:
            return any(halt.awaits for halt in self._halts.values())

    def start(self, context: JobContext, state: PlanState) -> None:
        """Begins those changes of a state that have not begun; all log before them is in the target."""
        self._state = state
        filling = frozenset(name for name, copy in state.copy.items() if not copy.done and copy.way is Way.NEW)
        for lsn in state.dues:
            if lsn not in self._begun:
                # A daemon: a statement that takes hours must not keep the process from ending.
                change = DueChange(context, lsn, partial(state.concerns, lsn=lsn), filling)
                thread = threading.Thread(target=self._run, args=(change,), name=f"ddl {lsn}", daemon=True)
                self._begun.add(lsn)
                self._running.add(lsn)
                thread.start()

    def wait(self, due: Collection[Lsn], seconds: float, stop: Callable[[], bool]) -> None:
        """Waits until these changes end or halt, the time is over, or the caller stops; raises their errors."""
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
        """Returns the context with the structures that changes have left since the last time."""
        with self._moved:
            finished, self._finished = self._finished, []
        for changed in finished:
            context = changed.applied_to(context)
        return context

    def close(self, seconds: float) -> None:
        """Waits so long for changes that run, then leaves them to the next run."""
        with suppress(Exception):  # the caller knows the error or does not want it
            self.wait(self._begun, seconds, lambda: False)
        self._closed.set()
        with self._moved:
            left = sorted(map(str, self._running - self._halts.keys()))
        if left:
            _log.warning("a schema change is still running on the target; the next run goes on with it", at=left)

    def _run(self, change: DueChange) -> None:
        """Runs a change; each log line on the way names the source."""
        with bound_contextvars(source=change.context.source.source_id):
            self._carry_out(change)

    def _carry_out(self, change: DueChange) -> None:
        context, lsn = change.context, change.lsn
        try:
            with closing(RelayReader(context.relay, context.source.source_id)) as relay:
                changed = self._made(change, relay, found_in(relay, lsn))
            if self._shards is not None:
                rules = changed.applied_to(context).rules
                after = landed(rules, changed.structures)
                self._shards.changed(context.source.source_id, after, context.epoch, owed=changed.owed)
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

    def _made(self, change: DueChange, relay: RelayReader, entry: LogEntry) -> Changed:
        """Makes the change, however long it takes, with waits for other shards and for an operator."""
        arrived, came = False, self._stands_since(change.lsn)
        orders = Orders(change.context, change.lsn, self._pause, _ORDER_SECONDS)
        while True:
            order = orders.read()
            try:
                changed = run_ddl(
                    change.context,
                    self._meaning.allow,
                    relay,
                    entry,
                    partial(orders.pause_between_tries, order),
                    concerns=change.concerns,
                    filling=change.filling,
                    order=order,
                    groups=self._shards,
                    arrived=arrived,
                    since=came,
                )
            except OrderChanged:
                self._pause(_LOOK_SECONDS)  # it may be another shard's order, which that shard reads by itself
            except ShardWaits as told:
                arrived = arrived or told.arrival is not None
                halt = partial(change.waiting_halt, self._meaning, relay, entry)
                self._wait_for_shards(change, relay, told, halt, partial(orders.is_newer, order))
            except PartyLeft as left:
                arrived = True
                assert self._shards is not None  # noqa: S101 - nobody else has parties
                self._shards.forget(left.source)
            except JournalOpen as begun:
                arrived = True
                waits = ShardWaits(Wait(begun=(begun.source, begun.lsn)))
                self._tell_waiting(change, change.waiting_halt(self._meaning, relay, entry, waits), None)
                self._pause(_ORDER_SECONDS)
            except Halted as error:
                if isinstance(error, DecodeError | Discontinuity) or not self._halts_alone(error):
                    raise
                arrived = arrived or self._shards is not None
                since = self._stands_since(change.lsn)
                self._tell(change, change.halt(self._meaning, relay, entry, error, since), error)
                self._wait_for_order(change, relay, partial(orders.is_newer, order))
            else:
                self._resolve(change)
                return changed

    def _wait_for_shards(
        self,
        change: DueChange,
        relay: RelayReader,
        waits: ShardWaits,
        halt: Callable[[ShardWaits], Halt],
        is_decided: Callable[[], bool],
    ) -> None:
        """Waits until the group lets the change continue, or there is another order.

        When something has moved since, the change is tried again, but never without a pause. Else two answers that
        contradict each other could make a loop that nobody sees and that outlives the run.
        """
        shards, lsn = self._shards, change.lsn
        assert shards is not None  # noqa: S101 - nobody else waits for them
        began = looked = time.monotonic()
        if self._stands(shards, waits) is None:
            self._pause(_LOOK_SECONDS)
        while True:
            seen = shards.moves
            still = self._stands(shards, waits)
            if still is None:
                break
            now = time.monotonic()
            # The leader takes no longer than a change that runs; the others wait for it just as long.
            if still.wait.leader is None or now >= began + _LEADER_SECONDS or lsn in self._halts:
                told = halt(still) if waits.arrival is None else shards.outlook(halt(still), waits.arrival)
                self._tell_waiting(change, told, waits.arrival)
            if now >= looked + _ORDER_SECONDS:
                looked = now
                self._look_around(change.context, relay)
                if is_decided():
                    break
            shards.wait(seen, _ORDER_SECONDS)
            self._pause(0)
        with self._moved:
            self._moving.add(lsn)

    def _stands(self, shards: ShardGroups, waits: ShardWaits) -> ShardWaits | None:
        """Returns what the change waits for now: others, and the target with them, may have moved on."""
        arrival = waits.arrival
        if arrival is not None:
            wait = shards.stands(arrival)
            return None if wait is None else ShardWaits(wait, arrival, shards.agreed(arrival.after.name))
        absent = waits.absent()
        return ShardWaits(Wait(absent=absent)) if absent else None

    def _tell_waiting(self, change: DueChange, halt: Halt, arrival: Arrival | None) -> None:
        """Reports a waiting change, again only if its halt is another one, and not for each of many shards in turn."""
        context, lsn, now = change.context, change.lsn, time.monotonic()
        with self._moved:
            known, told = self._halts.get(lsn), self._told.get(lsn, -_TELL_SECONDS)
            halt = replace(halt, since=halt.since or self._stands_since(lsn))
            if known == halt or (known is not None and known.code == halt.code and now < told + _TELL_SECONDS):
                self._moving.discard(lsn)
                return
            self._told[lsn] = now
        with suppress(Transient), closing(context.target.connect()) as session:
            session.meta.halts.save(context.task, context.source.source_id, halt)
        if known is None or known.code != halt.code:
            say = _log.error if halt.code in {"shards-disagree", "shard-no-place"} else _log.warning
            say("a schema change waits for other shards", halt=str(halt), statement=halt.statement)
        if halt.tables:
            mark_halted(context.staging, lsn)
        with self._moved:
            self._halts[lsn] = halt
            self._moving.discard(lsn)
            if arrival is not None:
                self._arrivals[lsn] = arrival
            self._running.discard(lsn)
            self._moved.notify_all()

    def _tell(self, change: DueChange, halt: Halt, error: Halted) -> None:
        """Reports a failed change to operators and to the planner; an error that concerns all tables is raised."""
        context = change.context
        with suppress(Transient), closing(context.target.connect()) as session:
            session.meta.halts.save(context.task, context.source.source_id, halt)
        if not halt.tables:
            raise error
        _log.error("a schema change fails, its tables wait for an operator", halt=str(halt), statement=halt.statement)
        mark_halted(context.staging, change.lsn)
        with self._moved:
            self._halts[change.lsn] = halt
            self._arrivals.pop(change.lsn, None)
            self._moving.discard(change.lsn)
            self._running.discard(change.lsn)
            self._moved.notify_all()

    def _wait_for_order(self, change: DueChange, relay: RelayReader, is_decided: Callable[[], bool]) -> None:
        """Waits for an operator's order, or until another shard has made the change for this one, too."""
        source, shards = change.context.source.source_id, self._shards
        while True:
            self._pause(_ORDER_SECONDS)
            self._look_around(change.context, relay)
            if is_decided() or (shards is not None and shards.made(source, change.lsn) is not None):
                break
        with self._moved:
            self._moving.add(change.lsn)

    def _look_around(self, context: JobContext, relay: RelayReader) -> None:
        """Reports tables that are blocked by others of the same statement, to operators and groups."""
        state, source = self._state, context.source.source_id
        if state is None or self._shards is None:
            return
        known = frozenset(self._shards.tables(source))
        with self._moved:
            halted = frozenset(self._halts)
        there = standing(state, partial(relay.entries, joined=True), self._meaning, known, halted)
        self._shards.leaves(source, frozenset[TableName]().union(*(one.leaving for one in there)))
        with self._moved:
            before = dict(self._standing)
            now = {
                one.lsn: before.get(one.lsn)
                or standing_halt(one, source, str(relay.position(one.lsn) or ""), self._stands_since(one.lsn))
                for one in there
                if one.tables and one.lsn not in self._begun
            }
            self._standing = now
        told = [halt for lsn, halt in now.items() if lsn not in before]
        over = [halt.place for lsn, halt in before.items() if lsn not in now and lsn not in self._halts]
        if told or over:
            with suppress(Transient), closing(context.target.connect()) as session:
                for halt in told:
                    session.meta.halts.save(context.task, source, halt)
                if over:
                    session.meta.halts.resolve(context.task, source, over)
        for halt in told:
            _log.warning("tables wait for others of the same statement", halt=str(halt), statement=halt.statement)

    def _resolve(self, change: DueChange) -> None:
        with self._moved:
            halt = self._halts.pop(change.lsn, None) or self._standing.pop(change.lsn, None)
        if halt is not None:
            with suppress(Transient), closing(change.context.target.connect()) as session:
                session.meta.halts.resolve(change.context.task, change.context.source.source_id, [halt.place])

    def _stands_since(self, lsn: Lsn) -> float:
        """Returns the time since which its tables are stopped before it; now, if they were not before."""
        known = self._halts.get(lsn)
        return (known.since if known is not None else 0.0) or self._since.get(lsn) or time.time()

    def _pause(self, seconds: float) -> None:
        if self._closed.wait(seconds):
            raise _ClosedError
