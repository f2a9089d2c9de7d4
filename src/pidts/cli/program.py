"""Starts the program `pidts`. A signal that comes while its modules are loaded also ends a run as documented.

Loading the commands takes a second. Until then, SIGTERM would end the process as the signal does by default, with an
exit code that says nothing to a supervisor. So this module imports only what the interpreter has loaded anyway, and
the small module that says on a busy machine that the commands are being loaded. The exit code depends on the task
file: a run with `task-mode: full` that is stopped has not done its work. So a first signal is only noted until the file
has been read, a second later. A comparison that is stopped prints its result, so its signals are noted, too. All other
commands end at once.
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
"""The commands that act on a signal later if it comes while they are loaded."""
_WITH_VALUE = frozenset({"--log-level", "--log-format", "--log-file"})
_SAYING_STEPS = frozenset({"status", "query-status", "check", "check-task"})
"""The commands that say what they do if this takes long."""
_STOPPED = "stopped"
_noted: list[bool] = []
"""Has an item if a signal has come before the exit code was known."""


def main() -> None:
    """Runs the program with the arguments of this process."""
    before = signal.getsignal(signal.SIGINT)
    if _command(sys.argv[1:]) in _NOTING:
        note_signals()
    elif before is signal.default_int_handler:  # otherwise Ctrl-C is ignored, as in a background job of a script
        signal.signal(signal.SIGINT, lambda *_: _end(1))
    if _command(sys.argv[1:]) in _SAYING_STEPS and not any(word.startswith("--log-format") for word in sys.argv):
        begin_steps("loading the program")
    from pidts.cli.app import main as run_program

    if _command(sys.argv[1:]) not in _NOTING:
        signal.signal(signal.SIGINT, before)
    run_program()


def note_signals() -> None:
    """Lets `end_at_once_on_signals` act on a signal that comes before it is called.

    A second signal ends the process.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _note)


def has_noted_signal() -> bool:
    """Whether `note_signals` has noted a signal. From now on, signals have their usual effects."""
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
    """Prints the last line of a command that a signal has ended, with the task's name if it is known."""
    with suppress(OSError):
        os.write(2, f"\n{task and f'{task}: '}{_STOPPED}\n".encode())


def end_at_once_on_signals(code: int, task: str = "") -> None:
    """Lets SIGINT and SIGTERM end this process at once, with a last line that names the task, and this exit code.

    If `note_signals` has noted a signal, the process ends now.

    A command calls this before it loads its modules, which may take a minute while code is compiled. At that time the
    command has changed nothing. The process ends without the cleanup of the interpreter, which could free memory that
    the compiler still uses.
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
