"""`pidts verify`: compares the target with the source while programs write to both."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Annotated

import typer

from pidts.cli.command import Debug, JsonAtEnd, TaskFile, opened
from pidts.cli.final_summary import print_summary
from pidts.cli.program import has_noted_signal, note_signals
from pidts.model import ConfigError, PidtsError, Transient
from pidts.model.errors import plural

if TYPE_CHECKING:
    from pidts.task.config.task_file import TaskConfig
    from pidts.verify import Callbacks, ComparisonProgress, ComparisonState, MemoryFile, Report

Tables = Annotated[str, typer.Option(help="Only these tables: shop.orders,crm.*", show_default=False)]

STOPS_COMPARING = "stopping the comparison"
"""The message that is printed when a signal stops a comparison."""
_CONTINUES = "stopped; the same command continues from here, and with --restart it compares from the beginning"
_BEGINS_ANEW = "stopped; the same command compares from the beginning"
_LINE_SECONDS = 5.0
_TRIES = 6
_FIRST_PAUSE = 0.5
_ALERT_SECONDS = 30.0
"""The longest time that the delivery of an alert may take."""


def verify(
    task: TaskFile,
    tables: Tables = "",
    examples: Annotated[int, typer.Option(min=0, help="Show at most this many differences; all are counted.")] = 20,
    restart: Annotated[
        bool, typer.Option("--restart", help="Begin a new comparison instead of continuing an interrupted one.")
    ] = False,
    as_json: JsonAtEnd = False,
    debug: Debug = False,
) -> int:
    """Compare source and target while programs write to both; change nothing.

    Exit code 4: rows differ. Exit code 5: rows of waiting tables and locked rows are not equal.
    """
    note_signals()
    parts = opened(task, debug=debug, quiet=True)
    from pidts.cli.findings import show_report
    from pidts.cli.signals import run_until_stopped
    from pidts.verify import ComparisonInterrupted, Report

    is_stopped = has_noted_signal()

    def work(stop: threading.Event) -> Report:
        if is_stopped:
            return Report((), (), stopped=True)
        try:
            return verified(parts, tables, examples=examples, restart=restart, stop=stop)
        except ComparisonInterrupted as stopped:
            return stopped.report

    with grants_in_advice(parts):
        report = run_until_stopped(work, says=STOPS_COMPARING)
    if report.stopped:
        print(_BEGINS_ANEW if parts[0].target.is_datacenter else _CONTINUES, file=sys.stderr)
        if as_json:
            print_summary(json.dumps(report.to_json(parts[0].name), ensure_ascii=False))
        return PidtsError.exit_code
    alert_differences(parts[0], report, tables)
    say_if_not_begun(parts, report)
    return show_report(parts[0].name, report, as_json=as_json)


@contextmanager
def grants_in_advice(parts: Sequence[TaskConfig]) -> Iterator[None]:
    """If the block's error is a lack of privileges, replaces its advice by the GRANT statements that are needed."""
    try:
        yield
    except PidtsError as error:
        if error.lacks_privilege:
            from pidts.task.checks.privileges import lacking_grants

            if statements := lacking_grants(parts):
                error.todo = f"With an account that may grant, run: {' '.join(statements)}"
        raise


def say_if_not_begun(parts: Sequence[TaskConfig], report: Report) -> None:
    """If the rows are not equal and the target has no record of the task, prints that the task has not begun."""
    if report.equal or parts[0].target.is_datacenter:
        return
    with suppress(PidtsError), closing(parts[0].target.server.connect()) as target:
        if not any(target.meta.checkpoints.read(part.name, part.source.source_id) for part in parts):
            print(
                f"task {parts[0].name} has not begun: the target has no record of the task. Start the task, and "
                f"compare again: {parts[0].run_command()}",
                file=sys.stderr,
            )


def alert_differences(config: TaskConfig, report: Report, asked: str) -> None:
    """Sends an alert to the task's receiver if source and target differ, and another alert if they are equal again."""
    if config.alerts is None:
        return
    from pidts.task.operate.alert_conditions import AlertKey, Condition
    from pidts.task.run.alerts import Alerts

    alerts = Alerts(config.relay / config.source.source_id / "verify", config.name, config.path)
    alerts.begin(config.alerts)
    key = AlertKey("verify-differences", "", asked or "all tables")
    problems = [one.problem for one in report.tables if one.problem]
    if report.differences or problems:
        differing = [plural("row", report.differences, "differs", "differ")] if report.differences else []
        what = "; ".join([*differing, *problems])
        todo = "pidts verify TASK shows the differences; pidts repair TASK prints SQL that makes the target equal"
        alerts.fire(Condition(key=key, what=what, todo=todo, since=time.time()))
    elif report.equal:
        alerts.resolve(key)
    alerts.drain(_ALERT_SECONDS)
    alerts.close()


def verified(
    parts: Sequence[TaskConfig], tables: str, *, examples: int, restart: bool, stop: threading.Event, state: str = ""
) -> Report:
    """Compares the tables, or continues an interrupted comparison of them. Tries again after a lost connection.

    A caller that knows that no program writes to the servers gives a `state` that identifies their content. A
    comparison that began with another `state` is not continued.
    """
    from pidts.task.compare.wiring import chosen, compare_task
    from pidts.task.run.comparison_jobs import comparison_jobs
    from pidts.verify import Callbacks, ComparisonState, MemoryFile

    first = parts[0]
    if first.target.is_datacenter:
        return _verified_channel(first, tables, examples=examples, stop=stop)
    file = MemoryFile(first.relay / first.source.source_id / "verify" / f"{first.name}.json")
    if restart:
        with suppress(OSError):
            file.forget()
    is_chosen = chosen(tables)
    asked = comparison_of(parts, tables, state)
    memory = [ComparisonState(asked) if restart else file.load(asked)]
    if memory[0].begun:
        anew = "" if state else "; --restart begins anew"
        print(f"continuing the interrupted comparison{anew}", file=sys.stderr)
    with progress_line(first.name) as line, comparison_jobs(parts, line.show_wait) as elsewhere:
        callbacks = Callbacks(show=line.show_progress, save=saved_in(file, memory), stop=stop)

        def attempt() -> Report:
            return compare_task(
                *parts,
                examples=examples,
                takes=is_chosen,
                memory=memory[0],
                callbacks=callbacks,
                say=line.show_wait,
                elsewhere=elsewhere,
            )

        report = with_retries(attempt, callbacks)
    with suppress(OSError):
        file.forget()
    demand_tables(report, tables)
    return report


def comparison_of(parts: Sequence[TaskConfig], tables: str, state: str) -> str:
    """Returns a text that identifies a comparison. A command only continues a comparison with the same text.

    The text names the servers, since rows that are equal on one server may differ on another.
    """
    from pidts.task.config.current_server import address_of

    found = [tables, parts[0].target.place]
    for one in parts:
        rules = one.rules
        found.append(
            f"{one.source.source_id} {address_of(one.source.server)} {rules.allow} {rules.routes} {rules.mappings}"
        )
    return " ".join([*found, *([state] if state else [])])


def saved_in(file: MemoryFile, memory: list[ComparisonState]) -> Callable[[ComparisonState], None]:
    """Returns a function that replaces the state in `memory` and, if possible, in the file.

    A comparison must work even if the disk is full, or if the user may not write in the relay's folder.
    """
    is_said = False

    def save(reached: ComparisonState) -> None:
        nonlocal is_said
        memory[:] = [reached]
        try:
            file.save(reached)
        except OSError as error:
            if not is_said:
                what = f"{file.path} cannot be written: {error.strerror or error}"
                print(f"{what}. After an interruption, the comparison would begin anew", file=sys.stderr)
            is_said = True

    return save


def _verified_channel(config: TaskConfig, tables: str, *, examples: int, stop: threading.Event) -> Report:
    """Compares a datacenter, always from the beginning."""
    from pidts.task.compare.channel import compare_channel
    from pidts.task.compare.wiring import chosen
    from pidts.verify import Callbacks

    takes = chosen(tables) if tables else None
    with progress_line(config.name) as line:
        callbacks = Callbacks(show=line.show_progress, stop=stop)

        def attempt() -> Report:
            return compare_channel(config, examples=examples, takes=takes, callbacks=callbacks, say=line.show_wait)

        report = with_retries(attempt, callbacks)
    demand_tables(report, tables)
    return report


def demand_tables(report: Report, asked: str) -> None:
    """Raises if `--tables` matches no table, since a mistyped name would look like success."""
    if asked and not report.tables:
        raise ConfigError(
            "unknown-name",
            f"--tables: no table of this task matches {asked!r}",
            todo="See the tables of the task: pidts plan TASK",
        )


def with_retries(attempt: Callable[[], Report], callbacks: Callbacks) -> Report:
    """Compares, and tries again after each transient error, with growing pauses."""
    from pidts.verify import ComparisonInterrupted

    pause = _FIRST_PAUSE
    for left in reversed(range(_TRIES)):
        try:
            return attempt()
        except Transient:
            if callbacks.stop.is_set() or (left and callbacks.stop.wait(pause)):
                raise ComparisonInterrupted from None
            if not left:
                raise
            pause *= 2
    raise AssertionError  # never reached: the loop returns or raises


class ProgressLine:
    """Composes a line with the progress of the comparison, and with the server or table that it waits for."""

    def __init__(self, task: str, show: Callable[[str], None]) -> None:
        self._task, self._show = task, show
        self._progress, self._waiting_for = "", ""

    def show_progress(self, progress: ComparisonProgress) -> None:
        """Shows the present table, and the rows compared so far."""
        of = f" of about {max(progress.estimate, progress.rows):,}" if progress.estimate else ""
        doubtful = f", {progress.doubtful:,} to compare again" if progress.doubtful else ""
        wrong = f", {progress.differences:,} not equal" if progress.differences else ""
        self._progress = (
            f"table {progress.number} of {progress.tables}, {progress.table}: {progress.rows:,}{of} rows"
            f"{doubtful}{wrong}"
        )
        self._waiting_for = ""
        self._print()

    def show_wait(self, text: str) -> None:
        """Shows what the comparison waits for."""
        self._waiting_for = text
        self._print()

    def _print(self) -> None:
        self._show("; ".join(filter(None, (f"{self._task}: {self._progress}".rstrip(": "), self._waiting_for))))


@contextmanager
def progress_line(task: str) -> Iterator[ProgressLine]:
    """Yields a progress line for stderr: on a terminal a changing line, otherwise a new line every few seconds."""
    if not sys.stderr.isatty():
        due = time.monotonic() + _LINE_SECONDS

        def print_sometimes(text: str) -> None:
            nonlocal due
            if time.monotonic() >= due:
                due = time.monotonic() + _LINE_SECONDS
                print(text, file=sys.stderr, flush=True)

        yield ProgressLine(task, print_sometimes)
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    with Live(console=Console(stderr=True), refresh_per_second=5, transient=True, redirect_stdout=False) as live:
        yield ProgressLine(task, lambda text: live.update(Text(text, no_wrap=True, overflow="ellipsis")))
