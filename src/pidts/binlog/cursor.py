"""Reads small fields from untrusted bytes, never past their end."""

from __future__ import annotations

from pidts.model.errors import DecodeError


class Cursor:
    """Reads a byte string field by field. Raises `DecodeError` if a field goes past the end."""

    __slots__ = ("at", "data", "what")

    def __init__(self, data: bytes | memoryview, what: str) -> None:
        self.data = bytes(data)
        self.at = 0
        self.what = what

    @property
    def left(self) -> int:
        """Returns the number of unread bytes."""
        return len(self.data) - self.at

    def take(self, size: int) -> bytes:
        """Returns the next `size` bytes."""
        end = self.at + size
        if size < 0 or end > len(self.data):
            raise DecodeError("truncated", f"{self.what} ends within a field")
        piece = self.data[self.at : end]
        self.at = end
        return piece

    def rest(self) -> bytes:
        """Returns all remaining bytes."""
        return self.take(self.left)

    def uint(self, size: int) -> int:
        """Returns a little-endian number of `size` bytes."""
        return int.from_bytes(self.take(size), "little")

    def packed(self) -> int:
        """Returns a length-encoded number: one byte up to 250, else a marker byte, then 2, 3 or 8 bytes."""
        first = self.uint(1)
        if first < 251:
            return first
        if first in {251, 255}:
            raise DecodeError("bad-length", f"{self.what} has a number that begins with the impossible byte {first}")
        return self.uint({252: 2, 253: 3, 254: 8}[first])

    def name(self) -> str:
        """Returns a short text in UTF-8: length, bytes, and a zero byte."""
        raw = self.take(self.packed())
        if self.take(1) != b"\0":
            raise DecodeError("bad-name", f"{self.what} has a name that does not end with a zero byte")
        return text(raw, self.what)


def text(raw: bytes, what: str) -> str:
    """Decodes a name, or another text that servers write in UTF-8."""
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise DecodeError("bad-name", f"{what} has a name that is not UTF-8: {raw[:64].hex()}") from error
