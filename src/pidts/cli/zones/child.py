"""Starts a `pidts run` for a command about zones. If the command ends, the kernel sends SIGTERM to the run."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from typing import IO

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)
"""The C library is loaded here and not in the child. A fork copies the loader's lock, but not another thread that may
hold it. So a child that loads a library could wait for ever.
"""


def start_run(
    command: Sequence[str], *, output: int | IO[str], environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Starts a run in a session of its own. So Ctrl-C reaches only the command, which then ends the run.

    The thread that calls this function must not end before the run: the kernel ends the run together with this thread.
    """
    parent = os.getpid()

    def end_with_parent() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)

    return subprocess.Popen(
        list(command),
        stdin=subprocess.DEVNULL,
        stdout=output,
        env=environment,
        start_new_session=True,
        preexec_fn=end_with_parent,  # noqa: PLW1509 - it makes one call to the kernel
    )
