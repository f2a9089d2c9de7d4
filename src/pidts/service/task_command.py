"""Runs a `pidts` command that connects to a task's servers, and returns the JSON that the command prints.

The command is a process of its own with a time limit. The service itself connects to no server: a server that does not
answer would delay its work for other tasks.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from pidts.model import PidtsError

_SECONDS: Final = 60.0
AT_ONCE: Final = 4
"""The largest number of commands that run at the same time."""
_MOST_OUTPUT: Final = 64 << 20
_places = threading.BoundedSemaphore(AT_ONCE)


class CommandFailed(PidtsError):
    """The error that a command has printed."""

    def __init__(self, code: str, error: dict[str, Any], exit_code: int) -> None:
        super().__init__(code, str(error.get("what", "")), todo=str(error.get("todo", "")))
        self.error, self.code_of_exit = error, exit_code

    def to_json(self) -> dict[str, Any]:
        """Returns the error as the command has printed it."""
        return self.error


class TimedOut(PidtsError):
    """The command has not ended in time."""


def run_command(words: Sequence[str], file: str, more: Sequence[str] = (), given: str = "") -> dict[str, Any]:
    """Returns what `pidts WORDS --json -- FILE MORE` prints, or raises the error that it prints.

    `given` is the command's standard input, for values that must not be visible in its arguments.
    """
    command = [sys.executable, "-m", "pidts", *words, "--json", "--", file, *more]
    if not _places.acquire(timeout=_SECONDS):
        raise _late(words)
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(given.encode(), timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise _late(words) from None
    finally:
        _places.release()
    value = last_object(output[-_MOST_OUTPUT:])
    if value is None:
        what = f"pidts {' '.join(words[:2])} has printed nothing, and ended with code {process.returncode}"
        raise PidtsError("unexpected", what, todo="This is a bug in pidts")
    if isinstance(value.get("error"), dict) and set(value) == {"error"}:
        error = value["error"]
        raise CommandFailed(error["code"], error, process.returncode)
    return value


def last_object(output: bytes) -> dict[str, Any] | None:
    """Returns the JSON object in the last line of an output; None if that line has none."""
    lines = output.rstrip().rsplit(b"\n", 1)
    try:
        value = json.loads(lines[-1])
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _late(words: Sequence[str]) -> TimedOut:
    what = f"pidts {' '.join(words[:2])} has not ended within {_SECONDS:.0f} seconds"
    return TimedOut("command-late", what, todo="Check whether the task's servers answer: run pidts check TASK")
