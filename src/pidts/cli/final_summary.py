"""Prints the summary of a run so that the user can read it, even if the reader of stdout has ended.

A terminal sends Ctrl-C to all programs of a pipeline. In `pidts run shop.yaml | tee run.log`, Ctrl-C ends `tee` at
once, while the task stops at the end of a transaction. Without this module, the summary would be lost, and the program
would end with an error.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

from pidts.cli.log_options import write_line

_TERMINAL = Path("/dev/tty")


def print_summary(text: str) -> None:
    """Prints to stdout. If this fails, prints to stderr. If this also fails, prints to the terminal."""
    if write_line(text, sys.stdout):
        return
    _discard(sys.stdout.fileno())
    if write_line(text, sys.stderr):
        return
    _discard(sys.stderr.fileno())
    with suppress(OSError), _TERMINAL.open("w", encoding="utf-8") as terminal:
        terminal.write(f"{text}\n")


def _discard(descriptor: int) -> None:
    """Redirects stdout or stderr to `/dev/null`, so that the interpreter can flush it at its exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
