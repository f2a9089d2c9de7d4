"""`pidts cutover`: shows or does the steps that remain before applications switch to the target.

With `--undo`, the command undoes a cutover; with `--reverse`, it writes the task file for the way back.
"""

from __future__ import annotations

import json
import shlex
import sys
import threading
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from pidts.cli.command import Debug, JsonAtEnd, TaskFile, opened
from pidts.model import ConfigError, ConstraintKind, CutoverStage, PidtsError
from pidts.model.errors import listed

if TYPE_CHECKING:
    from pidts.apply import TargetSession
    from pidts.model import Cutover, TableName
    from pidts.source.finding import Finding
    from pidts.task.config.task_file import TaskConfig
    from pidts.task.cutover.steps import Checklist, CutoverStep
    from pidts.task.cutover.switch import CutoverRun
    from pidts.verify import Report

_STYLES = {"done": "green", "todo": "yellow", "blocked": "bold red", "skipped": "dim"}
_WIDTH = 14
_STOPPING = (
    "stopping: the steps so far are being undone; if the step `stop` is already done, the cutover is completed instead"
)
_AT_ONCE = "; press Ctrl-C again to end at once: the source may then stay read-only, and `pidts status` says what to do"
_ENDED_AT_ONCE = "ended at once: the source may still be read-only. To see what to do, run:"
_UNDONE = "everything is undone: the source is as it was before, and the task was not stopped"
_LEFT = "everything else is undone, and the task was not stopped"


def cutover(
    task: TaskFile,
    yes: Annotated[bool, typer.Option("--yes", help="Do the steps. Without it, the command only shows them.")] = False,
    undo: Annotated[
        bool,
        typer.Option(
            "--undo",
            help="Give up the cutover: the source becomes writable again, and the task may run. After the switch, this "
            "also needs --yes.",
        ),
    ] = False,
    reverse: Annotated[
        bool,
        typer.Option(
            "--reverse",
            help="Write the task file for the way back: a task that carries to the source all changes that the target "
            "gets after the switch.",
        ),
    ] = False,
    discard_writes: Annotated[
        bool,
        typer.Option(
            "--discard-writes",
            help="With --undo --yes: undo the cutover although programs have written to the target after the switch, "
            "or although this is not known. The task overwrites these changes.",
        ),
    ] = False,
    writers_stopped: Annotated[
        bool,
        typer.Option(
            "--writers-stopped",
            help="You have stopped all programs that write to the source, so the command need not make it read-only.",
        ),
    ] = False,
    wait: Annotated[
        float,
        typer.Option(
            min=0,
            help="If the account has no right to make the source read-only, you are asked to do it. The command waits "
            "for that at most this many seconds.",
        ),
    ] = 600.0,
    verify_tables: Annotated[
        str, typer.Option("--verify-tables", help="Compare only these tables at the end: shop.orders,crm.*")
    ] = "",
    no_verify: Annotated[bool, typer.Option("--no-verify", help="Do not compare at the end.")] = False,
    as_json: JsonAtEnd = False,
    debug: Debug = False,
) -> int:
    """Show what is left before the application switches to the target; with --yes, do it."""
    parts = opened(task, debug=debug, quiet=True)
    if sum((undo, reverse, yes and not undo)) > 1:
        raise ConfigError(
            "usage", "only one of --yes, --undo and --reverse can be given", todo="See: pidts cutover --help"
        )
    if discard_writes and not (undo and yes):
        raise ConfigError("usage", "--discard-writes needs --undo and --yes", todo="See: pidts cutover --help")
    from pidts.task.checks.channel import demand_tables

    demand_tables(
        parts[0],
        "pidts cutover",
        "no application can switch to a datacenter, since it does not have the source's tables",
        "",
    )
    if parts[0].target.warehouse:
        what = "pidts cutover: no application can switch to a warehouse, which has no transactions of its own"
        raise ConfigError("not-supported", what, todo="`pidts verify TASK` compares the warehouse with the source")
    from pidts.task.cutover.switch import CutoverOptions

    if reverse:
        return _reverse(parts, as_json=as_json)
    options = CutoverOptions(read_only=not writers_stopped, wait_seconds=wait)
    if undo:
        return _undo(parts, options, is_sure=yes, discards_writes=discard_writes, as_json=as_json)
    tables = None if no_verify else verify_tables
    if not yes:
        with closing(parts[0].target.server.connect()) as target:
            found = _switch(parts, target, options, tables, threading.Event(), quiet=True).look()
        _show(found, as_json=as_json, quoted=shlex.quote(str(task)))
        return PidtsError.exit_code if any(step.state == "blocked" for step in found.steps) else 0
    return _carry_out(parts, options, tables, as_json=as_json)


def _carry_out(parts: Sequence[TaskConfig], options: object, tables: str | None, *, as_json: bool) -> int:
    from pidts.cli.findings import show_report
    from pidts.cli.signals import run_until_stopped
    from pidts.task.cutover.drain import CutoverStopped
    from pidts.task.cutover.switch import Different
    from pidts.verify import ComparisonInterrupted

    runs: list[CutoverRun] = []

    def work(stop: threading.Event) -> Checklist | Report | None:
        with closing(parts[0].target.server.connect()) as target:
            try:
                runs.append(_switch(parts, target, options, tables, stop, quiet=as_json))
                return runs[0].carry_out()
            except Different as found:
                return found.report
            except (CutoverStopped, ComparisonInterrupted):
                return None

    from pidts.verify import Report

    at_once = f"{_ENDED_AT_ONCE} pidts status {parts[0].shell_path}"
    try:
        found = run_until_stopped(work, says=_STOPPING, again=_AT_ONCE, at_once=at_once)
    except PidtsError:
        if any(run.has_begun for run in runs):
            print(_end_of_undo(parts[0], runs), file=sys.stderr)
        raise
    if found is None:
        print(f"stopped; {_end_of_undo(parts[0], runs)}", file=sys.stderr)
        return PidtsError.exit_code
    if isinstance(found, Report):
        print(_end_of_undo(parts[0], runs), file=sys.stderr)
        return show_report(parts[0].name, found, as_json=as_json)
    _show(found, as_json=as_json, quoted=parts[0].shell_path, shown=not as_json)
    return 0


def _end_of_undo(config: TaskConfig, runs: Sequence[CutoverRun]) -> str:
    """Returns a text that says whether all steps of a stopped cutover were undone."""
    from pidts.task.operate.cutover_state import cutover_state

    try:
        with closing(config.target.server.connect()) as target:
            left = cutover_state(target, config)
    except PidtsError as error:
        return (
            f"it is not known whether everything is undone: {error.what}. The source may still be read-only. Once the "
            f"target answers, pidts status {config.shell_path} says what to do"
        )
    if left is None:
        return _LEFT if any(run.leaves_read_only for run in runs) else _UNDONE
    left = replace(left, is_active=False)  # the server may not know yet that this command has closed its session
    return f"not everything is undone: the task {left}. {left.todo}"


def _switch(
    parts: Sequence[TaskConfig],
    target: object,
    options: object,
    tables: str | None,
    stop: threading.Event,
    *,
    quiet: bool,
) -> CutoverRun:
    from pidts.cli.verify import verified
    from pidts.task.cutover.switch import CutoverRun
    from pidts.task.run.task_run import run_task

    last = ""

    def say(text: str) -> None:
        nonlocal last
        if text != last:
            print(text, file=sys.stderr, flush=True)
        last = text

    def run_once() -> None:
        say("PiDTS sees no run of the task: this command runs the task until the target has all changes")
        run_task(parts, until_synced=True, stop=stop, on_progress=lambda _: None)

    def compare(stop: threading.Event, state: str) -> Report:
        return verified(parts, tables or "", examples=20, restart=False, stop=stop, state=state)

    def show(step: CutoverStep) -> None:
        if not quiet:
            _show_step(step)

    return CutoverRun(
        parts,
        target,  # type: ignore[arg-type]  # a session
        options,  # type: ignore[arg-type]  # `CutoverOptions`, imported late
        run_once=run_once,
        verify=None if tables is None else compare,
        show=show,
        say=say,
        stop=stop,
    )


def _undo(parts: Sequence[TaskConfig], options: object, *, is_sure: bool, discards_writes: bool, as_json: bool) -> int:
    with closing(parts[0].target.server.connect()) as target:
        run = _switch(parts, target, options, None, threading.Event(), quiet=True)
        before = run.undo(even_if_done=is_sure, discards_writes=discards_writes)
        circles = _circles(parts, target) if before is not None and before.stage is CutoverStage.DONE else []
    may_run = "but the task cannot run as it is" if circles else "and the task may run again"
    said = (
        "nothing to undo"
        if before is None
        else f"undone, except for what is said above, {may_run}"
        if run.leaves_read_only
        else f"undone: the source is as it was before the cutover, {may_run}"
    )
    if as_json:
        found = [{"message": one.message, "fix": one.fix} for one in circles]
        print(json.dumps({"task": parts[0].name, "undone": before is not None, "circles": found}))
    else:
        print(f"{parts[0].name}: {said}")
        for finding in circles:
            print(f"{finding.message}\n  do    {finding.fix}")
    return 0


def _circles(parts: Sequence[TaskConfig], target: TargetSession) -> list[Finding]:
    """Returns why the task cannot run after an undo: another task has carried changes of the target to a source.

    Without this check, only the next start would report the reason. A source that does not answer is not checked.
    """
    from pidts.source import connect
    from pidts.task.checks.circles.running_tasks import circle_findings
    from pidts.task.cutover.drain import tables_of

    found: list[Finding] = []
    for part in parts:
        with suppress(PidtsError), closing(connect(part.source.server)) as source:
            found += (one for one in circle_findings(part, source, target, tables_of(part, target)) if not one.ok)
    return found


def _reverse(parts: Sequence[TaskConfig], *, as_json: bool) -> int:
    from pidts.task.cutover.drain import tables_of
    from pidts.task.cutover.reverse import recorded_switch, reverse_task, write_reverse

    config = parts[0]
    with closing(config.target.server.connect()) as target:
        record = recorded_switch(config, target)
        tables = tables_of(config, target)
        text = reverse_task(parts, record, tables)
    path = write_reverse(config, text)
    if as_json:
        print(json.dumps({"task": config.name, "file": str(path), "position": record.position if record else ""}))
        return 0
    print(f"{path} carries the new server's changes after the switch back to the old server. Before it runs:")
    if record is not None and record.is_undone:
        print(f"  the cutover was undone, so task {config.name} might run again: its own changes would go in a circle.")
        print(f"    pidts check {shlex.quote(str(path))} prints the statement after which it cannot run")
        automatic = [
            f"{table}.{column}" for kind, table, column in record.constraints if kind is ConstraintKind.ON_UPDATE
        ]
        if automatic:
            print(
                f"  the undo has removed ON UPDATE CURRENT_TIMESTAMP from {listed(automatic)}, and the way back removes"
            )
            print("    it on the old server, too: add it there again when the way back has caught up")
            for statement in _automatic_again(config, record, tables):
                print(f"      {statement};")
    print("  on the old server: SET GLOBAL super_read_only = OFF (MySQL), which leaves read_only = ON, so that no")
    print("    application writes there; let the account of the task write: GRANT CONNECTION_ADMIN (MySQL) or")
    print("    READ_ONLY ADMIN (MariaDB) ON *.* TO it. If you cannot, run SET GLOBAL read_only = OFF")
    print("  on the old server: drop its triggers, and SET GLOBAL event_scheduler = OFF")
    quoted = shlex.quote(str(path))
    print(f"Then run: pidts check {quoted}, and pidts run {quoted}")
    return 0


def _automatic_again(config: TaskConfig, record: Cutover, tables: Sequence[TableName]) -> list[str]:
    """Returns statements that give the old server's columns the automatic timestamps that they have now.

    Returns none if the old server cannot be read.
    """
    from pidts.source import connect
    from pidts.source.uncarried_objects import column_statement

    names = {config.rules.target_name(table): table for table in tables}
    lost = [
        (names[table], column)
        for kind, table, column in record.constraints
        if kind is ConstraintKind.ON_UPDATE and table in names
    ]
    with suppress(PidtsError), closing(connect(config.source.server)) as source:
        return [*filter(None, (column_statement(source, table, column) for table, column in lost))]
    return []


def _show(found: Checklist, *, as_json: bool, quoted: str, shown: bool = False) -> None:
    """Prints a checklist. With `shown`, its steps but the last one are on the screen already.

    What the target lacks comes before the last step of a cutover that is done: "point the application to the target".
    """
    if as_json:
        print(json.dumps(found.to_json(), ensure_ascii=False), flush=True)
        return
    steps, last = (found.steps[:-1], found.steps[-1:]) if found.is_done else (found.steps, ())
    for step in () if shown else steps:
        _show_step(step)
    record = found.record
    at_switch = record.position if found.is_done and record is not None else ""
    if found.left:
        print("The target does not have these objects. Create those that you need before the application uses the")
        print("target, in the target's own SQL:")
        if at_switch and not found.irreversible:
            print("  Create them in a session after SET SESSION sql_log_bin = 0. Otherwise the way back carries the")
            print("  statements to the old server, whose objects they may change")
    for one in found.left:
        print(f"  {one}")
        for line in one.text.splitlines() or ["(the account may not see its text)"]:
            print(f"      {line}")
    if found.unseen:
        print(
            "There may be more objects that the target does not have: the source does not show them to the task's "
            "account."
        )
        print(f"pidts grants {quoted} --cutover prints the privileges:")
    for hidden in found.unseen:
        print(f"  {hidden}")
    for step in last:
        _show_step(step)
    if not found.is_done:
        print(f"Nothing was changed. To do these steps, run: pidts cutover {quoted} --yes")
    elif at_switch and record is not None:
        print(f"The target's log at the switch: {at_switch} {record.gtid}".rstrip())
        if found.irreversible:
            print(f"There is no way back by --reverse: {found.irreversible}")
        else:
            print(f"To go back after the application has written to the target: pidts cutover {quoted} --reverse")


def _show_step(step: CutoverStep) -> None:
    from rich.text import Text

    from pidts.cli.errors import OutputConsole

    console = OutputConsole()
    state = Text(step.state.value.ljust(8), _STYLES[step.state.value])
    console.print(Text.assemble(state, (step.name.value.ljust(_WIDTH), "bold"), step.about))
    for line in step.details:
        console.print(Text(f"          {line}", "dim"))
