"""A place in a server's binary log as the server itself names it: a file and a byte in it."""

from __future__ import annotations

from dataclasses import dataclass


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
