"""Reads binary log files, plain or compressed, as blocks of raw events.

Reading needs memory for one block and the largest event.
"""

from __future__ import annotations

import glob
import gzip
import io
import struct
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import zstandard

from pidts.binlog.events import HEADER_SIZE, EventType
from pidts.binlog.walk import MAGIC
from pidts.model import ConfigError, DecodeError, Position, Where

_ENCRYPTED = b"\xfdbin"
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_SUFFIXES = frozenset({".gz", ".zst", ".zstd"})
_BLOCK = 1 << 20
_PACKED = 16 << 10
_LARGEST = 1 << 31
_KIND_AT, _SIZE_AT, _FLAGS_AT, _IN_USE = 4, slice(9, 13), 17, 1
_HEAD = struct.Struct("<IBxxxxI")
"""The format of an event's header: time, kind and size are read from it."""
_MAGIC = int.from_bytes(MAGIC, "little")
_FORMAT, _ENCRYPTION = int(EventType.FORMAT_DESCRIPTION), int(EventType.START_ENCRYPTION)
FIRST_EVENT = len(MAGIC)
"""The place of the first event in every log file."""


@dataclass(frozen=True, slots=True)
class FileBlock:
    """Whole events, back to back as in the file."""

    data: memoryview
    offset: int
    """The byte at which the events begin, in the unpacked file."""
    begins: bool
    """Whether the block is the beginning of a log file."""


def read_file(path: Path, say: Callable[[str], None]) -> Iterator[FileBlock]:
    """Yields the blocks of one file; `-` is standard input, which may hold several files."""
    with open_file(path) as plain:
        yield from _blocks(plain, Where(file=str(path)), say)


@contextmanager
def open_file(path: Path) -> Iterator[io.BufferedReader]:
    """Opens a file for reading; the bytes of a compressed file are unpacked."""
    where = Where(file=str(path))
    try:
        with _opened(path) as raw, _unpacked(raw) as plain:
            yield plain
    except OSError as error:
        if isinstance(error, gzip.BadGzipFile):
            raise _damaged(error, where) from None
        raise ConfigError(
            "unreadable-file",
            f"the log file cannot be read: {error.strerror}",
            where=where,
            todo="Check the file's path, owner and mode",
        ) from None
    except (EOFError, zlib.error, zstandard.ZstdError) as error:
        raise _damaged(error, where) from None


def is_packed(path: Path) -> bool:
    """Whether the file is compressed. A compressed file can be read only from its beginning."""
    with path.open("rb") as file:
        head = file.read(len(_ZSTD))
    return head == _ZSTD or head.startswith(_GZIP)


def find_files(patterns: Iterable[str]) -> tuple[Path, ...]:
    """Returns the files that the patterns name or match, in the order of the files' numbers."""
    return tuple(sorted({Path(name) for pattern in patterns for name in glob.glob(pattern) or [pattern]}, key=_order))  # noqa: PTH207 - may be absolute


def log_name(path: Path) -> str:
    """Returns the name that the server gave the file."""
    return path.stem if path.suffix in _SUFFIXES else path.name


def file_begin(path: Path) -> Position:
    """Returns the place of the file's first event, with the name that the server gave the file."""
    try:
        return Position(log_name(path), FIRST_EVENT)
    except ValueError as error:
        todo = "Give the file the name that it has on its server: its number is part of each Lsn"
        raise ConfigError("not-a-binlog", str(error), where=Where(file=str(path)), todo=todo) from None


def _order(path: Path) -> tuple[str, int, str]:
    base, _, number = log_name(path).rpartition(".")
    return base, int(number) if number.isascii() and number.isdigit() else 0, str(path)


@contextmanager
def _opened(path: Path) -> Iterator[io.BufferedReader]:
    if str(path) == "-":
        yield cast("io.BufferedReader", sys.stdin.buffer)
        return
    with path.open("rb") as file:
        yield file


@contextmanager
def _unpacked(raw: io.BufferedReader) -> Iterator[io.BufferedReader]:
    """Unpacks a file. The first bytes show the format, since a file's name may be wrong."""
    head = raw.peek(len(_ZSTD))[: len(_ZSTD)]
    if head.startswith(_GZIP):
        with gzip.GzipFile(fileobj=raw) as plain:
            yield cast("io.BufferedReader", plain)
    elif head == _ZSTD:
        yield io.BufferedReader(_ZstdFile(raw), _BLOCK)
    else:
        yield raw


class _ZstdFile(io.RawIOBase):
    """Reads the frames of a file. The library's own reader would treat an incomplete frame as the end of the file."""

    def __init__(self, packed: io.BufferedReader) -> None:
        super().__init__()
        self._packed = packed
        self._frame = zstandard.ZstdDecompressor().decompressobj()
        self._in_frame = False
        self._plain = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Reads as `io.RawIOBase` describes."""
        while not self._plain:
            packed = self._frame.unused_data if self._frame.eof else b""
            if self._frame.eof:
                self._frame, self._in_frame = zstandard.ZstdDecompressor().decompressobj(), False
            packed = packed or self._packed.read1(_PACKED)
            if not packed:
                if self._in_frame:
                    raise EOFError("the last frame ends too early")
                return 0
            self._in_frame = True
            self._plain = memoryview(self._frame.decompress(packed))
        count = min(len(buffer), len(self._plain))
        buffer[:count] = self._plain[:count]
        self._plain = self._plain[count:]
        return count


def _blocks(plain: io.BufferedReader, where: Where, say: Callable[[str], None]) -> Iterator[FileBlock]:
    data = _exactly(plain, len(MAGIC))
    if data == _ENCRYPTED:
        raise _encrypted(where)
    if data != MAGIC:
        raise ConfigError(
            "not-a-binlog",
            "this is not a binary log file",
            where=where,
            todo="Name a binary log file of the server, such as bin.000042; it may be compressed (gzip, zstd)",
        )
    begins, in_use, missing, offset = False, False, 0, len(data)
    # The program that writes to a pipe may be slow, so bytes are used as soon as they come.
    while block := _exactly(plain, missing) if missing > _BLOCK else plain.read1(_BLOCK):
        view = memoryview(data + block)
        offset -= len(data)
        first, at, end, is_event = 0, 0, len(view), True
        while end - at >= HEADER_SIZE:
            time, kind, size = _HEAD.unpack_from(view, at)
            if time == _MAGIC and view[at + 4 + _KIND_AT] == _FORMAT:
                if at > first or begins:
                    yield FileBlock(view[first:at], offset + first, begins)
                at, begins = at + len(MAGIC), True
                first = at
                continue
            is_event = HEADER_SIZE <= size <= _LARGEST
            if not is_event or at + size > end:
                break
            if kind == _ENCRYPTION:
                raise _encrypted(where)
            if kind == _FORMAT:
                in_use = bool(view[at + _FLAGS_AT] & _IN_USE)
            at += size
        if at > first or begins:
            yield FileBlock(view[first:at], offset + first, begins)
        if not is_event:
            # The intact events before the damaged event were already yielded.
            size = int.from_bytes(view[at : at + HEADER_SIZE][_SIZE_AT], "little")
            place = Where(file=where.file, position=f"byte {offset + at}")
            raise DecodeError("bad-size", f"the header of an event gives its size as {size} bytes", where=place)
        begins = False
        offset += len(view)
        data = bytes(view[at:])
        missing = int.from_bytes(data[_SIZE_AT], "little") - len(data) if len(data) >= HEADER_SIZE else 0
    if data and not in_use:
        raise DecodeError("truncated", "the log file ends in the middle of an event", where=where)
    if data:
        say(f"{where.file}: the server was still writing this file; the last event is incomplete and is left out")


def _exactly(plain: io.BufferedReader, size: int) -> bytes:
    """Reads `size` bytes, or fewer at the end of the file."""
    parts = []
    while size > 0 and (part := plain.read(size)):
        parts.append(part)
        size -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _encrypted(where: Where) -> ConfigError:
    todo = "Read it from its server, which decrypts it: run pidts events mysql://user@host:port/ --from FILE:4"
    return ConfigError("not-a-binlog", "the log file is encrypted", where=where, todo=todo)


def _damaged(error: Exception, where: Where) -> DecodeError:
    return DecodeError("bad-compression", f"the log file cannot be unpacked: {error}", where=where)
