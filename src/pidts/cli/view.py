"""Shows a running task: a live view on a terminal, otherwise a line every few seconds."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Protocol, TypeAlias

import structlog
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table as Grid
from rich.text import Text

from pidts.cli.backlog_text import waiting_lag
from pidts.cli.ddl.view import advised_steps
from pidts.cli.errors import for_this_task
from pidts.cli.lag_history import LagHistory
from pidts.cli.log_options import log_options, write_line
from pidts.model import Halt, Lsn, TableName
from pidts.model.advice import LIST
from pidts.model.errors import in_one_line, sentence, shortened
from pidts.plan import Phase
from pidts.task.operate.ddl_commands import needs_operator
from pidts.task.operate.pause import Pause
from pidts.task.operate.progress import Progress, SourceProgress, TableChanges, TableProgress
from pidts.task.operate.stage_report import SlowStage, StageReport

_log = structlog.get_logger(__name__)

_HaltKey: TypeAlias = tuple[str, Lsn, tuple[TableName, ...], str, str, str]
"""A halt's source, Lsn, tables, code, statement and row."""

LINE_SECONDS = 5.0
_JUST_SECONDS = 60.0
_COLUMNS, _LEAST_CAUSE = 100, 40
"""The usual limit of a line with an error, and the part of the error that is shown in any case, in characters."""
_CLOCK = re.compile(r"\d\d:\d\d:\d\d")
_TABLES_SHOWN = 12
_HALTS_SHOWN = 8
_BUSIEST_SHOWN = 6
_HALTS_IN_LINE = 3
_HALTS_WITH_ADVICE = 2
"""If there are more halts than this, the view on a terminal has no room for the advice about each of them."""
_BAR_WIDTH = 28
_LATE_SECONDS = 10.0
_SMALL_SECONDS, _LEAST_SECONDS = 3.0, 0.005
PHASES = {
    Phase.EXTRAS: "looking for rows that the source does not have",
    Phase.REREAD: "reading rows again whose keys have changed",
    Phase.FINISH: "creating keys",
}
_RARE = frozenset({"copied", "stale", "removed"})
_COUNTER_NAMES = {"stale": "skipped as older", "removed": "extra deleted"}
"""Names on the screen for counters whose JSON names need an explanation. A change is "skipped as older" if the copy has
already written a later version of the row.
"""


class LiveView(Protocol):
    """Receives every snapshot of a running task, and decides when to show one."""

    def __call__(self, progress: Progress) -> None:
        """Receives a new snapshot."""

    def has_shown(self, source: str, halt: Halt) -> bool:
        """Whether the view has just shown this halt of a source together with its advice."""


def progress_view() -> AbstractContextManager[LiveView]:
    """Returns the live view if stderr is a terminal and has no JSON, otherwise the view that prints lines."""
    is_live = sys.stderr.isatty() and not log_options().has_json_on_stderr
    return _live_view() if is_live else _line_view()


def every_view(views: Sequence[Callable[[Progress], None]]) -> Callable[[Progress], None]:
    """Returns a function that passes each snapshot to all of these views."""

    def take(progress: Progress) -> None:
        for view in views:
            view(progress)

    return take


def row_counts(counts: Mapping[str, int]) -> str:
    """Returns the row counters in words: 1,203 inserted, 4 updated."""
    return ", ".join(f"{count:,} {_counter(name)}" for name, count in _counted(counts).items())


def _counted(counts: Mapping[str, int]) -> dict[str, int]:
    """Returns the counters to show. Some are 0 in most tasks, and are left out then."""
    return {name: count for name, count in counts.items() if count or name not in _RARE}


def _counter(name: str) -> str:
    return _COUNTER_NAMES.get(name, name)


class Picture:
    """The last snapshot, as a picture for a terminal. After the run, the last picture stays on the terminal."""

    def __init__(self) -> None:
        self._latest: tuple[Progress, float] | None = None
        self._lags = LagHistory()

    def __call__(self, progress: Progress) -> None:
        """Stores a new snapshot."""
        self._latest = progress, time.monotonic()
        self._lags.take(progress.lag_seconds, time.monotonic())

    def show(self) -> RenderableType:
        """Returns the picture."""
        if self._latest is None:
            return Text("")
        progress, taken = self._latest
        # Minutes may pass between two snapshots, as during a start. Meanwhile only the shown seconds change.
        moving = replace(progress, seconds=progress.seconds + time.monotonic() - taken)
        return live_picture(moving, self._lags.picture)

    def has_shown(self, source: str, halt: Halt) -> bool:
        """Whether the last snapshot has this halt, and so few halts that the picture shows their advice."""
        halts = _of_sources(self._latest[0]) if self._latest is not None else []
        return len(halts) <= _HALTS_WITH_ADVICE and (source, halt) in halts


@contextmanager
def _live_view() -> Iterator[LiveView]:
    picture = Picture()
    # stdout is not redirected: it may be a pipe whose reader expects one JSON object.
    with Live(get_renderable=picture.show, console=Console(stderr=True), refresh_per_second=5, redirect_stdout=False):
        yield picture


@contextmanager
def _line_view() -> Iterator[LiveView]:
    yield LineView()


class LineView:
    """Prints a line when the stage or the message changes, and every few seconds in between.

    - A message about an event is printed once. A message about a state is part of each line.
    - Only the beginning of an error is shown, since the run logs the whole error with its advice.
    - A halt is printed in full once, with the advice. All other lines only name its tables and its code.
    - If many halts begin at once, a few of them are printed every few seconds.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        """`now` returns the seconds of a monotonic clock."""
        self._now = now
        self._shown: tuple[str, str] = ("", "")
        self._notice = ""
        """The last message about an event."""
        self._due = 0.0
        self._printed: dict[_HaltKey, tuple[Halt, float]] = {}
        """The halts that were printed in full, each with the time."""
        self._halts_due = 0.0
        """No halts are printed before this time: of more than `_HALTS_IN_LINE` new halts, the rest wait until then."""

    def __call__(self, progress: Progress) -> None:
        """Prints a line if one is due."""
        now = self._now()
        self._print_halts(progress, now)
        # The time of the next attempt does not count as news: an absent server would cause a line for each attempt.
        news = (progress.stage, f"{_CLOCK.sub('', progress.message)}{len(progress.halted) or ''}")
        if news == self._shown and now < self._due:
            return
        self._shown, self._due = news, now + LINE_SECONDS
        if progress.is_notice and progress.message == self._notice:
            progress = replace(progress, message="")
        elif progress.is_notice:
            self._notice = progress.message
        options = log_options()
        if options.file is not None or options.form == "json":
            _log.info("progress", **_as_log_line(progress))
        if options.shows_progress and not options.has_json_on_stderr:
            write_line(line(progress), sys.stderr)

    def has_shown(self, source: str, halt: Halt) -> bool:
        """Whether the halt was printed in full within the last minute."""
        printed, at = self._printed.get(_key(source, halt), (None, 0.0))
        return printed == halt and self._now() - at < _JUST_SECONDS

    def _print_halts(self, progress: Progress, now: float) -> None:
        """Prints the first new halts that need an operator."""
        # A thousand waiting shards have a thousand halts, each with a long list of shards. The keys are short, since
        # they do not contain this list.
        halts = {_key(source, halt): (source, halt) for source, halt in _of_sources(progress) if needs_operator(halt)}
        self._printed = {key: one for key, one in self._printed.items() if key in halts and halts[key][1] == one[0]}
        options = log_options()
        if not options.shows_progress or options.has_json_on_stderr or now < self._halts_due:
            return
        new = [one for key, one in halts.items() if key not in self._printed]
        several = len(progress.sources) > 1
        for source, halt in new[:_HALTS_IN_LINE]:
            text = sentence(_of_source(str(halt), source, several=several))
            write_line(
                f"{progress.task}: halted {text} {'. '.join(_advice(halt, source, several=several))}", sys.stderr
            )
        self._printed |= {_key(source, halt): (halt, now) for source, halt in new[:_HALTS_IN_LINE]}
        if len(new) > _HALTS_IN_LINE:
            self._halts_due = now + LINE_SECONDS


def _as_log_line(progress: Progress) -> dict[str, Any]:
    """Returns the content of a line as values for programs."""
    whole = progress.to_json()
    return {name: whole[name] for name in ("task", "stage", "rows", "batches", "eta_seconds", "sources", "cause")} | {
        "rate": round(progress.rate, 1),
        "copy_rate": round(progress.copy_rate, 1),
        "tables_copied": sum(table.done for table in progress.tables),
        "tables": len(progress.tables),
        "message": progress.message,
    }


def line(progress: Progress) -> str:
    """Returns the state of the task in one line: the stage and the message first, then the numbers."""
    head, parts = f"{progress.task}: {progress.stage}", list[str]()
    waiting = [table for table in progress.tables if not table.done]
    if progress.stage == "paused":
        parts.append(f"lag {_lag(progress)}")
    elif progress.stage != "starting" or progress.batches:
        # While rows are copied, the line has only the copy's rate. The two rates cover different times, and would seem
        # to contradict each other.
        rate = f"{progress.rate:.0f} rows/s" if not waiting else ""
        parts += filter(None, [f"rows: {row_counts(progress.rows)}", rate, f"lag {_lag(progress)}"])
    if len(progress.sources) > 1:
        parts += [f"{source.source} {source.stage}, lag {_lag(source)}" for source in progress.sources]
    elif progress.stage != "paused":
        parts += [f"applied up to {source.position}" for source in progress.sources if source.position]
    report = progress.stage_report
    if report is not None and report.slow is not None:
        parts.append(_slow(report.slow))
    if waiting:
        parts.append(f"{len(progress.tables) - len(waiting)} of {len(progress.tables)} tables copied")
        parts.append(_copy_pace(progress))
    if progress.held_lag_seconds is not None:
        parts.append(waiting_lag(progress.held_tables, progress.held_lag_seconds))
    halts, several = _in_order(progress), len(progress.sources) > 1
    parts += [
        f"{_state(halt)} {_of_source(halt.brief, source, several=several)}" for source, halt in halts[:_HALTS_IN_LINE]
    ]
    if len(halts) > _HALTS_IN_LINE:
        parts.append(f"and {len(halts) - _HALTS_IN_LINE:,} more")
    if halts:
        parts.append(f"see: {for_this_task(LIST)}")
    message = _brief_message(progress, _COLUMNS - len("; ".join([head, "", *parts])))
    return "; ".join(filter(None, [head, message, *parts]))


def _brief_message(progress: Progress, room: int) -> str:
    """Returns the message with errors that are shortened to `room` characters, but not below `_LEAST_CAUSE`."""
    message = progress.message
    for source in progress.sources:
        for state, again in ((source.pause, _again(source.pause)), (source.lack, "")):
            if state is not None:
                error = in_one_line(f"[{state.error.code}] {state.error.what}")
                brief = shortened(error, max(room - len(again), _LEAST_CAUSE)) + again
                message = message.replace(str(state), brief)
    return message


def _again(pause: Pause | None) -> str:
    return "" if pause is None else f"; next attempt {datetime.fromtimestamp(pause.next_attempt, UTC):%H:%M:%S} UTC"


def in_a_line(progress: Progress, end: str) -> str:
    """Returns the last line of a run. `end` says how the run has ended."""
    several = len(progress.sources) > 1
    places = [
        f"{one.source} {one.position or '-'}" if several else f"{one.position or '-'}" for one in progress.sources
    ]
    return (
        f"{progress.task}: {end} after {progress.seconds:.1f} s, {row_counts(progress.rows)}, "
        f"applied up to {', '.join(places)}"
    )


def live_picture(progress: Progress, lag_history: str = "") -> RenderableType:
    """Returns the state of the task for a terminal."""
    counts = _counted(progress.rows)
    relay = [one.relay_bytes for one in progress.sources if one.relay_bytes is not None]
    numbers = Grid.grid(padding=(0, 3))
    for _ in range(5):
        numbers.add_column(justify="left")
    for _ in counts:
        numbers.add_column(justify="right")
    names = ("rate", "lag", "batches", "time", "relay", *map(_counter, counts))
    numbers.add_row(*(Text(name, "dim") for name in names))
    numbers.add_row(
        Text(f"{progress.rate:,.0f} rows/s"),
        _lag_text(progress) + (f" {lag_history}" if lag_history else ""),
        Text(f"{progress.batches:,}"),
        Text(f"{progress.seconds:,.0f} s"),
        Text(f"{sum(relay) / 1e6:,.1f} MB" if relay else "-"),
        *(Text(f"{count:,}", "bold") for count in counts.values()),
    )
    head = Text.assemble((progress.task, "bold"), "  ", (progress.stage, "cyan"), f"  {progress.message}")
    parts: list[RenderableType] = [head, numbers, _places(progress), *_stages(progress.stage_report)]
    if any(not table.done for table in progress.tables):
        parts.append(Text(_copy_pace(progress)))
        parts.append(_copying(progress.tables))
    elif busiest := [one for one in progress.changed[:_BUSIEST_SHOWN] if one.rate]:
        parts.append(_busiest(busiest))
    if progress.held_lag_seconds is not None:
        parts.append(Text(waiting_lag(progress.held_tables, progress.held_lag_seconds), "yellow"))
    return Group(*parts, *_halts(progress))


def _halts(progress: Progress) -> list[RenderableType]:
    """Returns the first halts. If there are only few halts, each has its advice."""
    halts, several = _in_order(progress), len(progress.sources) > 1
    see = f"See: {for_this_task(LIST)}"
    parts: list[RenderableType] = []
    for source, halt in halts[:_HALTS_SHOWN]:
        steps = _advice(halt, source, several=several) if len(halts) <= _HALTS_WITH_ADVICE else [see]
        text = f"{_state(halt):7} {sentence(_of_source(str(halt), source, several=several))} {'. '.join(steps)}"
        parts.append(Text(text, "red" if needs_operator(halt) else "yellow"))
    if len(halts) > _HALTS_SHOWN:
        parts.append(Text(f"and {len(halts) - _HALTS_SHOWN:,} more. {see}", "red"))
    return parts


def _state(halt: Halt) -> str:
    """Returns the word that `pidts status` uses for a blocked table."""
    return "halted" if needs_operator(halt) else "waiting"


def _stages(report: StageReport | None) -> list[RenderableType]:
    """Returns the stages, with the share of time in which each stage works, and the reason why a stage is slow."""
    if report is None:
        return []
    picture = Text("")
    for stage in report.stages:
        is_slow = report.slow is not None and report.slow.name == stage.name
        picture += Text(" → " if len(picture) else "", "dim")
        picture += Text(stage.name, "bold yellow" if is_slow else "bold")
        if stage.busy is not None:
            picture += Text(f" {stage.busy:.0%}", "yellow" if is_slow else "dim")
    if report.slow is None:
        return [picture]
    return [picture, Text(_slow(report.slow), "yellow")]


def _slow(stage: SlowStage) -> str:
    return f"slow stage: {stage.name}, because {stage.why}"


def _places(progress: Progress) -> RenderableType:
    """Returns the places up to which the logs are applied, a line for each source."""
    places = [f"applied up to {source.position or '-'}  {source.gtid}" for source in progress.sources]
    if len(places) <= 1:
        return Text("".join(places), "dim", overflow="ellipsis", no_wrap=True)
    grid = Grid.grid(padding=(0, 2))
    for _ in range(4):
        grid.add_column(no_wrap=True, overflow="ellipsis")
    for source, place in zip(progress.sources, places, strict=True):
        grid.add_row(Text(source.source, "bold"), Text(source.stage, "cyan"), _lag_text(source), Text(place, "dim"))
    return grid


def _in_order(progress: Progress) -> list[tuple[str, Halt]]:
    """Returns the halts with their sources. Halts that need an operator come before waiting shards."""
    return sorted(_of_sources(progress), key=lambda one: bool(one[1].awaits) and not needs_operator(one[1]))


def _of_sources(progress: Progress) -> list[tuple[str, Halt]]:
    return [(one.source, halt) for one in progress.sources for halt in one.halted]


def _key(source: str, halt: Halt) -> _HaltKey:
    return source, halt.lsn, halt.tables, halt.code, halt.statement, halt.key


def _of_source(text: str, source: str, *, several: bool) -> str:
    return f"{source}: {text}" if several else text


def _advice(halt: Halt, source: str, *, several: bool) -> list[str]:
    """Returns the advice about a halt as sentences without a full stop."""
    return [for_this_task(step) for step in advised_steps(halt, "TASK", source if several else "")]


def _busiest(tables: Sequence[TableChanges]) -> RenderableType:
    """Returns the target tables with the most rows per second."""
    grid = Grid.grid(padding=(0, 2))
    grid.add_column()
    grid.add_column(justify="right")
    grid.add_column(justify="right")
    for one in tables:
        grid.add_row(Text(one.name), Text(f"{one.rate:,.0f} rows/s"), Text(f"{one.rows:,} in this run", "dim"))
    return grid


def _copying(tables: tuple[TableProgress, ...]) -> RenderableType:
    """Returns the tables that are copied now, then tables whose copy has not begun, and the number of copied tables."""
    open_ones = sorted((table for table in tables if not table.done), key=lambda table: table.copied == 0)
    grid = Grid.grid(padding=(0, 2))
    grid.add_column()
    grid.add_column(width=_BAR_WIDTH)
    grid.add_column(justify="right")
    grid.add_column(justify="right")
    for table in open_ones[:_TABLES_SHOWN]:
        # A server's estimate may be half of the real number.
        total = max(table.estimate, table.copied) or None
        bar = ProgressBar(total=total, completed=table.copied, width=_BAR_WIDTH, pulse=False) if total else Text("")
        of = f"{table.copied:,} of about {total:,}" if table.estimate and total else f"{table.copied:,}"
        grid.add_row(Text(str(table)), bar, Text(of, "dim"), Text(_pace(table), "dim"))
    more = len(open_ones) - _TABLES_SHOWN
    done = len(tables) - len(open_ones)
    rest = [f"{more} more" if more > 0 else "", f"{done} copied" if done else ""]
    return Group(grid, Text(", ".join(filter(None, rest)), "dim"))


def _pace(table: TableProgress) -> str:
    """Returns the phase of a table's copy; while rows are copied, their rate."""
    if table.phase is Phase.EXTRAS and table.looked_up:
        return f"{PHASES[table.phase]}: {table.looked_up:,} looked up"
    if table.phase is not Phase.ROWS:
        return PHASES[table.phase]
    if not table.rate:
        return ""
    return f"{table.rate:,.0f} rows/s{_to_go(table.eta_seconds)}"


def _copy_pace(progress: Progress) -> str:
    """Returns the rate of the copy. If no table's rows are being copied, returns what is done with the first table."""
    waiting = [table for table in progress.tables if not table.done]
    if all(table.phase is not Phase.ROWS for table in waiting):
        return f"{waiting[0]}: {_pace(waiting[0])}"
    return f"copying {progress.copy_rate:,.0f} rows/s{_to_go(progress.eta_seconds)}"


def _to_go(seconds: float | None) -> str:
    if seconds is None:
        return ""
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f", {hours}:{minutes:02}:{left:02} to go" if hours else f", {minutes}:{left:02} to go"


def _lag_text(progress: Progress | SourceProgress) -> Text:
    late = (progress.lag_seconds or 0.0) > _LATE_SECONDS
    return Text(_lag(progress), "yellow" if late else "green")


def _lag(progress: Progress | SourceProgress) -> str:
    """Returns the lag as text. A small lag has hundredths of a second."""
    seconds = progress.lag_seconds
    if seconds is None:
        return "unknown"
    if seconds < _SMALL_SECONDS:
        return f"{seconds:.2f} s" if seconds >= _LEAST_SECONDS else "0 s"
    return f"{seconds:,.0f} s"
