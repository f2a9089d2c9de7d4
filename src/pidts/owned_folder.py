"""Creates temporary folders that belong to a running process, and removes the folders of killed processes.

The owner holds a lock on a file in the folder. The kernel releases this lock whenever the process ends, even if it is
killed. The next process that creates such a folder, for any task, removes the folders whose lock is free.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PREFIX: Final = "pidts-"
_LOCK: Final = "run.lock"
_making = threading.Lock()
_own: dict[int, OwnedFolder] = {}
"""The folder of this process, by process id: a process that is forked from this one gets its own folder."""


@dataclass(frozen=True, slots=True)
class OwnedFolder:
    """A temporary folder of a process."""

    path: Path
    lock: int
    """The descriptor of the lock.

    If a child inherits it, other processes do not remove the folder before the child has ended.
    """


@contextmanager
def owned_folder(name: str) -> Iterator[Path]:
    """Makes a folder that only this user can read, and removes it at the end. First removes abandoned folders."""
    with _locked_folder(name) as folder:
        yield folder.path


@contextmanager
def _locked_folder(name: str) -> Iterator[OwnedFolder]:
    for lock in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_LOCK}"):
        # Folders of other users cannot be opened, and another process may remove a folder at the same time.
        with suppress(OSError):
            _remove_if_abandoned(lock)
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{name}-"))
    # The file gets its name only after it is locked: another process would remove a folder whose lock is free.
    draft = folder / f"{_LOCK}.new"
    handle = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        draft.rename(folder / _LOCK)
        yield OwnedFolder(folder, handle)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def process_folder() -> OwnedFolder:
    """Returns the folder that exists as long as this process, for files that outlive a run in this process."""
    with _making:
        mine = _own.get(os.getpid())
        if mine is None:
            stack = ExitStack()
            mine = _own[os.getpid()] = stack.enter_context(_locked_folder("process"))
            atexit.register(_close, os.getpid(), stack)
        return mine


def _close(owner: int, stack: ExitStack) -> None:
    """Removes the folder, but not in a process that was forked from the owner: the owner still needs it."""
    if os.getpid() == owner:
        stack.close()


def _remove_if_abandoned(lock: Path) -> None:
    if lock.parent.is_symlink() or lock.parent.stat().st_uid != os.geteuid():
        return
    handle = os.open(lock, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(lock.parent, ignore_errors=True)
    finally:
        os.close(handle)
