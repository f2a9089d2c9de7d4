"""Logs of server versions that the tests do not start are decoded: recorded logs of some versions, and bytes made by
hand for the other versions.

MariaDB 10.1, 10.2, 11.4 and 11.8 have recordings in `vectors/`. The bytes made by hand follow the documented format of
their version; no log of that version was seen.
"""

from __future__ import annotations

import struct

import pytest
from tests.binlog.logs.scenarios import load

from pidts.binlog import EventType, Format, TransactionScanner, decode_slice
from pidts.binlog.events import Event
from pidts.model import Column, ColumnType, Halted, Key, Kind, Lsn, Op, PidtsError, Table, TableName

FORMAT = Format(checksum=False, server_version="5.7.44", is_mariadb=False)
NAME = TableName("d", "t")
TABLE = Table(
    NAME,
    (Column("id", ColumnType(Kind.INT), nullable=False), Column("j", ColumnType(Kind.JSON))),
    (Key("PRIMARY", ("id",), unique=True, primary=True),),
)
DOCUMENT = bytes.fromhex("00 0100 0c00 0b00 0100 05 0700 61".replace(" ", ""))
"""The document `{"a": 7}`: a small object with one member, whose number is in the entry itself."""


@pytest.fixture(params=["python", "compiled"], autouse=True)
def kernel(request, monkeypatch):
    monkeypatch.setenv("PIDTS_KERNEL", request.param)


def framed(kind: int, body: bytes) -> bytes:
    return struct.pack("<IBIIIH", 1, kind, 1, 19 + len(body), 0, 0) + body


def query(statement: str) -> bytes:
    return framed(EventType.QUERY, struct.pack("<IIBHH", 1, 0, 1, 0, 0) + b"d\0" + statement.encode())


def row_of_5_7(*, end: bytes) -> bytes:
    """Returns a GTID without times, BEGIN, a table map without metadata, one inserted row in version 2, and an end."""
    gtid = framed(EventType.GTID, b"\1" + bytes(16) + struct.pack("<q", 9) + b"\2" + struct.pack("<qq", 0, 1))
    table_id = (108).to_bytes(6, "little")
    table_map = framed(EventType.TABLE_MAP, table_id + b"\1\0" + b"\1d\0\1t\0" + b"\2\3\xf5" + b"\1\4" + b"\2")
    image = b"\0" + struct.pack("<i", 5) + struct.pack("<I", len(DOCUMENT)) + DOCUMENT
    rows = framed(EventType.WRITE_ROWS, table_id + b"\1\0" + b"\2\0" + b"\2" + b"\3" + image)
    return gtid + query("BEGIN") + table_map + rows + end


def decoded(raw: bytes) -> list[dict[str, object]]:
    batches = decode_slice(raw, format=FORMAT, log_file="bin.000001", change_no=0, structures={NAME: TABLE})
    return [row for batch in batches for row in batch.rows.column("after").to_pylist()]


XID = framed(EventType.XID, bytes(8))


def test_a_row_of_mysql_5_7():
    assert decoded(row_of_5_7(end=XID)) == [{"id": 5, "j": '{"a": 7}'}]


def test_a_prepared_transaction_of_mysql_5_7_waits():
    prepare = struct.pack("<BIII", 0, 1, 1, 0) + b"x"
    assert decoded(row_of_5_7(end=framed(EventType.XA_PREPARE, prepare))) == []
    one_phase = struct.pack("<BIII", 1, 1, 1, 0) + b"x"
    assert len(decoded(row_of_5_7(end=framed(EventType.XA_PREPARE, one_phase)))) == 1


def test_a_payload_of_mysql_8_0_that_is_not_compressed():
    """The algorithm is 255, which a server uses if zstd does not make the data smaller."""
    whole = row_of_5_7(end=XID)
    size = struct.unpack_from("<I", whole, 9)[0]
    gtid, inner = whole[:size], whole[size:]
    fields = b"\2\3\xfc\xff\0" + b"\1\3\xfc" + struct.pack("<H", len(inner)) + b"\0"
    assert decoded(gtid + framed(EventType.TRANSACTION_PAYLOAD, fields + inner)) == [{"id": 5, "j": '{"a": 7}'}]


def test_row_events_in_pieces_of_mariadb_12_3_halt():
    """In PARTIAL_ROW_DATA, a row event that is too large for a packet comes in parts. No log with this event was seen."""
    raw = framed(EventType.PARTIAL_ROW_DATA, bytes(20))
    with pytest.raises(PidtsError, match="PARTIAL_ROW_DATA") as caught:
        decoded(raw)
    assert caught.value.code == "unknown-event"
    event = Event(EventType.PARTIAL_ROW_DATA, 1, 1, 0, len(raw), 4 + len(raw), 4, 1, memoryview(raw[19:]))
    with pytest.raises(PidtsError, match="PARTIAL_ROW_DATA"):
        TransactionScanner(0, Lsn(0, 1, 4)).feed(event)


def test_mariadb_11_8_leaves_computed_columns_out_of_old_images():
    """Even with binlog_row_image=FULL, a before image and the after image of an UPDATE lack virtual and stored columns.
    The image of an INSERT has them.
    """
    recording = load("mariadb118-computed")
    integer = ColumnType(Kind.INT)
    columns = [Column("id", integer, nullable=False), Column("a", integer)]
    columns += [
        Column("v", ColumnType(Kind.BIGINT), generated=True),
        Column("s", integer, generated=True),
        Column("b", integer),
    ]
    table = Table(TableName("tx", "g"), tuple(columns), TABLE.keys)
    (batch,) = decode_slice(
        recording.events,
        format=recording.format,
        log_file=recording.log_file,
        change_no=0,
        structures={table.name: table},
    )
    assert batch.rows.column("op").to_pylist() == [Op.INSERT, Op.UPDATE, Op.DELETE]
    before, after = batch.rows.column("before").to_pylist(), batch.rows.column("after").to_pylist()
    assert after[0] == {"id": 1, "a": 1, "v": 3, "s": 2, "b": 1}
    plain = {"id": 1, "a": 2, "v": None, "s": None, "b": 1}
    assert (before[1], after[1], before[2]) == ({**plain, "a": 1}, plain, plain)
    lacking = bytes([0b10011])
    assert [bits and bits[:1] for bits in batch.rows.column("partial").to_pylist()] == [None, lacking, lacking]


def test_old_times_of_mariadb_are_not_guessed():
    """With mysql56_temporal_format=OFF, only the table's structure shows the digits of a fraction."""
    recording = load("mariadb-old-times")
    with pytest.raises(Halted, match="number of digits of its fraction") as caught:
        decode_slice(
            recording.events,
            format=recording.format,
            log_file=recording.log_file,
            change_no=0,
            structures=lambda table_map: table_map.to_table(placeholders=True),
        )
    assert caught.value.code == "unknown-precision"
