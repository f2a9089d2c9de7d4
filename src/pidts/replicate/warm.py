"""Loads the compiled functions before their first use, or compiles them if they are not compiled yet.

A few invented transactions are sent through a socket into a relay, and are read from the relay. A row is read as a full
copy reads it.
"""

from __future__ import annotations

import socket
import struct
from contextlib import closing
from pathlib import Path

from pidts.binlog import EventType, LogWalker, decode_slice
from pidts.binlog.events import HEADER, HEADER_SIZE
from pidts.binlog.wire import WireType
from pidts.model import Column, ColumnType, Kind, Position, Table, TableName, Where
from pidts.owned_folder import owned_folder
from pidts.relay import Origin, RelayReader, RelayWriter
from pidts.relay.segments.joined_records import joined_payloads
from pidts.replicate.receiver import Receiver
from pidts.replicate.resume import Resume
from pidts.source.blocks import BlockReader
from pidts.source.packets import PacketReader
from pidts.text_rows.cells import Cells

_FILE = "bin.000001"
_SOURCE = "s"
_TABLE = Table(TableName("s", "t"), (Column("v", ColumnType(Kind.VARCHAR, length=9, charset="latin1")),))
_TABLE_ID = b"\1" + bytes(7)
_MAP = _TABLE_ID + b"\1s\0\1t\0" + bytes([1, WireType.VARCHAR, 2, 9, 0, 1])
_INSERT = _TABLE_ID + b"\1\1\0\1\xe9"
_QUERY = struct.pack("<IIBHH", 0, 0, 0, 0, 0) + b"\0"
_FORMAT = struct.pack("<H50sIB", 4, b"10.11.0-MariaDB", 0, HEADER_SIZE) + bytes(45)


def warm() -> int:
    """Loads the compiled functions. Returns the number of rows that were read."""
    group = [
        (EventType.MARIADB_GTID, b"\1" + bytes(18)),
        (EventType.TABLE_MAP, _MAP),
        (EventType.WRITE_ROWS_V1, _INSERT),
        (EventType.DELETE_ROWS_V1, _INSERT),
    ]
    ends = [[*group, (EventType.XID, bytes(8))], [*group, (EventType.QUERY, _QUERY + b"COMMIT")]]
    step = [group[0], (EventType.QUERY, _QUERY + b"XA ROLLBACK X'31',X'',1")]
    head = _event(EventType.FORMAT_DESCRIPTION, _FORMAT)
    events = [head, *(_event(kind, body) for one in (*ends, step) for kind, body in one)]
    _copy()
    with owned_folder("warm") as folder:
        _receive(folder, b"".join(struct.pack("<I", len(event) + 1) + b"\0" + event for event in events))
        for index in folder.rglob("*.index"):
            list(joined_payloads(index.read_bytes(), ((0, 0, 0), (0, 0, 0))))
        return _rows(folder, head)


def _copy() -> None:
    there, here = socket.socketpair()
    with there, here:
        reader = PacketReader(here, Where(source=_SOURCE))
        there.sendall(b"\2\0\0\1\1\xe9\5\0\0\2\xfe\0\0\0\0")
        reader.receive(1)
        cells = Cells(_TABLE, Where(source=_SOURCE))
        cells.take_all(reader)
        cells.take_row(b"\1\xe9")
        cells.table()


def _receive(folder: Path, packets: bytes) -> None:
    there, here = socket.socketpair()
    with closing(RelayWriter.open(folder, _SOURCE)) as writer, there, here:
        start = Resume(Position(_FILE, 4), Origin("server", "bin", 0), None, "")
        receiver = Receiver(writer, start, Where(source=_SOURCE))
        reader = BlockReader(here, Where(source=_SOURCE))
        there.sendall(packets)
        while (block := reader.read_block(0.1)) is not None:
            receiver.take_block(block)
        receiver.sync()


def _rows(folder: Path, head: bytes) -> int:
    walker = LogWalker(_FILE)
    walker.feed(head)
    assert walker.format is not None, "it has just been fed one"  # noqa: S101 - for the type checker
    with closing(RelayReader(folder, _SOURCE)) as reader:
        raw = b"".join(reader.read(entry.extent) for entry in reader.entries() if not entry.transaction.is_empty)
    batches = decode_slice(
        raw, format=walker.format, log_file=_FILE, change_no=0, structures={_TABLE.name: _TABLE}, offset=len(head) + 4
    )
    return sum(map(len, batches))


def _event(kind: EventType, body: bytes) -> bytes:
    return HEADER.pack(1, kind, 1, HEADER_SIZE + len(body), 0, 0) + body
