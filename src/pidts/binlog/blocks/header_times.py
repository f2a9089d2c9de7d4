"""Reads the times in the headers of many events in compiled code; for one event, `LogWalker.pass_by` does the same.

The code stops before three kinds of events: an event that is cut off by the end of the block, an event that is in no
log file (a heartbeat, an artificial ROTATE), and an event that changes how the log is read. The caller then passes this
event to the walker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pidts.binlog.events import FLAG_ARTIFICIAL, HEADER_SIZE, EventType
from pidts.binlog.jit import address, jit, load8, load16, load32

if TYPE_CHECKING:
    from pidts.binlog.walk import LogWalker

_ROOM = 4096
_WRAP = 2**32
_ROTATE, _FORMAT, _ENCRYPTION = EventType.ROTATE, EventType.FORMAT_DESCRIPTION, EventType.START_ENCRYPTION
_BEAT, _BEAT_2 = EventType.HEARTBEAT, EventType.HEARTBEAT_V2


class HeaderTimes:
    """Reads the times of the events in blocks; its arrays are reused from block to block."""

    def __init__(self) -> None:
        self._places, self._times = np.empty(_ROOM, np.int64), np.empty(_ROOM, np.int64)
        self._state = np.empty(3, np.int64)

    def read(
        self, block: bytes | memoryview, at: int, walker: LogWalker, last: int
    ) -> tuple[int, list[int], list[int]]:
        """Reads events from byte `at` of the block on, and moves the walker past them.

        Returns the byte of the block after them, and the places and times of events. An event is listed only if its
        time differs from the previous event's time. `last` is the time before the first event, -1 if there is none.
        """
        self._state[:] = walker.offset, last, 0
        begin = address(block)
        end = _read(begin + at, begin + len(block), self._state, self._places, self._times) - begin
        walker.offset, _, count = self._state.tolist()
        return end, self._places[:count].tolist(), self._times[:count].tolist()


@jit
def _read(at: int, end: int, state: Any, places: Any, times: Any) -> int:
    offset, last, count = state[0], state[1], 0
    while end - at >= HEADER_SIZE and count < len(places):
        kind, size, log_pos, flags = load8(at + 4), load32(at + 9), load32(at + 13), load16(at + 17)
        if size < HEADER_SIZE or size > end - at or flags & FLAG_ARTIFICIAL:
            break
        if kind in (_ROTATE, _FORMAT, _ENCRYPTION, _BEAT, _BEAT_2):
            break
        if log_pos:
            ahead = (log_pos - size - offset) % _WRAP
            offset += ahead if ahead < _WRAP // 2 else ahead - _WRAP
        time = load32(at)
        if time != last:
            places[count], times[count], last = offset, time, time
            count += 1
        offset += size
        at += size
    state[0], state[1], state[2] = offset, last, count
    return at
