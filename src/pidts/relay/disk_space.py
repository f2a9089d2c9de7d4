"""Measures the free space on a relay's disk, and keeps a small reserve for beginning a segment on a full disk.

Without this module, a relay could get stuck. One segment has filled the disk, and all tasks have applied it. This
segment cannot be purged, since the last segment always stays. A new segment cannot begin, since it needs space. So:

1. A segment takes only a part of the free space. Purging segments makes space for the next segments.
2. If other files have filled the disk, the reserve is removed. Its space is enough for the two small files of a new
   segment. The segment before this new segment can then be purged.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from pidts.relay.permissions import FILE_MODE

_PART: Final = 4
"""A segment takes at most one quarter of the free space."""
_LEAST_SEGMENT: Final = 1 << 20
"""The smallest segment size, however little space is left."""
_LOW_BYTES: Final = 2 << 30
_LOW_PART: Final = 10
_RESERVE_BYTES: Final = 64 << 10
WORTH_TRYING: Final = _PART * _RESERVE_BYTES
"""The free space at which receiving continues and the reserve is created again."""


def free_bytes(folder: Path) -> int | None:
    """Returns the free space on the folder's disk; None if the file system does not report it."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize if found.f_blocks else None


def segment_limit(folder: Path, wanted: int) -> int:
    """Returns the size limit of a new segment: `wanted` bytes, or less on a nearly full disk."""
    free = free_bytes(folder)
    return wanted if free is None else min(wanted, max(_LEAST_SEGMENT, free // _PART))


def has_room(folder: Path, unfinished: int = 0) -> bool:
    """Whether receiving may be tried again after the disk was full.

    `unfinished` is the size of the part of a transaction that had been received when the disk became full. The whole
    transaction is received again: with less free space than `unfinished`, the disk would become full again.
    """
    found = os.statvfs(folder)
    size, free = found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
    least = min(WORTH_TRYING, size // _PART)
    return not size or free >= least + (unfinished + unfinished // _PART if unfinished > WORTH_TRYING else 0)


def low_space(folder: Path) -> str:
    """Returns a warning if the disk is nearly full, so that an operator can react in time; an empty text if not."""
    found = os.statvfs(folder)
    size, free = found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
    if not size or free >= min(_LOW_BYTES, size // _LOW_PART):
        return ""
    return f"the disk of the relay has {free / 1e6:,.0f} of {size / 1e6:,.0f} MB left; see: pidts relay purge TASK"


class Reserve:
    """A file of zeros next to the segments, which is removed when its space is needed."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "reserve"
        # A killed process may have left an incomplete file, whose space is not enough for a segment.
        self._is_kept = self._path.exists() and self._path.stat().st_size >= _RESERVE_BYTES

    def keep(self) -> None:
        """Creates the file if it is missing and the disk has plenty of free space."""
        if self._is_kept:
            return
        free = free_bytes(self._path.parent)
        if free is not None and free < WORTH_TRYING:
            return
        try:
            handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
            try:
                # The zeros are written, since a sparse file would reserve no space.
                written = os.write(handle, bytes(_RESERVE_BYTES))
                os.fsync(handle)
                self._is_kept = written == _RESERVE_BYTES
            finally:
                os.close(handle)
        except OSError:
            self._path.unlink(missing_ok=True)

    def give_up(self) -> None:
        """Removes the file, so that its space can be used."""
        self._path.unlink(missing_ok=True)
        self._is_kept = False
