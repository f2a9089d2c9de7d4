"""The lock by which a service finds the processes of its tasks, even processes that an earlier service has started.

A process id in a file is not enough: after a crash, another program may have this id. A record lock of the kernel
belongs to one process. It ends with this process, and no child inherits it. The kernel tells the process id of the
lock's holder.
"""

from __future__ import annotations

import fcntl
import os
import signal
import struct
from pathlib import Path
from typing import Final

from pidts.relay.permissions import private_opener

_FLOCK: Final = "hhqqi4x"
"""struct flock of 64-bit Linux: type, whence, start, length, process."""


def take_lock(path: Path) -> bool:
    """Takes the lock until this process ends; returns False if another process has it.

    The file stays open as long as the process lives, since closing any descriptor of the file releases the lock.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return False
    return True


def holder_of(path: Path) -> int | None:
    """Returns the id of the process that has the lock; None if no process has it.

    The process that has the lock must not call this function. It would find the lock free, and would release it.
    """
    try:
        with open(path, "r+b", opener=private_opener) as file:
            asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            kind, *_, holder = struct.unpack(_FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, asked))
    except FileNotFoundError:
        return None
    return holder if kind != fcntl.F_UNLCK else None


def signal_holder(path: Path, number: signal.Signals) -> bool:
    """Sends a signal to the process that has the lock; returns False if no process has it.

    The function opens a descriptor of the process and then reads the lock's holder again. So the signal cannot reach
    another program with the same process id.
    """
    holder = holder_of(path)
    if not holder:
        return False
    try:
        process = os.pidfd_open(holder)
    except ProcessLookupError:
        return False
    try:
        if holder_of(path) != holder:
            return False
        signal.pidfd_send_signal(process, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(process)
    return True
