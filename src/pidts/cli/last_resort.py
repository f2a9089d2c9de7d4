"""Ends a process whose orderly end does not come: a signal always ends a run, in a time that is known.

The counterexample: a statement waits for a server that has stopped answering, and has no limit of time, since others
take hours. The run is asked to end, and waits for the statement for ever. What a process leaves that is ended here is
what `kill -9` leaves, and each run begins from there.
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
"""How long the last words may take: nobody may read the pipe that they go to."""
_SPARE_SECONDS = 10.0


def end_within(seconds: float) -> None:
    """Ends this process and all that it has started, if it has not ended by itself after so many seconds."""
    # No thread runs Python code while another one keeps the interpreter's lock and waits; this one needs no lock. It
    # kills nobody: the kernel ends replicators with their parent, and a JVM ends when its standard input does.
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
    """Says what happens, and what each thread waits for."""
    what = f"the command has not ended within {seconds:.0f} seconds after a signal, and is ended now as kill -9 ends it"
    todo = "Start it again: it goes on from the target's checkpoint. The lines below say what it waited for"
    with suppress(OSError, ValueError):
        show_error(PidtsError("not-ended", what, todo=todo), as_json=False)
        faulthandler.dump_traceback(file=sys.stderr, all_threads=True)


def _below(root: int) -> Sequence[int]:
    """Returns the processes that a process has started, and those that they have started."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError, IndexError, ValueError):
                # The name of the program is in parentheses, and may hold spaces itself.
                parent = int((entry / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found = list(children.get(root, ()))
    for pid in found:
        found += children.get(pid, ())
    return found
