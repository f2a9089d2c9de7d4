"""A connection of the MySQL driver that is cheaper to open, and safe against invalid packets.

The driver has two faults:

- It loads the system's certificate authorities for each connection. Loading takes 30 ms of CPU time, several times as
  long as the login itself, and a copy makes a connection for each chunk.
- It does not check the packets that it reads. An empty packet, an invalid public key, or a request for a file of this
  machine makes the driver raise an IndexError, a ValueError or a RuntimeError.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final

import pymysql
from pymysql.connections import Connection, MySQLResult
from pymysql.cursors import Cursor
from pymysql.protocol import FieldDescriptorPacket, MysqlPacket

MALFORMED: Final = 2027
"""The client library's error number for a malformed packet."""
_MOST_COLUMNS: Final = 4096
"""The largest number of columns in a result; no server allows more columns in a table."""
_PROBES: Final = (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4), ("TCP_USER_TIMEOUT", 30_000))
"""The times of keep-alive probes: a dead server is noticed after half a minute."""

if TYPE_CHECKING:
    _Connection = Connection[Cursor]

    class _MySQLResult(MySQLResult):
        """The driver's result, with the attributes that its type stubs leave out."""

        connection: Any

        def _get_descriptions(self) -> None: ...
        def _read_load_local_packet(self, first_packet: Any) -> None: ...
        def _read_rowdata_packet_unbuffered(self) -> Any: ...

else:  # at run time, the class has no type parameter
    _Connection, _MySQLResult = Connection, MySQLResult


class Link(_Connection):
    """A connection to a MySQL or MariaDB server."""

    def _create_ssl_ctx(self, sslp: Any) -> ssl.SSLContext:
        """Returns the TLS context. Without options, the mode is `preferred`, which verifies no certificate."""
        context: ssl.SSLContext = super()._create_ssl_ctx(sslp) if sslp else _unchecked()  # type: ignore[misc]
        return context

    def connect(self, sock: Any = None) -> None:
        """Connects and logs in.

        Keep-alive probes end a session whose server is gone, even while a long statement runs. A read timeout would
        end long statements, too.
        """
        with _of_protocol():
            super().connect(sock)
        peer: socket.socket = self._sock  # type: ignore[attr-defined]
        for option, value in _PROBES:
            if hasattr(socket, option):
                peer.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)

    def _read_packet(self, packet_type: Any = MysqlPacket) -> Any:
        """Reads a packet. Descriptions of columns are cached, since a repeated statement gets equal descriptions."""
        known = _described if packet_type is FieldDescriptorPacket else packet_type
        return super()._read_packet(known)  # type: ignore[no-untyped-call]

    def _read_query_result(self, unbuffered: bool = False) -> Any:  # noqa: FBT001, FBT002 - the driver's signature
        """Reads a result as the driver does, and checks it before use."""
        self._result = None
        result = _Result(self)
        try:
            with _of_protocol():
                if unbuffered:
                    result.init_unbuffered_query()
                else:
                    result.read()
        except pymysql.err.OperationalError as error:
            if error.args[0] == MALFORMED:
                # The rest of this answer would be taken for the answer to the next query, so the connection is closed.
                self._force_close()  # type: ignore[attr-defined]
            raise
        self._result = result
        if result.server_status is not None:
            self.server_status = result.server_status
        return result.affected_rows


class _Result(_MySQLResult):
    """The result of a query, with checks against a server that breaks the protocol."""

    def _get_descriptions(self) -> None:
        if not 0 < (self.field_count or 0) <= _MOST_COLUMNS:
            raise ValueError(f"the number of its columns is {self.field_count}")
        super()._get_descriptions()

    def _read_load_local_packet(self, first_packet: Any) -> None:
        if not self.connection._local_infile:  # noqa: SLF001 - the driver's own flag
            raise ValueError("it requests a file of this machine, which is never sent")
        super()._read_load_local_packet(first_packet)

    def _read_rowdata_packet_unbuffered(self) -> Any:
        with _of_protocol():
            return super()._read_rowdata_packet_unbuffered()


@contextmanager
def _of_protocol() -> Iterator[None]:
    """Turns errors of the driver's parser in this block into the driver's error for a malformed packet."""
    try:
        yield
    except (pymysql.err.Error, OSError):
        raise
    except Exception as error:
        said = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise pymysql.err.OperationalError(MALFORMED, f"the server's answer breaks the protocol: {said}") from error


@lru_cache(maxsize=512)
def _described(data: bytes, encoding: str) -> FieldDescriptorPacket:
    """Returns the description of a column. Results may share this object, since no code changes it."""
    return FieldDescriptorPacket(data, encoding)


@cache
def _unchecked() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
