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
from pidts.relay import RelayReader, RelayState, RelayWriter
from pidts.relay.folder import Folder
from pidts.relay.refetch import Signature, read_refetches, refetch_signature
from pidts.replicate.observer import Observer
from pidts.replicate.proof import last_event
from pidts.replicate.receiver import Receiver
from pidts.replicate.resume import (
    SOURCE_BEHIND,
    SOURCE_WENT_BACK,
    Applied,
    Resume,
    Server,
    check_fetched_again,
    check_not_outdated,
    first_start,
    resume,
    start_again,
)
from pidts.replicate.status import ReplicatorState, StatusFile
from pidts.replicate.watch import LogWatch
from pidts.source import (
    BinlogStream,
    ServerInfo,
    Session,
    SourceConfig,
    binary_logs,
    connect,
    event_at,
    gtids_before,
    position,
    server_info,
)
from pidts.source.replica import replica_id

_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 10.0
_READ_SECONDS = 0.5
_ANSWER_SECONDS = 60.0
"""All that is asked before a stream begins is answered at once, or the line is dead."""
_logger: structlog.stdlib.BoundLogger = structlog.get_logger("pidts.replicate")


@dataclass(frozen=True, slots=True)
class ReplicatorConfig:
    """What one replicator does."""

    source: SourceConfig
    relay: Path
    start: Position | str | Applied | None = None
    """For an empty relay: a position, a GTID set as text, what a target has, or None for the end of the log."""
    use_gtid: bool = False
    """Resume by GTID, also on another server."""
    segment_bytes: int = 128 << 20
    heartbeat: float = 1.0
    patience: float = 30.0
    """How long a server that takes over may lack transactions that were received from the last one."""
    look_every: float = 60.0
    """Seconds between two looks at what the source keeps of its log, and at its tables where that is needed."""


class Replicator:
    """One source, one relay, one thread."""

    def __init__(self, config: ReplicatorConfig) -> None:
        self._config = config
        self._where = config.source.where
        self._log = _logger.bind(source=config.source.source_id)
        self._status = StatusFile(config.relay / config.source.source_id / "status.json", config.source.source_id)
        self._server_id = config.source.server_id
        self._behind_since: float | None = None
        self._folder = Folder.of(config.relay, config.source.source_id)
        self._signature: Signature = None
        self._observer = Observer(config.source, config.relay, config.look_every, self.state)

    def state(self) -> ReplicatorState:
        """How it is going; from any thread."""
        return self._status.state

    def run(self, stop: StopEvent) -> None:
        """Until `stop` is set; raises what a person has to decide."""
        while not stop.is_set():
            # Opened again where a reader has asked to have the relay cut back: opening does that.
            self._run(stop)

    def _run(self, stop: StopEvent) -> None:
        with closing(
            RelayWriter.open(
                self._config.relay, self._config.source.source_id, segment_bytes=self._config.segment_bytes
            )
        ) as writer:
            self._status.update(received=writer.lsn, error=None)
            error: PidtsError | None = None
            self._observer.start()
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
                self._observer.stop()

    def _keep_following(self, writer: RelayWriter, stop: StopEvent) -> None:
        pause, told = _FIRST_PAUSE, ""
        while not (stop.is_set() or self._is_cut_asked):
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
            try:
                self._receive(writer, stream, receiver, todo, stop)
            except Halted:
                # A log that was reset under a stream is one that the server cannot find, or not read, any more.
                with suppress(PidtsError):
                    writer.sync()
                writer.rollback()
                self._check_log(writer)
                raise
            receiver.sync()

    def _receive(
        self, writer: RelayWriter, stream: BinlogStream, receiver: Receiver, todo: Resume, stop: StopEvent
    ) -> None:
        """What comes, as long as the log that is read is the source's."""
        origin = todo.begin or (writer.state.origin if writer.state else None)
        if origin is None:
            raise AssertionError("neither a beginning nor anything to go on from")
        events, size = self.state().events, self.state().bytes
        with LogWatch(self._config.source, origin, self.state) as watch:
            while not (stop.is_set() or self._is_cut_asked):
                receiver.receive(stream, _READ_SECONDS)
                if not self.state().connected:
                    self._log.info("following the source", server=origin.server, start=str(todo.start))
                    self._behind_since = None
                lsn, outlook = writer.lsn, self._observer.outlook
                self._status.update(
                    connected=True,
                    error=None,
                    received=lsn,
                    position=str(lsn.position(writer.log_base)) if lsn else "",
                    source_time=receiver.event_time or self.state().source_time,
                    events=events + receiver.events,
                    bytes=size + receiver.bytes,
                    behind_bytes=outlook.behind_bytes if outlook else None,
                    warning=outlook.warning if outlook else "",
                )
                if watch.doubt:
                    receiver.sync()
                    self._check_log(writer)
                    watch.dismiss()

    @property
    def _is_cut_asked(self) -> bool:
        signature = refetch_signature(self._folder)
        if signature == self._signature:
            return False
        if read_refetches(self._folder).pending is not None:
            return True
        self._signature = signature
        return False

    def _check_log(self, writer: RelayWriter) -> None:
        """Raise if what was received is not in the source's log any more; the stream may still be open."""
        try:
            self._ask(writer, beside=True)
        except Transient as error:
            if error.code == SOURCE_BEHIND:
                raise
        except Halted as error:
            if error.code == SOURCE_WENT_BACK:
                raise

    def _ask(self, writer: RelayWriter, *, beside: bool = False) -> tuple[Resume, Server]:
        """`beside` a stream that is open: a server ends it when its id asks for another one."""
        config, state, start = self._config, writer.state, self._config.start
        with closing(connect(config.source, answer_within=_ANSWER_SECONDS)) as connection:
            info = server_info(connection)
            server_id = replica_id(connection, f"{config.source.source_id} beside", info) if beside else self._server_id
            server = Server(info.identity, info.is_mariadb, info.gtid_mode, tuple(binary_logs(connection)))
            if state is None or not server.wrote(state.origin):
                place, executed = position(connection)
                server = replace(server, position=place, executed=executed)
            if state is not None:
                server = replace(server, has_last_event=self._prove(state, server, server_id))
                found = resume(state, server, use_gtid=config.use_gtid, where=self._where)
                if found.begin is not None:
                    check_fetched_again(state, read_refetches(self._folder), self._where)
                if isinstance(start, Applied):
                    check_not_outdated(found.begin or state.origin, start, self._where)
                return found, server
            if isinstance(start, Applied):
                known = self._gtids_before(connection, info, Position.parse(start.position)) if start.position else None
                return start_again(server, start, known, use_gtid=config.use_gtid, where=self._where), server
            gtid_set = self._gtids_before(connection, info, start) if isinstance(start, Position) else None
            return first_start(server, start, gtid_set, use_gtid=config.use_gtid), server

    def _gtids_before(self, connection: Session, info: ServerInfo, place: Position) -> str | None:
        if place.offset > dict(binary_logs(connection)).get(place.file, -1):
            return None
        return gtids_before(self._config.source, connection, info, place, self._server_id)

    def _prove(self, state: RelayState, server: Server, server_id: int | None) -> bool | None:
        """Whether the server's log has the last event of the relay; None where that cannot be asked."""
        if not server.may_have_written(state.origin):
            return None
        with closing(RelayReader(self._config.relay, self._config.source.source_id)) as reader:
            last = last_event(reader, state)
        if last is None or last.place.file not in (sizes := dict(server.logs)):
            return None
        if last.end > sizes[last.place.file]:
            return False
        return event_at(self._config.source, last.place, server_id) == last.raw

    def _lose_patience(self, error: Transient) -> None:
        if error.code != SOURCE_BEHIND:
            return
        self._behind_since = self._behind_since or monotonic()
        if monotonic() - self._behind_since >= self._config.patience:
            todo = "It lost what was sent before: choose another server, or start with a new full copy from this one."
            raise Halted(SOURCE_WENT_BACK, error.what, where=error.where, todo=todo) from error
