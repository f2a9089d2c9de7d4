"""Executes statements through PyMySQL; the only module that uses PyMySQL's private names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pymysql
from pymysql.connections import Connection
from pymysql.constants import COMMAND, SERVER_STATUS
from pymysql.converters import escape_string
from pymysql.protocol import OKPacketWrapper

FILE = "pidts"
"""The file name that stands for the text of PiDTS in LOAD DATA LOCAL INFILE."""
_PACKET = 1 << 18
_OUT_OF_SYNC = 2014
_LOST = 2013
_BLOCK = 1 << 20
_LONGEST = 0xFFFFFF
"""A packet of this size continues in the next packet."""
_SHORTEST_OK, _OK_BYTES = 11, 1024
"""The smallest and the largest size of a packet that reports a statement without rows as executed.

The packet has a header, two numbers, two words, and perhaps a text. The driver reads larger packets.
"""
_ENDING = bytes(32)
"""These bytes are put after a packet that is parsed, so that reading a number never goes beyond the end."""
_WIDTHS = {0xFC: 2, 0xFD: 3, 0xFE: 8}
"""The first bytes of length-encoded numbers, each with the number of bytes that follow it and hold the number.

Any other first byte is the number itself.
"""


def force_close(connection: Connection[Any]) -> None:
    """Closes the socket without a message to the server; never blocks and never raises."""
    _own(connection)._force_close()  # noqa: SLF001 - `close` may raise and may write


@dataclass(frozen=True, slots=True)
class StatementResult:
    """The result of one statement."""

    rows: Sequence[tuple[Any, ...]]
    count: int
    """The number of rows found or changed."""
    warnings: int


def run(connection: Connection[Any], statements: Sequence[bytes]) -> Iterator[StatementResult]:
    """Executes statements in order, up to the first that fails. They are bytes, since literals may be binary."""
    own, has_next = _own(connection), True
    own._execute_command(COMMAND.COM_QUERY, b";".join(statements))  # noqa: SLF001 - cursors take text only
    while has_next:
        done = _without_rows(own)
        if done is None:
            own.next_result()
            done, has_next = _done(connection), own._result.has_next  # noqa: SLF001 - as above
        else:
            has_next = bool(own.server_status & SERVER_STATUS.SERVER_MORE_RESULTS_EXISTS)
        yield done


def sql_literals(connection: Connection[Any], values: Iterable[object]) -> tuple[str, ...]:
    """Returns the values as SQL text, for texts and whole numbers several times as fast as the driver."""
    own = _own(connection)
    is_usual = not own.server_status & SERVER_STATUS.SERVER_STATUS_NO_BACKSLASH_ESCAPES
    return tuple(
        f"'{escape_string(value)}'"
        if type(value) is str and is_usual
        else str(value)
        if type(value) is int
        else own.escape(value)
        for value in values
    )


@contextmanager
def as_bytes(connection: Connection[Any]) -> Iterator[None]:
    """Makes each character of an answer stand for one byte in the block, since some texts of servers are not UTF-8."""
    own = _own(connection)
    encoding, own.encoding = own.encoding, "latin-1"
    try:
        yield
    finally:
        own.encoding = encoding


def load(connection: Connection[Any], statement: bytes, texts: Iterable[memoryview]) -> StatementResult:
    """Executes LOAD DATA LOCAL INFILE '{FILE}' with these texts.

    Each text is sent while the server works on the previous text.

    The server asks for the file by its name, and a hostile server may ask for any name at any time. So this module
    never opens a file, and a request with another name, or at another moment, ends the connection.
    """
    own = _own(connection)
    own._execute_command(COMMAND.COM_QUERY, statement)  # noqa: SLF001 - `query` would read the answer itself
    asked = own._read_packet()  # noqa: SLF001 - raises if the server refuses the statement
    try:
        _demand_name(asked.get_all_data())
        for text in texts:
            for first in range(0, len(text), _PACKET):
                own.write_packet(text[first : first + _PACKET])
        own.write_packet(b"")
    except BaseException:
        own._force_close()  # noqa: SLF001 - what was sent must not become rows
        raise
    answer = OKPacketWrapper(own._read_packet())  # noqa: SLF001 - as above
    own.server_status = answer.server_status
    return StatementResult((), int(answer.affected_rows), int(answer.warning_count))


def _demand_name(asked: bytes) -> None:
    if asked != b"\xfb" + FILE.encode():
        what = "the server's answer to LOAD DATA LOCAL INFILE does not ask for the file that the statement names"
        raise pymysql.err.OperationalError(_OUT_OF_SYNC, what)


class RawRows:
    """The rows of one SELECT in the server's own format: the driver would make an object of each value."""

    def __init__(self, connection: Connection[Any], statement: bytes) -> None:
        self._own = _own(connection)
        self._own._execute_command(COMMAND.COM_QUERY, statement)  # noqa: SLF001 - `query` would read the rows itself
        columns = self._own._read_packet().read_length_encoded_integer()  # noqa: SLF001 - raises if the SELECT fails
        for _ in range(columns + 1):
            self._own._read_packet()  # noqa: SLF001 - the columns are known: their descriptions are dropped
        self._data, self._begin = b"", 0

    @property
    def here(self) -> memoryview:
        """Returns the bytes that have arrived and have not been used yet."""
        return memoryview(self._data)[self._begin :]

    def skip(self, size: int) -> None:
        """Drops this many bytes."""
        self._begin += size

    def receive(self) -> None:
        """Waits for more bytes."""
        missing = self._missing()
        if missing > _PACKET:
            more = self._own._read_bytes(missing)  # noqa: SLF001 - raises if the connection is lost
        else:
            more = self._own._rfile.read1(_BLOCK)  # noqa: SLF001 - only the bytes that have arrived
            if not more:
                raise pymysql.err.OperationalError(_LOST, "Lost connection to MySQL server during query")
        self._data, self._begin = self._data[self._begin :] + more, 0

    def packet(self) -> bytes | None:
        """Returns the next packet, of any size, and drops it; None at the end of the rows."""
        parts = []
        while True:
            while self._missing():
                self.receive()
            size = self._size()
            begin = self._begin + 4
            parts.append(self._data[begin : begin + size])
            self._begin = begin + size
            if size < _LONGEST:
                break
        whole = b"".join(parts)
        if whole[:1] == b"\xff":
            pymysql.err.raise_mysql_exception(whole)
        return None if whole[:1] == b"\xfe" and len(whole) < 9 else whole

    def _missing(self) -> int:
        """Returns how many bytes of the next packet have not arrived."""
        there = len(self._data) - self._begin
        return max(4 + self._size() - there, 0) if there >= 4 else 4 - there

    def _size(self) -> int:
        return int.from_bytes(self._data[self._begin : self._begin + 3], "little")


def is_in_transaction(connection: Connection[Any]) -> bool:
    """Whether a transaction was open after the last statement, according to the server's answer."""
    return bool(_own(connection).server_status & SERVER_STATUS.SERVER_STATUS_IN_TRANS)


def wait_without_end(connection: Connection[Any]) -> None:
    """Lets statements take as long as they need."""
    _own(connection)._read_timeout = None  # noqa: SLF001 - the driver has it for a connection's whole life


def _without_rows(own: Any) -> StatementResult | None:
    """Reads the answer to a statement without rows, which is one short packet.

    The driver takes five times as long for this answer, and a small batch has several such answers. If the next packet
    is of another kind, or has not arrived completely, the function reads nothing and returns None. Then the driver has
    to read the packet.
    """
    if own._current_timeout != own._read_timeout:  # noqa: SLF001 - the driver sets it when it reads
        return None
    here = own._rfile.peek(_OK_BYTES)  # noqa: SLF001 - waits if nothing has arrived
    size = 4 + int.from_bytes(here[:3], "little")
    if not _SHORTEST_OK <= size <= min(len(here), _OK_BYTES) or here[4] or here[3] != own._next_seq_id:  # noqa: SLF001
        return None
    if size == _SHORTEST_OK and here[5] not in _WIDTHS and here[6] not in _WIDTHS:
        packet, count, place = here, here[5], 7
    else:
        packet = here[:size] + _ENDING
        count, place = _number(packet, 5)
        _, place = _number(packet, place)
        if place + 4 > size:
            return None
    own._rfile.read(size)  # noqa: SLF001 - these bytes
    own._next_seq_id = (here[3] + 1) % 256  # noqa: SLF001 - as the driver does
    own._result = None  # noqa: SLF001 - as above
    own.server_status = packet[place] | packet[place + 1] << 8
    return StatementResult((), count, packet[place + 2] | packet[place + 3] << 8)


def _number(data: bytes, place: int) -> tuple[int, int]:
    """Returns the length-encoded number at this place, and the place after it."""
    first = data[place]
    width = _WIDTHS.get(first, 0)
    if not width:
        return first, place + 1
    return int.from_bytes(data[place + 1 : place + 1 + width], "little"), place + 1 + width


def _done(connection: Connection[Any]) -> StatementResult:
    result = _own(connection)._result  # noqa: SLF001 - a cursor has it, too, but copies the statement
    return StatementResult(result.rows or (), int(result.affected_rows), int(result.warning_count or 0))


def _own(connection: Connection[Any]) -> Any:
    return connection
