"""Reads the raw events of a log for `pidts events` and the Spark source, in each process that decodes them.

A log can be in a relay, in binary log files, or on the server. A `Span` names whole events in any of these three. The
span is sent to a Spark task, and the task reads the bytes from the store.
"""

from __future__ import annotations

import secrets
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from pidts.binlog import EventType, Format, LogWalker, Query, iter_raw
from pidts.binlog.events import HEADER, HEADER_SIZE, is_artificial
from pidts.binlog.statements import logged_statements
from pidts.binlog.walk import event_at, format_of
from pidts.excerpt.blocks import server_blocks
from pidts.excerpt.files import FIRST_EVENT, is_packed, open_file
from pidts.model import Extent, Position
from pidts.model.errors import Transient
from pidts.relay import RelayReader
from pidts.relay.folder import Folder
from pidts.relay.refetch import Refetch, read_refetches
from pidts.source import SourceConfig

_WRAP = 2**32


@dataclass(frozen=True, slots=True)
class Span:
    """A range of bytes with whole, consecutive events, in a *container*: a relay segment or a log file."""

    container: str
    offset: int
    size: int

    @property
    def end(self) -> int:
        """The offset of the first byte after the span."""
        return self.offset + self.size

    def upto(self, other: Span) -> Span:
        """Returns the span from the beginning of this one to the end of a later one in the same container."""
        return Span(self.container, self.offset, other.end - self.offset)


class Store(Protocol):
    """A log on a server, in files or in a relay. Stores can be pickled."""

    def read(self, span: Span) -> tuple[Format, bytes]:
        """Returns the format of the log and the bytes of the events."""


@dataclass(frozen=True, slots=True)
class RelayStore:
    """A relay's folder. A span's container is the number of a segment."""

    relay: Path
    source_id: str

    def read(self, span: Span) -> tuple[Format, bytes]:
        """Reads the span from the segment's file."""
        with closing(RelayReader(self.relay, self.source_id)) as reader:
            segment = int(span.container)
            return format_of(reader.format(segment)), reader.read(Extent(segment, span.offset, span.size))


def came_again(store: Store) -> tuple[Refetch, ...]:
    """Returns the parts of the log that a relay has received twice because they were damaged in the relay."""
    return read_refetches(Folder.of(store.relay, store.source_id)).done if isinstance(store, RelayStore) else ()


@dataclass(frozen=True, slots=True)
class FileStore:
    """Binary log files, plain or compressed. A span's container is the path of a file."""

    def read(self, span: Span) -> tuple[Format, bytes]:
        """Reads the span from the file."""
        path = Path(span.container)
        if is_packed(path):
            content = _unpacked(path)
            return _first_format(content), content[span.offset : span.end]
        with open_file(path) as file:
            head = file.read(FIRST_EVENT + HEADER_SIZE)
            head += file.read(int.from_bytes(head[FIRST_EVENT:][9:13], "little") - HEADER_SIZE)
            file.seek(span.offset)
            return _first_format(head), file.read(span.size)


@dataclass(frozen=True, slots=True)
class ServerStore:
    """A server, which can send any part of its log once more. A span's container is the name of a log file."""

    config: SourceConfig

    def read(self, span: Span) -> tuple[Format, bytes]:
        """Reads the span from a new binlog dump connection, which begins at the offset of the span."""
        events = self._events(span)
        log_format = format_of(next(events))
        return log_format, b"".join(bytes(raw) for raw in events)

    def statements(self, span: Span) -> Iterator[Query]:
        """Yields the statements in the span. They are read one by one: rows between them may need much memory."""
        events = self._events(span)
        walker = LogWalker(span.container, span.offset, format_of(next(events)))
        with closing(events):
            yield from logged_statements(walker, events)

    def _events(self, span: Span) -> Generator[bytes | memoryview, None, None]:
        """Yields the event that describes the log's format, and then the raw events of the span."""
        is_described = False
        reached = span.offset
        # Every dump needs its own server id: if another replica uses the same id, the server disconnects this one.
        number = secrets.randbelow(2**31) + 2**31 - 1
        begins = Position(span.container, span.offset)
        for block in server_blocks(self.config, begins, server_id=number):
            for raw in iter_raw(block.data):
                _, kind, _, size, log_pos, flags = HEADER.unpack_from(raw)
                if kind == EventType.FORMAT_DESCRIPTION and not is_described:
                    is_described = True
                    yield raw
                if is_artificial(kind, flags, log_pos):
                    continue
                yield raw
                reached += (log_pos - reached) % _WRAP if log_pos else size
                if is_described and reached >= span.end:
                    return
                if kind == EventType.ROTATE:
                    break
        what = f"the server's log ended before {span.container}:{span.end}"
        raise Transient("source-lost", what, where=self.config.where)


def _first_format(content: bytes) -> Format:
    return format_of(event_at(memoryview(content), FIRST_EVENT))


@lru_cache(maxsize=1)
def _unpacked(path: Path) -> bytes:
    """Unpacks a file. Caches the result, since one Spark task reads all spans of a compressed file."""
    with open_file(path) as plain:
        return plain.read()
