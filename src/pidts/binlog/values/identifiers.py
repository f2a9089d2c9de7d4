"""Converts MariaDB's UUID, INET4 and INET6, which are bytes of fixed size in the log, to text."""

from __future__ import annotations

import ipaddress
import uuid
from collections.abc import Callable

from pidts.binlog.values.image import MakeReader
from pidts.binlog.values.strings import converted
from pidts.binlog.wire import Wire, WireType
from pidts.model.types import ColumnType, Kind

_SIZES = {Kind.UUID: 16, Kind.INET6: 16, Kind.INET4: 4}


def reader(kind: ColumnType, wire: Wire) -> MakeReader | None:
    """Returns a reader whose values become ASCII text; None if the encoding in the log does not fit the type."""
    size = _SIZES[kind.kind]
    if wire.type is not WireType.STRING or wire.size != size:
        return None
    convert = _TEXTS[kind.kind]
    return converted(1, lambda value: convert(value.ljust(size, b"\0")[:size]).encode())


def inet6_text(value: bytes) -> str:
    """Returns an address in the server's form, which differs from the form that Python writes.

    The server shortens even a single zero group. If the address contains an IPv4 address, the last four bytes are
    written with dots.
    """
    groups = [int.from_bytes(value[at : at + 2], "big") for at in range(0, 16, 2)]
    if groups[:5] == [0] * 5 and (groups[5] == 0xFFFF or (groups[5] == 0 and groups[6])):
        dotted = str(ipaddress.IPv4Address(value[12:]))
        return f"::ffff:{dotted}" if groups[5] else f"::{dotted}"
    start, size = _longest_zeros(groups)
    words = [f"{group:x}" for group in groups]
    if not size:
        return ":".join(words)
    return ":".join(words[:start]) + "::" + ":".join(words[start + size :])


def _longest_zeros(groups: list[int]) -> tuple[int, int]:
    """Returns where the longest sequence of zero groups starts (the first of equally long ones), and its length."""
    best = (0, 0)
    for start in range(len(groups)):
        size = 0
        while start + size < len(groups) and groups[start + size] == 0:
            size += 1
        if size > best[1]:
            best = (start, size)
    return best


_TEXTS: dict[Kind, Callable[[bytes], str]] = {
    Kind.UUID: lambda value: str(uuid.UUID(bytes=value)),  # the log has the digits in the order of the text
    Kind.INET6: inet6_text,
    Kind.INET4: lambda value: str(ipaddress.IPv4Address(value)),
}
