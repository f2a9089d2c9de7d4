"""What PyMySQL knows and offers only under names of its own; all uses of those names are here."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pymysql.connections import Connection

_PROBES = (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4), ("TCP_USER_TIMEOUT", 30_000))


def force_close(connection: Connection[Any]) -> None:
    """Close the socket and say nothing; never blocks and never raises."""
    _own(connection)._force_close()  # noqa: SLF001 - `close` may raise and may write


@dataclass(frozen=True, slots=True)
class Done:
    """What one statement gave, or did."""

    rows: Sequence[tuple[Any, ...]]
    count: int
    """Rows found, or changed."""
    warnings: int


def run(connection: Connection[Any], statements: Sequence[bytes]) -> Iterator[Done]:
    """Statements given as bytes, since literals of binary columns are no text; the first that fails ends the list."""
    connection.query(b";".join(statements) if len(statements) > 1 else statements[0])
    yield _done(connection)
    while _own(connection)._result.has_next:  # noqa: SLF001 - cursors take text only
        connection.next_result()
        yield _done(connection)


def watch(connection: Connection[Any]) -> None:
    """A read timeout would end long statements; keep-alive probes end dead peers only."""
    peer = _own(connection)._sock  # noqa: SLF001 - the driver has no option for these
    if isinstance(peer, socket.socket) and peer.family != socket.AF_UNIX:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _PROBES:
            if hasattr(socket, option):
                peer.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _done(connection: Connection[Any]) -> Done:
    result = _own(connection)._result  # noqa: SLF001 - a cursor would tell it, but copies the statement
    return Done(result.rows or (), int(result.affected_rows), int(result.warning_count or 0))


def _own(connection: Connection[Any]) -> Any:
    return connection
