"""Allows one writer per relay, by a file lock that the kernel releases whenever the writer's process ends.

A relay is emptied if the source has lost the log that follows the relay. Emptying needs the same lock, so no writer can
open the relay meanwhile. If another task still needs the removed log, that task gets the error `relay-purged` when it
next reads. If emptying is interrupted, the first segments are gone, as after a purge. The remaining segments have no
gap, and a second call removes them.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path

from pidts.model import Halted, Where
from pidts.relay.folder import Folder
from pidts.relay.permissions import FILE_MODE
from pidts.relay.refetch import forget_refetches

RELAY_IN_USE = "relay-in-use"
"""The code of an error that may pass: a killed replicator releases the lock at once, a frozen one later."""


class WriterLock:
    """The lock of a relay's writer. Creating this object takes the lock, and `release` releases it."""

    def __init__(self, path: Path, source_id: str) -> None:
        # The lock file is never removed or replaced: a process with the old file open would then lock another file.
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(self._handle, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(self._handle)
            what = f"another replicator, process {holder}, is writing this source's relay"
            todo = "Stop that process, or let it continue; two replicators would write the same events twice."
            raise Halted(RELAY_IN_USE, what, where=Where(source=source_id, file=str(path)), todo=todo) from error
        os.ftruncate(self._handle, 0)
        os.pwrite(self._handle, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Releases the lock for the next writer."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


def empty_relay(relay: Path | str, source_id: str) -> None:
    """Removes all segments and the files about them. Raises `relay-in-use` if a writer has the relay open."""
    folder = Folder.of(relay, source_id)
    if not folder.path.exists():
        return
    lock = WriterLock(folder.lock, source_id)
    try:
        for number in folder.numbers():
            folder.remove(number)
        for _, path in folder.logs():
            path.unlink(missing_ok=True)
        shutil.rmtree(folder.path / "structures", ignore_errors=True)
        forget_refetches(folder)
        folder.sync()
    finally:
        lock.release()
