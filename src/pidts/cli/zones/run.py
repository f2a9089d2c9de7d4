"""Runs all directions of a file with several zones. Each direction is a `pidts run` in a process of its own.

1. One zone has all rows at the beginning. The directions that copy these rows start first, each as soon as its own
   source has the rows.
2. When all rows are copied, all other directions start.

A direction that ends with an error starts again after a while, unless it needs an operator. The other directions
continue. If this process dies, the kernel ends the processes of the directions.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from pidts.cli.zones.child import start_run
from pidts.model import ConfigError, Halted, PidtsError, PrecheckFailed
from pidts.task.config.task_file import load_task
from pidts.task.config.zones_file import Direction, path_of
from pidts.task.operate.zones import has_copied

_LOOK_SECONDS, _AGAIN_SECONDS, _LAST_LINE_SECONDS = 0.5, 5.0, 2.0
_END_SECONDS, ZONES_END_WITHIN = 75.0, 90.0
"""The longest times, in seconds, that the directions and this process may take to end. A direction should end itself
sooner.
"""
_FINAL = frozenset({0, ConfigError.exit_code, PrecheckFailed.exit_code, Halted.exit_code})
"""After these exit codes, another start would end with the same code."""
PIDTS = (sys.executable, "-m", "pidts", "run", "--json")


@dataclass(slots=True)
class DirectionRun:
    """One direction, its process if one runs, and the result of the last run."""

    direction: Direction
    path: Path
    command: Sequence[str]
    """The command that runs a direction, without its last word: the path of the direction."""
    process: subprocess.Popen[bytes] | None = None
    code: int | None = None
    """The exit code; None if the direction runs or will start."""
    due: float = 0.0
    """The time of the next start, by the monotonic clock; 0 if there is none."""
    reader: threading.Thread | None = None
    summary: str = ""
    """The last line that the direction's process has printed."""


def run_zones(
    file: Path,
    directions: Sequence[Direction],
    stop: threading.Event,
    *,
    until_synced: bool,
    program: Sequence[str] = PIDTS,
    is_copied: Callable[[Path], bool] | None = None,
) -> list[DirectionRun]:
    """Runs all directions until all have ended for good, `stop` is set, or one has failed while others wait to start.

    `program` runs one direction. `is_copied` says whether the target has all rows that a direction copies.
    """
    command = [*program, *(["--until-synced"] if until_synced else [])]
    runs = [DirectionRun(one, path_of(file, one), command) for one in directions]
    waiting, copied = list(runs), {directions[0].source, *(one.source for one in directions if one.both_have_rows)}
    try:
        while not stop.is_set() and any(run.code is None for run in runs):
            waiting = _start_next(runs, waiting, copied, is_copied or _has_copied)
            for run in runs:
                _look(run)
            if waiting and any(run.code for run in runs):
                break  # a direction has failed, so those that wait for its rows would wait for ever
            stop.wait(_LOOK_SECONDS)
    finally:
        _end(runs)
    return runs


def _end(runs: Sequence[DirectionRun]) -> None:
    """Lets all directions end at the end of a transaction. Kills directions that take too long."""
    for run in runs:
        if run.process is not None:
            run.process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + _END_SECONDS
    for run in runs:
        if run.process is None:
            continue
        try:
            run.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            run.process.kill()
        _ended(run, run.process)
        if run.code == -signal.SIGTERM:
            run.code = 0  # the process had just started, and did not handle signals yet


def _start_next(
    runs: Sequence[DirectionRun], waiting: list[DirectionRun], copied: set[str], is_copied: Callable[[Path], bool]
) -> list[DirectionRun]:
    """Starts each direction that may start now, and returns the directions that still wait.

    `copied` contains the zones that have all rows. The function adds the zones that have got them meanwhile.
    """
    if not waiting:
        return waiting
    for run in runs:
        to = run.direction.target
        if run.direction.copies and run not in waiting and to not in copied and is_copied(run.path):
            copied.add(to)
    all_copied = all(run.direction.target in copied for run in runs if run.direction.copies)
    left = []
    for run in waiting:
        is_due = run.direction.source in copied if run.direction.copies else all_copied
        if is_due:
            run.process = _begun(run)
        else:
            left.append(run)
    return left


def _has_copied(path: Path) -> bool:
    try:
        return has_copied(load_task(path))
    except PidtsError:
        return False  # the target has no records yet, or does not answer


def _begun(run: DirectionRun) -> subprocess.Popen[bytes]:
    process = start_run([*run.command, str(run.path)], output=subprocess.PIPE)
    assert process.stdout is not None  # noqa: S101 - it is a pipe
    run.reader = threading.Thread(target=_keep_last, args=(run, process.stdout), daemon=True)
    run.reader.start()
    return process


def _keep_last(run: DirectionRun, lines: IO[bytes]) -> None:
    with lines:
        for line in lines:
            run.summary = line.decode("utf-8", "replace").strip() or run.summary


def _look(run: DirectionRun) -> None:
    process = run.process
    if process is None:
        if run.due and time.monotonic() >= run.due:
            run.due, run.process = 0.0, _begun(run)
    elif process.poll() is not None:
        _ended(run, process)
        if run.code not in _FINAL:
            print(f"{run.direction}: ended with code {run.code}, and starts again", file=sys.stderr)
            run.code, run.due = None, time.monotonic() + _AGAIN_SECONDS


def _ended(run: DirectionRun, process: subprocess.Popen[bytes]) -> None:
    run.code, run.process = process.wait(), None
    if run.reader is not None:
        run.reader.join(_LAST_LINE_SECONDS)  # processes that the direction has started may keep the pipe open


def summary_of(name: str, runs: Sequence[DirectionRun]) -> dict[str, Any]:
    """Returns the JSON that each direction has printed at its end."""
    return {"zones": name, "directions": {str(run.direction): _json(run.summary) for run in runs}}


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def exit_code_of(runs: Sequence[DirectionRun]) -> int:
    """Returns the worst exit code. A process that a signal has ended counts as a failure."""
    codes = [run.code or 0 for run in runs]
    return PidtsError.exit_code if any(code < 0 for code in codes) else max(codes)
