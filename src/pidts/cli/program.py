"""Starts the program `pidts`. A signal that comes while its modules are loaded already ends a run as documented.

Loading the commands takes a second. Until then, SIGTERM would end the process as the signal does by default, with an
exit code that says nothing to a supervisor. So this module imports only what the interpreter has loaded anyway.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress

_RUNS = frozenset({"run", "apply", "start-task", "resume-task"})
_WITH_VALUE = frozenset({"--log-level", "--log-format", "--log-file"})
_BEFORE_START = "stopped"


def main() -> None:
    """Runs the program with the arguments of this process."""
    if _command(sys.argv[1:]) in _RUNS:
        end_at_once_on_signals(1 if "--until-synced" in sys.argv else 0)
    from pidts.cli.app import main as run_program

    run_program()


def end_at_once_on_signals(code: int) -> None:
    """Lets SIGINT and SIGTERM end this process at once, with a last line and this exit code.

    A command calls this before it loads its modules, which may take a minute while code is compiled. At that time the
    command has changed nothing. The process ends without the cleanup of the interpreter, which could free memory that
    the compiler still uses.
    """

    def on_signal(*_: object) -> None:
        with suppress(OSError):
            os.write(2, f"\n{_BEFORE_START}\n".encode())
        os._exit(code)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)


def _command(arguments: Sequence[str]) -> str:
    """Returns the name of the command; empty if there is none."""
    words = iter(arguments)
    for word in words:
        if word in _WITH_VALUE:
            next(words, None)
        elif not word.startswith("-"):
            return word
    return ""
