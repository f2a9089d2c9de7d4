"""Runs schema changes in parallel to the batches, each in a thread with its own connections.

The planner works in another thread, and gets a signal when a change is done (`planner_signals`). The signal is valid
only within the run. The next run reads in the target's journal whether a change is done.

Crash points: a change begins when the batch that names it as due is committed on the target. A later batch moves the
change's tables past the change. Until that batch is committed, a restart finds the change due again: it runs the change
again, or finds in the journal that it is done. If the process ends while a change runs, the target's server interrupts
or completes the statement.

A change that fails permanently *halts* its tables, if they are known. These tables stay before the change, all other
tables continue, and the thread of the change waits for a ddl command. If the tables are not known, the run fails with
the change's error. These cases may occur:

1. The change fails, and the process dies before the failure is reported: the next run reaches the change again, and the
   change fails again.
2. The change has failed, and the checkpoint holds its tables: the next run finds the tables before the change and runs
   it again. If the reason for the failure remains, the change halts again.
3. A ddl command is given. If no run is active, the command is read before the change begins. If the change is halted,
   the command is read within two seconds. If the change runs, the command is read when the change fails or is tried
   again; if the change succeeds, the command is never read.
4. A first ddl command was read, but has not begun, when a second one is given. The commit that would begin the first
   command finds the second one, which is then read instead. `pidts.apply.ddl.runner` covers this, and a crash while a
   command is carried out.
5. The command's statement fails, too. The thread waits for another command, whether or not the target has recorded that
   this command has begun.

A change that **waits for other shards** also halts its tables, but at once: other changes have three seconds to finish.
The change continues when its shard group allows it (`pidts.ddl.shards.coordinator`, `pidts.shards.decide`), or after a
ddl command.

6. The process dies while some changes wait: the checkpoints hold their tables before these changes. The next run
   reaches the changes again, and they arrive at their groups again. Nothing else of a group's state is lost: the target
   has records of the agreed structure, of dropped columns and of missed changes.
7. The process dies while the leader's statement runs, or after it (`pidts.apply.ddl.runner`): either the change is done
   for all members that had arrived, or all of them arrive again.
8. The process dies after the statement, before the other members are informed: each of them finds in the journal that
   its change is done.
9. The attempt of one part of the task ends while other parts wait: the members of this part arrive again in its next
   attempt. If the leader of a running statement belongs to this part, the statement continues in its thread, and the
   other members are informed how the statement ends. If the end of the attempt also ends the statement, the other
   members wait until the leader arrives again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial

import structlog
from structlog.contextvars import bound_contextvars

from pidts.apply import AttemptSuperseded
from pidts.batch.context import JobContext
from pidts.batch.transaction_classifier import TransactionClassifier
from pidts.ddl.command_reader import CommandReader, SharedCommands
from pidts.ddl.due_change import Concerns, DueChange
from pidts.ddl.outcome import ChangeDone, ChangeWaits, CopyAgain
from pidts.ddl.planner_signals import signal_done, signal_halted
from pidts.ddl.runner import run_ddl
from pidts.ddl.shards.coordinator import ShardGroups
from pidts.ddl.shards.halt_messages import blocked_halt
from pidts.model import DecodeError, Halt, Halted, LogEntry, Lsn, RowsUnknown, TableName, Transient
from pidts.plan import CopyMode, PlanState
from pidts.plan.blocked import blocked_statements
from pidts.plan.continuity import Discontinuity
from pidts.relay import RelayReader
from pidts.shards.decide import Wait

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class DdlWaits:
    """The intervals and waits of the threads, in seconds."""

    look: float = 0.1
    """The time between two checks whether the run or the thread's change has ended."""
    command: float = 1.0
    """The time between two checks for a ddl command, while a change waits or after it has failed."""
    leader: float = 3.0
    """The time for which shards wait while their leader runs a statement, before their wait is reported as a halt."""
    report: float = 2.0
    """The shortest time between two reports about one waiting change."""
    look_apart: float = 0.004
    """After this time, multiplied by the number of waiting changes, a waiting change looks at its group again."""
    report_apart: float = 0.1
    """Between two reports about one waiting change, at least this time passes, multiplied by the number of all waiting
    changes.

    So all waiting changes together report at most ten halts a second. Together they look at their groups 250 times a
    second, and each change looks at least once a second.
    """


_USUAL_WAITS = DdlWaits()


class _RunEndedError(Exception):
    """Raised in an attempt at a schema change whose run has ended."""


@dataclass(frozen=True, slots=True)
class _HaltedChange:
    """A change that was reported as halted. It continues after a ddl command or an action of other shards."""

    halt: Halt
    reported: float
    waits: ChangeWaits | None = None
    """The wait for other shards; None if the change has failed."""
    compared: float = 0.0
    """The time at which the halt was last compared with the change's present wait."""


class DdlThreads:
    """Runs the schema changes of one run, each in a thread of its own."""

    def __init__(
        self,
        classifier: TransactionClassifier,
        halts: Callable[[Halted], bool],
        shards: ShardGroups | None = None,
        earlier: Sequence[Halt] = (),
        copies_again: Callable[[Halt], bool] = lambda _: False,
        waits: DdlWaits = _USUAL_WAITS,
    ) -> None:
        """`halts` returns whether an error halts only its tables, and not the whole run.

        `earlier` has the halts that earlier attempts recorded, with the times at which the tables were halted.
        `copies_again` returns whether the run copies the tables of a halt again: then no operator is needed.
        """
        self._copies_again, self._waits = copies_again, waits
        self._classifier, self._halts_alone, self._shards = classifier, halts, shards or ShardGroups()
        self._since = {halt.lsn: halt.since for halt in earlier if halt.statement}
        self._halted: dict[Lsn, _HaltedChange] = {}
        self._retried: set[Lsn] = set()
        """Halted changes that are being tried again."""
        self._blocked: dict[Lsn, Halt] = {}
        """Statements that have not begun because some of their tables are held at earlier statements."""
        self._blocked_at = float("-inf")
        self._halts: Mapping[Lsn, Halt] | None = {}
        """The last result of `halts`, which is read very often and may have a thousand entries. None: a halt has
        changed since, so `halts` collects the halts again.
        """
        self._log: RelayReader | None = None
        """The reader for all threads, which remembers the places in the log that earlier searches have passed."""
        self._searching = threading.Lock()
        self._commands = SharedCommands()
        self._state: PlanState | None = None
        self._begun: set[Lsn] = set()
        self._running: set[Lsn] = set()
        self._threads = 0
        """The number of threads that have not ended."""
        self._finished: list[ChangeDone] = []
        self._failure: Exception | None = None
        self._moved = threading.Condition()
        self._closed = threading.Event()

    @property
    def failure(self) -> Exception | None:
        """Returns the error of the change that has failed; None if no change has failed."""
        return self._failure

    @property
    def halts(self) -> Mapping[Lsn, Halt]:
        """Returns the halts of failed and waiting changes, and of statements that these changes block."""
        with self._moved:
            if self._halts is None:
                self._halts = {**self._blocked, **{lsn: one.halt for lsn, one in self._halted.items()}}
            return self._halts

    @property
    def waiting_for_others(self) -> frozenset[Lsn]:
        """Returns the halted changes that wait for a ddl command or for an action of another shard."""
        with self._moved:
            halted = {lsn: one.waits for lsn, one in self._halted.items() if lsn not in self._retried}
        still = self._shards.still
        return frozenset(
            lsn for lsn, waits in halted.items() if waits is None or waits.arrival is None or still(waits) is not None
        )

    def start(self, context: JobContext, state: PlanState) -> None:
        """Starts the due changes in `state` that were not started. The target has all changes before them."""
        self._state = state
        filling = frozenset(name for name, copy in state.copy.items() if not copy.done and copy.mode is CopyMode.NEW)
        for lsn in sorted(state.dues - self._begun):
            # A daemon thread, since a statement that takes hours must not keep the process from ending.
            about = (context, lsn, partial(state.concerns, lsn=lsn), filling)
            thread = threading.Thread(target=self._run, args=about, name=f"ddl {lsn}", daemon=True)
            self._begun.add(lsn)
            with self._moved:
                self._running.add(lsn)
                self._threads += 1
            thread.start()

    def wait(self, due: Collection[Lsn], seconds: float, stop: Callable[[], bool]) -> None:
        """Waits until these changes end or halt, the time runs out, or the caller stops. Raises the changes' errors."""
        deadline = time.monotonic() + seconds
        with self._moved:
            while self._failure is None and not self._running.isdisjoint(due):
                left = deadline - time.monotonic()
                if left <= 0 or stop():
                    break
                self._moved.wait(min(left, self._waits.look))
        if self._failure is not None:
            raise self._failure

    def collect(self, context: JobContext) -> JobContext:
        """Returns the context with the structures that changes have made since the last call."""
        with self._moved:
            finished, self._finished = self._finished, []
        for changed in finished:
            context = changed.applied_to(context)
        return context.with_different_shards() if finished else context

    def close(self, seconds: float) -> None:
        """Waits up to `seconds` for running changes, and then leaves them to the next run."""
        with suppress(Exception):  # the caller already has a change's error, or does not need it
            self.wait(self._begun, seconds, lambda: False)
        self._closed.set()
        with self._moved:
            left = sorted(map(str, self._running - self._halted.keys()))
        if left:
            _log.warning("a schema change is still running on the target; the next run goes on with it", at=left)

    def _run(self, context: JobContext, lsn: Lsn, concerns: Concerns, filling: Collection[TableName]) -> None:
        """Makes one change. Each log line of this thread names the source."""
        source = context.source.source_id
        try:
            with bound_contextvars(source=source), closing(RelayReader(context.relay, source)) as relay:
                due = DueChange(context, self._classifier, relay, self._statement_at(context, lsn), concerns, filling)
                changed = self._made(due)
            rules = context.rules.with_keyed(changed.keyed)
            after = {name: table and rules.target_table(table) for name, table in changed.structures.items()}
            self._shards.changed(source, after, context.epoch, missed=changed.missed)
            with self._moved:
                self._finished.append(changed)
            if not self._closed.is_set():
                signal_done(context.staging, lsn)
        except Exception as error:  # noqa: BLE001 - the thread that runs the batches raises it
            if not self._closed.is_set():
                self._failure = self._failure or error
            elif lsn not in self._halted:
                _log.warning("a schema change is left to a later attempt", source=source, at=str(lsn), error=str(error))
        finally:
            with self._moved:
                self._running.discard(lsn)
                self._threads -= 1
                is_last = not self._threads
                self._moved.notify_all()
            if is_last:
                self._commands.records.close()

    def _made(self, due: DueChange) -> ChangeDone:
        """Makes the change, however long this takes, and returns the result.

        Waits for other shards and for an operator where necessary. No other method acts on an attempt's result.
        """
        again, since = False, self._halted_since(due.lsn)
        commands = CommandReader(due.context, due.lsn, self._pause, self._waits.command, self._commands)
        while True:
            command = commands.read()
            is_newer = partial(commands.is_newer, command)
            try:
                result = run_ddl(
                    due,
                    self._shards,
                    self._pause,
                    command=command,
                    records=self._commands.records,
                    is_superseded=partial(commands.is_superseded, command),
                    again=again,
                    since=since,
                )
            except Halted as error:
                if isinstance(error, DecodeError | Discontinuity) or not self._halts_alone(error):
                    raise
                if isinstance(error, RowsUnknown) and self._copies_again(halt := due.failed_halt(error)):
                    raise CopyAgain(halt) from error
                self._report_failure(due, error.for_operator() if isinstance(error, RowsUnknown) else error)
                self._wait_for_command(due, is_newer)
            else:
                match result:
                    case ChangeDone():
                        self._resolve(due)
                        return result
                    case AttemptSuperseded(source=""):
                        # The ddl command may be for another shard, whose thread then reads it.
                        self._pause(self._waits.look)
                    case AttemptSuperseded(source=source):
                        self._shards.forget(source)
                    case ChangeWaits(wait=Wait(begun=(_, _))):
                        self._report_wait(due, result)
                        # Only the target's journal shows when the begun change has ended.
                        self._pause(self._waits.command)
                    case ChangeWaits():
                        self._wait_for_shards(due, result, is_newer)
            again = True

    def _wait_for_shards(self, due: DueChange, waits: ChangeWaits, is_decided: Callable[[float], bool]) -> None:
        """Waits until the group allows the change to continue, or until there is another ddl command (`is_decided`).

        When the group's state has changed, the schema change is tried again, but always after a pause. Without the
        pause, two answers of the group that contradict each other could cause an endless loop that nobody notices.
        """
        due.relay.close()  # A thousand shards may wait for days. An open file takes disk space even after its purge.
        began = looked = time.monotonic()
        if self._shards.still(waits) is None:
            self._pause(self._waits.look)
        while True:
            seen = self._shards.moves
            still = self._shards.still(waits)
            if still is None:
                break
            now = time.monotonic()
            # The leader has as much time as any running change. Meanwhile the other members wait for it silently.
            if still.wait.leader is None or now >= began + self._waits.leader or due.lsn in self._halted:
                self._report_wait(due, still)
            if now >= looked + self._waits.command:
                self._report_blocked(due)
                if is_decided(looked):
                    break
                looked = time.monotonic()
            self._shards.wait(seen, self._waits.command)
            self._pause(min(self._waits.look_apart * len(self._halted), self._waits.command))
        with self._moved:
            self._retried.add(due.lsn)

    def _wait_for_command(self, due: DueChange, is_decided: Callable[[float], bool]) -> None:
        """Waits for a ddl command (`is_decided`), or until another shard has also made the change for this shard."""
        due.relay.close()
        looked = time.monotonic()
        while True:
            self._pause(self._waits.command)
            self._report_blocked(due)
            before, looked = looked, time.monotonic()
            if is_decided(before) or self._shards.made(due.source, due.lsn) is not None:
                break
        with self._moved:
            self._retried.add(due.lsn)

    def _report_wait(self, due: DueChange, waits: ChangeWaits) -> None:
        """Reports a waiting change; again only if its halt has changed, and not whenever another shard arrives."""
        lsn, now = due.lsn, time.monotonic()
        if self._is_reported(due, waits, now):
            return
        halt = due.waiting_halt(waits)
        halt = replace(halt, since=halt.since or self._halted_since(lsn))
        if waits.arrival is not None:
            halt = self._shards.outlook(halt, waits.arrival)
        with self._moved:
            known = self._halted.get(lsn)
            is_same_kind = known is not None and known.halt.code == halt.code
            if known is not None and known.halt == halt:
                self._halted[lsn] = replace(known, compared=now)
                self._retried.discard(lsn)
                return
        self._save(due, halt)
        if not is_same_kind:
            say = _log.error if halt.code in {"shards-disagree", "shard-no-place"} else _log.warning
            say("a schema change waits for other shards", halt=str(halt), statement=halt.statement)
        if halt.tables:
            signal_halted(due.context.staging, lsn)
        self._halt(lsn, _HaltedChange(halt, now, waits, now))

    def _is_reported(self, due: DueChange, waits: ChangeWaits, now: float) -> bool:
        """Whether the change was reported with the same code a short time ago.

        Since that report, the list of the awaited shards may have become shorter. With many waiting changes, each list
        is long, and the time between two reports about one change is longer.
        """
        with self._moved:
            known, apart = self._halted.get(due.lsn), self._waits.report_apart * len(self._halted)
            if (
                known is None
                or not known.waits
                or now >= max(known.reported + self._waits.report, known.compared + apart)
            ):
                return False
        if due.waiting_code(waits) != known.halt.code:
            return False
        with self._moved:
            self._retried.discard(due.lsn)
        return True

    def _report_failure(self, due: DueChange, error: Halted) -> None:
        """Reports a failed change to operators and the planner. If the change's tables are not known, raises."""
        halt = replace(due.failed_halt(error), since=self._halted_since(due.lsn))
        self._save(due, halt)
        if not halt.tables:
            error.todo = halt.todo
            raise error
        _log.error(
            "a schema change has failed, and its tables wait for an operator", halt=str(halt), statement=halt.statement
        )
        signal_halted(due.context.staging, due.lsn)
        self._halt(due.lsn, _HaltedChange(halt, time.monotonic()))

    def _save(self, due: DueChange, halt: Halt) -> None:
        context = due.context
        with suppress(Transient):
            self._commands.records.ask(
                context.target, lambda session: session.meta.halts.save(context.task, due.source, halt)
            )

    def _halt(self, lsn: Lsn, halted: _HaltedChange) -> None:
        with self._moved:
            self._halted[lsn], self._halts = halted, None
            self._retried.discard(lsn)
            self._running.discard(lsn)
            self._moved.notify_all()

    def _report_blocked(self, due: DueChange) -> None:
        """Reports, to operators and groups, tables that wait because another table of their next statement waits."""
        state, source = self._state, due.source
        if state is None:
            return
        with self._moved:  # all waiting changes of this run would find the same blocked tables
            now = time.monotonic()
            if now < self._blocked_at + self._waits.command / 2:
                return
            self._blocked_at = now
        known = frozenset(self._shards.tables(source))
        with self._moved:
            halted = frozenset(self._halted)
        with self._searched(due.context) as relay:
            blocked = blocked_statements(state, partial(relay.entries, joined=True), self._classifier, known, halted)
        self._shards.set_leaving(source, frozenset[TableName]().union(*(one.leaving for one in blocked)))
        with self._moved:
            before = self._blocked
            self._blocked = {
                one.lsn: before.get(one.lsn)
                or blocked_halt(one, source, str(due.relay.position(one.lsn) or ""), self._halted_since(one.lsn))
                for one in blocked
                if one.tables and one.lsn not in self._begun
            }
            self._halts = None
            new = [halt for lsn, halt in self._blocked.items() if lsn not in before]
            over = [halt.place for lsn, halt in before.items() if lsn not in {**self._blocked, **self._halted}]
        if new or over:
            context = due.context
            with suppress(Transient), closing(context.target.connect()) as session:
                for halt in new:
                    session.meta.halts.save(context.task, source, halt)
                if over:
                    session.meta.halts.resolve(context.task, source, over)
        for halt in new:
            _log.warning("tables wait for other tables of the same statement", halt=str(halt), statement=halt.statement)

    def _resolve(self, due: DueChange) -> None:
        with self._moved:
            halted, self._halts = self._halted.pop(due.lsn, None), None
            halt = halted.halt if halted is not None else self._blocked.pop(due.lsn, None)
        if halt is not None:
            context, places = due.context, [halt.place]
            with suppress(Transient):
                self._commands.records.ask(
                    context.target, lambda session: session.meta.halts.resolve(context.task, due.source, places)
                )

    def _halted_since(self, lsn: Lsn) -> float:
        """Returns the time at which the change's tables were halted; the current time if they are not halted yet."""
        known = self._halted.get(lsn)
        return (known.halt.since if known is not None else 0.0) or self._since.get(lsn) or time.time()

    def _statement_at(self, context: JobContext, lsn: Lsn) -> LogEntry:
        with self._searched(context) as relay:
            entry = relay.find(lsn)
        if entry is None or entry.transaction.lsn != lsn:
            raise DecodeError("no-statement", f"the relay has no schema change that ends at {lsn}")
        return entry

    @contextmanager
    def _searched(self, context: JobContext) -> Iterator[RelayReader]:
        """Lends the shared reader to one thread at a time."""
        with self._searching:
            self._log = self._log or RelayReader(context.relay, context.source.source_id)
            yield self._log

    def _pause(self, seconds: float) -> None:
        if self._closed.wait(seconds):
            raise _RunEndedError
