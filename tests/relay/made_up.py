"""A made-up source log: the relay never looks into an event, so any bytes with a header's length will do."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass

from pidts.model import Lsn, TableName, Transaction
from pidts.relay import Origin, RelayWriter

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
ORIGIN = Origin("server-a", "bin", 0)
START = Lsn(0, 1, 4)


def event(kind: int, body: bytes) -> bytes:
    return struct.pack("<IBIIIH", 1_700_000_000, kind, 1, 19 + len(body), 0, 0) + body


FORMAT_EVENT = event(15, bytes(range(80)))


@dataclass
class Piece:
    """A transaction and its events."""

    transaction: Transaction
    events: list[bytes]

    @property
    def raw(self) -> bytes:
        return b"".join(self.events)


def made_up_log(
    count: int, *, seed: int = 0, after: Lsn = START, log_index: int = 1, largest: int = 200
) -> list[Piece]:
    chance = random.Random(seed)
    lsn, offset, pieces = after, after.offset if after.log_index == log_index else 4, []
    for number in range(1, count + 1):
        events = [event(19, chance.randbytes(chance.randint(1, largest))) for _ in range(chance.randint(1, 4))]
        begin = Lsn(after.change_no, log_index, offset)
        offset += sum(map(len, events))
        here = Lsn(after.change_no, log_index, offset)
        ddl = chance.choice([None, None, "CREATE TABLE t (a int) -- Köln \udcff"])
        transaction = Transaction(
            lsn=here,
            prev_lsn=lsn,
            begin=begin,
            gtid=f"{UUID}:{number}",
            timestamp=1_700_000_000 + number,
            row_events=len(events),
            tables=(TableName("shop", "order"), TableName("shop", "Zeile")),
            ddl=ddl,
            ddl_schema="shop" if ddl else "",
        )
        pieces.append(Piece(transaction, events))
        lsn = here
    return pieces


def store(writer: RelayWriter, pieces: list[Piece], every: int = 1) -> None:
    for number, piece in enumerate(pieces, 1):
        for raw in piece.events:
            writer.append(raw)
        writer.commit(piece.transaction)
        if number % every == 0:
            writer.sync()
    writer.sync()
