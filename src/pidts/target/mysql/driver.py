"""What PyMySQL knows and offers only under names of its own; all uses of those names are here."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Any

from pymysql.connections import Connection

_PROBES = (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4), ("TCP_USER_TIMEOUT", 30_000))


def force_close(connection: Connection[Any]) -> None:
    """Close the socket and say nothing; never blocks and never raises."""
    _own(connection)._force_close()  # noqa: SLF001 - `close` may raise and may write


def query(connection: Connection[Any], sql: bytes) -> Sequence[tuple[Any, ...]]:
    """The rows of a statement given as bytes, since literals of binary columns are no text."""
    connection.query(sql)
    result = _own(connection)._result  # noqa: SLF001 - cursors take text only
    return result.rows if result is not None and result.rows is not None else ()


def warning_count(connection: Connection[Any]) -> int:
    """Of the last statement."""
    result = _own(connection)._result  # noqa: SLF001 - a cursor would tell it, but copies the statement
    return int(result.warning_count) if result is not None else 0


def watch(connection: Connection[Any]) -> None:
    """A read timeout would end long statements; keep-alive probes end dead peers only."""
    peer = _own(connection)._sock  # noqa: SLF001 - the driver has no option for these
    if isinstance(peer, socket.socket) and peer.family != socket.AF_UNIX:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _PROBES:
            if hasattr(socket, option):
                peer.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _own(connection: Connection[Any]) -> Any:
    return connection
