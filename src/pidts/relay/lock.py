"""Allows one writer per relay: a file lock that the kernel releases when its process ends in any way."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from pidts.model import Halted, Where
from pidts.relay.permissions import FILE_MODE


class WriterLock:
    """A lock that is taken at construction and released by `release`."""

    def __init__(self, path: Path, source_id: str) -> None:
        # Never removed and never replaced: two files of one name would be two locks.
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(self._handle, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(self._handle)
            what = f"another replicator, process {holder}, is writing this source's relay"
            todo = "Stop that process, or let it continue; two of them would write the same events twice."
            raise Halted("relay-in-use", what, where=Where(source=source_id, file=str(path)), todo=todo) from error
        os.ftruncate(self._handle, 0)
        os.pwrite(self._handle, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Releases the lock for the next writer."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
