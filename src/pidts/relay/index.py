"""The index's records as bytes: what a segment is, and one line per transaction.

A record is a frame: the payload's length, the payload's CRC32, a CRC32 of these two, then the payload. The second sum
tells a damaged length from a record that is still being written; without it one flipped bit in a length would look like
a record that never ends, and a reader would wait for it for ever. All numbers are little-endian, a text is its length
and UTF-8.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from zlib import crc32

from pidts.model import Extent, LogEntry, Lsn, Position, TableName, Transaction

FRAME_SIZE = 12
LsnKey = tuple[int, int, int]
"""What orders entries: an entry's Lsn never has a row."""

_FRAME = struct.Struct("<III")
_LENGTHS = struct.Struct("<II")
_VERSION = 1
_HEADER, _ENTRY, _GTIDS = 1, 2, 3
_HEAD = struct.Struct("<BBIIIQBH")
_FIXED = struct.Struct("<BIIQIIQIIQIIQQB")
_KEY = struct.Struct("<IIQ")
_SHORT = struct.Struct("<H")
_LONG = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Origin:
    """Which log a stretch of the relay was taken from."""

    server: str
    """Names the server for as long as it lives; another text is another server."""
    log_base: str
    change_no: int


@dataclass(frozen=True, slots=True)
class Header:
    """The first record of every index: all that is needed to go on from here without the segments before."""

    source_id: str
    segment: int
    origin: Origin
    start: Lsn
    """The Lsn of the last entry before this segment, in the chain of `prev_lsn`."""
    gtid_set: str | None
    """What was executed up to `start`; None where nobody knows."""


@dataclass(frozen=True, slots=True)
class GtidsLearned:
    """The source's log has told what was executed up to the end of the entry before; nobody knew until then."""

    gtid_set: str


def frame(payload: bytes) -> bytes:
    """A record as it is written."""
    lengths = _LENGTHS.pack(len(payload), crc32(payload))
    return lengths + crc32(lengths).to_bytes(4, "little") + payload


def is_damaged(rest: bytes) -> bool:
    """Whether the record at the front of a file's last bytes is more than unfinished.

    Unfinished is what a writer leaves that is at work, was killed or lost its power: a record cut short, or wrong in
    its sum with nothing behind it but zeros (pages that were never written).
    """
    size, _, check = _FRAME.unpack_from(rest.ljust(FRAME_SIZE, b"\0"))
    written = len(rest.rstrip(b"\0"))
    if written <= FRAME_SIZE:
        return False
    if crc32(rest[:8]) != check:
        return True
    return written > FRAME_SIZE + size and next(payloads(rest), None) is None


def payloads(buffer: bytes, at: int = 0) -> Iterator[tuple[int, bytes]]:
    """Every sound record from `at` on with the place where the next begins; ends at the first that is not whole."""
    end = len(buffer)
    while at + FRAME_SIZE <= end:
        size, summed, check = _FRAME.unpack_from(buffer, at)
        begin = at + FRAME_SIZE
        after = begin + size
        if after > end or crc32(buffer[at : at + 8]) != check:
            return
        payload = buffer[begin:after]
        if crc32(payload) != summed:
            return
        at = after
        yield at, payload


def encode_header(header: Header) -> bytes:
    """The payload of a segment's first record."""
    start, origin = header.start, header.origin
    lsn = start.change_no, start.log_index, start.offset
    fixed = _HEAD.pack(_HEADER, _VERSION, header.segment, *lsn, header.gtid_set is not None, origin.change_no)
    texts = (header.source_id, origin.server, origin.log_base, header.gtid_set or "")
    return fixed + b"".join(_long(text) for text in texts)


def encode_gtids(learned: GtidsLearned) -> bytes:
    """The payload of a record that names the executed set."""
    return bytes([_GTIDS]) + _long(learned.gtid_set)


def encode_entry(entry: LogEntry) -> bytes:
    """The payload of one transaction or mark."""
    what, extent = entry.transaction, entry.extent
    lsn, prev, begin = what.lsn, what.prev_lsn, what.begin
    fixed = _FIXED.pack(
        _ENTRY,
        *(lsn.change_no, lsn.log_index, lsn.offset),
        *(prev.change_no, prev.log_index, prev.offset),
        *(begin.change_no, begin.log_index, begin.offset),
        what.timestamp,
        what.row_events,
        extent.offset,
        extent.size,
        what.ddl is not None,
    )
    parts = [fixed, _short(what.gtid), _tables_block(what.tables)]
    if what.ddl is not None:
        parts += (_short(what.ddl_schema), _long(what.ddl))
    return b"".join(parts)


def entry_key(payload: bytes) -> LsnKey | None:
    """The Lsn of an entry without reading the rest; None for other records."""
    return _KEY.unpack_from(payload, 1) if payload[0] == _ENTRY else None


def entry_gtid(payload: bytes) -> str:
    """The GTID of an entry without reading the rest."""
    return _take(payload, _FIXED.size, _SHORT)[0]


def entry_end(payload: bytes) -> int:
    """The first byte behind an entry's events in its segment."""
    fixed = _FIXED.unpack_from(payload)
    return int(fixed[12] + fixed[13])


def decode_entry(payload: bytes, segment: int, previous: Lsn) -> LogEntry:
    """A transaction again. It nearly always begins at the previous one's Lsn, which then is shared."""
    fixed = _FIXED.unpack_from(payload)
    shared = (*fixed[4:7], 0) == (previous.change_no, previous.log_index, previous.offset, previous.row)
    prev_lsn = previous if shared else Lsn(*fixed[4:7])
    gtid, at = _take(payload, _FIXED.size, _SHORT)
    block = at + _LONG.size
    at = block + int(_LONG.unpack_from(payload, at)[0])
    ddl, ddl_schema = None, ""
    tables = _tables(payload[block:at])
    if fixed[14]:
        ddl_schema, at = _take(payload, at, _SHORT)
        ddl, at = _take(payload, at, _LONG)
    transaction = Transaction(
        lsn=Lsn(*fixed[1:4]),
        prev_lsn=prev_lsn,
        begin=prev_lsn if fixed[7:10] == fixed[4:7] else Lsn(*fixed[7:10]),
        timestamp=fixed[10],
        row_events=fixed[11],
        gtid=gtid,
        tables=tables,
        ddl=ddl,
        ddl_schema=ddl_schema,
    )
    return LogEntry(transaction, Extent(segment, fixed[12], fixed[13]))


def decode(payload: bytes) -> Header | GtidsLearned:
    """A record that is no entry; raises ValueError for what this version does not know."""
    kind = payload[0] if payload else 0
    if kind == _GTIDS:
        return GtidsLearned(_take(payload, 1, _LONG)[0])
    if kind != _HEADER or payload[1] != _VERSION:
        raise ValueError(f"unknown record {payload[:2].hex()}")
    _, _, number, *start, known, change_no = _HEAD.unpack_from(payload)
    source_id, at = _take(payload, _HEAD.size, _LONG)
    server, at = _take(payload, at, _LONG)
    log_base, at = _take(payload, at, _LONG)
    gtid_set, _ = _take(payload, at, _LONG)
    return Header(source_id, number, Origin(server, log_base, change_no), Lsn(*start), gtid_set if known else None)


def position_of(lsn: Lsn, origin: Origin) -> Position | None:
    """Where an Lsn stands in the log of this origin; None if it belongs to the server before."""
    return lsn.position(origin.log_base) if lsn.change_no == origin.change_no else None


def _tables_block(tables: tuple[TableName, ...]) -> bytes:
    names = b"".join(_short(table.schema) + _short(table.name) for table in tables)
    return _LONG.pack(len(names)) + names


@lru_cache(maxsize=4096)
def _tables(names: bytes) -> tuple[TableName, ...]:
    tables, at = [], 0
    while at < len(names):
        schema, at = _take(names, at, _SHORT)
        name, at = _take(names, at, _SHORT)
        tables.append(TableName(schema, name))
    return tuple(tables)


# A statement may hold bytes that are no UTF-8 (a literal in another charset); they are kept as Python's surrogates.
def _short(text: str) -> bytes:
    data = text.encode("utf-8", "surrogateescape")
    return _SHORT.pack(len(data)) + data


def _long(text: str) -> bytes:
    data = text.encode("utf-8", "surrogateescape")
    return _LONG.pack(len(data)) + data


def _take(payload: bytes, at: int, length: struct.Struct) -> tuple[str, int]:
    begin = at + length.size
    end = begin + int(length.unpack_from(payload, at)[0])
    return payload[begin:end].decode("utf-8", "surrogateescape"), end
