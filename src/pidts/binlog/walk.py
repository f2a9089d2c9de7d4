"""Follows a stream of raw events: finds each event's file, byte and format, and checks that no event is damaged."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator

from pidts.binlog.events import CHECKSUM_SIZE, HEADER, HEADER_SIZE, Event, EventType, Format, is_artificial, type_name
from pidts.model.errors import DecodeError, Where
from pidts.model.lsn import Position

MAGIC = b"\xfebin"
FILE_HEAD = len(MAGIC)
"""The offset of a log file's first event. In the relay, a file's last entry may end at this offset of the next file."""

_WRAP = 2**32
_LAST_FILE = 2**32
_LAST_BYTE = 10**12
_FLAGS_AT = 17
_SIZE_AT = 9
_IN_USE = 1
_TELLS_OF_FILES = frozenset({EventType.ROTATE, EventType.FORMAT_DESCRIPTION})


def format_of(event: bytes | memoryview) -> Format:
    """Parses a raw FORMAT_DESCRIPTION event."""
    return Format.parse(LogWalker().feed(event).body)


class LogWalker:
    """Turns raw events into `Event`s, from a server or from stored bytes.

    Positions in event headers have only 32 bits. The walker knows the byte at which it starts, and completes each
    further position with the help of the previous event's position.
    """

    def __init__(self, log_file: str = "", offset: int = 4, format: Format | None = None) -> None:  # noqa: A002
        self.format = format
        """The format in the last FORMAT_DESCRIPTION event."""
        self.file, self.log_index = log_file, _number(log_file)
        """The log file of the next event, and its number."""
        self.offset = offset
        """The byte after the last real event. A caller that checks events without the walker sets this offset."""

    def feed(self, raw: bytes | memoryview) -> Event:
        """Checks and returns the event in `raw`, and moves the walker past it."""
        view = memoryview(raw)
        if len(view) < HEADER_SIZE:
            raise self._bad("truncated", f"{len(view)} bytes are too few for an event")
        timestamp, kind, server_id, size, log_pos, flags = HEADER.unpack_from(view)
        if size != len(view):
            raise self._bad("bad-size", f"an event has {len(view)} bytes, but its header says {size}")
        body = self._checked(view, kind, log_pos)
        offset = self.offset
        if not is_artificial(kind, flags, log_pos):
            offset = self._place(log_pos, size)
            if offset < self.offset:
                raise self._bad("log-went-back", f"{type_name(kind)} claims to start at byte {offset}")
            self.offset = offset + size
        event = Event(kind, timestamp, server_id, flags, size, log_pos, offset, self.log_index, body)
        if kind == EventType.ROTATE:
            self._move(*rotate_target(body))
        elif kind == EventType.FORMAT_DESCRIPTION:
            self.format = Format.parse(body)
        return event

    def pass_by(self, raw: memoryview) -> tuple[int, int, int] | None:
        """Returns file number, byte and time of an event, and moves the walker past it, without checking the event.

        Returns None for an event of no log file, and for a ROTATE or FORMAT_DESCRIPTION, which is checked.
        """
        timestamp, kind, _, size, log_pos, flags = HEADER.unpack_from(raw)
        if kind in _TELLS_OF_FILES:
            self.feed(raw)
            return None
        if is_artificial(kind, flags, log_pos):
            return None
        offset = self._place(log_pos, size)
        self.offset = offset + size
        return self.log_index, offset, timestamp

    def check(self, kind: int, stored: tuple[int, int], found: tuple[int, int]) -> None:
        """Checks an event that came in pieces: raises unless its `stored` size and checksum equal the `found` ones."""
        if stored[0] != found[0]:
            raise self._bad("bad-size", f"an event has {found[0]} bytes, but its header says {stored[0]}")
        self._verify(found[1], stored[1], kind)

    def _place(self, log_pos: int, size: int) -> int:
        if log_pos == 0:
            return self.offset
        ahead = (log_pos - size - self.offset) % _WRAP
        return self.offset + (ahead if ahead < _WRAP // 2 else ahead - _WRAP)

    def _checked(self, view: memoryview, kind: int, log_pos: int) -> memoryview:
        """Checks the event's checksum, and returns the body without it."""
        if kind == EventType.FORMAT_DESCRIPTION:
            tail = Format.checksum_tail(view[HEADER_SIZE:])
            body = view[HEADER_SIZE : len(view) - tail]
            if tail and Format.parse(body).checksum:
                # When the server closes the file, it clears the flag "file is open" in place, and does not change the
                # checksum.
                header = bytearray(view[:HEADER_SIZE])
                header[_FLAGS_AT] &= ~_IN_USE
                self._verify(zlib.crc32(body, zlib.crc32(header)), _sum(view), kind)
            return body
        if kind == EventType.ROTATE and log_pos == 0:
            # The server's sending thread made this event. The first such event of a connection has no checksum, but
            # later ones may have a checksum.
            sealed = len(view) > HEADER_SIZE + CHECKSUM_SIZE and zlib.crc32(view[:-CHECKSUM_SIZE]) == _sum(view)
            return view[HEADER_SIZE : len(view) - CHECKSUM_SIZE * sealed]
        if self.format is None:
            raise self._bad("no-format", f"{type_name(kind)} comes before the event that describes the log's format")
        if not self.format.checksum:
            return view[HEADER_SIZE:]
        if len(view) < HEADER_SIZE + CHECKSUM_SIZE:
            raise self._bad("truncated", f"{type_name(kind)} has no room for its checksum")
        self._verify(zlib.crc32(view[:-CHECKSUM_SIZE]), _sum(view), kind)
        return view[HEADER_SIZE:-CHECKSUM_SIZE]

    def _verify(self, computed: int, stored: int, kind: int) -> None:
        if computed != stored:
            raise self._bad(
                "bad-checksum",
                f"{type_name(kind)} has checksum {stored:08x}, its bytes give {computed:08x}",
                "The log is damaged on the source's disk, in the network or in the relay: check the source's log with "
                "mariadb-binlog --verify-binlog-checksum",
            )

    def _move(self, file: str, offset: int) -> None:
        self.file, self.offset, self.log_index = file, offset, _number(file)

    def _bad(self, code: str, what: str, todo: str = "") -> DecodeError:
        return DecodeError(code, what, where=Where(position=f"{self.file}:{self.offset}"), todo=todo)


def iter_raw(buffer: bytes | memoryview, first: int = 0) -> Iterator[memoryview]:
    """Divides concatenated events by the sizes in their headers. `first`: see `event_at`."""
    view = memoryview(buffer)
    at = 0
    while at < len(view):
        raw = event_at(view, at, first)
        yield raw
        at += len(raw)


def event_at(view: memoryview, at: int, first: int = 0) -> memoryview:
    """Returns the event that begins at a byte; its header says how long the event is.

    If `view` is a piece of a longer block, `first` is the block's byte at which the piece begins. So an error names the
    byte of the block.
    """
    if at + HEADER_SIZE > len(view):
        raise DecodeError("truncated", f"the last event has {len(view) - at} bytes, not even a header")
    size = int.from_bytes(view[at + 9 : at + 13], "little")
    if size < HEADER_SIZE or at + size > len(view):
        raise DecodeError("bad-size", f"an event at byte {first + at} claims {size} bytes; {len(view) - at} are left")
    return view[at : at + size]


def rotate_target(body: memoryview) -> tuple[str, int]:
    """Returns the file and byte that a ROTATE event names."""
    if len(body) <= 8:
        raise DecodeError("truncated", "a ROTATE event has no file name")
    name, offset = bytes(body[8:]).rstrip(b"\0").decode("utf-8", "backslashreplace"), int.from_bytes(body[:8], "little")
    if offset >= _LAST_BYTE:
        raise DecodeError(
            "bad-position", f"a ROTATE event points to byte {offset} of {name}, which is not a valid position"
        )
    _number(name)
    return name, offset


def _number(file: str) -> int:
    """Returns the file's number; 0 if no file is known yet."""
    if not file:
        return 0
    try:
        number = Position(file, 0).log_index
    except ValueError as error:
        raise DecodeError("bad-name", str(error)) from error
    if number >= _LAST_FILE:
        raise DecodeError("bad-name", f"the number of the log file {file} is too large")
    return number


def _sum(view: memoryview) -> int:
    return int.from_bytes(view[-CHECKSUM_SIZE:], "little")


def whole_events(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yields the bytes of `chunks`, divided so that no event is in two pieces."""
    rest = b""
    for chunk in chunks:
        data = rest + chunk if rest else chunk
        end = _end_of_events(data)
        if end:
            yield data[:end] if end < len(data) else data
        rest = data[end:]
    if rest:
        yield rest  # the caller raises the error when it divides these bytes into events


def _end_of_events(data: bytes) -> int:
    at = 0
    while at + HEADER_SIZE <= len(data):
        size = int.from_bytes(data[at + _SIZE_AT : at + _SIZE_AT + 4], "little")
        if size < HEADER_SIZE or at + size > len(data):
            break
        at += size
    return at
