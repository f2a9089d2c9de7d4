"""Ends a process that does not stop by itself after a signal. So a signal always ends a run within a known time.

Without this module, a run could wait for ever: for a server that has stopped answering. Statements have no time limit,
since some of them take hours. A process that this module ends leaves the same state as after `kill -9`. Every run can
start from that state.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pidts.cli.errors import show_error
from pidts.model import PidtsError

_WRITE_SECONDS = 2.0
"""The time limit for the final message, which may go to a pipe that no program reads any more."""
_SPARE_SECONDS = 10.0


def end_within(seconds: float) -> None:
    """Ends this process and every process that it has started, unless it ends by itself within `seconds`."""
    # If a thread waits and keeps the interpreter's lock, `_end_after` cannot run. Then faulthandler ends the process:
    # its thread does not need that lock. Faulthandler need not kill child processes: the kernel ends replicators with
    # their parent, and a JVM ends when its standard input is closed.
    faulthandler.dump_traceback_later(seconds + _SPARE_SECONDS, exit=True, file=os.open(os.devnull, os.O_WRONLY))
    threading.Thread(target=_end_after, args=(seconds,), name="last resort", daemon=True).start()


def _end_after(seconds: float) -> None:
    time.sleep(seconds)
    speaker = threading.Thread(target=_say, args=(seconds,), daemon=True)
    speaker.start()
    speaker.join(_WRITE_SECONDS)
    for pid in _below(os.getpid()):
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    os._exit(PidtsError.exit_code)


def _say(seconds: float) -> None:
    what = (
        f"the command has not ended within {seconds:.0f} seconds after a signal, and is ended now, as kill -9 would do"
    )
    todo = "Start it again: it goes on from the target's checkpoint. The lines below show what it waited for"
    with suppress(OSError, ValueError):
        show_error(PidtsError("not-ended", what, todo=todo), as_json=False)
        faulthandler.dump_traceback(file=sys.stderr, all_threads=True)


def _below(root: int) -> Sequence[int]:
    """Returns the ids of all processes that a process has started, directly or through other processes."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError, IndexError, ValueError):
                # The program's name before the last parenthesis may contain spaces.
                parent = int((entry / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found = list(children.get(root, ()))
    for pid in found:
        found += children.get(pid, ())
    return found
