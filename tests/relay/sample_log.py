"""An invented log of a source. The relay never reads the body of an event, so the bodies are any bytes; only the
headers are real.
"""

from __future__ import annotations

import random
import struct
import zlib
from dataclasses import dataclass, replace
from typing import NamedTuple

from pidts.model import Lsn, TableName, Transaction, Xa, XaStep
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
    """The entry as a reader gets it."""
    events: list[bytes]
    prepared: bytes = b""
    """The events that prepared the transaction, if this is the commit of an XA transaction."""

    @property
    def raw(self) -> bytes:
        return b"".join(self.events)

    @property
    def all_raw(self) -> bytes:
        """Returns all bytes that a reader reads of the transaction."""
        return self.raw + self.prepared


def sample_log(count: int, *, seed: int = 0, after: Lsn = START, log_index: int = 1, largest: int = 200) -> list[Piece]:
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


def with_xa(log: list[Piece], *, seed: int = 0) -> list[Piece]:
    """Returns the same log; two thirds of it are steps of two-phase XA transactions with three names, in any order."""
    chance = random.Random(seed)
    held: dict[str, Piece] = {}
    pieces = []
    for piece in log:
        step, xid = chance.choice([None, *XaStep, XaStep.PREPARE, XaStep.COMMIT]), chance.choice("abc")
        if step is not None:
            piece = xa_piece(piece, step, xid, held.pop(xid, None))  # noqa: PLW2901
        if step is XaStep.PREPARE:
            held[xid] = piece
        pieces.append(piece)
    return pieces


def xa_piece(piece: Piece, step: XaStep, xid: str, held: Piece | None) -> Piece:
    """Returns the transaction as a step of an XA transaction. `held`: the transaction that was prepared under this
    name, if any.
    """
    what = piece.transaction
    nothing = Holds(0, (), None, "")
    holds = Holds(what.row_events, what.tables, what.ddl, what.ddl_schema) if step is XaStep.PREPARE else nothing
    xa = Xa(step=step, xid=xid, at=replace(what.begin, offset=what.begin.offset + 1), **holds._asdict())
    found = nothing
    if step is XaStep.COMMIT and held is not None and held.transaction.xa is not None:
        found = Holds(*(getattr(held.transaction.xa, name) for name in Holds._fields))
    prepared = held.raw if step is XaStep.COMMIT and held is not None else b""
    return Piece(replace(what, xa=xa, **found._asdict()), piece.events, prepared)


class Holds(NamedTuple):
    """The contents of an XA transaction."""

    row_events: int
    tables: tuple[TableName, ...]
    ddl: str | None
    ddl_schema: str


def store(writer: RelayWriter, pieces: list[Piece], every: int = 1) -> None:
    for number, piece in enumerate(pieces, 1):
        for raw in piece.events:
            writer.append(raw)
        writer.commit(piece.transaction)
        if number % every == 0:
            writer.sync()
    writer.sync()


def sealed(kind: int, body: bytes) -> bytes:
    """Returns an event with its CRC32."""
    raw = struct.pack("<IBIIIH", 1_700_000_000, kind, 1, 19 + len(body) + 4, 0, 0) + body
    return raw + struct.pack("<I", zlib.crc32(raw))


FORMAT = sealed(15, struct.pack("<H50sIB", 4, b"8.4.0", 0, 19) + bytes(40) + b"\1")


def sealed_log(count: int) -> list[Piece]:
    """Returns transactions whose events have checksums."""
    chance, lsn, pieces = random.Random(7), START, []
    for piece in sample_log(count):
        events = [sealed(19, chance.randbytes(chance.randint(1, 60))) for _ in piece.events]
        end = Lsn(0, 1, lsn.offset + sum(map(len, events)))
        pieces.append(Piece(replace(piece.transaction, begin=lsn, prev_lsn=lsn, lsn=end), events))
        lsn = end
    return pieces
