"""Reads the source's log as a stream of raw events. `BinlogStream` logs in as a client, and then acts as a replica.

`read_burst` returns all events that have arrived, so that its caller can make many small transactions durable together.
"""

from __future__ import annotations

import socket
import struct
import time
import uuid
from types import TracebackType
from typing import TYPE_CHECKING, Self

import pymysql
from pymysql.constants import COMMAND

from pidts.binlog import iter_raw
from pidts.model import GtidSet, Halted, MariaDbGtidSet, MySqlGtidSet, PidtsError, Position, Where
from pidts.model.advice import START_ANEW
from pidts.model.errors import Transient
from pidts.source.connection import SourceConfig, connect, hang_up, query, server_info
from pidts.source.failures import explain, explained
from pidts.source.packets import Block, BlockShape, PacketReader
from pidts.source.replica import lists_replicas, replica_id, replica_uuid

if TYPE_CHECKING:
    from pidts.source.blocks import BlockReader

_COM_BINLOG_DUMP_GTID = 0x1E
_NON_BLOCKING = 0x01
_BY_GTID = 0x04
_HEARTBEATS = frozenset({27, 41})
_FATAL = 1236
_MARIADB_SAME_ID = 4052
_BINLOG_OFF = frozenset({1381, 1220})
_UNREADABLE = ("max_allowed_packet", "crc", "bogus", "corrupt", "truncated in the middle")
_WENT_BACK = ("more gtids than", "not in the master's binlog", "diverged")
_SILENT_BEATS = 4
_TAGGED = 1
_SHORTEST_SILENCE = 2.0
_SEARCH_SECONDS = 60.0
RESTORE_LOG = (
    "If the log file exists elsewhere, restore it on the source (docs/operate/log-purged.md). Then keep logs longer "
    "(binlog_expire_logs_seconds, expire_logs_days)"
)
"""The advice to the operator if the source has purged log that a task needs."""
_FILE_HEADS = frozenset({4, 15, 35, 161, 163, 164})
"""ROTATE, FORMAT_DESCRIPTION and similar events, which come before the first requested event."""


class BinlogStream:
    """A dump of one server's log, from a position on or after a GTID set: raw events without packet headers."""

    def __init__(
        self,
        config: SourceConfig,
        start: Position | GtidSet,
        *,
        server_id: int | None = None,
        heartbeat: float = 1.0,
        non_blocking: bool = False,
        replica: str = "",
    ) -> None:
        self._config = config
        self._start = start
        self._silence = longest_silence(heartbeat)
        self._non_blocking = non_blocking
        self.ended = False
        """Whether a non-blocking dump has reached the end of the log."""
        self._connection = connect(config, answer_within=_SEARCH_SECONDS)
        try:
            self.server = server_info(self._connection)
            self.server_id = (
                server_id or config.server_id or replica_id(self._connection, replica or config.source_id, self.server)
            )
            self._introduce(heartbeat)
            if lists_replicas(self.server):
                self._register()
            self._ask()
        except BaseException:
            self.close()
            raise
        # The driver has read exactly one answer for each command so far, so its buffer has no bytes of the dump.
        self._packets = PacketReader(self._connection._sock, config.where)  # type: ignore[attr-defined]  # noqa: SLF001
        self._blocks: BlockReader | None = None
        self._searching = True
        """Whether the server may still be searching its log for the first requested event.

        During this time, the server sends no heartbeats.
        """

    def read_burst(self, timeout: float = 1.0) -> list[bytes]:
        """Returns all events that have arrived, without heartbeats. Waits at most `timeout` seconds for an event."""
        if self.ended:
            return []
        packets = self._packets.read(timeout)
        if not packets:
            self._expect_news(self._packets)
            return []
        events = []
        for packet in packets:
            if packet[0] != 0:
                self._stop(packet)
                break
            if packet[5] not in _HEARTBEATS:
                events.append(packet[1:])
        self._searching = self._searching and all(packet[5] in _FILE_HEADS for packet in packets if not packet[0])
        return events

    def read_block(self, timeout: float = 1.0) -> Block | None:
        """Returns the next events, or a piece of a large event, as one block. None: none has arrived in time.

        `read_burst` returns the same events as objects. Do not call both methods on one stream.
        """
        if self.ended:
            return None
        if self._blocks is None:
            from pidts.source.blocks import BlockReader  # this import loads the compiler

            self._blocks = BlockReader(self._connection._sock, self._config.where)  # type: ignore[attr-defined]  # noqa: SLF001
        block = self._blocks.read_block(timeout)
        if block is None:
            self._expect_news(self._blocks)
            return None
        if block.shape is BlockShape.ODD and block.data and block.data[0]:
            self._stop(bytes(block.data))
            return None
        if self._searching:
            whole = block.shape is BlockShape.EVENTS
            self._searching = whole and all(raw[4] in _FILE_HEADS for raw in iter_raw(block.data))
        return block

    @property
    def whole_at(self) -> float:
        """Returns the monotonic time at which the source last sent bytes; 0 if the last event is incomplete."""
        reader = self._blocks or self._packets
        return 0.0 if reader.here else reader.received_at

    def close(self) -> None:
        """Closes the connection. The server notices this when it next sends bytes."""
        hang_up(self._connection)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def _where(self) -> Where:
        where = self._config.where
        return Where(source=where.source, position=str(self._start))

    def _expect_news(self, packets: PacketReader) -> None:
        packets.check_frame()
        silent = time.monotonic() - packets.received_at
        if silent > (max(self._silence, _SEARCH_SECONDS) if self._searching else self._silence):
            what = f"the source has sent nothing for {silent:.0f} seconds, not even a heartbeat event"
            raise Transient("source-silent", what, where=self._where)

    def _introduce(self, heartbeat: float) -> None:
        """Sends the messages that a replica sends before it asks for the log."""
        nanoseconds = int(heartbeat * 1_000_000_000)
        name = replica_uuid(self.server_id, self._config.source_id, self.server)
        query(
            self._connection,
            "SET @master_binlog_checksum = 'CRC32', @source_binlog_checksum = 'CRC32', "
            f"@master_heartbeat_period = {nanoseconds}, @source_heartbeat_period = {nanoseconds}, "
            f"@slave_uuid = '{name}', @replica_uuid = '{name}'",
        )
        if self.server.is_mariadb:
            query(self._connection, "SET @mariadb_slave_capability = 4")
        if isinstance(self._start, MariaDbGtidSet):
            query(self._connection, "SET @slave_connect_state = %s, @slave_gtid_strict_mode = 1", (str(self._start),))

    def _register(self) -> None:
        host = socket.gethostname().encode()[:60]
        body = struct.pack("<IB", self.server_id, len(host)) + host + b"\0\0" + struct.pack("<HII", 0, 0, 0)
        self._command(COMMAND.COM_REGISTER_SLAVE, body)
        with explained(self._where):
            self._connection._read_packet()  # type: ignore[no-untyped-call]  # noqa: SLF001

    def _ask(self) -> None:
        flags = _NON_BLOCKING if self._non_blocking else 0
        start = self._start
        if isinstance(start, MySqlGtidSet) and not self.server.is_mariadb:
            data = encode_gtid_set(start)
            head = struct.pack("<HIIQI", flags | _BY_GTID, self.server_id, 0, 4, len(data))
            self._command(_COM_BINLOG_DUMP_GTID, head + data)
            return
        if isinstance(start, MySqlGtidSet) or (isinstance(start, MariaDbGtidSet) and not self.server.is_mariadb):
            what = f"{str(start)!r} is not a GTID set of a {self.server.product} server"
            raise Halted(
                "other-server",
                what,
                where=self._where,
                todo="Correct the address. If a MySQL server was replaced by a MariaDB server, or the reverse, "
                f"{START_ANEW}",
            )
        offset, file = (start.offset, start.file) if isinstance(start, Position) else (4, "")
        if offset >= 2**32:
            what = "a dump cannot start after the first 4 GiB of a log file"
            raise Halted("position-too-far", what, where=self._where, todo="Start by GTID: `enable-gtid: true`")
        self._command(COMMAND.COM_BINLOG_DUMP, struct.pack("<IHI", offset, flags, self.server_id) + file.encode())

    def _command(self, command: int, body: bytes) -> None:
        with explained(self._where):
            self._connection._execute_command(command, body)  # type: ignore[attr-defined]  # noqa: SLF001

    def _stop(self, packet: bytes) -> None:
        if packet[0] == 0xFE and len(packet) < 9:
            if not self._non_blocking:
                # MySQL 5.6 sends this packet, without a reason, if another replica with the same server id has replaced
                # this dump.
                raise Transient("source-lost", "the source ended the dump", where=self._where)
            self.ended = True
            return
        if packet[0] != 0xFF:
            what = f"the source sent a packet that starts with 0x{packet[0]:02x} instead of an event"
            raise Halted("unknown-packet", what, where=self._where, todo="Connect to the server itself, not to a proxy")
        number = int.from_bytes(packet[1:3], "little")
        text = packet[3:].decode("utf-8", "replace")
        raise dump_refusal(number, text[6:] if text.startswith("#") else text, self._where)


def encode_gtid_set(gtids: MySqlGtidSet) -> bytes:
    """Returns the set as replicas send it: the number of members, then each member's uuid and intervals.

    There is a format without tags and a format with tags. The first and the last byte of the number of members show the
    format. The end of an interval is the first number after the interval.
    """
    tagged = any(tag for (_, tag), _ in gtids.members)
    count = len(gtids.members)
    parts = [struct.pack("<Q", _TAGGED << 56 | count << 8 | _TAGGED if tagged else count)]
    for (server, tag), intervals in gtids.members:
        parts.append(uuid.UUID(server).bytes)
        if tagged:
            # A tag has fewer than 64 characters, so its length fits into one byte, whose lowest bit is 0: no more bytes
            # follow.
            parts.append(bytes([len(tag) << 1]) + tag.encode())
        parts.append(struct.pack("<Q", len(intervals)))
        parts += [struct.pack("<QQ", first, last + 1) for first, last in intervals]
    return b"".join(parts)


def longest_silence(heartbeat: float) -> float:
    """Returns the seconds without a byte after which a connection counts as lost, if heartbeats have this interval."""
    return max(heartbeat * _SILENT_BEATS, _SHORTEST_SILENCE)


def dump_refusal(number: int, text: str, where: Where) -> PidtsError:
    """Returns the PidtsError for an error that the server reports during the dump."""
    lower = text.lower()
    if number == _MARIADB_SAME_ID or (number == _FATAL and "same server" in lower):
        what = f"another replica connected with the same server id: {text}"
        todo = "Check whether this task runs twice. If it does not, give one of the two replicas another `server-id`"
        return Halted("server-id-in-use", what, where=where, todo=todo)
    if number in _BINLOG_OFF or (number == _FATAL and "binary log is not open" in lower):
        todo = "Set log_bin in the server's configuration and restart it"
        return Halted("binlog-off", f"the source writes no binary log: {text}", where=where, todo=todo)
    if number == _FATAL and any(word in lower for word in _UNREADABLE):
        what = f"the source cannot read its own log at this position: {text}"
        todo = (
            "Check whether an event of the log begins at this position. If one does, check the source's disk and error "
            "log, and raise max_allowed_packet on the source if the message names it"
        )
        return Halted("source-log-unreadable", what, where=where, todo=todo)
    if number == _FATAL and any(word in lower for word in _WENT_BACK):
        what = f"the source has lost transactions that it had sent before: {text}"
        todo = (
            "The source was restored, lost its last writes, or took writes of its own. Point the task to a server that "
            "has these transactions (docs/operate/source-changed.md)"
        )
        return Halted("source-went-back", what, where=where, todo=todo)
    if number == _FATAL:
        what = f"the source no longer has the log from this position on: {text}"
        return Halted("position-lost", what, where=where, todo=RESTORE_LOG)
    return explain(pymysql.err.OperationalError(number, text), where)
