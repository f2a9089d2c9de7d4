"""Records when each part of a source's log came into the relay, in a file that is a ring of small records.

An index entry records the source's own time, which is in whole seconds on many servers. The ring records the time of
arrival by this machine's clock, and an estimate of when the source committed. The ring is only used to measure the lag:
no position depends on it, and a relay without it is complete.

A record covers the log after the previous record's Lsn, up to its own Lsn. When the ring is full, the oldest records
are overwritten. So the file never grows, and needs no space on a full disk. If a reader reads a record while the writer
is writing it, the record's checksum is wrong, and the reader tries again later.
"""

from __future__ import annotations

import os
import struct
import threading
from bisect import bisect_left
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from zlib import crc32

from pidts.model import LogEntry, Lsn
from pidts.relay.folder import Folder
from pidts.relay.permissions import FILE_MODE
from pidts.relay.segments.index import LsnKey, key_of

_RECORD = struct.Struct("<QIIQdd")
_SUM = struct.Struct("<I")
_SIZE = _RECORD.size + _SUM.size
_RECORDS: Final = 1 << 15
_TOGETHER_SECONDS: Final = 0.005
"""The last record covers all log that arrives within this number of seconds after the record's first bytes."""
_KEPT: Final = 4096
"""The writer keeps this number of the latest records in memory."""


@dataclass(frozen=True, slots=True)
class ReceiveTime:
    """The time at which a part of the log came into the relay."""

    number: int
    lsn: LsnKey
    """The last Lsn of the part."""
    at: float
    """The time of the arrival by this machine's clock, in seconds since 1970."""
    committed: float
    """The estimated time at which the source committed this part, by this machine's clock."""

    def pack(self) -> bytes:
        """Returns the record as bytes in the file's format."""
        body = _RECORD.pack(self.number, *self.lsn, self.at, self.committed)
        return body + _SUM.pack(crc32(body))

    @classmethod
    def unpack(cls, data: bytes) -> ReceiveTime | None:
        """Returns the record in these bytes; None if they have none, or if the writer is just writing it."""
        if len(data) < _SIZE or _SUM.unpack_from(data, _RECORD.size)[0] != crc32(data[: _RECORD.size]):
            return None
        number, change_no, log_index, offset, at, committed = _RECORD.unpack_from(data)
        return cls(number, (change_no, log_index, offset), at, committed) if number else None


def arrivals_path(folder: Folder) -> Path:
    """Returns the path of the ring."""
    return folder.path / "arrivals"


class ReceiveTimeWriter:
    """Writes the ring, for the replicator. If the disk refuses a write, only the lag becomes less exact."""

    def __init__(self, folder: Folder) -> None:
        self._handle = -1
        self._recent: deque[ReceiveTime] = deque(maxlen=_KEPT)
        with suppress(OSError):
            self._handle = os.open(arrivals_path(folder), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
            self._recent.extend(_all(self._handle)[-1:])

    def note(self, lsn: Lsn, at: float, committed: float) -> None:
        """Notes that the relay now has the log up to this Lsn."""
        key, last = key_of(lsn), self._recent[-1] if self._recent else None
        if last is not None and last.lsn == key:
            return
        if last is not None and last.lsn < key and 0 <= at - last.at < _TOGETHER_SECONDS and len(self._recent) > 1:
            self._recent.pop()
            found = ReceiveTime(last.number, key, last.at, last.committed)
        else:
            found = ReceiveTime(last.number + 1 if last is not None else 1, key, at, committed)
        self._recent.append(found)
        if self._handle >= 0:
            with suppress(OSError):
                os.pwrite(self._handle, found.pack(), found.number % _RECORDS * _SIZE)

    def arrived(self, lsn: Lsn) -> float | None:
        """Returns when the log up to this Lsn arrived; None before it arrives, or if the kept records begin later."""
        known = list(self._recent)
        at = bisect_left(known, key_of(lsn), key=lambda one: one.lsn)
        return known[at].at if 0 < at < len(known) else None

    def close(self) -> None:
        """Closes the file."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


class ReceiveTimes:
    """Reads the ring while it is written; any thread may use it."""

    def __init__(self, folder: Folder) -> None:
        self._path = arrivals_path(folder)
        self._lock = threading.Lock()
        self._handle = -1
        self._known: list[ReceiveTime] = []

    def at(self, lsn: Lsn, *, after: bool = False) -> ReceiveTime | None:
        """Returns the known record that covers this Lsn, or with `after` the record that covers the byte after it.

        Returns None if no known record covers the Lsn or the byte.
        """
        with self._lock:
            self._read()
            place = key_of(lsn)
            if after:
                place = (*place[:2], place[2] + 1)
            at = bisect_left(self._known, place, key=lambda one: one.lsn)
            # The time of the first known record is not used, since it may cover log that came much earlier.
            return self._known[at] if 0 < at < len(self._known) else None

    def committed_at(self, entry: LogEntry, clock_ahead: float = 0.0) -> float:
        """Returns the commit time of the first transaction of an entry, by this machine's clock; 0 if unknown.

        If the ring does not have the transaction, the entry's own time is used, less `clock_ahead`: the number of
        seconds by which the source's clock is ahead.
        """
        arrival = self.at(entry.transaction.begin, after=True)
        if arrival is not None:
            return arrival.committed
        return entry.begun_at - clock_ahead if entry.begun_at else 0.0

    def close(self) -> None:
        """Closes the file."""
        with self._lock:
            if self._handle >= 0:
                os.close(self._handle)
                self._handle = -1

    def _read(self) -> None:
        """Reads the records since the last call, and the last known record, which may cover more log now."""
        try:
            if self._handle < 0:
                self._handle = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
                self._known = _all(self._handle)
                return
            number = self._known[-1].number if self._known else 1
            while (found := _one(self._handle, number)) is not None and found.number >= number:
                if found.number > number:
                    # The writer has written a whole ring since the last call.
                    self._known = _all(self._handle)
                    return
                self._take(found)
                number += 1
        except OSError:
            return

    def _take(self, found: ReceiveTime) -> None:
        # If the relay was cut back, it receives the same log again. Earlier records of the log after the cut are not
        # valid.
        while self._known and (self._known[-1].lsn >= found.lsn or self._known[-1].number >= found.number):
            self._known.pop()
        self._known.append(found)
        if len(self._known) > 2 * _RECORDS:
            del self._known[:_RECORDS]


def _one(handle: int, number: int) -> ReceiveTime | None:
    return ReceiveTime.unpack(os.pread(handle, _SIZE, number % _RECORDS * _SIZE))


def _all(handle: int) -> list[ReceiveTime]:
    """Returns the records in the order of writing, from the last cut of the relay or the last missing record on."""
    data = os.pread(handle, _RECORDS * _SIZE, 0)
    found = [one for at in range(0, len(data), _SIZE) if (one := ReceiveTime.unpack(data[at : at + _SIZE])) is not None]
    found.sort(key=lambda one: one.number)
    begin = 0
    for at in range(1, len(found)):
        if found[at].lsn <= found[at - 1].lsn or found[at].number != found[at - 1].number + 1:
            begin = at
    return found[begin:]
