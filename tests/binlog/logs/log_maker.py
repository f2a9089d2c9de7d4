"""Makes logs event by event, with any mixture of what servers write."""

from __future__ import annotations

import random
import struct
import uuid
import zlib

import zstandard

from pidts.binlog import EventType
from pidts.model import Lsn

WORDS = (
    "BEGIN",
    "COMMIT",
    "ROLLBACK",
    "begin",
    "Commit",
    "BEGIN ",
    "START TRANSACTION",
    "BEGINS",
    "XA END X'61',X'',1",
)
STATEMENTS = ("SAVEPOINT a", "ROLLBACK TO a", "CREATE TABLE t (a int)", "INSERT INTO t VALUES (1)", "# Dummy event")


class LogMaker:
    """One log file, to which events are added."""

    def __init__(
        self, chance: random.Random, *, product: str, checksums: bool = True, offset: int = 4, has_tags: bool = True
    ) -> None:
        """`has_tags`: some GTIDs of MySQL have a tag. Compiled code does not read these."""
        self.chance, self.product, self.checksums, self.has_tags = chance, product, checksums, has_tags
        self.file, self.start = "bin.000007", Lsn(0, 7, 4)
        self.offset, self.time, self.number = 4, 1_700_000_000, 0
        self.events: list[bytes] = []
        self.uuid = uuid.UUID(int=chance.getrandbits(128)).bytes
        version = {"mariadb": b"10.11.6-MariaDB-log", "mysql": b"9.7.0", "old": b"5.6.51-log"}[product]
        body = struct.pack("<H50sIB", 4, version, 0, 19) + bytes(40) + bytes([checksums])
        self.put(EventType.FORMAT_DESCRIPTION, body, seal=True)
        self.offset = max(self.offset, offset)

    def put(
        self, kind: int, body: bytes = b"", *, flags: int = 0, seal: bool = False, log_pos: int | None = None
    ) -> None:
        self.time += self.chance.choice([0, 0, 0, 1])
        size = 19 + len(body) + 4 * (self.checksums or seal)
        end = (self.offset + size) % 2**32 if log_pos is None else log_pos
        time = 0 if self.chance.random() < 0.02 else self.time
        raw = struct.pack("<IBIIIH", time, kind, 101, size, end, flags) + body
        self.events.append(raw + (struct.pack("<I", zlib.crc32(raw)) if self.checksums or seal else b""))
        self.offset += size * (not flags & 0x20)

    def query(self, sql: str, schema: str = "shop") -> None:
        variables = self.chance.choice(
            [
                b"",
                b"\0" + bytes(4) + b"\1" + bytes(8) + b"\6\3std\4" + struct.pack("<HHH", 45, 45, 8),
                b"\4" + struct.pack("<HHH", self.chance.choice([8, 35, 54, 60, 63, 255, 2304]), 45, 8),
                b"\5\3UTC\x0c\2a\0b\0\x80\1\2\3",
                b"\x0c\xfe\x0b\1a\2bc",
                b"\x63\1\2",
                b"\1\2",
            ]
        )
        name = schema.encode()
        head = struct.pack("<IIBHH", self.chance.getrandbits(16), 0, len(name), 0, len(variables))
        self.put(EventType.QUERY, head + variables + name + b"\0" + sql.encode())

    def gtid(self, *, odd: bool = False, xa: int = 0) -> None:
        self.number += 1
        if self.product == "mariadb":
            flags = self.chance.choice([0, 1, 32, 64, 128, 3]) if odd else self.chance.choice([0, 2, 4, 8, 12, 14])
            flags |= xa
            body = struct.pack("<QIB", self.number, self.chance.choice([0, 0, 3]), flags) + bytes(8 if flags & 2 else 6)
            if xa:
                body = body[:13] + bytes(8 if flags & 2 else 0) + struct.pack("<IBB", 1, 3, 0) + b"one"
            extra = bytes([self.chance.choice([2, 4, 8] if odd else [0, 1])]) + bytes(2)
            extra *= self.chance.random() < 0.2
            self.put(EventType.MARIADB_GTID, body + extra)
        elif self.product == "old" and not odd:
            return
        else:
            kinds = [EventType.GTID, EventType.ANONYMOUS_GTID, *[EventType.GTID_TAGGED] * self.has_tags]
            kind = self.chance.choice(kinds)
            number = self.chance.choice([0, -1, 2**63 - 1]) if odd else self.number
            if kind == EventType.GTID_TAGGED:
                self.put(kind, tagged(self.uuid, self.chance.choice([b"", b"tag_1", b"1" if odd else b"a"]), number))
            else:
                self.put(kind, b"\1" + self.uuid + struct.pack("<q", number) + bytes(17))

    def table_map(self, name: str, schema: str = "shop") -> None:
        names = b"".join(bytes([len(text)]) + text + b"\0" for text in (schema.encode(), name.encode()))
        self.put(EventType.TABLE_MAP, struct.pack("<IHH", 17, 0, 1) + names + b"\1\3\0\0")

    def rows(self, size: int = 0) -> None:
        kind = EventType.WRITE_ROWS_V1 if self.product == "mariadb" else EventType.UPDATE_ROWS
        self.put(kind, bytes(8) + self.chance.randbytes(size or self.chance.choice([8, 30, 60, 200])))

    def bookkeeping(self) -> None:
        kinds = [
            *(EventType.ANNOTATE_ROWS, EventType.ROWS_QUERY, EventType.INTVAR, EventType.IGNORABLE, EventType.RAND),
            *(EventType.BINLOG_CHECKPOINT, EventType.BEGIN_LOAD_QUERY, EventType.VIEW_CHANGE),
        ]
        self.put(self.chance.choice(kinds), self.chance.randbytes(20))

    def ordinary(self, tables: list[str] | None = None, rows: int | None = None, row_size: int = 0) -> None:
        chance = self.chance
        self.gtid()
        if self.product != "mariadb":
            self.put_begin()
        for name in tables or chance.choices(["a", "b", "Größe", "c" * 64], k=chance.randint(1, 3)):
            if chance.random() < 0.2:
                self.put(EventType.ANNOTATE_ROWS, b"INSERT")
            self.table_map(name)
            for _ in range(chance.choice([1, 1, 3]) if rows is None else rows):
                self.rows(row_size)
        if chance.random() < 0.7:
            self.put(EventType.XID, bytes(8))
        else:
            self.plain_query("COMMIT")

    def prepare(self, gtrid: bytes, tables: list[str]) -> None:
        """Puts a group that prepares an XA transaction with one row event for each table."""
        xid = f"X'{gtrid.hex()}',X'',1"
        self.gtid(xa=64)
        self.plain_query(f"XA START {xid}")
        for name in tables:
            self.table_map(name)
            self.rows()
        self.plain_query(f"XA END {xid}")
        self.put(EventType.XA_PREPARE, struct.pack("<BIII", 0, 1, len(gtrid), 0) + gtrid)

    def decide(self, gtrid: bytes, verb: str = "COMMIT") -> None:
        """Puts a group that commits or rolls back an XA transaction."""
        self.gtid(xa=128)
        self.plain_query(f"XA {verb} X'{gtrid.hex().upper()}',X'',1")

    def xa(self) -> None:
        """Puts a group that prepares an XA transaction, or one that ends such a transaction; sometimes in odd forms."""
        chance = self.chance
        xid = chance.choice(["X'6f6e65',X'',1"] * 6 + ["X'6f',X'6A',77", "X'6',X'',1", "X'6f' , X'',1", "'one'"])
        self.gtid(xa=chance.choice([64, 128]))
        if chance.random() < 0.4:
            self.plain_query(f"XA {chance.choice(['COMMIT', 'ROLLBACK'])} {xid}")
            return
        self.plain_query(f"XA START {xid}")
        for name in chance.choices(["a", "b"], k=chance.randint(0, 2)):
            self.table_map(name)
            self.rows()
        self.plain_query(f"{chance.choice(['XA', 'XA', 'xa'])} END {xid}")
        name = chance.choice([b"one", b"o"])
        end = chance.randrange(4)
        if end == 0:
            self.plain_query("COMMIT")
        else:
            self.put(EventType.XA_PREPARE, struct.pack("<BIII", end == 1, 1, len(name), 0) + name)

    def compressed(self, *, odd: bool = False) -> None:
        """Puts a transaction that MySQL has compressed; an odd one has events that such a transaction seldom has."""
        chance = self.chance
        self.gtid()
        inner = LogMaker(chance, product="mysql", checksums=False)
        inner.put_begin()
        for name in chance.choices(["a", "b", "Größe"], k=chance.randint(0, 3)):
            inner.table_map(name)
            inner.rows()
        if odd and chance.random() < 0.5:
            inner.odd()
        if not odd or chance.random() < 0.7:
            inner.put(EventType.XID, bytes(8))
        if odd and chance.random() < 0.3:
            inner.rows()
        content = b"".join(inner.events[1:])
        made = zstandard.compress(content)
        size = len(content) + (odd and chance.random() < 0.2)
        fields = b"\2\1\0\1\3\xfc" + struct.pack("<H", len(made)) + b"\3\4\xfd" + size.to_bytes(3, "little")
        self.put(EventType.TRANSACTION_PAYLOAD, fields + b"\0" + made)

    def put_begin(self) -> None:
        self.plain_query("BEGIN")

    def plain_query(self, sql: str) -> None:
        self.put(EventType.QUERY, struct.pack("<IIBHH", 5, 0, 4, 0, 0) + b"shop\0" + sql.encode())

    def odd(self) -> None:
        chance = self.chance
        match chance.randrange(14):
            case 12:
                self.compressed(odd=True)
            case 13:
                for _ in range(chance.choice([1, 3, 20])):
                    self.compressed()
            case 10 | 11:
                self.xa()
            case 0:
                self.query(chance.choice(STATEMENTS))
            case 1:
                self.gtid(odd=True)
            case 2:
                self.gtid()
                self.query(chance.choice((*WORDS, *STATEMENTS)))
            case 3:
                self.query(chance.choice(WORDS))
            case 4:
                self.table_map(chance.choice(["a", "", "x" * 255, "b\udc80".encode("utf-8", "replace").decode()]))
            case 5:
                self.put(chance.choice([99, EventType.XID, EventType.STOP]), bytes(8), flags=chance.choice([0, 0x80]))
            case 6:
                self.put(EventType.ROTATE, struct.pack("<Q", 4) + b"bin.000008", flags=0x20, log_pos=0)
                self.events[-1] = rotate("bin.000007", self.offset)
            case 7:
                self.rows()
            case 8:
                self.offset += chance.choice([1, 100, 5000])
            case _:
                self.bookkeeping()


def tagged(source: bytes, tag: bytes, number: int) -> bytes:
    fields = varlen(0) + varlen(1) + varlen(1) + b"".join(map(varlen, source))
    fields += varlen(2) + varlen((number << 1) % 2**64 if number >= 0 else (~number << 1) | 1)
    fields += varlen(3) + varlen(len(tag)) + tag + varlen(6) + varlen(7)
    return varlen(1) + varlen(len(fields)) + varlen(4) + fields


def varlen(value: int) -> bytes:
    for more in range(8):
        if value < 1 << 7 * (more + 1):
            return ((value << (more + 1)) | ((1 << more) - 1)).to_bytes(more + 1, "little")
    return b"\xff" + value.to_bytes(8, "little")


def rotate(file: str, offset: int) -> bytes:
    """Returns a ROTATE event as the server's binlog dump thread makes it."""
    body = struct.pack("<Q", offset) + file.encode()
    return struct.pack("<IBIIIH", 0, EventType.ROTATE, 101, 19 + len(body), 0, 0x20) + body


def random_log(chance: random.Random, pieces: int) -> LogMaker:
    maker = LogMaker(chance, product=chance.choice(["mariadb", "mysql", "old"]), checksums=chance.random() < 0.8)
    often = chance.choice([0.0, 0.1, 0.6])
    maker.ordinary()
    for _ in range(pieces):
        if chance.random() < often:
            maker.odd()
        else:
            maker.ordinary()
    return maker
