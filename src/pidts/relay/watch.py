"""Waits until a relay is written to: the kernel says so, at once and without looks in between (inotify).

Where the kernel cannot tell (another system than Linux, no watch left for this user), or does not hear of it (a network
file system, written to from another machine), the wait ends after its time, and the caller looks.
"""

from __future__ import annotations

import ctypes
import os
import select
import sys
import time
from contextlib import suppress
from pathlib import Path

_WRITTEN = 0x2 | 0x80 | 0x100
"""A file in the folder was written to, got its name, or was made."""
_EVENTS_BYTES = 64 << 10
_POLL_SECONDS = 0.002


class FolderWatch:
    """Watches one folder. One thread may use it."""

    def __init__(self, folder: Path) -> None:
        self._handle = _watched(folder)

    def wait(self, seconds: float) -> None:
        """Waits until something was written in the folder since the last call, at most for this time."""
        if self._handle is None:
            time.sleep(min(seconds, _POLL_SECONDS))
            return
        poll = select.poll()
        poll.register(self._handle, select.POLLIN)
        if poll.poll(seconds * 1000):
            with suppress(BlockingIOError):
                os.read(self._handle, _EVENTS_BYTES)

    def close(self) -> None:
        """Ends the watch."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def _watched(folder: Path) -> int | None:
    """Returns what can be waited for; None where the kernel does not tell."""
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None)
    handle = int(libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))
    if handle < 0:
        return None
    if libc.inotify_add_watch(handle, os.fsencode(folder), _WRITTEN) < 0:
        os.close(handle)
        return None
    return handle
