"""What each task still needs of a relay: a mark in the relay's own folder, so that nobody purges past a stopped task.

A mark says how far a task's target is. It is written before anything is purged and never ahead of the target's
checkpoint, so it may be believed without asking the target. A task that stopped keeps its mark until a person removes
it. A task that begins, and does not know yet from where, needs everything.

The counterexample that the lock prevents: a purge has read the marks, a second task writes its first mark and finds all
that it needs still there, and then the purge removes it.
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

from pidts.model import Halted, Lsn, Transient, Where
from pidts.relay.folder import Folder

_SUFFIX = ".json"


@dataclass(frozen=True, slots=True)
class Need:
    """One task's mark."""

    task: str
    lsn: Lsn | None
    """Everything up to here is on the task's target; None: nothing may be removed."""
    keep_seconds: int = 0
    """What was received less long ago stays, though the target has it."""
    written_at: float = 0.0
    """Seconds since 1970; how long a task has been silent."""


@contextmanager
def needs_locked(folder: Folder) -> Iterator[None]:
    """Keep marks from being written while a purge goes by them, and the reverse."""
    directory = _directory(folder)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        handle = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise refused(folder, error) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def read_needs(folder: Folder) -> list[Need]:
    """All marks, by task. One that cannot be read needs everything: it must not be passed over."""
    found = []
    for path in sorted(_directory(folder).glob("*" + _SUFFIX)):
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            lsn = Lsn.parse(data["lsn"]) if data["lsn"] else None
            need = Need(path.stem, lsn, int(data["keep_seconds"]), float(data["written_at"]))
        except FileNotFoundError:
            continue
        except (ValueError, KeyError, TypeError):
            need = Need(path.stem, None)
        found.append(need)
    return found


def write_need(folder: Folder, need: Need) -> None:
    """Replace a task's mark, durably. The caller holds the lock."""
    path = _directory(folder) / (need.task + _SUFFIX)
    data = {
        "task": need.task,
        "lsn": str(need.lsn) if need.lsn else None,
        "keep_seconds": need.keep_seconds,
        "written_at": time.time(),
    }
    try:
        replace_durably(path, json.dumps(data) + "\n")
    except OSError as error:
        raise refused(folder, error) from error


def forget_need(relay: Path | str, source_id: str, task: str) -> bool:
    """Remove a task's mark; whether there was one."""
    folder = Folder.of(relay, source_id)
    if task not in {need.task for need in read_needs(folder)}:
        return False
    with needs_locked(folder):
        (_directory(folder) / (task + _SUFFIX)).unlink(missing_ok=True)
    return True


def replace_durably(path: Path, text: str) -> None:
    """Write a whole file: whoever reads the name sees the old content or the new, also after a power loss."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with draft.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    handle = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def refused(folder: Folder, error: OSError) -> Halted | Transient:
    """The error for a small file beside the relay that the disk does not take."""
    where = Where(source=folder.source_id, file=str(error.filename or folder.path))
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return Transient("relay-full", "no room beside the relay", where=where, todo="Make room on that disk.")
    todo = "Look at the disk and the folder's permissions, then start again."
    return Halted("relay-unwritable", f"the relay's folder cannot be written: {error.strerror}", where=where, todo=todo)


class TaskMark:
    """A running task's own mark."""

    def __init__(self, relay: Path | str, source_id: str, task: str, keep_seconds: int = 0) -> None:
        self._folder = Folder.of(relay, source_id)
        self._task, self._keep_seconds = task, keep_seconds

    def begin(self) -> None:
        """Before the task knows where it stands: hold what its last run needed, or everything if it never ran."""
        with needs_locked(self._folder):
            if not any(need.task == self._task for need in read_needs(self._folder)):
                write_need(self._folder, Need(self._task, None, self._keep_seconds))

    def move(self, lsn: Lsn) -> None:
        """The target has everything up to here; back, too, where a target was restored."""
        with needs_locked(self._folder):
            write_need(self._folder, Need(self._task, lsn, self._keep_seconds))

    def withdraw(self) -> None:
        """The first start came to nothing: without a place, the mark would hold everything for ever."""
        with needs_locked(self._folder):
            for need in read_needs(self._folder):
                if need.task == self._task and need.lsn is None:
                    (_directory(self._folder) / (self._task + _SUFFIX)).unlink(missing_ok=True)


def _directory(folder: Folder) -> Path:
    return folder.path / "needs"
