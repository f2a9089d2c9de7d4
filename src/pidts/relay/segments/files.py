"""Opens and writes the two files of a segment, its events and its index, for a replicator and for a follower."""

from __future__ import annotations

import os
from pathlib import Path

from pidts.relay.folder import Folder
from pidts.relay.permissions import FILE_MODE


def open_file(path: Path, flags: int = 0) -> int:
    """Returns a handle for appending to the file."""
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | flags, FILE_MODE)


def write_all(handle: int, data: bytes | bytearray | memoryview) -> None:
    """Writes all of the data, even if the kernel takes only parts at a time."""
    done = 0
    with memoryview(data) as view:
        while done < len(view):
            done += os.write(handle, view[done:])


def make_segment(folder: Folder, number: int, log: bytes, index: bytes) -> list[int]:
    """Creates both files durably, with their first bytes; returns their handles. If this fails, it removes both."""
    paths = folder.log(number), folder.index(number)
    handles: list[int] = []
    try:
        for path, data in zip(paths, (log, index), strict=True):
            handles.append(open_file(path, os.O_CREAT | os.O_TRUNC))
            write_all(handles[-1], data)
            os.fsync(handles[-1])
        folder.sync()
    except OSError:
        for handle in handles:
            os.close(handle)
        for path in reversed(paths):  # The index is removed first, since it refers to the bytes of the log.
            path.unlink(missing_ok=True)
        raise
    return handles
