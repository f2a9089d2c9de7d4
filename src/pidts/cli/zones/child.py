"""A `pidts run` that a command about zones starts: the kernel asks it to end when the command has ended."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from typing import IO

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)
"""Loaded here, not in the child: in the child, the loader's lock may belong to a thread that only the parent has."""


def start_run(
    command: Sequence[str], *, output: int | IO[str], environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Starts a run, in a session of its own: Ctrl-C reaches only the command, which ends the run.

    The thread that calls this must not end before the run: for the kernel it is the parent.
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
