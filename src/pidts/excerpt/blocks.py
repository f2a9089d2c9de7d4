"""Yields a log as blocks of raw events, from a server or from binary log files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from pidts.binlog.events import EventType
from pidts.binlog.machine_code import compiled
from pidts.binlog.transactions import CompletedTransactions, TransactionReader
from pidts.binlog.walk import iter_raw
from pidts.excerpt.files import FIRST_EVENT, FileBlock, file_begin, log_name, read_file
from pidts.excerpt.range import Point
from pidts.excerpt.start_file import begin_of
from pidts.model import Position
from pidts.source import BinlogStream, BlockShape, SourceConfig, connect, log_end
from pidts.source.replica import reader_name

_STDIN = Path("-")
_TYPE_AT = 4


@dataclass(frozen=True, slots=True)
class LogBlock:
    """Whole, consecutive events. `data` is valid until the next block is read."""

    data: bytes | memoryview
    begins: Position | None = None
    """The place where a file begins. It is set in the first block of the log and of each file, if it is known."""
    container: str = ""
    """The file with the events; empty if a server sends them."""
    offset: int = 0
    """The byte at which the events begin, in the unpacked container."""


class LogInput(Protocol):
    """A log that can be read from its beginning."""

    @property
    def name(self) -> str:
        """The name of the log's source in the shown events."""

    def blocks(self) -> Iterator[LogBlock]:
        """Yields the whole log in order."""

    def again(self, place: Position) -> Iterator[LogBlock]:
        """Yields the log again up to its current end, from `place` or the beginning of the file that contains it."""


@dataclass(frozen=True, slots=True)
class ServerInput:
    """A server's log, received as a replica receives it, up to the log's current end or without an end."""

    server: SourceConfig
    start: Point | None
    follow: bool

    @property
    def name(self) -> str:
        """The server's name."""
        return self.server.source_id

    def blocks(self) -> Iterator[LogBlock]:
        """Yields the log that the server sends, block by block."""
        if self.follow and self.start is None:
            with closing(connect(self.server)) as session:
                begins = log_end(session)
        else:
            begins = begin_of(self.server, self.start)
        yield from server_blocks(self.server, begins, follow=self.follow)

    def again(self, place: Position) -> Iterator[LogBlock]:
        """Reads again with another replica id: with the same id, the server would end the first connection."""
        other = replace(self.server, server_id=None, source_id=f"{self.server.source_id} ahead")
        yield from server_blocks(other, place)


@dataclass(frozen=True, slots=True)
class FileInput:
    """Binary log files, in the order of their numbers; `-` is standard input."""

    paths: tuple[Path, ...]
    say: Callable[[str], None]
    name: str = ""

    def blocks(self) -> Iterator[LogBlock]:
        """Yields the blocks of every file."""
        for path in self.paths:
            yield from _of_file(path, self.say)

    def again(self, place: Position) -> Iterator[LogBlock]:
        """Reads the files again from a place. Notes for the user are not repeated."""
        for path in self.paths[[log_name(path) for path in self.paths].index(place.file) :]:
            yield from _of_file(path, lambda _: None)


def server_blocks(
    server: SourceConfig, begins: Position, *, follow: bool = False, server_id: int | None = None
) -> Iterator[LogBlock]:
    """Yields a server's log from a position on.

    With `follow`, the function waits for further log at the end of the log. `server_id` is the replica id with which
    the function connects; None: the id of `server`.
    """
    replica = reader_name(server.source_id)
    with BinlogStream(server, begins, non_blocking=not follow, server_id=server_id, replica=replica) as stream:
        yield LogBlock(b"", begins)
        while not stream.ended:
            if not compiled():
                yield LogBlock(b"".join(stream.read_burst()))
            elif (data := _whole(stream)) is not None:
                yield LogBlock(data)


def _whole(stream: BinlogStream) -> memoryview | None:
    """Returns the next block; None if there is none now. The pieces of a long event are joined."""
    long = bytearray()
    while not stream.ended:
        if (block := stream.read_block()) is None:
            if not long:
                return None
        elif block.shape is BlockShape.EVENTS:
            return block.data
        elif block.shape is BlockShape.ODD:
            return block.data[1:]
        else:
            long += block.data
            if block.shape is BlockShape.LAST_PIECE:
                return memoryview(long)
    return None


def _of_file(path: Path, say: Callable[[str], None]) -> Iterator[LogBlock]:
    if path == _STDIN:
        yield from _numbered(read_file(path, say))
        return
    for block in read_file(path, say):
        yield LogBlock(block.data, file_begin(path) if block.begins else None, str(path), block.offset)


def _numbered(blocks: Iterator[FileBlock]) -> Iterator[LogBlock]:
    """Numbers the files that follow each other on standard input, since they have no names.

    A file usually ends with the next file's name (not after a crash). PiDTS does not use these names: the first file's
    own name is not known, and the names of all files have to belong together.
    """
    number = 0
    for block in blocks:
        number += block.begins
        begins = Position.of(str(_STDIN), number, FIRST_EVENT) if block.begins else None
        yield LogBlock(b"".join(raw for raw in iter_raw(block.data) if raw[_TYPE_AT] != EventType.ROTATE), begins)


def completed(blocks: Iterable[LogBlock], change_no: int) -> Iterator[tuple[CompletedTransactions, LogBlock, str]]:
    """Yields the transactions that each block completes, with the block and the version of its server."""
    reader: TransactionReader | None = None
    for block in blocks:
        if block.begins is not None and reader is not None:
            reader.move_to(block.begins)
        elif block.begins is not None:
            reader = TransactionReader.at(block.begins, change_no)
        if reader is None:
            raise AssertionError("the first block of a log does not say where it begins")
        for found in reader.read(block.data):
            yield found, block, reader.version
