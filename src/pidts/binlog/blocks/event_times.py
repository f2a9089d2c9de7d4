"""Finds the time of a change by its Lsn, from the headers of the events.

The server does not send all events of a log file. So the place of an event among the received bytes cannot be computed
from its Lsn, and all headers are read in order. Neighbouring events mostly have the same time, which is stored once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pidts.binlog.machine_code import compiled
from pidts.binlog.walk import LogWalker, event_at
from pidts.model.lsn import Lsn

if TYPE_CHECKING:
    from pidts.binlog.blocks.header_times import HeaderTimes

_SECOND = 1_000_000
_FILE_BITS = 40
"""The number of bits for the place of a byte in a log file: more than the largest file needs."""
_LSN = np.dtype([("change_no", ">u4"), ("log_index", ">u4"), ("offset", ">u8"), ("row", ">u4")])


class CommitTimes:
    """The times of changes that were committed by events in one log file, in log order."""

    def __init__(self, places: npt.NDArray[np.int64], times: npt.NDArray[np.int64]) -> None:
        """For each event that commits changes, `places` has the byte of the log file at which the event begins.

        `times` has the times in the headers of these events.
        """
        self._places, self._times = places, times

    def of(self, lsns: pa.Array) -> pa.Array:
        """Returns the times of changes, in microseconds since 1970."""
        found = np.searchsorted(self._places, _fields(lsns)["offset"].astype(np.int64))
        return pa.array(self._times[found] * _SECOND)


def _fields(lsns: pa.Array) -> Any:
    begin = lsns.offset * Lsn.SIZE
    return np.frombuffer(lsns.buffers()[1], np.uint8)[begin : begin + len(lsns) * Lsn.SIZE].view(_LSN)


class EventTimes:
    """Collects the times of events in log order.

    Rows inside a compressed transaction have the Lsn of the compressed event, and so the time of this event.
    """

    def __init__(self, walker: LogWalker, commit_time: int | None = None) -> None:
        """`walker` starts before the first event. `commit_time`: the time of all changes, if one event commits them."""
        self._walker = walker
        self._commit_time = commit_time
        self._files: list[int] = []
        self._places: list[int] = []
        self._times: list[int] = []
        self._headers: HeaderTimes | None = None

    def add(self, raw: bytes | memoryview) -> None:
        """Adds the next events; `raw` contains whole events only."""
        if self._commit_time is not None:
            return
        view, at = memoryview(raw), 0
        while at < len(view):
            at = self._add_ordinary(raw, at) if compiled() else at
            if at < len(view):
                event = event_at(view, at)
                self._add_event(event)
                at += len(event)

    def _add_ordinary(self, raw: bytes | memoryview, at: int) -> int:
        """Adds events of one log file until an event needs `_add_event`; returns the byte of `raw` after them."""
        if self._headers is None:
            from pidts.binlog.blocks.header_times import HeaderTimes  # loads the compiler, so only when needed

            self._headers = HeaderTimes()
        is_new_file = not self._files or self._files[-1] != self._walker.log_index
        at, places, times = self._headers.read(raw, at, self._walker, -1 if is_new_file else self._times[-1])
        if places and is_new_file:
            self._files.append(self._walker.log_index)
        file = len(self._files) - 1 << _FILE_BITS
        self._places += [file | place for place in places]
        self._times += times
        return at

    def _add_event(self, event: memoryview) -> None:
        found = self._walker.pass_by(event)
        if found is None:
            return
        log_index, offset, time = found
        is_new_file = not self._files or self._files[-1] != log_index
        if is_new_file:
            self._files.append(log_index)
        if is_new_file or self._times[-1] != time:
            self._places.append(len(self._files) - 1 << _FILE_BITS | offset)
            self._times.append(time)

    def forget(self) -> None:
        """Forgets all events before the last one."""
        del self._places[:-1], self._times[:-1]

    def of(self, lsns: pa.Array) -> pa.Array:
        """Returns the times of changes, in microseconds since 1970."""
        if self._commit_time is not None:
            return pa.array(np.full(len(lsns), self._commit_time * _SECOND, np.int64))
        fields = _fields(lsns)
        files = np.searchsorted(np.array(self._files, np.int64), fields["log_index"].astype(np.int64))
        places = files << _FILE_BITS | fields["offset"].astype(np.int64)
        found = np.searchsorted(np.array(self._places, np.int64), places, "right") - 1
        return pa.array(np.array(self._times, np.int64)[found] * _SECOND)
