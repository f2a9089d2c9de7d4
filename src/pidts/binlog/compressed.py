"""Compressed parts of the log: MariaDB's zlib events, MySQL's zstd transactions, MariaDB's compressed columns."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import zstandard

from pidts.binlog.cursor import Cursor
from pidts.binlog.events import HEADER, HEADER_SIZE, Event
from pidts.binlog.walk import iter_raw, whole_events
from pidts.model.errors import DecodeError

_END, _SIZE, _ALGORITHM, _RAW_SIZE = 0, 1, 2, 3
_ZSTD, _PLAIN = 0, 255
_LARGEST = 2**32
_PIECE = 4 << 20
_LONGEST_HEAD = 256
"""All fields before the compressed bytes fit into this number of bytes."""


def inflate(data: bytes, what: str) -> bytes:
    """Decompresses MariaDB's form: a byte 0x80 | n, the original size in n bytes (big-endian), a zlib stream."""
    cursor = Cursor(data, what)
    size = announced_size(cursor)
    return _inflate(cursor.rest(), size, zlib.MAX_WBITS, what)


def announced_size(cursor: Cursor) -> int:
    """Reads the bytes before the zlib stream of MariaDB's form; returns the original size."""
    head = cursor.uint(1)
    if head & 0xF8 != 0x80 or not 1 <= head & 7 <= 4:
        raise DecodeError("bad-compression", f"{cursor.what} is compressed by an unknown method ({head:#04x})")
    return int.from_bytes(cursor.take(head & 7), "big")


def inflate_value(data: bytes) -> bytes:
    """Decompresses a value of a MariaDB COMPRESSED column: a method byte, the original size, a zlib stream.

    Short values are stored uncompressed, after a zero byte.
    """
    what = "a value of a compressed column"
    if not data:
        return b""
    cursor = Cursor(data, what)
    head = cursor.uint(1)
    if head == 0:
        return cursor.rest()
    if head >> 4 != 8 or not 1 <= head & 7 <= 4:
        raise DecodeError("bad-compression", f"{what} is compressed by an unknown method ({head:#04x})")
    size = int.from_bytes(cursor.take(head & 7), "big")
    return _inflate(cursor.rest(), size, -zlib.MAX_WBITS if head & 8 else zlib.MAX_WBITS, what)


def payload_events(event: Event) -> Iterator[tuple[int, Event]]:
    """Yields the events in a TRANSACTION_PAYLOAD event, each with its first byte in the uncompressed payload.

    The events inside have neither checksums nor positions; each gets the position of the TRANSACTION_PAYLOAD event.
    """
    at = 0
    for piece in payload_pieces(event.body):
        for raw in iter_raw(piece, at):
            yield at, inner_event(event.offset, event.log_index, raw)
            at += len(raw)


def inner_event(offset: int, log_index: int, raw: memoryview) -> Event:
    """Returns an event inside the TRANSACTION_PAYLOAD event at this place; `raw` has the bytes of the inner event."""
    timestamp, kind, server_id, size, log_pos, flags = HEADER.unpack_from(raw)
    return Event(kind, timestamp, server_id, flags, size, log_pos, offset, log_index, raw[HEADER_SIZE:])


def payload_pieces(body: memoryview) -> Iterator[bytes]:
    """Decompresses a TRANSACTION_PAYLOAD event into pieces of whole events: all at once may not fit into memory."""
    what = "a TRANSACTION_PAYLOAD event"
    cursor = Cursor(body[:_LONGEST_HEAD], what)
    fields: dict[int, int] = {}
    while (field := cursor.packed()) != _END:
        value = Cursor(cursor.take(cursor.packed()), what)
        fields[field] = value.packed()
    data = body[cursor.at :]
    if fields.get(_SIZE, len(data)) != len(data):
        raise DecodeError("bad-size", f"{what} says that it holds {fields[_SIZE]} bytes, but it holds {len(data)}")
    algorithm, size = fields.get(_ALGORITHM, _PLAIN), fields.get(_RAW_SIZE, len(data))
    if algorithm == _PLAIN:
        return iter([bytes(data)])
    if algorithm != _ZSTD or size >= _LARGEST:
        raise DecodeError(
            "bad-compression",
            f"{what} has compression algorithm {algorithm} and holds {size} bytes; "
            f"only algorithm {_ZSTD} (zstd) with less than {_LARGEST} bytes can be read",
        )
    return whole_events(_unpacked(data, size, what))


def _unpacked(data: memoryview, size: int, what: str) -> Iterator[bytes]:
    """Decompresses piece by piece. So a wrong size in the log allocates no memory for bytes that do not exist."""
    done = 0
    try:
        with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as reader:
            while done <= size and (piece := reader.read(_PIECE)):
                done += len(piece)
                yield piece
    except (zstandard.ZstdError, MemoryError) as error:
        raise DecodeError("bad-compression", f"{what} cannot be decompressed: {error}") from error
    if done != size:
        raise DecodeError(
            "bad-size", f"{what} says that it has {size} bytes after decompression, but {done} were found"
        )


def _inflate(data: bytes, size: int, wbits: int, what: str) -> bytes:
    try:
        raw = zlib.decompressobj(wbits).decompress(data, size + 1)
    except zlib.error as error:
        raise DecodeError("bad-compression", f"{what} cannot be decompressed: {error}") from error
    if len(raw) != size:
        raise DecodeError(
            "bad-size", f"{what} says that it has {size} bytes after decompression, but it has more or fewer"
        )
    return raw
