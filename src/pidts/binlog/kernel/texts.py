"""Converts text columns from the column's charset to UTF-8, a whole column at a time.

Text in UTF-8 is only checked. Text of ASCII characters is only checked, too, if the charset contains ASCII. Charsets of
one byte per character are converted with a table. Plain code converts all other values, and reports every error.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from pidts.binlog.jit import address, jit, load8, load32, load64, store8, store32
from pidts.binlog.values import charsets, strings
from pidts.model.table import Column, TableName
from pidts.model.types import UNKNOWN_CHARSET

_ASCII = bytes(range(128))
_NO_CHARACTER = 0
_SIZE, _BYTES = 24, 0xFFFFFF
_HIGH_BITS = -0x7F7F7F7F7F7F7F80
_LARGEST = 2**31 - 1
_FEW = 64


def text(table: TableName, column: Column, rows: int, buffers: list[pa.Buffer]) -> pa.Array:
    """Returns a text column in UTF-8; `buffers` have its bytes in the column's charset."""
    charset = (column.type.charset or "utf8mb4") if column.type.is_text else "utf8mb4"
    raw = pa.Array.from_buffers(pa.binary(), rows, buffers)
    if charset == UNKNOWN_CHARSET:
        return strings.text_builder(table, column, charset)(raw.to_pylist())
    if charset not in charsets.UTF8:
        start, size = buffers[2].address, buffers[2].size
        if has_ascii(charset) and is_ascii(start, start + size):
            return pa.Array.from_buffers(pa.string(), rows, buffers)
        found = _by_table(charset, rows, buffers) if charsets.width(charset) == 1 else None
        return strings.text_builder(table, column, charset)(raw.to_pylist()) if found is None else found
    try:
        if rows > _FEW:
            return raw.cast(pa.string())
        found = raw.view(pa.string())
        found.validate(full=True)  # the check of a cast, but faster for few rows
    except pa.ArrowInvalid:
        return strings.text_builder(table, column, charset)(raw.to_pylist())
    return found


@cache
def has_ascii(charset: str) -> bool:
    """Whether the first 128 bytes of the charset are ASCII's characters."""
    try:
        return charsets.decoder(charset)(_ASCII) == _ASCII.decode()
    except UnicodeDecodeError:
        return False


@cache
def _characters(charset: str) -> Any:
    """Returns, for each byte value, the UTF-8 bytes of its character and their count; 0 if there is no character."""
    decode = charsets.decoder(charset)
    table = np.zeros(256, np.int64)
    for byte in range(256):
        try:
            character = decode(bytes([byte])).encode()
        except UnicodeDecodeError:
            continue
        table[byte] = int.from_bytes(character, "little") | len(character) << _SIZE
    return table


def _by_table(charset: str, rows: int, buffers: list[pa.Buffer]) -> pa.Array | None:
    validity, ends, raw = buffers
    table = _characters(charset)
    size = _size(raw.address, raw.size, address(table))
    if not 0 <= size <= _LARGEST:
        return None
    out, new_ends = np.empty(size, np.uint8), np.empty(rows + 1, np.int32)
    _transcode(raw.address, ends.address, rows, address(table), address(out), address(new_ends))
    return pa.Array.from_buffers(pa.string(), rows, [validity, pa.py_buffer(new_ends), pa.py_buffer(out)])


@jit
def is_ascii(at: int, end: int) -> bool:
    """Whether no byte has its highest bit set."""
    while end - at >= 64:
        bits = 0
        for place in range(0, 64, 8):
            bits |= load64(at + place)
        if bits & _HIGH_BITS:
            return False
        at += 64
    while at < end:
        if load8(at) & 0x80:
            return False
        at += 1
    return True


@jit
def _size(at: int, size: int, table: int) -> int:
    """Returns the number of bytes in UTF-8; -1 if a byte is not a character."""
    total = 0
    for place in range(size):
        character = load64(table + 8 * load8(at + place))
        if character == _NO_CHARACTER:
            return -1
        total += character >> _SIZE
    return total


@jit
def _transcode(raw: int, ends: int, rows: int, table: int, out: int, new_ends: int) -> None:
    written = 0
    place = load32(ends)
    store32(new_ends, 0)
    for row in range(rows):
        end = load32(ends + 4 * row + 4)
        while place < end:
            character = load64(table + 8 * load8(raw + place))
            for byte in range(character >> _SIZE):
                store8(out + written, character >> (8 * byte))
                written += 1
            place += 1
        store32(new_ends + 4 * row + 4, written)
