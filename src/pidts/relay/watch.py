"""Waits until a relay is written to, without polling: the kernel reports it at once (inotify).

The kernel may be unable to report this (other systems than Linux, or no watch left for this user), or may not notice it
(a network file system that another machine writes to). Then the wait ends after its time, and the caller checks.
"""

from __future__ import annotations

import ctypes
import os
import select
import struct
import sys
import time
import weakref
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_WRITTEN = 0x2 | 0x80 | 0x100
"""A file in the folder was written to, renamed or created."""
_EVENTS_BYTES = 64 << 10
_EVENT_BYTES = 16
"""The size of the event's data before the name."""
_NAME_SIZE = struct.Struct("=I")
"""The format of the last four of these bytes: the size of the name that follows."""
_LOOKS = 4
"""If the kernel cannot report writes, a wait lasts only one quarter of its time, and then the caller checks."""


class FolderWatch:
    """Watches one folder, from the first call of `wait` on. Only one thread may use it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._handle: int | None = None
        self._end: weakref.finalize[[int], FolderWatch] | None = None
        """Ends the watch; a process can have only a few."""
        self._is_begun = False

    def wait(self, seconds: float) -> None:
        """Waits until something was written in the folder since the last call, at most for this time.

        The first call begins the watch and returns at once, since earlier writes were not reported.
        """
        if not self._is_begun:
            self._is_begun, self._handle = True, _watched(self._folder)
            self._end = weakref.finalize(self, os.close, self._handle) if self._handle is not None else None
            return
        if self._handle is None:
            time.sleep(seconds / _LOOKS)
            return
        ends, left = time.monotonic() + seconds, seconds
        poll = select.poll()
        poll.register(self._handle, select.POLLIN)
        while left >= 0 and poll.poll(left * 1000):
            with suppress(BlockingIOError):
                if any(map(_is_news, _names(os.read(self._handle, _EVENTS_BYTES)))):
                    return
            left = ends - time.monotonic()

    def close(self) -> None:
        """Ends the watch."""
        self._handle = None
        if self._end is not None:
            self._end()


def _names(events: bytes) -> Iterator[bytes]:
    """Yields the name of each event's file; an empty name if the kernel has lost events."""
    at = 0
    while at < len(events):
        (size,) = _NAME_SIZE.unpack_from(events, at + _EVENT_BYTES - _NAME_SIZE.size)
        at += _EVENT_BYTES
        yield events[at : at + size].rstrip(b"\0")
        at += size


def _is_news(name: bytes) -> bool:
    """Whether a reader may find more than before the write to this file.

    New events alone are no news: readers see them only once the index has them.
    """
    return not name.endswith(b".log") and name != b"arrivals"


def _watched(folder: Path) -> int | None:
    """Returns the descriptor of a watch for changes in the folder; None if the kernel cannot report them."""
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
