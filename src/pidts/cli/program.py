"""Starts the program `pidts`, and handles signals that come while it loads the commands.

Loading takes a second. In this time, SIGTERM would end the process with an exit code that says nothing to a supervisor.
So this module imports only what the interpreter has loaded anyway, and the small module `slow_step`.

- A run needs its task file to know the exit code: with `task-mode: full`, a run that is stopped has not done its work.
  So its first signal is noted, and takes effect when the file has been read, a second later.
- A comparison that is stopped prints its result. So its first signal is noted, too.
- All other commands end at once.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from pidts.cli.slow_step import begin_steps

_NOTING = frozenset({"run", "apply", "start-task", "resume-task", "verify"})
"""The commands whose first signal is noted while they are loaded."""
_WITH_VALUE = frozenset({"--log-level", "--log-format", "--log-file"})
_SAYING_STEPS = frozenset({"status", "query-status", "check", "check-task"})
"""The commands that print their present step if it takes long (`slow_step`)."""
_STOPPED = "stopped"
_noted: list[bool] = []
"""Has an item if a signal was noted."""


def main() -> None:
    """Runs the program with the arguments of this process."""
    before = signal.getsignal(signal.SIGINT)
    if _command(sys.argv[1:]) in _NOTING:
        note_signals()
    elif before is signal.default_int_handler:  # if Ctrl-C is ignored, as in a background job of a script, it stays so
        signal.signal(signal.SIGINT, lambda *_: _end(1))
    if _command(sys.argv[1:]) in _SAYING_STEPS and not any(word.startswith("--log-format") for word in sys.argv):
        begin_steps("loading the program")
    from pidts.cli.app import main as run_program

    if _command(sys.argv[1:]) not in _NOTING:
        signal.signal(signal.SIGINT, before)
    run_program()


def note_signals() -> None:
    """Notes the first SIGINT or SIGTERM (`has_noted_signal`). A second signal ends the process."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _note)


def has_noted_signal() -> bool:
    """Returns whether `note_signals` has noted a signal, and gives signals their usual effects again."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    has_noted = bool(_noted)
    _noted.clear()
    return has_noted


def _note(*_: object) -> None:
    if _noted:
        _end(1)
    _noted.append(True)


def _end(code: int, task: str = "") -> NoReturn:
    say_stopped(task)
    os._exit(code)


def say_stopped(task: str = "") -> None:
    """Prints the last line of a command that a signal ends, with the task's name if it is known."""
    with suppress(OSError):
        os.write(2, f"\n{task and f'{task}: '}{_STOPPED}\n".encode())


def end_at_once_on_signals(code: int, task: str = "") -> None:
    """Lets SIGINT and SIGTERM end this process at once, with a last line that names the task, and this exit code.

    If `note_signals` has noted a signal, the process ends now.

    A command calls this before it loads large modules and compiles code, which may take minutes. Until then it has
    changed nothing. The process ends without the interpreter's clean-up, which could free memory still in use.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: _end(code, task))
    if _noted:
        _end(code, task)


def _command(arguments: Sequence[str]) -> str:
    """Returns the name of the command; empty if there is none."""
    words = iter(arguments)
    for word in words:
        if word in _WITH_VALUE:
            next(words, None)
        elif not word.startswith("-"):
            return word
    return ""
