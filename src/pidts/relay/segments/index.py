"""Encodes and decodes the records of a relay's index: a header for each segment, then one record per transaction.

A record is a frame: the payload's length, the payload's CRC32, a CRC32 of these two numbers, then the payload. The
second checksum distinguishes a damaged length from a record that the writer is still writing. Without this checksum, a
length with one flipped bit would look like an incomplete record, and a reader would wait for the record's end for ever.
All numbers are little-endian; a text is its length, followed by its bytes in UTF-8.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from zlib import crc32

from pidts.binlog.xa import PreparedXa
from pidts.model import Extent, LogEntry, Lsn, Position, PreparedExtent, TableName, Transaction, Xa, XaStep

FRAME_SIZE = 12
LsnKey = tuple[int, int, int]
"""The sort key of entries: an Lsn without the row number, since the Lsns of entries have none."""

_FRAME = struct.Struct("<III")
_LENGTHS = struct.Struct("<II")
_VERSION = 2
_HEADER, _ENTRY, _GTIDS = 1, 2, 3
_HEAD = struct.Struct("<BBIIIQBH")
_FIXED = struct.Struct("<BIIQIIQIIQIIQQB")
_XA = struct.Struct("<BIIQQ")
_PREPARED = struct.Struct("<IQQIIQ")
_KEY = struct.Struct("<IIQ")
_SHORT = struct.Struct("<H")
_LONG = struct.Struct("<I")
_HAS_DDL, HAS_XA, HAS_PREPARED = 1, 2, 4
_FLAGS_AT = _FIXED.size - 1
_NOWHERE = Lsn(0, 0, 0)

# For the compiled code that writes entries (`bulk.py`) and joins them (`joined_records.py`).
ENTRY_RECORD, ENTRY_FIXED_SIZE = _ENTRY, _FIXED.size
XA_FIXED_SIZE, PREPARED_SIZE = _XA.size, _PREPARED.size


class OtherVersionError(ValueError):
    """The index was written by another version of this program."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The server and the log from which a part of the relay was received."""

    server: str
    """The identity of the server: a different text means a different server."""
    log_base: str
    change_no: int


@dataclass(frozen=True, slots=True)
class Header:
    """The first record of every index. With it, readers and writers need no earlier segments."""

    source_id: str
    segment: int
    origin: Origin
    start: Lsn
    """The Lsn of the last entry before this segment, which is the `prev_lsn` of the segment's first entry."""
    gtid_set: str | None
    """The GTIDs executed up to `start`; None if they are not known."""
    prepared: tuple[PreparedXa[PreparedExtent], ...] = ()
    """XA transactions in earlier segments that were prepared, and undecided at `start`."""


@dataclass(frozen=True, slots=True)
class GtidsLearned:
    """The GTIDs executed up to the end of the previous entry, recorded when the source's log first shows them."""

    gtid_set: str


@dataclass(frozen=True, slots=True)
class Entries:
    """Neighbouring entries in encoded form, and the places in the log and the segment after the last entry."""

    frames: memoryview
    lsn: Lsn
    log_end: int
    """The first byte in the segment after the events of these entries."""
    gtids: tuple[tuple[str, int, int], ...]
    """Ranges of consecutive GTIDs: the text before the number, the first and the last number."""
    has_steps: bool
    """Whether some entries are steps of XA transactions."""
    decided: tuple[str, ...]
    """The names of the XA transactions that were undecided before these entries, and that these entries decide."""
    undecided: tuple[PreparedXa[PreparedExtent], ...]
    """The XA transactions that these entries prepare, and that are undecided after them."""


def key_of(lsn: Lsn) -> LsnKey:
    """Returns the sort key of an Lsn."""
    return lsn.change_no, lsn.log_index, lsn.offset


def frame(payload: bytes) -> bytes:
    """Returns the record for a payload: its length, checksums and the payload."""
    lengths = _LENGTHS.pack(len(payload), crc32(payload))
    return lengths + crc32(lengths).to_bytes(4, "little") + payload


def is_damaged(rest: bytes) -> bool:
    """Whether the last record of a file is damaged, and not only unfinished; `rest` begins with this record.

    A record is unfinished if its writer is still writing it, was killed, or lost power. Such a record is incomplete, or
    its checksum is wrong and only zeros follow it (pages that were never written).
    """
    size, _, check = _FRAME.unpack_from(rest.ljust(FRAME_SIZE, b"\0"))
    written = len(rest.rstrip(b"\0"))
    if written <= FRAME_SIZE:
        return False
    if crc32(rest[:8]) != check:
        return True
    return written > FRAME_SIZE + size and next(payloads(rest), None) is None


def payloads(buffer: bytes, at: int = 0) -> Iterator[tuple[int, bytes]]:
    """Yields the place after each record, and its payload, from the record at `at` to the first incomplete record."""
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
    """Returns the payload of a segment's first record."""
    origin = header.origin
    fixed = _HEAD.pack(
        _HEADER, _VERSION, header.segment, *key_of(header.start), header.gtid_set is not None, origin.change_no
    )
    texts = (header.source_id, origin.server, origin.log_base, header.gtid_set or "")
    groups = [_encode_xa(group.xa) + _encode_prepared(group.place) for group in header.prepared]
    return b"".join((fixed, *map(_long, texts), _LONG.pack(len(groups)), *groups))


def encode_gtids(learned: GtidsLearned) -> bytes:
    """Returns the payload of a record with the set of executed GTIDs."""
    return bytes([_GTIDS]) + _long(learned.gtid_set)


def encode_entry(entry: LogEntry) -> bytes:
    """Returns the payload of one transaction, or of an empty entry (`Transaction.is_empty`)."""
    what, extent = entry.transaction, entry.extent
    flags = _HAS_DDL * (what.ddl is not None) | HAS_XA * (what.xa is not None)
    flags |= HAS_PREPARED * (entry.prepared is not None)
    places = (*key_of(what.lsn), *key_of(what.prev_lsn), *key_of(what.begin))
    fixed = _FIXED.pack(_ENTRY, *places, what.timestamp, what.row_events, extent.offset, extent.size, flags)
    parts = [fixed, _short(what.gtid), _tables_block(what.tables)]
    if what.ddl is not None:
        parts += (_short(what.ddl_schema), _long(what.ddl))
    if what.xa is not None:
        parts.append(_encode_xa(what.xa))
    if entry.prepared is not None:
        parts.append(_encode_prepared(entry.prepared))
    return b"".join(parts)


def entry_key(payload: bytes) -> LsnKey | None:
    """Reads only the Lsn of an entry; None for other records."""
    return _KEY.unpack_from(payload, 1) if payload[0] == _ENTRY else None


def entry_gtid(payload: bytes) -> str:
    """Reads only the GTID of an entry."""
    return _take(payload, _FIXED.size, _SHORT)[0]


def entry_has_ddl(payload: bytes) -> bool:
    """Whether an entry is a schema change; does not decode the rest of the entry."""
    return bool(payload[_FLAGS_AT] & _HAS_DDL)


def entry_xa(payload: bytes, segment: int) -> LogEntry | None:
    """Returns an entry that is a step of a two-phase XA transaction; None, without decoding, for any other entry."""
    return decode_entry(payload, segment, _NOWHERE) if payload[_FLAGS_AT] & HAS_XA else None


def entry_end(payload: bytes) -> int:
    """Returns the first byte after an entry's events in its segment."""
    fixed = _FIXED.unpack_from(payload)
    return int(fixed[12] + fixed[13])


def decode_entry(payload: bytes, segment: int, previous: Lsn) -> LogEntry:
    """Decodes an entry. If its `prev_lsn` equals `previous`, as it usually does, no further `Lsn` is made for it."""
    fixed = _FIXED.unpack_from(payload)
    shared = fixed[4:7] == key_of(previous) and not previous.row
    prev_lsn = previous if shared else Lsn(*fixed[4:7])
    gtid, at = _take(payload, _FIXED.size, _SHORT)
    block = at + _LONG.size
    at = block + int(_LONG.unpack_from(payload, at)[0])
    ddl, ddl_schema = None, ""
    tables = _tables(payload[block:at])
    flags, xa, prepared = fixed[14], None, None
    if flags & _HAS_DDL:
        ddl_schema, at = _take(payload, at, _SHORT)
        ddl, at = _take(payload, at, _LONG)
    if flags & HAS_XA:
        xa, at = _decode_xa(payload, at)
    if flags & HAS_PREPARED:
        prepared, at = _decode_prepared(payload, at)
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
        xa=xa,
    )
    return LogEntry(transaction, Extent(segment, fixed[12], fixed[13]), prepared)


def decode(payload: bytes) -> Header | GtidsLearned:
    """Decodes a record that is not an entry. Raises ValueError for a record of an unknown type."""
    kind = payload[0] if payload else 0
    if kind == _GTIDS:
        return GtidsLearned(_take(payload, 1, _LONG)[0])
    if kind == _HEADER and payload[1] != _VERSION:
        raise OtherVersionError(f"version {payload[1]}, this PiDTS reads version {_VERSION}")
    if kind != _HEADER:
        raise ValueError(f"unknown record {payload[:2].hex()}")
    _, _, number, *start, known, change_no = _HEAD.unpack_from(payload)
    source_id, at = _take(payload, _HEAD.size, _LONG)
    server, at = _take(payload, at, _LONG)
    log_base, at = _take(payload, at, _LONG)
    gtid_set, at = _take(payload, at, _LONG)
    (count,) = _LONG.unpack_from(payload, at)
    at += _LONG.size
    groups = []
    for _ in range(count):
        xa, at = _decode_xa(payload, at)
        place, at = _decode_prepared(payload, at)
        groups.append(PreparedXa(xa, place))
    origin = Origin(server, log_base, change_no)
    return Header(source_id, number, origin, Lsn(*start), gtid_set if known else None, tuple(groups))


def position_of(lsn: Lsn, origin: Origin) -> Position | None:
    """Returns the position of an Lsn in the log of this origin; None if the Lsn is in another server's log."""
    return lsn.position(origin.log_base) if lsn.change_no == origin.change_no else None


def _encode_xa(xa: Xa) -> bytes:
    fixed = _XA.pack(xa.step, *key_of(xa.at), xa.row_events)
    statement = (b"\0",) if xa.ddl is None else (b"\1", _short(xa.ddl_schema), _long(xa.ddl))
    return b"".join((fixed, _short(xa.xid), _tables_block(xa.tables), *statement))


def _decode_xa(payload: bytes, at: int) -> tuple[Xa, int]:
    step, change_no, log_index, offset, row_events = _XA.unpack_from(payload, at)
    xid, at = _take(payload, at + _XA.size, _SHORT)
    block = at + _LONG.size
    at = block + int(_LONG.unpack_from(payload, at)[0])
    tables, has_ddl = _tables(payload[block:at]), payload[at]
    ddl, ddl_schema, at = None, "", at + 1
    if has_ddl:
        ddl_schema, at = _take(payload, at, _SHORT)
        ddl, at = _take(payload, at, _LONG)
    place = Lsn(change_no, log_index, offset)
    xa = Xa(step=XaStep(step), xid=xid, at=place, row_events=row_events, tables=tables, ddl=ddl, ddl_schema=ddl_schema)
    return xa, at


def _encode_prepared(place: PreparedExtent) -> bytes:
    return _PREPARED.pack(place.segment, place.offset, place.size, *key_of(place.begin))


def _decode_prepared(payload: bytes, at: int) -> tuple[PreparedExtent, int]:
    segment, offset, size, change_no, log_index, begin = _PREPARED.unpack_from(payload, at)
    return PreparedExtent(segment, offset, size, Lsn(change_no, log_index, begin)), at + _PREPARED.size


def _tables_block(tables: tuple[TableName, ...]) -> bytes:
    names = b"".join(map(encode_name, tables))
    return _LONG.pack(len(names)) + names


def encode_name(table: TableName) -> bytes:
    """Returns the encoded name of a table in an entry."""
    return _short(table.schema) + _short(table.name)


def _tables(names: bytes) -> tuple[TableName, ...]:
    if len(names) <= _FEW_BYTES:
        return _few_tables(names)
    return _many_tables(names) if len(names) <= _MANY_BYTES else _decode_names(names)


def _decode_names(names: bytes) -> tuple[TableName, ...]:
    tables, at = [], 0
    while at < len(names):
        schema, at = _take(names, at, _SHORT)
        name, at = _take(names, at, _SHORT)
        tables.append(TableName(schema, name))
    return tuple(tables)


_FEW_BYTES, _MANY_BYTES = 256, 8192
"""A list of tables is long if its names take more than `_FEW_BYTES`. Fewer long lists are cached than short ones. A
list of more than `_MANY_BYTES` is not cached, since it may have thousands of tables.
"""
_few_tables = lru_cache(maxsize=1 << 15)(_decode_names)  # a task may have 20,000 tables, and change them in turn
_many_tables = lru_cache(maxsize=1024)(_decode_names)


# A statement may contain bytes that are not UTF-8 (a literal in another charset). Python represents them by surrogates.
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
