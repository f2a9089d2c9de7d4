"""Carries out a cutover: shows the remaining steps, does them, and undoes them.

These are the crash points, with the state at each. The record is a row of the task's own tables on the target
(`model/cutover.py`).

1. Before the record is written: nothing has changed. The task runs on.
2. *Begun*, before or after a source is made read-only: the record contains the former values of the source's variables.
   The values are recorded before the variables are changed, and are never overwritten with those of a source that is
   already read-only. The same command continues. `--undo` restores the former values.
3. While the target catches up, or is compared: as at 2. The same command continues the comparison if neither source nor
   target has changed since. The ends of the logs show whether a source was written to. The epochs of the checkpoints
   show whether a run began. After an undo, the comparison begins anew.
4. While counters are set: as at 2. Counters only increase, and each counter is checked again. The record names a new
   sequence before it is created, so `--undo` finds it.
5. While foreign keys, checks and keys are created: the record names each before it is created, so `--undo` finds all of
   them. The target's catalog shows which statements are still needed.
6. *Stopping* is recorded: every run of the task ends, and no run begins. Only `--undo` lets runs begin again; the same
   command continues from here. The target has all changes: just before, the command has proved that no source has
   changed a table of the task since the comparison. The record contains the ends of the sources' logs. Before *done* is
   recorded, the command reads each log after its recorded end, since a restart may have made a source writable for a
   time. If a source is lost for good, the same command with `--writers-stopped` continues without it.
7. After the claim of the checkpoints: a run that has not seen the record cannot write any more.
8. While columns, FULLTEXT and SPATIAL keys and partitions get the source's definitions (`target/mysql/cutover/`), and
   automatic timestamps are created: as at 6. The record names each timestamp before it is created, so `--undo` finds
   it. These steps come after the claim, since they would change rows that a run writes, or block its statements.
9. *Done* is recorded, together with the end of the target's own log and the structures of the target's tables at that
   place. Only then does the command tell the user to switch. So all writes of the application are after that place in
   the log. The way back can read them all, whatever schema changes come later. A second command changes nothing and
   prints the same text.

After an error or Ctrl-C between 1 and 6, the command undoes what it has done: the source is writable again, and the
task, which was not stopped, goes on.

An undo has these crash points:

1. Before it has changed the record: nothing has changed.
2. *Is undone* is recorded: a cutover command that still runs cannot save its next step, so it never reaches *done*. A
   repeated `--undo`, or a `--yes`, first does the rest of the undo. The command may begin with the first part again,
   since every part of an undo (drop the constraints, make the sources writable) may be repeated. If *done* was
   recorded before, the command first looks again for changes of programs on the target, which may have come since.
3. The record is removed: nothing is left to undo. If *stopping* was recorded, the runs may begin again. If *done* was
   recorded, the same transaction keeps the record of the switch, so that `--reverse` still finds the place in the
   target's log, until the task has run again.

Two commands may run at the same time, on two machines. Usually a named lock prevents this (`operate/presence.py`), but
it may be unavailable, or lost with its connection. So the record contains the name of the command that saved it last. A
command saves a step only if the record is still the one that it saved before. A command that finds another record ends
with `cutover-taken`: it neither continues nor undoes anything. Without this rule, an undo could make the source
writable just before *stopping* is recorded. Programs could write to the source, and the cutover would end as done.

The source and the constraints are not part of the record. So a command reads the record once more at these moments:

- before an undo changes the source or the constraints;
- after a cutover has changed them;
- before a cutover gives a table a definition that no undo takes back.

Without named locks, a gap remains: a command that is slow between reading and changing may drop a constraint of the
other command, or make the source writable. The other command checks the source again before it records *done*.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial

import structlog

from pidts.apply import TargetSession
from pidts.apply.claim import claim_workers, demand_all_workers
from pidts.model import (
    Checkpoint,
    ConfigError,
    Constraint,
    ConstraintKind,
    Cutover,
    CutoverCommand,
    CutoverStage,
    Halted,
    Lsn,
    PidtsError,
    PrecheckFailed,
    Transient,
)
from pidts.model.errors import listed, named, plural
from pidts.source import Session, connect, log_end
from pidts.source import read_only as source_read_only
from pidts.target.mysql.cutover.remade_columns import RemadeColumn
from pidts.target.mysql.cutover.remade_tables import RemadeTable
from pidts.task.config.task_file import TaskConfig
from pidts.task.cutover import source_server, target_side
from pidts.task.cutover.drain import CutoverStopped, RunOnce, drain, is_running, tables_of, touched
from pidts.task.cutover.inventory import Inventory, read_inventory
from pidts.task.cutover.log_after_stop import demand_unchanged
from pidts.task.cutover.lost_sources import lost_sources
from pidts.task.cutover.own_record import OwnRecord
from pidts.task.cutover.remaining_steps import (
    COUNTERS_FINE,
    NOT_COMPARED,
    RemainingSteps,
    demand_ready,
    locked_text,
    made_text,
    remade,
    switched_step,
    tables_step,
)
from pidts.task.cutover.reverse import irreversible
from pidts.task.cutover.steps import Checklist, CutoverStep, StepName, StepState
from pidts.task.cutover.target_log_end import target_log_end
from pidts.task.cutover.target_writes import demand_unwritten
from pidts.task.operate.presence import cutover_session, show_cutover
from pidts.task.operate.status import load_status
from pidts.task.tables.constraints import UncarriedForeignKey
from pidts.verify import Report

_log = structlog.get_logger(__name__)

_LOOK_SECONDS = 1.0
_END_SECONDS = 60.0
"""The time in which a run on this machine notices that it has to end."""
_LOCK_SECONDS = 3.0
"""A server notices within this time that the session of a killed command is closed."""
_AGAIN = "This command undoes what it has done. Then run it again"

Verify = Callable[[threading.Event, str], Report]
"""Compares source and target. The text describes their state: with the same text, an interrupted comparison continues.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CutoverOptions:
    """The user's options of a cutover."""

    read_only: bool = True
    """Whether to make the sources read-only; otherwise the user has stopped all writers."""
    wait_seconds: float = 600.0
    """The time within which an operator has to make a source read-only, if the task's account may not do it."""
    lost_seconds: float = 20.0
    """A source that does not answer within this time counts as lost, if the user has stopped all writers."""


class Different(Exception):
    """The final comparison has found differences."""

    def __init__(self, report: Report) -> None:
        super().__init__(report)
        self.report = report


class CutoverRun:
    """The cutover of one task; `target` is a connection that only the cutover uses."""

    def __init__(
        self,
        parts: Sequence[TaskConfig],
        target: TargetSession,
        options: CutoverOptions,
        *,
        run_once: RunOnce,
        verify: Verify | None,
        show: Callable[[CutoverStep], None] = lambda _: None,
        say: Callable[[str], None] = lambda _: None,
        stop: threading.Event | None = None,
        command: CutoverCommand | None = None,
    ) -> None:
        """`verify` compares source and target; None: nothing is compared. `show` receives each step when it is done.

        `command` names this command in the record; None: a new command of this process.
        """
        self._parts, self._target, self._options = parts, target, options
        self._run_once, self._verify, self._show, self._say = run_once, verify, show, say
        self._stop = stop or threading.Event()
        self._name = parts[0].name
        self._command = command or CutoverCommand(socket.gethostname(), os.getpid(), time.time())
        self._own = OwnRecord(target, parts[0], self._command)
        self._steps: list[CutoverStep] = []
        self.leaves_read_only = False
        """Whether an undo has left a server read-only, since another server is the source now."""

    @property
    def has_begun(self) -> bool:
        """Whether this command was the last one that has begun or continued the cutover."""
        return self._own.current is not None and not self._own.is_taken

    def look(self) -> Checklist:
        """Returns the remaining steps; changes nothing."""
        record = self._own.stored()
        status = load_status(self._target, self._parts)
        if not status.has_begun:
            blocked = CutoverStep(StepName.TABLES, StepState.BLOCKED, "the task has not begun yet")
            return Checklist(task=self._name, steps=[blocked], record=record)
        why = self._irreversible()
        if _is_done(record):
            inventory, unread = self._inventory_after_end()
            return self._checklist([self._switched(unread)], inventory, why, record)
        inventory = read_inventory(self._parts, self._target)
        remaining = RemainingSteps(
            self._parts, self._target, makes_read_only=self._options.read_only, compares=self._verify is not None
        )
        has_stopped = record is not None and record.stage is not CutoverStage.BEGUN
        steps = remaining.steps(status, inventory, why, has_stopped=has_stopped)
        return self._checklist(steps, inventory, why, record)

    def carry_out(self) -> Checklist:
        """Does the remaining steps. If an undo has begun, first does the rest of the undo.

        Raises `Different` or an error; if the step `stop` is not done yet, undoes everything before that. A separate
        connection shows meanwhile that the cutover is active. Raises if another command already shows this.
        """
        with self._shown():
            return self._carry_out()

    @contextmanager
    def _shown(self) -> Iterator[None]:
        """Shows on the target, during the block, that a cutover command is active. Raises if another is active."""
        with closing(self._parts[0].target.server.connect()) as session:
            deadline = time.monotonic() + _LOCK_SECONDS
            while not show_cutover(session, self._name):
                if time.monotonic() > deadline:
                    raise self._running(session)
                time.sleep(0.1)
            yield

    def _running(self, session: TargetSession) -> PidtsError:
        record, other = self._own.stored(), cutover_session(session, self._name)
        by = [str(one) for one in (record.command if record is not None else None, other) if one is not None]
        what = f"another cutover command of task {self._name} runs" + (f": {'; '.join(by)}" if by else "")
        todo = (
            "Wait until it has ended. Or press Ctrl-C there: if the step `stop` is not done yet, that command undoes "
            "what it has done"
        )
        if other is not None:
            todo += f". If its machine is gone, run {other.end} on the target"
        return PrecheckFailed("cutover-running", what, todo=f"{todo}. Then repeat this command")

    def _carry_out(self) -> Checklist:
        self._target.meta.prepare()
        target_side.prepare(self._target)
        record = self._own.stored()
        if _is_done(record):
            return self.look()
        self._own.current = record
        if record is not None and record.is_undone:
            if record.done_at:
                demand_unwritten(self._parts, self._target, record)
            self._undo(record)
            record = None
        if record is not None:
            record = self._own.take(record)
        lost: Collection[str] = ()
        if record is None or record.stage is CutoverStage.BEGUN:
            try:
                record = self._until_stopping(record)
            except BaseException as error:
                self._undo_after(error)
                raise
        else:
            lost = lost_sources(
                self._parts, self._options.lost_seconds, self._stop, writers_stopped=not self._options.read_only
            )
        inventory = None if lost else read_inventory(self._parts, self._target)
        why = self._irreversible()
        self._end_runs()
        self._done(StepName.STOP, "no run of the task can begin, or write to the target")
        if inventory is None:
            self._leave_out(lost)
        else:
            if target_side.remakes(self._target):
                for name, wanted in remade(inventory):
                    self._remake(name, wanted)
            record = self._make_constraints(StepName.ON_UPDATE, inventory.automatic, (), record)
        record = self._end(record, lost)
        unread = f"source {listed(lost)} does not answer" if lost else ""
        self._steps.append(self._switched(unread))
        return self._checklist(self._steps, inventory, why, record)

    def _switched(self, unread: str) -> CutoverStep:
        return switched_step(self._parts[0], unread, target_side.makes_writable(self._target))

    def _inventory_after_end(self) -> tuple[Inventory | None, str]:
        """Returns the sources' objects; None, with the reason, if a source cannot be read.

        After the switch, the source or the task's account may be gone for good.
        """
        try:
            return read_inventory(self._parts, self._target), ""
        except PidtsError as error:
            return None, error.what

    def _irreversible(self) -> str:
        """Returns why no task can carry rows back; empty if a task can, or if such a target is never a source."""
        part = self._parts[0]
        return irreversible(self._parts, tables_of(part, self._target)) if part.target.type == "mysql" else ""

    def _checklist(
        self, steps: Sequence[CutoverStep], inventory: Inventory | None, why: str, record: Cutover | None
    ) -> Checklist:
        return Checklist(
            task=self._name,
            steps=steps,
            left=inventory.left if inventory is not None else (),
            unseen=inventory.unseen if inventory is not None else (),
            irreversible=why,
            record=record,
        )

    def undo(self, *, even_if_done: bool = True, discards_writes: bool = False) -> Cutover | None:
        """Makes the sources writable again, removes constraints that the cutover has created, and lets the task run.

        Returns the former record; None if there was none. Raises if another cutover command is active. If the cutover
        is done, raises without `even_if_done`. Raises, without `discards_writes`, if programs have written to the
        target since then.
        """
        if self._own.stored() is None:
            return None
        with self._shown():
            record = self._own.read()
            if record is not None and record.done_at:  # also if an undo has begun already, and was killed
                is_unwritten = not discards_writes and demand_unwritten(self._parts, self._target, record)
                if _is_done(record) and not even_if_done:
                    raise self._unsure(is_unwritten=is_unwritten)
            if record is not None:
                self._undo(record)
            return record

    def _unsure(self, *, is_unwritten: bool) -> PidtsError:
        """Returns the error that the user has not confirmed the undo of a cutover that is done."""
        undo = f"pidts cutover {self._parts[0].shell_path} --undo --yes"
        if is_unwritten:
            what = (
                "the cutover is done. The target's log shows that no program has changed the task's tables there since "
                "the switch, but the application may do so at any time"
            )
            todo = f"If the application writes to the source from now on, run: {undo}"
        else:
            what = (
                "the cutover is done, so the application may have written to the target; the task would overwrite its "
                "rows. It is not known whether programs have written there: PiDTS has read no log of the target"
            )
            todo = (
                "If the source is still read-only, `pidts verify` shows which rows differ: run pidts verify "
                f"{self._parts[0].shell_path}. If the application has not written to the target, run: {undo}"
            )
        return ConfigError("usage", what, todo=todo)

    def _undo(self, record: Cutover) -> None:
        # The record comes first: from then on, no other command can reach `done`.
        stage = CutoverStage.BEGUN if record.stage is CutoverStage.BEGUN else CutoverStage.STOPPING
        self._own.take(replace(record, stage=stage, is_undone=True))
        for kind, table, name in record.constraints:
            self._own.demand_own()
            target_side.drop(self._target, kind, table, name)
        if record.stage is not CutoverStage.BEGUN:
            for part in self._parts:
                names = map(part.rules.target_name, tables_of(part, self._target))
                target_side.drop_second_columns(self._target, names)
        for part in self._parts:
            source_id = part.source.source_id
            before = record.read_only.get(source_id)
            if before is not None:
                left = source_server.restore(part.source, record.servers.get(source_id), before, self._own.demand_own)
                self._leave(left)
        if gone := sorted(record.read_only.keys() - {part.source.source_id for part in self._parts}):
            named = ", ".join(f"{one}, {record.servers[one]}" if one in record.servers else one for one in gone)
            self._leave(
                f"the task file no longer names {named}, which the cutover has made read-only: run SET "
                "GLOBAL read_only = OFF there (MySQL also: super_read_only = OFF)"
            )
        self._own.save(None, undone=self._kept(record))

    def _kept(self, record: Cutover) -> Cutover | None:
        """Returns the record that an undo keeps: the way back can still begin at the switch, until the task runs."""
        if not (record.done_at and record.position):
            return None
        rows = (
            row for part in self._parts for row in self._target.meta.checkpoints.read(self._name, part.source.source_id)
        )
        epoch = max((row.epoch for row in rows), default=0)
        return replace(record, stage=CutoverStage.DONE, is_undone=True, undone_epoch=epoch)

    def _leave(self, text: str) -> None:
        if text:
            self.leaves_read_only = True
            self._say(text)

    def _leave_out(self, lost: Collection[str]) -> None:
        """Shows which steps are left out: they would read the definitions of lost sources."""
        about = f"left out: source {listed(lost)} does not answer, and this step reads its definitions"
        remade = (StepName.COLUMNS, StepName.SPECIAL_KEYS, StepName.PARTITIONS)
        for name in (*(remade if target_side.remakes(self._target) else ()), StepName.ON_UPDATE):
            self._add(name, StepState.SKIPPED, about)

    def _until_stopping(self, record: Cutover | None) -> Cutover:
        """Does the steps before `stop`; returns the new record. `record` is the one of an earlier attempt, if any."""
        status = load_status(self._target, self._parts)
        demand_ready(status, self._parts[0])
        for part in self._parts:
            self._checkpoints(part)
        self._done(StepName.TABLES, tables_step(status).about)
        # The wait may take long. Programs can still write meanwhile.
        self._drain()
        self._done(StepName.LAG, "the target has everything that the source had a moment ago")
        record = self._read_only(self._with_servers(record))
        ends = self._drain()
        if self._verify is not None:
            report = self._verify(self._stop, self._state(record, ends))
            if self._stop.is_set():
                raise CutoverStopped
            if not report.equal:
                raise Different(report)
            self._done(
                StepName.VERIFY, f"{plural('row', report.rows)} of {plural('table', len(report.tables))} are equal"
            )
        else:
            self._add(StepName.VERIFY, StepState.SKIPPED, NOT_COMPARED)
        inventory = read_inventory(self._parts, self._target, texts=False)
        record = self._move_counters(inventory, record)
        record = self._make_constraints(StepName.FOREIGN_KEYS, inventory.foreign_keys, inventory.unfit, record)
        record = self._make_constraints(StepName.CHECKS, inventory.checks, (), record)
        record = self._make_constraints(StepName.KEYS, inventory.expression_keys, (), record)
        log_ends = self._demand_unchanged(ends)
        self._demand_no_locked_row()
        if self._stop.is_set():
            raise CutoverStopped
        record = replace(record, stage=CutoverStage.STOPPING, log_ends=log_ends)
        self._own.save(record)
        return record

    def _with_servers(self, record: Cutover | None) -> Cutover:
        """Adds the sources' servers to the record, or to a new record, and returns it.

        If an earlier version has made a source read-only, its server at that time is not known, and is not added.
        """
        servers = dict(record.servers) if record is not None else {}
        for part in self._parts:
            source_id = part.source.source_id
            if source_id not in servers and (record is None or source_id not in record.read_only):
                with closing(connect(part.source.server)) as source:
                    servers[source_id] = source_server.server_of(part.source.server, source)
        if record is not None and servers == record.servers:
            return record
        return self._own.take(replace(record or Cutover(began_at=time.time()), servers=servers))

    def _demand_same_server(self, part: TaskConfig, source: Session, todo: str) -> None:
        record, source_id = self._own.current, part.source.source_id
        recorded = record.servers.get(source_id) if record is not None else None
        found = source_server.server_of(part.source.server, source)
        if recorded is not None and not source_server.is_same(recorded, found):
            what = f"source {source_id} is {found} now, but the cutover has begun with {recorded}"
            raise PrecheckFailed("cutover-other-server", what, todo=todo)

    def _read_only(self, record: Cutover) -> Cutover:
        """Prevents applications from writing to the sources; returns the new record."""
        if not self._options.read_only:
            about = "left out (--writers-stopped): you have stopped all programs that write to the source"
            self._add(StepName.READ_ONLY, StepState.SKIPPED, about)
            return record
        asked: list[tuple[str, TaskConfig, str]] = []
        for part in self._parts:
            source_id = part.source.source_id
            with closing(connect(part.source.server)) as source:
                self._demand_same_server(part, source, _AGAIN)
                if not source_read_only.is_read_only(source):
                    if source_id not in record.read_only:
                        before = source_read_only.read_only_variables(source)
                        record = replace(record, read_only={**record.read_only, source_id: before})
                        self._own.save(record)
                    is_made = source_read_only.make_read_only(source)
                    former = record.read_only[source_id]
                    self._own.demand_own(partial(source_read_only.restore, source, former))
                    if not is_made:
                        # An operator has to make this source read-only. An undo also leaves this to the operator.
                        others = {name: one for name, one in record.read_only.items() if name != source_id}
                        record = replace(record, read_only=others)
                        self._own.save(record)
                        asked.append((source_id, part, source_read_only.statements(source, on=True)))
        if asked:
            self._await_read_only(asked)
        for part in self._parts:
            with closing(connect(part.source.server)) as source:
                waiting = source_read_only.prepared_transactions(source)
            if waiting:
                what = f"source {part.source.source_id} has {waiting} prepared XA transactions, which may still commit"
                raise PrecheckFailed(
                    "cutover-not-ready", what, todo="Commit them or roll them back; XA RECOVER lists them"
                )
        self._done(StepName.READ_ONLY, "applications cannot write to the source")
        return record

    def _await_read_only(self, asked: Sequence[tuple[str, TaskConfig, str]]) -> None:
        """Asks the operator to make sources read-only, each by its statement, and waits for all of them."""
        deadline = time.monotonic() + self._options.wait_seconds
        said = 0
        while True:
            if len(asked) != said:
                for source_id, _, statement in asked:
                    self._say(f"the account may not make source {source_id} read-only; run there: {statement};")
                left = deadline - time.monotonic()
                self._say(f"this command waits up to {left:.0f} s (--wait) for it, and then undoes the cutover")
                said = len(asked)
            asked = [one for one in asked if not _is_read_only(one[1])]
            if not asked:
                return
            if self._stop.wait(_LOOK_SECONDS):
                raise CutoverStopped
            if time.monotonic() > deadline:
                sources = named("source", [source_id for source_id, _, _ in asked], "is", "are")
                statements = " ".join(f"on source {source_id}: {statement};" for source_id, _, statement in asked)
                raise PrecheckFailed(
                    "source-writable",
                    f"{sources} not read-only, and the account may not change this",
                    todo=f"Run {statements} Then run this command again, or give --writers-stopped",
                )

    def _drain(self) -> dict[str, Lsn]:
        return drain(self._parts, self._target, self._stop, self._say, self._run_once)

    def _state(self, record: Cutover, ends: Mapping[str, Lsn]) -> str:
        """Returns the ends of the sources' logs, and the epochs: another run may have copied tables again."""
        places = []
        for source_id, end in ends.items():
            epochs = [one.epoch for one in self._target.meta.checkpoints.read(self._name, source_id)]
            places.append(f"{source_id} {end} {epochs}")
        return f"cutover of {record.began_at}: {' '.join(places)}"

    def _move_counters(self, inventory: Inventory, record: Cutover) -> Cutover:
        moved: list[str] = []
        for one in inventory.counted:
            for column in target_side.uncounted(self._target, one.table):
                place = (ConstraintKind.COUNTER, one.table.name, column)
                if place not in record.constraints:
                    record = replace(record, constraints=(*record.constraints, place))
                    self._own.save(record)
            moved += target_side.move_counters(self._target, one.table, one.source_next)
        about = f"{plural('counter', len(moved))} raised; {COUNTERS_FINE}" if moved else COUNTERS_FINE
        self._done(StepName.COUNTERS, about, moved)
        return record

    def _make_constraints(
        self, step: StepName, constraints: Sequence[Constraint], unfit: Sequence[UncarriedForeignKey], record: Cutover
    ) -> Cutover:
        made, failed = 0, [str(one) for one in unfit]
        for one in constraints:
            if self._stop.is_set() and record.stage is CutoverStage.BEGUN:
                raise CutoverStopped
            place = (one.kind, one.table, one.name)
            if place not in record.constraints and target_side.lacks(self._target, one):
                record = replace(record, constraints=(*record.constraints, place))
                self._own.save(record)
            is_made, problem = self._make_constraint(one)
            if place in record.constraints:
                self._own.demand_own(partial(target_side.drop, self._target, *place))
            made += is_made
            failed += [problem] if problem else []
        self._done(step, made_text(made, len(failed)), failed)
        return record

    def _make_constraint(self, constraint: Constraint) -> tuple[bool, str]:
        """Creates a constraint that the target lacks. Returns whether it did, and why it could not, with the statement.

        If the target already has the constraint, there is nothing to make: the preview does not count it either.
        """
        needed, problem = target_side.statements_or_problem(self._target, constraint)
        if problem or not needed:
            return False, problem
        for statement in needed:
            try:
                self._target.execute(statement)
            except Transient:
                raise
            except PidtsError as error:
                return False, f"{constraint}: {error.what}; the statement is: {statement}"
        if ignored := target_side.statements(self._target, constraint):
            return False, f"{constraint}: the target accepts the statement, but makes no such constraint: {ignored[0]}"
        return True, ""

    def _remake(self, step: StepName, wanted: Sequence[RemadeColumn | RemadeTable]) -> None:
        failed: list[str] = []
        for one in wanted:
            self._own.demand_own()  # after an undo, this could rewrite a table while a run writes to it
            if problem := target_side.remake(self._target, one):
                failed.append(f"{one}: {problem}")
        self._done(step, made_text(len(wanted) - len(failed), len(failed)), failed)

    def _demand_unchanged(self, ends: Mapping[str, Lsn]) -> dict[str, str]:
        """Raises if a source has changed a table of the task since the comparison, or can be written to.

        Returns, for each source, a place in its log up to which the target has all changes.
        """
        self._demand_read_only(_AGAIN)
        log_ends = {}
        for part in self._parts:
            with closing(connect(part.source.server)) as source:
                log_ends[part.source.source_id] = str(log_end(source))
        now = self._drain()
        if changed := touched(self._parts, self._target, ends, now):
            what = f"a program wrote to {changed[0]} on the source while no program should write there"
            todo = (
                "Look for accounts that may write in spite of the read-only setting, for a replica's own applier, and "
                "for programs that use the task's own account"
            )
            if self._options.read_only and (accounts := self._unbound_accounts()):
                todo += f". Other accounts that may write are {listed(accounts)}"
            raise PrecheckFailed("source-writable", what, todo=todo)
        return log_ends

    def _demand_no_locked_row(self) -> None:
        for part in self._parts:  # the target lacks the changes that locked rows hold
            locked = self._target.meta.row_locks.recorded(self._name, part.source.source_id)
            if locked:
                what = "; ".join(locked_text(table, rows) for table, rows in sorted(locked.items()))
                raise Halted(
                    "cutover-halted",
                    what,
                    todo=f"Resolve these rows first. To see the rows: pidts locks list {part.shell_path}",
                )

    def _demand_read_only(self, todo: str, lost: Collection[str] = ()) -> None:
        """Raises if a source is writable: since the last check, a user or a restart may have made the source writable.

        Also raises if a source has another server, which may have other rows. Leaves out the sources in `lost`.
        """
        for part in self._parts:
            if part.source.source_id in lost:
                continue
            with closing(connect(part.source.server)) as source:
                self._demand_same_server(part, source, todo)
                if self._options.read_only and not source_read_only.is_read_only(source):
                    self._own.demand_own()  # another command may have undone the cutover
                    what = f"source {part.source.source_id} is not read-only any more, although the cutover needs this"
                    raise PrecheckFailed("source-writable", what, todo=todo)

    def _unbound_accounts(self) -> list[str]:
        found: list[str] = []
        for part in self._parts:
            with closing(connect(part.source.server)) as source:
                found += source_read_only.unbound_accounts(source)
        return list(dict.fromkeys(found))

    def _end_runs(self) -> None:
        for part in self._parts:
            if rows := self._checkpoints(part):
                claim_workers(self._target, self._name, part.source.source_id, len(rows), rows[0])
        deadline = time.monotonic() + _END_SECONDS
        while any(is_running(part, self._target) for part in self._parts) and time.monotonic() < deadline:
            self._say("waiting for the run of the task to end")
            time.sleep(0.2)

    def _checkpoints(self, part: TaskConfig) -> Sequence[Checkpoint]:
        """Returns the checkpoints of all workers. Raises if somebody has deleted one of them.

        The target may then lack rows of this worker, and the remaining checkpoints do not show this.
        """
        source_id = part.source.source_id
        rows = self._target.meta.checkpoints.read(self._name, source_id)
        demand_all_workers(self._target, self._name, source_id, rows)
        return rows

    def _end(self, record: Cutover, lost: Collection[str]) -> Cutover:
        """Records that the cutover is done, where the target's log ends, and the structures of its tables there."""
        names = {part.rules.target_name(name) for part in self._parts for name in tables_of(part, self._target)}
        # A command that continues here may come long after the comparison: the source's machine may have restarted.
        undo = f"pidts cutover {self._parts[0].shell_path} --undo"
        todo = f"Programs may have written there: cancel this cutover ({undo}), then begin it again"
        self._demand_read_only(todo, lost)
        for part in self._parts:
            place = record.log_ends.get(part.source.source_id)
            if place is not None and part.source.source_id not in lost:
                demand_unchanged(part, place, todo)
        end = target_log_end(self._parts[0], names)
        record = replace(record, stage=CutoverStage.DONE, position=end.position, gtid=end.gtid, done_at=time.time())
        self._own.save(record, end.structures)
        return record

    def _undo_after(self, error: BaseException) -> None:
        """Undoes the steps that were done before an error. If this fails, the record stays for a later `--undo`."""
        if self._own.current is None or self._own.is_taken:
            # Without a record, nothing was done. If another command has taken over the cutover, it needs these steps.
            return
        self._target.rollback()
        try:
            with closing(self._parts[0].target.server.connect()) as target:
                run = CutoverRun(
                    self._parts,
                    target,
                    self._options,
                    run_once=self._run_once,
                    verify=None,
                    say=self._say,
                    command=self._command,
                )
                run.undo_own()
                self.leaves_read_only = run.leaves_read_only
        except PidtsError as failure:
            _log.warning(
                "the source may still be read-only" if self._own.current.read_only else "the cutover is not undone yet",
                cause=str(failure),
                todo=f"pidts cutover {self._parts[0].shell_path} --undo",
                after=type(error).__name__,
            )

    def undo_own(self) -> None:
        """Undoes the cutover if its record names this command. Raises if the record names another command."""
        record = self._own.read()
        self._own.demand_named()
        if record is not None:
            self._undo(record)

    def _done(self, name: StepName, about: str, details: Sequence[str] = ()) -> None:
        self._add(name, StepState.DONE, about, details)

    def _add(self, name: StepName, state: StepState, about: str, details: Sequence[str] = ()) -> None:
        step = CutoverStep(name, state, about, tuple(details))
        self._steps.append(step)
        self._show(step)


def _is_read_only(part: TaskConfig) -> bool:
    with closing(connect(part.source.server)) as source:
        return source_read_only.is_read_only(source)


def _is_done(record: Cutover | None) -> bool:
    return record is not None and record.stage is CutoverStage.DONE
