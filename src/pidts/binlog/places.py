"""The places of a stretch's events: in the bytes of the stretch, and in the log.

The two differ: a log file has events that its server does not send to replicas.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pidts.binlog.events import HEADER_SIZE

Numbers = NDArray[np.int64]

_HEADER = np.dtype(
    [("time", "<u4"), ("kind", "u1"), ("server", "<u4"), ("size", "<u4"), ("end", "<u4"), ("flags", "<u2")]
)
_SIZE = struct.Struct("<I")
_SIZE_AT = 9
_WRAP = 2**32


class EventPlaces:
    """The places and times of events. All arrays have one more: the place after the last event."""

    def __init__(self, raw: memoryview, begin: int) -> None:
        """`begin` is the first event's byte in its log file."""
        places, at = [], 0
        while at < len(raw):
            places.append(at)
            at += _SIZE.unpack_from(raw, at + _SIZE_AT)[0]
        self._bytes = np.frombuffer(raw, np.uint8)
        self.at: Numbers = np.array([*places, len(raw)], np.int64)
        heads: Any = self._bytes[self.at[:-1, None] + np.arange(HEADER_SIZE)].view(_HEADER)[:, 0]
        self.kinds = np.append(heads["kind"].astype(np.int64), 0)
        self.seconds = np.append(heads["time"].astype(np.int64), 0)
        self.offsets = _offsets(heads["end"].astype(np.int64), heads["size"].astype(np.int64), begin)

    def times(self, offsets: Numbers) -> Numbers:
        """Returns when the events at these places of the log were executed, in seconds since 1970."""
        found: Numbers = self.seconds[np.searchsorted(self.offsets, offsets)]
        return found

    def between(self, begin: int, end: int) -> slice:
        """The bytes from one place of the log to another."""
        first, last = np.searchsorted(self.offsets, [begin, end])
        return slice(int(self.at[first]), int(self.at[last]))

    def numbers(self, events: Numbers) -> Numbers:
        """The first eight bytes of the bodies of these events, which for an XID event are its number."""
        places = np.minimum(self.at[events] + HEADER_SIZE, len(self._bytes) - 8)
        found: Numbers = self._bytes[places[:, None] + np.arange(8)].view("<i8")[:, 0]
        return found


def _offsets(ends: Numbers, sizes: Numbers, begin: int) -> Numbers:
    """Headers have only 32 bits of where an event ends, or nothing, where it follows the one before."""
    for event in np.flatnonzero(ends == 0):
        ends[event] = (ends[event - 1] if event else begin) + sizes[event]
    steps = np.diff(np.concatenate([[begin], ends])) % _WRAP
    behind = begin + np.cumsum(steps)
    return np.concatenate([behind - sizes, behind[-1:] if len(behind) else [begin]])
