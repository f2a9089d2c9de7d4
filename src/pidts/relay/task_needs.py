"""Records which part of a relay each task still needs, so that no purge removes log that a stopped task needs.

Each task has a small file, its *recorded need*, in the relay's folder. The file has the Lsn up to which the task's
target has the log. This Lsn is never after the target's checkpoint, so a purge need not read the checkpoint. The
recorded need of a stopped task stays until an operator removes it. As long as a new task's place is not known, the task
needs the whole relay.

One lock for all needs protects a new task from a purge. Without this lock, a purge could read the needs just before the
new task records its first need. The new task would find all log that it needs, and then the purge would remove the log.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pidts.durable_folder import replace_file
from pidts.model import Halted, Lsn, Transient, Where
from pidts.relay.folder import Folder
from pidts.relay.permissions import FILE_MODE, make_folder

_SUFFIX = ".json"


@dataclass(frozen=True, slots=True)
class Need:
    """The part of a relay that one task has recorded as needed."""

    task: str
    lsn: Lsn | None
    """The place up to which the target has all changes; None: the task needs the whole relay."""
    keep_seconds: int = 0
    """Log that was received within the last `keep_seconds` stays, even if the target has it."""
    written_at: float = 0.0
    """The time when the need was recorded, in seconds since 1970."""
    is_local: bool = False
    """True if a task of this machine has recorded the need; False if a relay server has recorded it for a follower's
    task. Also False for needs of earlier versions, which did not record this.
    """


@contextmanager
def needs_locked(folder: Folder) -> Iterator[None]:
    """Locks the needs: no need is recorded during a purge, and no purge begins while a need is recorded."""
    directory = _directory(folder)
    try:
        make_folder(directory)
        handle = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    except OSError as error:
        raise refused(folder, error) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def read_needs(folder: Folder) -> list[Need]:
    """Returns the needs of all tasks, sorted by task. If a file cannot be read, its task needs the whole relay."""
    found = []
    for path in sorted(_directory(folder).glob("*" + _SUFFIX)):
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            lsn = Lsn.parse(data["lsn"]) if data["lsn"] else None
            is_local = data.get("local") is True
            need = Need(path.stem, lsn, int(data["keep_seconds"]), float(data["written_at"]), is_local)
        except FileNotFoundError:
            continue
        except (ValueError, KeyError, TypeError):
            need = Need(path.stem, None)
        found.append(need)
    return found


def write_need(folder: Folder, need: Need) -> None:
    """Replaces a task's recorded need durably. The caller has the lock."""
    path = _directory(folder) / (need.task + _SUFFIX)
    lsn = str(need.lsn) if need.lsn else None
    data = {"task": need.task, "lsn": lsn, "keep_seconds": need.keep_seconds, "written_at": time.time()}
    if need.is_local:
        data["local"] = True
    try:
        replace_file(path, json.dumps(data) + "\n", durable=True)
    except OSError as error:
        raise refused(folder, error) from error


def forget_need(relay: Path | str, source_id: str, task: str) -> bool:
    """Removes a task's recorded need and returns whether there was one."""
    folder = Folder.of(relay, source_id)
    if task not in {need.task for need in read_needs(folder)}:
        return False
    with needs_locked(folder):
        (_directory(folder) / (task + _SUFFIX)).unlink(missing_ok=True)
    return True


def refused(folder: Folder, error: OSError) -> Halted | Transient:
    """Returns the error for a small file in the relay's folder that cannot be written."""
    where = Where(source=folder.source_id, file=str(error.filename or folder.path))
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return Transient("relay-full", "the relay's disk is full", where=where, todo="Make room on that disk.")
    todo = "Look at the disk and the folder's permissions, then start again."
    return Halted("relay-unwritable", f"the relay's folder cannot be written: {error.strerror}", where=where, todo=todo)


class TaskNeed:
    """Records from which place on a running task still needs the relay."""

    def __init__(self, relay: Path | str, source_id: str, task: str, keep_seconds: int = 0) -> None:
        self._folder = Folder.of(relay, source_id)
        self._task, self._keep_seconds = task, keep_seconds

    def begin(self) -> None:
        """Makes sure that the task has a recorded need: the last run's need, or the whole relay for a new task."""
        with needs_locked(self._folder):
            if not any(need.task == self._task for need in read_needs(self._folder)):
                write_need(self._folder, Need(self._task, None, self._keep_seconds, is_local=True))

    def move(self, lsn: Lsn) -> None:
        """Records that the target has all changes up to `lsn`. After the target was restored, `lsn` may go back."""
        with needs_locked(self._folder):
            write_need(self._folder, Need(self._task, lsn, self._keep_seconds, is_local=True))

    def withdraw(self) -> None:
        """Removes the need after a failed first start. A need without a place would keep the whole log for ever."""
        with needs_locked(self._folder):
            for need in read_needs(self._folder):
                if need.task == self._task and need.lsn is None:
                    (_directory(self._folder) / (self._task + _SUFFIX)).unlink(missing_ok=True)


def _directory(folder: Folder) -> Path:
    return folder.path / "needs"
