"""Ends a process without the interpreter's last step, which frees each object of each module.

After a run, this step would take half a second of processor time. In a forked process, it would also write to all
memory that the process shares with others, so the kernel would copy that memory first.

Nothing flushes a file that is still open, apart from stdout and stderr: code that writes a file also closes it.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from contextlib import suppress
from typing import NoReturn


def end_process(code: int) -> NoReturn:
    """Ends this process with an exit code, after its exit handlers and all threads that are not daemons have ended."""
    with suppress(KeyboardInterrupt):  # a second Ctrl-C: the threads are not waited for
        threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 - multiprocessing ends its processes like this
    atexit._run_exitfuncs()  # noqa: SLF001
    for file in filter(None, (sys.stdout, sys.stderr)):
        with suppress(OSError, ValueError):  # the reader has gone, or the file is closed
            file.flush()
    os._exit(code)
