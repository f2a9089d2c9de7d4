"""Compressed parts of the log: MariaDB's zlib events, MySQL's zstd transactions, MariaDB's compressed columns."""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator

import zstandard

from pidts.binlog.cursor import Cursor
from pidts.binlog.events import HEADER, HEADER_SIZE, Event
from pidts.binlog.walk import iter_raw
from pidts.model.errors import DecodeError

_END, _SIZE, _ALGORITHM, _RAW_SIZE = 0, 1, 2, 3
_ZSTD, _PLAIN = 0, 255
_LARGEST = 2**32
_PIECE = 2**20


def inflate(data: bytes, what: str) -> bytes:
    """MariaDB's form: a byte 0x80 | n, the original size in n bytes (big-endian), a zlib stream."""
    cursor = Cursor(data, what)
    head = cursor.uint(1)
    if head & 0xF8 != 0x80 or not 1 <= head & 7 <= 4:
        raise DecodeError("bad-compression", f"{what} is compressed by an unknown method ({head:#04x})")
    size = int.from_bytes(cursor.take(head & 7), "big")
    return _inflate(cursor.rest(), size, zlib.MAX_WBITS, what)


def inflate_value(data: bytes) -> bytes:
    """A value of a MariaDB column declared COMPRESSED: a method byte, the original size, a zlib stream.

    Short values are stored as they are, behind a zero byte.
    """
    what = "a value of a compressed column"
    if not data:
        return b""
    cursor = Cursor(data, what)
    head = cursor.uint(1)
    if head == 0:
        return cursor.rest()
    if head >> 4 != 8 or not 1 <= head & 7 <= 4:
        raise DecodeError("bad-compression", f"{what} has an unknown method ({head:#04x})")
    size = int.from_bytes(cursor.take(head & 7), "big")
    return _inflate(cursor.rest(), size, -zlib.MAX_WBITS if head & 8 else zlib.MAX_WBITS, what)


def payload_events(event: Event) -> Iterator[tuple[int, Event]]:
    """The events inside a TRANSACTION_PAYLOAD event, each with its first byte in the uncompressed payload.

    They carry neither checksums nor positions; each is given the position of the event around it.
    """
    payload = _payload(event.body)
    at = 0
    for raw in iter_raw(payload):
        timestamp, kind, server_id, size, log_pos, flags = HEADER.unpack_from(raw)
        body = raw[HEADER_SIZE:]
        yield at, Event(kind, timestamp, server_id, flags, size, log_pos, event.offset, event.log_index, body)
        at += size


def _payload(body: memoryview) -> bytes:
    what = "a TRANSACTION_PAYLOAD event"
    cursor = Cursor(body, what)
    fields: dict[int, int] = {}
    while (field := cursor.packed()) != _END:
        value = Cursor(cursor.take(cursor.packed()), what)
        fields[field] = value.packed()
    data = cursor.rest()
    if fields.get(_SIZE, len(data)) != len(data):
        raise DecodeError("bad-size", f"{what} holds {len(data)} bytes and says it holds {fields[_SIZE]}")
    algorithm, size = fields.get(_ALGORITHM, _PLAIN), fields.get(_RAW_SIZE, len(data))
    if algorithm == _PLAIN:
        return data
    if algorithm != _ZSTD or size >= _LARGEST:
        raise DecodeError("bad-compression", f"{what} has algorithm {algorithm} and size {size}")
    raw = bytearray()
    try:
        # Piece by piece: the size is a claim, and must not make us allocate what never comes.
        with zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data), read_across_frames=True) as reader:
            while len(raw) <= size and (piece := reader.read(_PIECE)):
                raw += piece
    except (zstandard.ZstdError, MemoryError) as error:
        raise DecodeError("bad-compression", f"{what} cannot be uncompressed: {error}") from error
    if len(raw) != size:
        raise DecodeError("bad-size", f"{what} uncompresses to {len(raw)} bytes and says it has {size}")
    return bytes(raw)


def _inflate(data: bytes, size: int, wbits: int, what: str) -> bytes:
    try:
        raw = zlib.decompressobj(wbits).decompress(data, size + 1)
    except zlib.error as error:
        raise DecodeError("bad-compression", f"{what} cannot be uncompressed: {error}") from error
    if len(raw) != size:
        raise DecodeError("bad-size", f"{what} uncompresses to {len(raw)} bytes and says it has {size}")
    return raw
