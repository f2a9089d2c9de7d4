"""Places in a source's log: the log sequence number, and the position as the server itself names it.

An Lsn is computed from the log alone, never handed out by a counter, so reading the same bytes again gives the
same numbers. It compares like the log is written: first by how often the source was replaced by another server
(`change_no`), then by log file, by byte in that file, and by row within the event that starts at this byte.

A *transaction's* Lsn is the byte after its last event, which is what the server itself reports as its position once
the transaction is committed. A *row's* Lsn is the first byte of the event that holds it. Every row therefore lies
strictly between the Lsn of the transaction before its own and the Lsn of its own.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import ClassVar

_PACKED = struct.Struct(">IIQI")


@dataclass(frozen=True, slots=True)
class Position:
    """Log file and byte offset, e.g. `bin.000042:1337`."""

    file: str
    offset: int

    def __post_init__(self) -> None:
        base, _, number = self.file.rpartition(".")
        if not base or not (number.isascii() and number.isdigit()):
            raise ValueError(f"not a binary log file name: {self.file!r} (expected base.number)")
        if self.offset < 0:
            raise ValueError(f"negative log offset: {self.offset}")

    @classmethod
    def of(cls, base: str, log_index: int, offset: int) -> Position:
        """The file is named as servers name it: at least six digits."""
        return cls(f"{base}.{log_index:06}", offset)

    @property
    def base(self) -> str:
        """The file's name without its number."""
        return self.file.rpartition(".")[0]

    @property
    def log_index(self) -> int:
        """The file's number."""
        return int(self.file.rpartition(".")[2])

    def __str__(self) -> str:
        return f"{self.file}:{self.offset}"

    @classmethod
    def parse(cls, text: str) -> Position:
        """The inverse of `str`."""
        file, _, offset = text.rpartition(":")
        if not (offset.isascii() and offset.isdigit()):
            raise ValueError(f"not a log position: {text!r} (expected file:offset)")
        return cls(file, int(offset))


@dataclass(frozen=True, slots=True, order=True)
class Lsn:
    """A point in the log of one source; totally ordered."""

    change_no: int
    log_index: int
    offset: int
    row: int = 0

    SIZE: ClassVar[int] = _PACKED.size

    def __post_init__(self) -> None:
        if not (0 <= self.change_no < 10**4 and 0 <= self.log_index < 2**32):
            raise ValueError(f"Lsn out of range: {self.change_no=} {self.log_index=}")
        if not (0 <= self.offset < 10**12 and 0 <= self.row < 2**32):
            raise ValueError(f"Lsn out of range: {self.offset=} {self.row=}")

    @classmethod
    def at(cls, position: Position, change_no: int = 0) -> Lsn:
        """The Lsn of a server's own position."""
        return cls(change_no, position.log_index, position.offset)

    def position(self, log_base: str) -> Position:
        """File and byte again; `log_base` is the server's log name without its number (`bin` of `bin.000042`)."""
        return Position.of(log_base, self.log_index, self.offset)

    def at_row(self, row: int) -> Lsn:
        """The same event, another of its rows."""
        return Lsn(self.change_no, self.log_index, self.offset, row)

    def __str__(self) -> str:
        """Fixed width, so that sorting the text sorts the log."""
        return f"{self.change_no:04}.{self.log_index:010}.{self.offset:012}.{self.row:010}"

    @classmethod
    def parse(cls, text: str) -> Lsn:
        """The inverse of `str`."""
        parts = text.split(".")
        if len(parts) != 4 or not all(part.isascii() and part.isdigit() for part in parts):
            raise ValueError(f"not an Lsn: {text!r} (expected change.log.offset.row)")
        return cls(*map(int, parts))

    def to_bytes(self) -> bytes:
        """Twenty bytes whose order is the Lsn's order; the form that travels in Arrow columns."""
        return _PACKED.pack(self.change_no, self.log_index, self.offset, self.row)

    @classmethod
    def from_bytes(cls, data: bytes) -> Lsn:
        """The inverse of `to_bytes`."""
        return cls(*_PACKED.unpack(data))
