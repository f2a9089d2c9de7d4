"""Waits, without polling, until a relay is written to. The kernel reports a write at once (inotify).

A reader sees new events only when the index lists them. So among the folder's files, only the newest index is watched
for writes. Other files that readers need are replaced as a whole: the kernel reports their names as new.

The kernel cannot report a write on systems other than Linux, or if this user's limit of watches is reached. It never
notices a write of another machine to a network file system. In these cases the wait ends after a limited time, and the
caller reads again. If the folder is missing, or vanishes and appears again, the watch begins anew.
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

_MODIFIED, _CREATED, _MOVED_HERE, _DELETED = 0x2, 0x100, 0x80, 0x200
_MOVED_ITSELF, _LOST, _ENDED = 0x800, 0x4000, 0x8000
"""Kinds of events: `_LOST` if the kernel has dropped events, `_ENDED` if the watched folder or file is gone."""
_EVENTS_BYTES = 64 << 10
_EVENT = struct.Struct("=iIII")
"""An event's watch, its kind, a number for renames, and the size of the name that follows."""
_NO_WATCH = -1
_INDEX = b".index"
_NOT_READ = (b".log", b".part", b"arrivals")
"""New files whose names end with one of these texts are ignored: readers do not read them, or not yet."""
_LOOKS = 4
"""If the kernel cannot report writes, a wait ends after a quarter of its time limit."""


class FolderWatch:
    """Watches one folder, from the first call of `wait` on. Only one thread may use it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._handle: int | None = None
        self._end: weakref.finalize[[int], FolderWatch] | None = None
        """Ends the watch when this object is garbage-collected: a process can have only a few watches."""
        self._is_begun = False
        self._poll = select.poll()
        self._folder_watch = _NO_WATCH
        self._index: Path | None = None
        self._index_watch = _NO_WATCH
        """The watch for writes to the newest index."""

    def wait(self, seconds: float) -> None:
        """Waits at most `seconds`, until there may be more to read than at the last call.

        The first call begins the watch and returns at once, since earlier writes were not reported.
        """
        if not self._is_begun:
            self._begin()
            return
        if self._handle is None:
            time.sleep(seconds / _LOOKS)
            self._begin()
            return
        ends, left = time.monotonic() + seconds, seconds
        while left >= 0 and self._poll.poll(left * 1000):
            with suppress(BlockingIOError):
                if self._is_news(os.read(self._handle, _EVENTS_BYTES)):
                    return
            left = ends - time.monotonic()

    def close(self) -> None:
        """Ends the watch."""
        self._handle = None
        if self._end is not None:
            self._end()

    def _begin(self) -> None:
        self._is_begun = True
        found = _watched(self._folder)
        if found is None:
            return
        self._handle, self._folder_watch = found
        self._end = weakref.finalize(self, os.close, self._handle)
        self._poll = select.poll()
        self._poll.register(self._handle, select.POLLIN)
        self._index, self._index_watch = None, _NO_WATCH
        self._watch_newest(self._handle)

    def _is_news(self, events: bytes) -> bool:
        """Whether a reader may find more after these events. If the newest index has changed, watches the new one."""
        is_news, has_changed = False, False
        for watch, kind, name in _parsed(events):
            if watch == self._folder_watch and kind & (_ENDED | _MOVED_ITSELF):
                self.close()
                return True
            if watch == self._index_watch or kind & _LOST:
                is_news, has_changed = True, has_changed or not kind & _MODIFIED
            elif name.endswith(_INDEX):
                is_news = has_changed = True
            elif name and not name.endswith(_NOT_READ):
                is_news = True
        if has_changed and self._handle is not None:
            self._watch_newest(self._handle)
        return is_news

    def _watch_newest(self, handle: int) -> None:
        """Watches the newest index. The caller's next read finds all entries that were written to it before."""
        libc, newest = ctypes.CDLL(None), _newest_index(self._folder)
        if newest != self._index:
            libc.inotify_rm_watch(handle, self._index_watch)
        self._index, self._index_watch = newest, _NO_WATCH
        if newest is None:
            return
        # Even with the same name as before, the index may be another file.
        self._index_watch = int(libc.inotify_add_watch(handle, os.fsencode(newest), _MODIFIED))
        if self._index_watch < 0 and newest.exists():
            self.close()


def _parsed(events: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yields each event: its watch, its kind, and the name of the file if the folder is watched."""
    at = 0
    while at < len(events):
        watch, kind, _, size = _EVENT.unpack_from(events, at)
        at += _EVENT.size
        yield watch, kind, events[at : at + size].rstrip(b"\0")
        at += size


def _newest_index(folder: Path) -> Path | None:
    """Returns the newest index; None if there is none, or if the folder is gone."""
    with suppress(OSError):
        # `Path.glob` would raise FileNotFoundError if the folder vanishes while it is read.
        names = os.listdir(folder)  # noqa: PTH208
        return max((folder / name for name in names if name.endswith(_INDEX.decode())), default=None)
    return None


def _watched(folder: Path) -> tuple[int, int] | None:
    """Begins to watch which names appear in the folder or disappear. Returns a descriptor and the number of the watch.

    Returns None if the kernel cannot report this, or if there is no such folder.
    """
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None)
    handle = int(libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))
    if handle < 0:
        return None
    kinds = _CREATED | _MOVED_HERE | _DELETED | _MOVED_ITSELF
    watch = int(libc.inotify_add_watch(handle, os.fsencode(folder), kinds))
    if watch < 0:
        os.close(handle)
        return None
    return handle, watch
