"""Follows one source's log for as long as it is let, and keeps the relay right behind it.

It goes on from what the relay holds, reconnects by itself where trying again may help, and stops with an error where
going on would join what does not belong together.
"""

from __future__ import annotations

from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event as StopEvent
from time import monotonic

import structlog

from pidts.model import Halted, PidtsError, Position
from pidts.model.errors import Transient
from pidts.relay import RelayWriter
from pidts.replicate.receiver import Receiver
from pidts.replicate.resume import SOURCE_BEHIND, Resume, Server, first_start, resume
from pidts.replicate.status import ReplicatorState, StatusFile
from pidts.source import (
    BinlogStream,
    ServerInfo,
    Session,
    SourceConfig,
    binary_logs,
    connect,
    position,
    query,
    server_info,
)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 10.0
_READ_SECONDS = 0.5
_logger: structlog.stdlib.BoundLogger = structlog.get_logger("pidts.replicate")


@dataclass(frozen=True, slots=True)
class ReplicatorConfig:
    """What one replicator does."""

    source: SourceConfig
    relay: Path
    start: Position | str | None = None
    """For an empty relay: a position, a GTID set as text, or None for the end of the source's log."""
    use_gtid: bool = False
    """Resume by GTID, also on another server."""
    segment_bytes: int = 128 << 20
    heartbeat: float = 1.0
    patience: float = 30.0
    """How long a server that takes over may lack transactions that were received from the last one."""


class Replicator:
    """One source, one relay, one thread."""

    def __init__(self, config: ReplicatorConfig) -> None:
        self._config = config
        self._where = config.source.where
        self._log = _logger.bind(source=config.source.source_id)
        self._status = StatusFile(config.relay / config.source.source_id / "status.json", config.source.source_id)
        self._server_id = config.source.server_id
        self._behind_since: float | None = None

    def state(self) -> ReplicatorState:
        """How it is going; from any thread."""
        return self._status.state

    def run(self, stop: StopEvent) -> None:
        """Until `stop` is set; raises what a person has to decide."""
        with closing(
            RelayWriter.open(
                self._config.relay, self._config.source.source_id, segment_bytes=self._config.segment_bytes
            )
        ) as writer:
            self._status.update(received=writer.lsn, error=None)
            error: PidtsError | None = None
            try:
                self._keep_following(writer, stop)
            except PidtsError as caught:
                error = caught
                with suppress(PidtsError):  # What is complete before the obstacle can be applied.
                    writer.sync()
                self._log.error("replicator halted", code=error.code, what=error.what, where=str(error.where))
                raise
            finally:
                self._status.update(connected=False, error=error, received=writer.lsn)
                self._status.write()

    def _keep_following(self, writer: RelayWriter, stop: StopEvent) -> None:
        pause, told = _FIRST_PAUSE, ""
        while not stop.is_set():
            try:
                self._follow(writer, stop)
            except Transient as error:
                if self.state().connected:
                    pause, told = _FIRST_PAUSE, ""
                    self._status.update(reconnects=self.state().reconnects + 1)
                with suppress(Transient):
                    writer.sync()
                writer.rollback()
                self._lose_patience(error)
                if error.code != told:
                    self._log.warning("source not followed", code=error.code, what=error.what, todo=error.todo)
                    told = error.code
                self._status.update(connected=False, error=error, received=writer.lsn)
                stop.wait(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)

    def _follow(self, writer: RelayWriter, stop: StopEvent) -> None:
        """One connection, from its start to its end."""
        todo, server = self._ask(writer)
        stream = BinlogStream(
            self._config.source, todo.start, server_id=self._server_id, heartbeat=self._config.heartbeat
        )
        with stream:
            if stream.server.identity != server.identity:
                raise Transient("source-changed", "the source was replaced while we connected", where=self._where)
            # One id for the life of this process: the server then ends a dump of ours that it still believes in.
            self._server_id = stream.server_id
            receiver = Receiver(writer, todo, self._where)
            events, size = self.state().events, self.state().bytes
            while not stop.is_set():
                burst = stream.read_burst(_READ_SECONDS)
                receiver.take(burst)
                if not self.state().connected:
                    self._log.info("following the source", server=server.identity, start=str(todo.start))
                    self._behind_since = None
                lsn = writer.lsn
                self._status.update(
                    connected=True,
                    error=None,
                    received=lsn,
                    position=str(lsn.position(writer.log_base)) if lsn else "",
                    source_time=receiver.event_time or self.state().source_time,
                    events=events + receiver.events,
                    bytes=size + receiver.bytes,
                )
            receiver.sync()

    def _ask(self, writer: RelayWriter) -> tuple[Resume, Server]:
        config, state = self._config, writer.state
        connection = connect(config.source)
        try:
            info = server_info(connection)
            identity = info.identity
            server = Server(identity, info.is_mariadb, info.gtid_mode, tuple(binary_logs(connection)))
            if state is None or not server.wrote(state.origin):
                place, executed = position(connection)
                server = replace(server, position=place, executed=executed)
            if state is not None:
                return resume(state, server, use_gtid=config.use_gtid, where=self._where), server
            gtid_set = _gtids_at(connection, info, config.start)
            return first_start(server, config.start, gtid_set, use_gtid=config.use_gtid), server
        finally:
            connection.close()

    def _lose_patience(self, error: Transient) -> None:
        if error.code != SOURCE_BEHIND:
            return
        self._behind_since = self._behind_since or monotonic()
        if monotonic() - self._behind_since >= self._config.patience:
            todo = "It lost what was sent before: choose another server, or start with a new full copy from this one."
            raise Halted("source-went-back", error.what, where=error.where, todo=todo) from error


def _gtids_at(connection: Session, server: ServerInfo, start: Position | str | None) -> str | None:
    """What was executed up to a position, where the server can tell; MySQL's log tells at its next file."""
    if not server.is_mariadb or not isinstance(start, Position):
        return None
    found = query(connection, "SELECT BINLOG_GTID_POS(%s, %s)", (start.file, start.offset))
    return None if found[0][0] is None else str(found[0][0])
