"""Parses default values in MySQL's syntax, independently of any dialect."""

from __future__ import annotations

import re
from dataclasses import dataclass

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?\Z", re.IGNORECASE)
_NOW = re.compile(r"(current_timestamp|now|localtime|localtimestamp)\s*(\(\s*(\d*)\s*\))?\Z", re.IGNORECASE)
_BITS = re.compile(r"(?:b'([01]*)'|0b([01]+))\Z", re.IGNORECASE)
_HEX = re.compile(r"(?:_binary\s*)?(?:x'([0-9a-f]*)'|0x([0-9a-f]+))\Z", re.IGNORECASE)
_STRING = re.compile(r"(?:_[a-z0-9]+\s*)?'(.*)'\Z", re.IGNORECASE | re.DOTALL)
_ESCAPE = re.compile(r"''|\\(.)", re.DOTALL)
_ESCAPED = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}


@dataclass(frozen=True, slots=True)
class CurrentTime:
    """The current time as a default, and the number of its fractional digits."""

    fsp: int


@dataclass(frozen=True, slots=True)
class TextLiteral:
    """The content of a quoted literal."""

    value: str


@dataclass(frozen=True, slots=True)
class BytesLiteral:
    """The content of a hexadecimal or bit literal."""

    value: bytes


@dataclass(frozen=True, slots=True)
class Number:
    """A number as it was written."""

    value: str


@dataclass(frozen=True, slots=True)
class Expression:
    """A default that only the server itself can compute."""

    sql: str


def parse_default(sql: str | None) -> CurrentTime | TextLiteral | BytesLiteral | Number | Expression | None:
    """Parses a column's default; None if there is no default, or the default is NULL."""
    if sql is None:
        return None
    text = sql.strip()
    text = re.sub(r"\s+on\s+update\s+.*\Z", "", text, flags=re.IGNORECASE | re.DOTALL)
    if text.upper() == "NULL":
        return None
    if _NUMBER.match(text):
        return Number(text)
    if text.lower() in ("true", "false"):
        return Number(str(int(text.lower() == "true")))
    if found := _BITS.match(text):
        digits = found[1] or found[2] or ""
        return BytesLiteral(int(digits or "0", 2).to_bytes((len(digits) + 7) // 8))
    if found := _HEX.match(text):
        digits = found[1] or found[2] or ""
        return BytesLiteral(bytes.fromhex("0" * (len(digits) % 2) + digits))
    if found := _NOW.match(text):
        return CurrentTime(int(found[3] or 0))
    if (found := _STRING.match(text)) and _closed(found[1]):
        return TextLiteral(_ESCAPE.sub(lambda hit: "'" if hit[1] is None else _ESCAPED.get(hit[1], hit[1]), found[1]))
    return Expression(text)


def _closed(inside: str) -> bool:
    """Whether each quote in `inside` is doubled or escaped; if not (`'a' || 'b'`), the default is an expression."""
    return "'" not in _ESCAPE.sub("", inside)
