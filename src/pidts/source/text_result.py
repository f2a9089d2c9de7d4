"""One query's rows as columns of bytes, without a Python object per row.

The driver would build an object per packet and decode each value on its own. Here a row is cut straight into its
columns' lists, which Arrow then converts as a whole.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import pymysql
from pymysql.constants import COMMAND

from pidts.model import Where
from pidts.model.errors import Transient
from pidts.source.connection import Session, hang_up
from pidts.source.failures import explain
from pidts.source.packets import PacketReader

Values = list[bytes | None]
_TIMEOUT = 3600.0
"""A sort of a large table may take long before the first row comes."""

_WAIT = 60.0


def fetch_columns(connection: Session, sql: str, width: int, where: Where) -> list[Values]:
    """The values of each of the result's `width` columns, as the server wrote them."""
    driver: object = connection
    try:
        driver._execute_command(COMMAND.COM_QUERY, sql.encode())  # type: ignore[attr-defined]  # noqa: SLF001
        sock = driver._sock  # type: ignore[attr-defined]  # noqa: SLF001
    except (pymysql.err.Error, OSError) as error:
        raise explain(error, where) from error
    reader = PacketReader(sock, where)
    columns: list[Values] = [[] for _ in range(width)]
    heading = width + 2
    """The column count, the columns, and the mark behind them."""
    deadline = time.monotonic() + _TIMEOUT
    try:
        while True:
            packets = reader.read(_WAIT)
            if not packets:
                _wait_on(deadline, where)
                continue
            _refuse(packets[0], where)
            skipped = min(heading, len(packets))
            heading -= skipped
            packets = packets[skipped:]
            if packets and _ends(packets[-1]):
                _refuse(packets[-1], where)
                _split(packets[:-1], columns)
                sock.settimeout(None)
                return columns
            _split(packets, columns)
    except BaseException:
        hang_up(connection)  # What is left of the answer would be taken for the next one's.
        raise


def _wait_on(deadline: float, where: Where) -> None:
    if time.monotonic() > deadline:
        raise Transient("source-silent", f"no answer for {_TIMEOUT:.0f} seconds", where=where)


def _ends(packet: bytes) -> bool:
    return packet[:1] == b"\xff" or (packet[:1] == b"\xfe" and len(packet) < 9)


def _refuse(packet: bytes, where: Where) -> None:
    if packet[:1] == b"\xff":
        number = int.from_bytes(packet[1:3], "little")
        text = packet[3:].decode("utf-8", "replace")
        raise explain(pymysql.err.OperationalError(number, text[6:] if text.startswith("#") else text), where)


def _split(packets: Sequence[bytes], columns: Sequence[Values]) -> None:
    """Each value is its length in one to nine bytes, then itself; 0xFB is NULL."""
    appends = [column.append for column in columns]
    for packet in packets:
        at = 0
        for append in appends:
            size = packet[at]
            at += 1
            if size > 250:
                if size == 251:
                    append(None)
                    continue
                more = 2 if size == 252 else 3 if size == 253 else 8
                size = int.from_bytes(packet[at : at + more], "little")
                at += more
            behind = at + size
            append(packet[at:behind])
            at = behind
