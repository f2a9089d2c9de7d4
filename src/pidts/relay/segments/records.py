"""Reads the index files of a relay, their headers and records, one after the other, even while the files grow.

Records are not kept in memory, but the planner searches for several Lsns in each batch. So the reader notes the place
of one entry every few kilobytes. Near the end, it notes the places of all entries, since a small batch begins where the
previous batch ended.
"""

from __future__ import annotations

import os
import sys
import time
from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from pidts.binlog.machine_code import compiled
from pidts.model import Halted, Lsn
from pidts.plan.continuity import Discontinuity
from pidts.relay.folder import Folder
from pidts.relay.segments.index import Header, LsnKey, entry_key, is_damaged, payloads

if TYPE_CHECKING:
    from pidts.relay.segments.joined_records import JoinedTransactions, Most, Stops

_CHUNK = 256 << 10
_ALL = 1 << 30
_NOTE_EVERY = 16 << 10
_RECENT = 1024
"""For at least this many of the last entries, the place of every entry is noted."""
_WORTH_JOINING = 256
"""In fewer bytes than this, there are hardly two records, so these records are read without joining them."""
_WORTH_LOADING = 16 << 10
"""Replaces `_WORTH_JOINING` if the compiler would have to be loaded first."""
_COMPILER = "pidts.binlog.jit"
_SECOND = 1_000_000_000
_SETTLED_NANOSECONDS = 50_000_000
"""For this time after a change of a folder, further changes may get the same time: the file system's clock ticks every
10 ms.
"""


class IndexFiles:
    """The index files of one relay. Only one thread may use them."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self._headers: dict[int, Header] = {}
        self._notes: dict[int, tuple[list[LsnKey], list[int]]] = {}
        """For each segment, the Lsns of some entries, each with the place of the next entry."""
        self._recent: dict[int, tuple[list[LsnKey], list[int]]] = {}
        """For each segment, the Lsns of all of its last entries, each with the place of the next entry."""
        self._listing: tuple[int, list[int]] | None = None
        """The time of the folder's last change, and the folder's segments since that change."""

    def forget(self) -> None:
        """Clears the caches, since the files may have changed."""
        self._headers.clear()
        self._notes.clear()
        self._recent.clear()
        self._listing = None

    def numbers(self) -> list[int]:
        """Returns the segments that have an index file, in order; lists the folder only after a change.

        When a file appears or disappears, the folder's time changes. But two changes within one tick of the clock have
        the same time:

            changed (t), listed, changed again (t)        readers would never see the second change

        So a list is kept only if it was made some time after the folder's last change.
        """
        changed = self.folder.changed
        if self._listing is not None and self._listing[0] == changed:
            return self._listing[1]
        # If the time is a whole second, the file system probably stores only whole or only even seconds.
        since = _SETTLED_NANOSECONDS if changed % _SECOND else 3 * _SECOND
        is_settled = 0 < changed < time.time_ns() - since
        found = self.folder.numbers()
        self._listing = (changed, found) if is_settled else None
        return found

    def walk(self, segment: int, begin: int) -> Iterator[tuple[int, int, LsnKey | None, bytes]]:
        """Yields complete records from a place to the relay's end: segment, place after the record, key, payload."""
        return cast("Iterator[tuple[int, int, LsnKey | None, bytes]]", self.walk_joined(segment, begin, None))

    def walk_joined(
        self, segment: int, begin: int, stops: Stops | None, most: Most | None = None
    ) -> Iterator[tuple[int, int, LsnKey | None, bytes | JoinedTransactions]]:
        """Yields the same as `walk`, but neighbouring ordinary transactions are joined; see `joined_payloads`.

        With None as `stops`, no transactions are joined.
        """
        place = begin
        while True:
            broken = None
            try:
                # This check comes before the records are read: a segment with a successor does not grow any more.
                complete = self._successor(segment) is not None
            except Discontinuity as error:
                complete, broken = True, error
            for behind, payload in self._records(segment, place, stops, most):
                place = behind
                yield segment, place, entry_key(payload) if isinstance(payload, bytes) else payload.key, payload
            if complete:
                if self._size(segment) != place:
                    raise self.folder.damaged(segment, place)
                if broken is not None:
                    raise broken
                segment, place = segment + 1, 0
            elif self._successor(segment) is None:
                self._check_successors(segment)
                return

    def records(self, segment: int, place: int) -> Iterator[tuple[int, bytes]]:
        """Yields one segment's complete records from a place on, each with the place after it."""
        return cast("Iterator[tuple[int, bytes]]", self._records(segment, place, None))

    def _records(
        self, segment: int, place: int, stops: Stops | None, most: Most | None = None
    ) -> Iterator[tuple[int, bytes | JoinedTransactions]]:
        try:
            handle = os.open(self.folder.index(segment), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise self._missing(segment) from error
        try:
            chunk = _CHUNK
            while data := os.pread(handle, chunk, place):
                done = 0
                for done, payload in _found(data, stops, most):
                    yield place + done, payload
                place += done
                if len(data) < chunk and done == len(data):
                    return  # this was the end of the file
                if len(data) < chunk and not done:
                    break
                chunk = chunk if done else chunk * 4
            if data and is_damaged(os.pread(handle, _ALL, place)):
                raise self.folder.damaged(segment, place)
        finally:
            os.close(handle)

    def header(self, segment: int) -> Header | None:
        """Returns a segment's header; None if there is none, or if it is not complete yet."""
        if segment not in self._headers:
            try:
                header = self.folder.header(segment)
            except FileNotFoundError:
                return None
            if header is None:
                self._check_unfinished(segment)
                return None
            self._headers[segment] = header
        return self._headers[segment]

    def _successor(self, segment: int) -> Header | None:
        """Returns the next segment's header, if there is one. Listing is faster than opening a missing file."""
        return self.header(segment + 1) if segment + 1 in self.numbers() else None

    def listed(self) -> list[Header]:
        """Returns the headers up to the first damaged header. A later read raises the error for the damage."""
        found: list[Header] = []
        for number in self.numbers():
            try:
                header = self.header(number)
            except Discontinuity:
                if found:
                    break
                raise
            if header is not None:
                found.append(header)
        return found

    def newest(self) -> Header | None:
        """Returns the header of the last segment whose header is intact; None for an empty relay."""
        broken = None
        for number in reversed(self.numbers()):
            try:
                header = self.header(number)
            except Discontinuity as error:
                broken = error
                continue
            if header is not None:
                return header
        if broken is not None:
            raise broken
        return None

    def segment_of(self, after: Lsn | None) -> Header | None:
        """Returns the header of the segment in which the entry after `after` must be; None for an empty relay."""
        listed = self.listed()
        if not listed:
            return None
        if after is None:
            return listed[0]
        at = bisect_right(listed, after, key=lambda header: header.start)
        if at == 0:
            raise self.folder.purged(
                f"the relay begins after {listed[0].start}, so entries between {after} and that place are missing"
            )
        return listed[at - 1]

    def note(self, segment: int, key: LsnKey, place: int) -> None:
        """Notes that the entry with this Lsn ends at `place`, unless it repeats an earlier entry."""
        keys, places = self._notes.setdefault(segment, ([], []))
        if not keys or (place >= places[-1] + _NOTE_EVERY and key > keys[-1]):
            keys.append(key)
            places.append(place)
        if segment not in self._recent:
            for keys, places in self._recent.values():
                del keys[:-1], places[:-1]  # the last entry stays: by its place and Lsn, repeated entries are found
            self._recent[segment] = [], []
        keys, places = self._recent[segment]
        if not keys or (place > places[-1] and key > keys[-1]):
            keys.append(key)
            places.append(place)
            if len(keys) == 2 * _RECENT:
                del keys[:_RECENT], places[:_RECENT]

    def place(self, segment: int, key: LsnKey) -> int:
        """Returns the place at which to begin the search for entries after an Lsn."""
        for notes in (self._recent, self._notes):
            keys, places = notes.get(segment, ([], []))
            if at := bisect_right(keys, key):
                return places[at - 1]
        return 0

    def _size(self, segment: int) -> int:
        try:
            return self.folder.index(segment).stat().st_size
        except FileNotFoundError as error:
            raise self._missing(segment) from error

    def _check_unfinished(self, segment: int) -> None:
        """Raises if a segment's header is damaged, or if it is incomplete and other segments follow.

        The header of the last segment may be incomplete, since its writer may just be creating it.
        """
        numbers = self.numbers()
        try:
            data = self.folder.index(segment).read_bytes()
        except FileNotFoundError:
            return
        whole = next(payloads(data), None) is not None
        if not whole and (is_damaged(data) or numbers[-1:] > [segment]):
            raise self.folder.corrupt(segment, "the index's header is damaged")

    def _check_successors(self, segment: int) -> None:
        numbers = self.numbers()
        if not numbers or segment < numbers[0]:
            raise self._missing(segment)
        if segment + 1 < numbers[-1] and segment + 1 not in numbers:
            raise self._missing(segment + 1)

    def _missing(self, segment: int) -> Halted:
        """Returns the error for a missing segment: damage if older and newer segments exist, otherwise a purge."""
        numbers = self.folder.numbers()
        if numbers and numbers[0] < segment < numbers[-1]:
            return self.folder.corrupt(segment, "this segment is missing, but segments before and after it exist")
        return self.folder.purged(f"segment {segment} is gone")


def _found(
    data: bytes, stops: Stops | None, most: Most | None = None
) -> Iterator[tuple[int, bytes | JoinedTransactions]]:
    least = _WORTH_JOINING if _COMPILER in sys.modules else _WORTH_LOADING
    if stops is None or len(data) < least or not compiled():
        return payloads(data)
    from pidts.relay.segments.joined_records import joined_payloads  # this import loads the compiler

    return joined_payloads(data, stops, most)
