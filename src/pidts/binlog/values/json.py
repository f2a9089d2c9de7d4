"""Converts MySQL's binary JSON to the text that the server itself writes.

A document is a type byte and a value. An object or array begins with the number of its members, its size in bytes, and
a table of entries. The entry of a small value contains the value. The entry of a larger value has the value's offset
from the container's first byte. Large containers use four bytes for counts and offsets; small containers use two.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator

from pidts.binlog.values import decimals
from pidts.model.errors import DecodeError

_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY = 0, 1, 2, 3
_LITERAL, _DOUBLE, _STRING, _OPAQUE = 4, 11, 12, 15
_INTEGERS = {5: "<h", 6: "<H", 7: "<i", 8: "<I", 9: "<q", 10: "<Q"}
_LITERALS = {0: "null", 1: "true", 2: "false"}
_INLINE_SMALL = frozenset({_LITERAL, 5, 6})
_INLINE_LARGE = _INLINE_SMALL | {7, 8}

_TIMESTAMP, _DATE, _TIME, _DATETIME, _DECIMAL = 7, 10, 11, 12, 246

_DEPTH = 100
"""The server allows no deeper document."""

_ESCAPES = {code: f"\\u{code:04x}" for code in range(32)}
_ESCAPES |= {8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r", 34: '\\"', 92: "\\\\"}


class Array(list["Node"]):
    """The members of an array."""


class Object(list[tuple[str, "Node"]]):
    """The members of an object in the order in which the server keeps them: shorter names first, then by bytes."""

    def get(self, name: str) -> Node | None:
        """Returns a member's value; None if there is no member of this name."""
        return next((value for key, value in self if key == name), None)

    def change(self, name: str, value: Node | None) -> None:
        """Sets, adds or (without a value) removes a member."""
        place = next((place for place, (key, _) in enumerate(self) if key == name), len(self))
        self[place : place + 1] = [] if value is None else [(name, value)]
        self.sort(key=lambda member: (len(member[0].encode()), member[0].encode()))


Node = str | Array | Object
"""A value of a document: the text of a scalar, or a container."""


def text(document: bytes) -> str:
    """Returns the document as text. Servers store an empty document as an implicit default; it means null."""
    return render(tree(document))


def render(node: Node) -> str:
    """Returns the text of a value as the server writes it."""
    if isinstance(node, Object):
        return "{" + ", ".join(f"{quoted(name)}: {render(value)}" for name, value in node) + "}"
    if isinstance(node, Array):
        return "[" + ", ".join(map(render, node)) + "]"
    return node


def tree(document: bytes) -> Node:
    """Returns the document as a tree, with its scalars as text."""
    if not document:
        return "null"
    try:
        return _Document(document).value(document[0], 1, _DEPTH)
    except (struct.error, IndexError) as error:
        raise DecodeError("bad-json", f"a JSON value of {len(document)} bytes points outside itself") from error
    except UnicodeDecodeError as error:
        raise DecodeError("bad-json", "a JSON value holds a string that is not UTF-8") from error


def double_text(value: float) -> str:
    """Returns a double with its shortest exact digits, and with an exponent if it is not between 1e-15 and 1e15."""
    if value in {0.0, float("inf"), float("-inf")} or value != value:  # noqa: PLR0124
        return "-0.0" if str(value) == "-0.0" else "0.0"
    mantissa, _, exponent = f"{abs(value)!r}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    point = len(whole) + int(exponent or 0) if whole.strip("0") else int(exponent or 0) - _leading_zeros(fraction)
    digits = digits.rstrip("0")
    sign = "-" if value < 0 else ""
    if -14 <= point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    if 0 < point < len(digits):
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if 0 < point <= 15:
        return f"{sign}{digits.ljust(point, '0')}.0"
    return f"{sign}{digits[0]}{'.' * (len(digits) > 1)}{digits[1:]}e{point - 1}"


class _Document:
    """Reads one document. The number of values is limited: in malformed bytes, containers may contain each other."""

    __slots__ = ("_budget", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._budget = len(data)

    def value(self, kind: int, at: int, depth: int) -> Node:
        self._budget -= 1
        if depth <= 0 or self._budget < 0:
            raise DecodeError("bad-json", "a JSON value is nested too deeply")
        if kind in _INTEGERS:
            return str(struct.unpack_from(_INTEGERS[kind], self._data, at)[0])
        if kind == _STRING:
            return quoted(self._sized(at).decode())
        if kind in (_SMALL_OBJECT, _LARGE_OBJECT):
            return Object(self._members(at, depth, large=kind == _LARGE_OBJECT, keyed=True))
        if kind in (_SMALL_ARRAY, _LARGE_ARRAY):
            return Array(value for _, value in self._members(at, depth, large=kind == _LARGE_ARRAY, keyed=False))
        if kind == _LITERAL and self._data[at] in _LITERALS:
            return _LITERALS[self._data[at]]
        if kind == _DOUBLE:
            return double_text(struct.unpack_from("<d", self._data, at)[0])
        if kind == _OPAQUE:
            return _opaque(self._data[at], self._sized(at + 1))
        raise DecodeError("bad-json", f"a JSON value has type {kind}, which is not known")

    def _members(self, start: int, depth: int, *, large: bool, keyed: bool) -> Iterator[tuple[str, Node]]:
        width, inline = (4, _INLINE_LARGE) if large else (2, _INLINE_SMALL)
        count = self._uint(start, width)
        end = start + self._uint(start + width, width)
        if end > len(self._data):
            raise DecodeError("bad-json", "a JSON container is longer than its document")
        keys = start + 2 * width
        entries = keys + (count * (width + 2) if keyed else 0)
        if entries + count * (width + 1) > end:
            raise DecodeError("bad-json", f"a JSON container has no room for its {count} members")
        for number in range(count):
            entry = entries + number * (width + 1)
            kind = self._data[entry]
            at = entry + 1 if kind in inline else start + self._uint(entry + 1, width)
            value = self.value(kind, at, depth - 1)
            name = b""
            if keyed:
                key = keys + number * (width + 2)
                first = start + self._uint(key, width)
                name = self._slice(first, self._uint(key + width, 2))
            yield name.decode(), value

    def _sized(self, at: int) -> bytes:
        """Returns the bytes after a length that has seven bits in each byte."""
        size = shift = 0
        while True:
            byte = self._data[at]
            at += 1
            size |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return self._slice(at, size)
            if shift > 28:
                raise DecodeError("bad-json", "a JSON string has an impossible length")

    def _slice(self, at: int, size: int) -> bytes:
        if at + size > len(self._data):
            raise IndexError
        return self._data[at : at + size]

    def _uint(self, at: int, width: int) -> int:
        return int.from_bytes(self._slice(at, width), "little")


def quoted(plain: str) -> str:
    """Returns a JSON string with only the necessary escapes."""
    return f'"{plain.translate(_ESCAPES)}"'


def _opaque(kind: int, data: bytes) -> str:
    """Returns the text of a value of an SQL type that JSON does not have."""
    if kind == _DECIMAL:
        return _decimal(data)
    if kind in (_DATE, _TIME, _DATETIME, _TIMESTAMP) and len(data) == 8:
        return quoted(_moment(kind, int.from_bytes(data, "little", signed=True)))
    return quoted(f"base64:type{kind}:{base64.b64encode(data).decode()}")


def _decimal(data: bytes) -> str:
    precision, scale = data[0], data[1]
    size, groups = decimals.layout(precision, scale)
    if len(data) != size + 2:
        raise DecodeError("bad-json", f"a JSON decimal({precision},{scale}) has {len(data) - 2} bytes, not {size}")
    number = decimals.unscaled(data[2:], groups)
    digits = str(abs(number)).rjust(scale + 1, "0")
    sign = "-" if number < 0 else ""
    return f"{sign}{digits[:-scale]}.{digits[-scale:]}" if scale else f"{sign}{digits}"


def _moment(kind: int, packed: int) -> str:
    """Returns a time, packed as in a row, but always with 24 bits for the microseconds."""
    size = abs(packed)
    seconds, microsecond = size >> 24, size & 0xFFFFFF
    hour, minute, second = seconds >> 12 & 31, seconds >> 6 & 63, seconds & 63
    if kind == _TIME:
        sign = "-" if packed < 0 else ""
        return f"{sign}{seconds >> 12 & 1023:02}:{minute:02}:{second:02}.{microsecond:06}"
    year_month, day = seconds >> 22, seconds >> 17 & 31
    date = f"{year_month // 13:04}-{year_month % 13:02}-{day:02}"
    return date if kind == _DATE else f"{date} {hour:02}:{minute:02}:{second:02}.{microsecond:06}"


def _leading_zeros(digits: str) -> int:
    return len(digits) - len(digits.lstrip("0"))
