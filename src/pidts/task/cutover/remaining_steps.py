"""Finds the steps that a cutover still has to do. Nothing is changed on the servers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from pidts.apply import TargetSession
from pidts.login.privileges import grant_statements
from pidts.model import Constraint, Halted, PrecheckFailed, TableName
from pidts.model.errors import listed, plural, sentence
from pidts.source import Session, connect, position
from pidts.source import read_only as source_read_only
from pidts.source.grants import account
from pidts.target.mysql.cutover.remade_columns import RemadeColumn
from pidts.target.mysql.cutover.remade_tables import Partitions, RemadeTable
from pidts.task.config.task_file import TaskConfig
from pidts.task.cutover import target_side
from pidts.task.cutover.drain import is_running
from pidts.task.cutover.inventory import Inventory
from pidts.task.cutover.steps import CutoverStep, StepName, StepState
from pidts.task.cutover.target_log_end import without_way_back
from pidts.task.operate.log_loss import lost_log
from pidts.task.operate.status import TaskStatus
from pidts.task.tables.constraints import UncarriedForeignKey

NOT_COMPARED = "left out (--no-verify): the source and the target are not compared"
COUNTERS_FINE = "each counter continues above the numbers in the rows"
NOTHING_TO_MAKE = "nothing to make: the target already has all that it can have"


class RemainingSteps:
    """The steps that a cutover of one task still has to do."""

    def __init__(
        self, parts: Sequence[TaskConfig], target: TargetSession, *, makes_read_only: bool, compares: bool
    ) -> None:
        self._parts, self._target = parts, target
        self._makes_read_only, self._compares = makes_read_only, compares

    def steps(
        self, status: TaskStatus, inventory: Inventory, irreversible: str, *, has_stopped: bool
    ) -> list[CutoverStep]:
        """Returns all steps in their order. Steps without work have the state done.

        `has_stopped`: the step `stop` is done, so no run needs the log any more.
        """
        make = self._constraints_step
        return [
            (None if has_stopped else self._refused_step()) or tables_step(status),
            *self._source_steps(status),
            self._verify_step(),
            self._counter_step(inventory),
            make(StepName.FOREIGN_KEYS, inventory.foreign_keys, inventory.unfit),
            make(StepName.CHECKS, inventory.checks),
            make(StepName.KEYS, inventory.expression_keys),
            self._stop_step(),
            *([_remade_step(*step) for step in remade(inventory)] if target_side.remakes(self._target) else []),
            make(StepName.ON_UPDATE, inventory.automatic),
            _last_step(
                self._parts[0],
                irreversible or without_way_back(self._parts[0]),
                target_side.makes_writable(self._target),
            ),
        ]

    def _refused_step(self) -> CutoverStep | None:
        """Returns the first step as blocked, if a run would refuse a checkpoint or the log."""
        found = [self._refusal(part) for part in self._parts]
        refused = [f"[{error.code}] {sentence(error.what)} {error.todo}" for error in found if error is not None]
        return (
            CutoverStep(StepName.TABLES, StepState.BLOCKED, "the task cannot run", tuple(refused)) if refused else None
        )

    def _refusal(self, part: TaskConfig) -> Halted | None:
        """Returns the error with which a run would end, also if the relay is damaged so that it cannot be compared."""
        try:
            return lost_log(part, is_one_of_several=len(self._parts) > 1)
        except Halted as error:
            return error

    def _source_steps(self, status: TaskStatus) -> list[CutoverStep]:
        unapplied: list[str] = []
        writable, not_allowed, lacking = [], [], []
        for part, known in zip(self._parts, status.sources, strict=True):
            with closing(connect(part.source.server)) as source:
                end = position(source)[0]
                if known.position != end:
                    unapplied.append(
                        f"{part.source.source_id}: the log ends at {end}, and is applied up to {known.position or '-'}"
                    )
                if not source_read_only.is_read_only(source):
                    writable.append(part.source.source_id)
                    not_allowed.append(source_read_only.statements(source, on=True))
                    lacking += _lacking_privileges(part, source)
        lag = (
            "the log continues after the applied place: this command waits until the target has all changes of the "
            "log, and runs the task if it sees no run"
            if unapplied
            else "the target has all changes of the source's log"
        )
        steps = [CutoverStep(StepName.LAG, StepState.TODO if unapplied else StepState.DONE, lag, tuple(unapplied))]
        if not writable:
            steps.append(CutoverStep(StepName.READ_ONLY, StepState.DONE, "the source is read-only"))
        elif self._makes_read_only:
            sources = f"source{'s' if len(writable) > 1 else ''} {', '.join(writable)}"
            about = f"this command makes {sources} read-only, so that no application can write there: {not_allowed[0]}"
            steps.append(CutoverStep(StepName.READ_ONLY, StepState.TODO, about, tuple(lacking)))
        else:
            about = "left out (--writers-stopped): before --yes, stop all programs that write to the source"
            steps.append(CutoverStep(StepName.READ_ONLY, StepState.SKIPPED, about))
        return steps

    def _verify_step(self) -> CutoverStep:
        if not self._compares:
            return CutoverStep(StepName.VERIFY, StepState.SKIPPED, NOT_COMPARED)
        about = "this command compares the source with the target while no program writes"
        return CutoverStep(StepName.VERIFY, StepState.TODO, about)

    def _counter_step(self, inventory: Inventory) -> CutoverStep:
        low_counters: list[str] = []
        for one in inventory.counted:
            low_counters += target_side.low_counters(self._target, one.table, one.source_next)
        state = StepState.TODO if low_counters else StepState.DONE
        about = f"this command raises {plural('counter', len(low_counters))}" if low_counters else COUNTERS_FINE
        return CutoverStep(StepName.COUNTERS, state, about, tuple(low_counters))

    def _constraints_step(
        self, step: StepName, constraints: Sequence[Constraint], unfit: Sequence[UncarriedForeignKey] = ()
    ) -> CutoverStep:
        found = [(one, *target_side.statements_or_problem(self._target, one)) for one in constraints]
        wanted = [one for one, statements, _ in found if statements]
        failed = [*(str(one) for one in unfit), *(problem for *_, problem in found if problem)]
        about = f"this command makes {len(wanted)}" if wanted else made_text(0, len(failed))
        details = [*(f"{one} is made" for one in wanted), *(f"not made: {one}" for one in failed)]
        return CutoverStep(step, StepState.TODO if wanted else StepState.DONE, about, tuple(details))

    def _stop_step(self) -> CutoverStep:
        about = (
            "this command ends the run of the task"
            if any(is_running(part, self._target) for part in self._parts)
            else "PiDTS sees no run of the task"
        )
        later = "after this step, no run of the task can begin, unless you undo the cutover"
        return CutoverStep(StepName.STOP, StepState.TODO, f"{about}; {later}")


def demand_ready(status: TaskStatus, part: TaskConfig) -> None:
    """Raises if the task has not begun, or if a table is halted, waits for an operator or has locked rows."""
    step = tables_step(status)
    if not status.has_begun:
        raise PrecheckFailed("cutover-not-ready", "the task has not begun", todo=part.run_command())
    if step.state is StepState.BLOCKED:
        todo = f"To see what each table waits for: pidts status {part.shell_path}"
        raise Halted("cutover-halted", "; ".join((step.about, *step.details)), todo=todo)


def _lacking_privileges(part: TaskConfig, source: Session) -> list[str]:
    """Returns a line for each privilege that the account needs to make a source read-only, and lacks."""
    lines = []
    for one in source_read_only.lacking_privileges(source):
        (grant,) = grant_statements([one], account(source))
        lines.append(f"source {part.source.source_id}: {one} is missing: {grant}")
    return lines


def tables_step(status: TaskStatus) -> CutoverStep:
    """Returns the first step: whether tables are halted, wait, have locked rows, or are still being copied."""
    halts = [one.halt for source in status.sources for one in source.halted if one.halt is not None]
    copying = [str(one) for source in status.sources for one in source.copying]
    held = {table for source in status.sources for table in source.held.tables}
    locked = [locked_text(one.table, one.rows) for source in status.sources for one in source.locked_rows]
    behind: list[str] = []
    if without_halt := sorted(held.difference(*(halt.tables for halt in halts))):
        verb = "wait" if len(without_halt) > 1 else "waits"
        behind.append(f"{listed(without_halt)} {verb} at an earlier place in the log than the other tables")
    if halts or locked:
        details = [f"{listed(halt.tables) or 'all tables'}: {halt.what}" for halt in halts] + behind + locked
        about = "tables are halted, wait for a schema change, or have locked rows"
        return CutoverStep(StepName.TABLES, StepState.BLOCKED, about, tuple(details))
    if copying or behind:
        # A run until the task is synced copies all of these tables, and applies the log of those that are behind: a
        # table without a key after its copy, or a table whose schema change has just been made.
        found = "tables are still being copied" if copying else "tables are behind the others in the log"
        about = f"{found}: this command waits for them"
        return CutoverStep(StepName.TABLES, StepState.TODO, about, (*copying, *behind))
    return CutoverStep(
        StepName.TABLES, StepState.DONE, "no table is halted, waits, has locked rows or is still being copied"
    )


def locked_text(table: TableName, rows: int) -> str:
    """Returns a text about locked rows of a table."""
    return f"{table}: {plural('row', rows, 'is', 'are')} locked"


def made_text(made: int, failed: int) -> str:
    """Returns a text about the numbers of objects that a step has made, and could not make."""
    texts = [f"{made} made"] if made else []
    texts += [f"{failed} not" if made else f"{failed} not made"] if failed else []
    return ", ".join(texts) or NOTHING_TO_MAKE


def remade(inventory: Inventory) -> list[tuple[StepName, Sequence[RemadeColumn | RemadeTable]]]:
    """Returns the objects that are created after `stop` on MySQL and MariaDB. Columns come before keys on them."""
    return [
        (StepName.COLUMNS, inventory.remade),
        (StepName.SPECIAL_KEYS, inventory.special_keys),
        (StepName.PARTITIONS, inventory.partitions),
    ]


def _remade_step(name: StepName, wanted: Sequence[RemadeColumn | RemadeTable]) -> CutoverStep:
    about = f"this command makes {len(wanted)}" if wanted else NOTHING_TO_MAKE
    details = tuple(f"{one} {'are' if isinstance(one, Partitions) else 'is'} made" for one in wanted)
    return CutoverStep(name, StepState.TODO if wanted else StepState.DONE, about, details)


def _last_step(part: TaskConfig, why: str, statement: str) -> CutoverStep:
    about = f"when all steps are done, {_switch(part, statement)}"
    details = (f"there will be no way back by --reverse: {why}",) if why else ()
    return CutoverStep(StepName.SWITCH, StepState.TODO, about, details)


def switched_step(part: TaskConfig, unread: str, statement: str) -> CutoverStep:
    """Returns the last step of a cutover that is done.

    - `unread`: the reason why a source could not be read; empty if all could be read.
    - `statement`: lets applications write to a read-only target; empty if they may write.
    """
    about = f"all steps are done: {_switch(part, statement)} now"
    details = (f"the objects that the target does not have cannot be listed: {unread}",) if unread else ()
    return CutoverStep(StepName.SWITCH, StepState.DONE, about, details)


def _switch(part: TaskConfig, statement: str) -> str:
    first = f"run {statement} on the target, since it is read-only, and then " if statement else ""
    return f"{first}point the application to {_address(part)}"


def _address(part: TaskConfig) -> str:
    spec = part.target
    return f"{spec.type} {spec.host}:{spec.port}" + (f", database {spec.database}" if spec.database else "")
