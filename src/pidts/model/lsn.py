"""Places in a source's log: the log sequence number, and the server's own position.

An Lsn is computed from the log alone, and never from a counter: the same bytes always have the same Lsns. Lsns compare
in the order of the log. The first number, `change_no`, counts how often the source was replaced by another server. Then
follow the log file, the byte in that file, and the row in the event that begins at this byte.

A *transaction's* Lsn is the byte after its last event. The server itself reports this byte as its position after the
commit. A *row's* Lsn is the first byte of its event. So the Lsn of every row is greater than the Lsn of the previous
transaction, and less than the Lsn of its own transaction.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import ClassVar

_PACKED = struct.Struct(">IIQI")


@dataclass(frozen=True, slots=True)
class Position:
    """A log file and a byte offset, e.g. `bin.000042:1337`."""

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
        """Returns the position in a file named as servers do, with at least six digits."""
        return cls(f"{base}.{log_index:06}", offset)

    @property
    def base(self) -> str:
        """Returns the file's name without its number."""
        return self.file.rpartition(".")[0]

    @property
    def log_index(self) -> int:
        """Returns the file's number."""
        return int(self.file.rpartition(".")[2])

    def __str__(self) -> str:
        return f"{self.file}:{self.offset}"

    @classmethod
    def parse(cls, text: str) -> Position:
        """Parses the text that `str` returns."""
        file, _, offset = text.rpartition(":")
        if not (offset.isascii() and offset.isdigit()):
            raise ValueError(f"not a log position: {text!r} (expected file:offset)")
        return cls(file, int(offset))


@dataclass(frozen=True, slots=True, order=True)
class Lsn:
    """A place in the log of one source; totally ordered."""

    change_no: int
    log_index: int
    offset: int
    row: int = 0

    SIZE: ClassVar[int] = _PACKED.size

    def __post_init__(self) -> None:
        if not (0 <= self.change_no < 10**4 and 0 <= self.log_index < 2**32):
            raise ValueError(f"Lsn out of range: change {self.change_no}, log file {self.log_index}")
        if not (0 <= self.offset < 10**12 and 0 <= self.row < 2**32):
            raise ValueError(f"Lsn out of range: byte {self.offset}, row {self.row}")

    @classmethod
    def at(cls, position: Position, change_no: int = 0) -> Lsn:
        """Returns the Lsn of a server's own position."""
        return cls(change_no, position.log_index, position.offset)

    def position(self, log_base: str) -> Position:
        """Returns file and byte. `log_base` is the server's log name without its number (`bin` of `bin.000042`)."""
        return Position.of(log_base, self.log_index, self.offset)

    def at_row(self, row: int) -> Lsn:
        """Returns the place of another row in the same event."""
        return Lsn(self.change_no, self.log_index, self.offset, row)

    def __str__(self) -> str:
        """Returns a text of fixed width, so that texts sort in the order of the log."""
        return f"{self.change_no:04}.{self.log_index:010}.{self.offset:012}.{self.row:010}"

    @classmethod
    def parse(cls, text: str) -> Lsn:
        """Parses the text that `str` returns."""
        parts = text.split(".")
        if len(parts) != 4 or not all(part.isascii() and part.isdigit() for part in parts):
            raise ValueError(f"not an Lsn: {text!r} (expected change.log.offset.row)")
        return cls(*map(int, parts))

    def to_bytes(self) -> bytes:
        """Returns twenty bytes that sort like Lsns, for Arrow columns."""
        return _PACKED.pack(self.change_no, self.log_index, self.offset, self.row)

    @classmethod
    def from_bytes(cls, data: bytes) -> Lsn:
        """The inverse of `to_bytes`."""
        return cls(*_PACKED.unpack(data))
