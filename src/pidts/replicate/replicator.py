"""Follows one source's log and stores it in the relay.

A replicator continues from the end of the relay and reconnects after temporary errors. It stops with an error if
continuing would join two different logs.
"""

from __future__ import annotations

from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event as StopEvent
from time import monotonic, time

import structlog

from pidts.model import DecodeError, Halted, Lsn, PidtsError, Position
from pidts.model.errors import Transient
from pidts.relay import RelayReader, RelayState, RelayWriter
from pidts.relay.folder import Folder
from pidts.relay.receive_times import ReceiveTimeWriter
from pidts.relay.refetch import Signature, read_refetches, refetch_signature
from pidts.relay.repeats import add_repeats
from pidts.relay.servers_read import EndedLog, add_server, servers_read
from pidts.relay.standby_samples import read_samples
from pidts.relay.task_needs import refused
from pidts.replicate.heartbeat import Heartbeat, HeartbeatConfig
from pidts.replicate.observer import Observer
from pidts.replicate.proof import begin_again, has_last_event, known_gtids_before, source_state
from pidts.replicate.receive_lag import ReceiveLag
from pidts.replicate.receiver import Receiver
from pidts.replicate.receiving_rate import ReceivingRate
from pidts.replicate.resume import (
    SOURCE_BEHIND,
    SOURCE_WENT_BACK,
    AppliedPlace,
    Resume,
    SourceState,
    check_fetched_again,
    check_not_outdated,
    first_start,
    resume,
)
from pidts.replicate.standby_start import standby_start
from pidts.replicate.status import RELAY_FULL, ReplicatorState, SignsOfLife, StatusFile
from pidts.replicate.watch import LogWatch
from pidts.source import (
    BinlogStream,
    SourceConfig,
    connect,
    position,
    server_info,
)
from pidts.source.replica import replica_id

_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 10.0
_READ_SECONDS = 0.5
_STATE_SECONDS = 0.05
"""After events have arrived, the replicator continues to receive for this many seconds before it updates the state: an
update takes as long as receiving a small transaction.
"""
_LOOK_FOR_ROOM_SECONDS = 0.5
_ANSWER_SECONDS = 60.0
"""The time limit for answers before a stream begins. After this time, the connection counts as lost."""
_MAY_BE_DAMAGE = frozenset({"unknown-packet", "source-refused"})
"""The codes of the errors that damaged bytes in a stream may cause, in addition to decoding errors."""
_logger: structlog.stdlib.BoundLogger = structlog.get_logger("pidts.replicate")


@dataclass(frozen=True, slots=True)
class ReplicatorConfig:
    """The settings of one replicator."""

    source: SourceConfig
    relay: Path
    start: Position | str | AppliedPlace | None = None
    """The beginning of an empty relay: a position, a GTID set, a target's checkpoint; None: the log's current end."""
    use_gtid: bool = False
    """Whether the replicator continues by GTID, which is possible even on another server."""
    segment_bytes: int = 128 << 20
    heartbeat: float = 1.0
    patience: float = 30.0
    """The seconds to wait for a server that has taken over, and lacks transactions received from its predecessor."""
    look_every: float = 60.0
    """The seconds between two checks of the source's log files, and of its tables if needed."""
    written_heartbeat: HeartbeatConfig | None = None
    """The heartbeats to write; if None, nothing is ever written to the source."""


class Replicator:
    """Replicates one source to one relay, in one thread."""

    def __init__(self, config: ReplicatorConfig) -> None:
        self._config = config
        self._where = config.source.where
        self._log = _logger.bind(source=config.source.source_id)
        self._status = StatusFile(config.relay / config.source.source_id / "status.json", config.source.source_id)
        # Many tasks on one machine may give a source the same name, and start at the same moment after a reboot. If the
        # server ids were computed from the name alone, all would be equal: no task would see that another task is about
        # to use the same id.
        self._replica = f"{config.source.source_id} {config.relay.absolute()}"
        self._server_id = config.source.server_id
        self._source_behind_since: float | None = None
        self._logged_code = ""
        """The code of the last logged error: an error that persists is logged only once."""
        self._folder = Folder.of(config.relay, config.source.source_id)
        self._signature: Signature = None
        self._damaged_at: tuple[Lsn | None, str] | None = None
        """When damaged bytes last arrived: the end of the relay, and the end of the undamaged part of the stream."""
        self._observer = Observer(config.source, config.relay, config.look_every, self.state)

    def state(self) -> ReplicatorState:
        """Returns the current state; any thread may call it."""
        return self._status.state

    def run(self, stop: StopEvent) -> None:
        """Replicates until `stop` is set. Raises errors that an operator has to decide about."""
        while not stop.is_set():
            # If a reader has requested a cut of the relay, the loop begins again: opening the relay makes the cut.
            try:
                writer = RelayWriter.open(
                    self._config.relay, self._config.source.source_id, segment_bytes=self._config.segment_bytes
                )
            except Transient as error:
                self._report_failure(error)
                stop.wait(_LONGEST_PAUSE)
                continue
            self._run(writer, stop)

    def _run(self, writer: RelayWriter, stop: StopEvent) -> None:
        with (
            closing(writer),
            closing(ReceiveTimeWriter(self._folder)) as self._arrivals,
            closing(SignsOfLife(self._status)) as self._signs_of_life,
        ):
            self._status.update(received=writer.lsn, error=None)
            error: PidtsError | None = None
            self._observer.start()
            try:
                self._keep_following(writer, stop)
            except PidtsError as caught:
                error = caught
                with suppress(PidtsError):  # Transactions that were complete before the error can be applied.
                    writer.sync()
                self._log.error("replicator halted", code=error.code, what=error.what, where=str(error.where))
                raise
            finally:
                self._status.update(connected=False, error=error, received=writer.lsn)
                self._status.write()
                self._observer.stop()

    def _keep_following(self, writer: RelayWriter, stop: StopEvent) -> None:
        pause = _FIRST_PAUSE
        while not (stop.is_set() or self._is_cut_asked):
            try:
                self._follow(writer, stop)
            except Transient as error:
                if self.state().connected:
                    pause, self._logged_code = _FIRST_PAUSE, ""
                    self._status.update(reconnects=self.state().reconnects + 1)
                with suppress(Transient):
                    writer.sync()
                writer.rollback()
                self._fail_if_too_late(error)
                self._report_failure(error, received=writer.lsn)
                if error.code == RELAY_FULL:
                    self._wait_for_room(writer, stop)
                stop.wait(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)

    def _report_failure(self, error: Transient, **changes: Lsn | None) -> None:
        if error.code != self._logged_code:
            self._log.warning("source cannot be followed", code=error.code, what=error.what, todo=error.todo)
            self._logged_code = error.code
        self._status.update(connected=False, error=error, **changes)

    def _wait_for_room(self, writer: RelayWriter, stop: StopEvent) -> None:
        """Ends the segment, so that applied log can be purged, and waits until the disk has space."""
        if writer.give_way():
            self._log.info("a new segment has begun on the full disk, so that the previous segment can be purged")
        while not (stop.is_set() or self._is_cut_asked or writer.has_room):
            self._status.update(**self._outlook())
            stop.wait(_LOOK_FOR_ROOM_SECONDS)

    def _follow(self, writer: RelayWriter, stop: StopEvent) -> None:
        """Follows the source on one connection until the connection ends."""
        todo, server = self._ask(writer)
        stream = BinlogStream(
            self._config.source,
            todo.start,
            server_id=self._server_id,
            heartbeat=self._config.heartbeat,
            replica=self._replica,
        )
        with stream:
            if stream.server.identity != server.identity:
                raise Transient(
                    "source-changed", "the source was replaced while the replicator connected", where=self._where
                )
            # The process keeps one server id, so that the server ends an earlier dump of this replicator.
            self._server_id = stream.server_id
            address = f"{self._config.source.host}:{self._config.source.port}"
            begun = todo.begin or (writer.state.origin if writer.state else None)
            if todo.repeats is not None:
                self._record_repeats(todo.repeats)
            if begun is not None and (todo.begin or servers_read(self._folder.path).get(begun.change_no) != address):
                add_server(self._folder.path, begun.change_no, address, _ended(writer) if todo.begin else None)
            lag = ReceiveLag(self._arrivals.arrived)
            receiver = Receiver(writer, todo, self._where, self._arrivals, lambda: lag.known(monotonic()))
            try:
                self._receive(writer, stream, receiver, lag, todo, stop)
            except Transient:
                raise
            except PidtsError as error:
                with suppress(PidtsError):
                    writer.sync()
                writer.rollback()
                # After a reset, the server cannot find or read the old log any more.
                self._check_log(writer)
                if self._is_new_damage(error, writer.lsn, receiver.place):
                    what = f"damaged bytes arrived from the source after {receiver.place}: {error.what}"
                    next_step = "Nothing to do now: the bytes are received again on a new connection"
                    raise Transient("source-damaged", what, where=self._where, todo=next_step) from error
                raise
            receiver.sync()

    def _record_repeats(self, until: Lsn) -> None:
        try:
            add_repeats(self._folder.path, until)
        except OSError as error:
            raise refused(self._folder, error) from error

    def _receive(
        self,
        writer: RelayWriter,
        stream: BinlogStream,
        receiver: Receiver,
        lag: ReceiveLag,
        todo: Resume,
        stop: StopEvent,
    ) -> None:
        """Receives events as long as the log that the server sends is still the source's current log."""
        origin = todo.begin or (writer.state.origin if writer.state else None)
        if origin is None:
            raise AssertionError("there is no place at which to begin or to continue")
        events, size = self.state().events, self.state().bytes
        rate = ReceivingRate()
        written = self._config.written_heartbeat
        heartbeat = Heartbeat(written, self._config.source.source_id) if written is not None else None
        with LogWatch(self._config.source, origin, self.state, heartbeat) as watch:
            while not (stop.is_set() or self._is_cut_asked):
                is_begun = receiver.events and self.state().connected
                receiver.receive(stream, _READ_SECONDS)
                if is_begun:
                    _receive_more(receiver, stream, stop)
                if receiver.events:
                    self._signs_of_life.end_start()
                if not self.state().connected:
                    self._log.info("following the source", server=origin.server, start=str(todo.start))
                    self._source_behind_since = None
                lsn = writer.lsn
                lag.look(watch.end, lsn, receiver.taken_at, stream.whole_at, monotonic(), time())
                measured: dict[str, float | None] = {}
                if self._status.is_due:
                    measured |= rate.since_last(receiver.waited, receiver.bytes)
                    measured |= lag.to_status(monotonic())
                self._status.update(
                    connected=True,
                    error=None,
                    received=lsn,
                    position=str(lsn.position(writer.log_base)) if lsn else "",
                    source_time=receiver.event_time or self.state().source_time,
                    events=events + receiver.events,
                    bytes=size + receiver.bytes,
                    unreceived_bytes=watch.unreceived_bytes,
                    **self._outlook(),
                    **measured,
                )
                if watch.doubt:
                    receiver.sync()
                    self._check_log(writer)
                    watch.dismiss()

    def _outlook(self) -> dict[str, int | str | None]:
        found = self._observer.outlook
        return {"behind_bytes": found.behind_bytes if found else None, "warning": found.warning if found else ""}

    def _is_new_damage(self, error: PidtsError, received: Lsn | None, place: str) -> bool:
        """Whether another attempt makes sense: if the same damage arrives twice, the server itself sends it."""
        if not (isinstance(error, DecodeError) or error.code in _MAY_BE_DAMAGE):
            return False
        before, self._damaged_at = self._damaged_at, (received, place)
        return before != self._damaged_at

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
        """Raises if the source's log ends before the received place or has other events. The stream may be open."""
        try:
            self._ask(writer, beside=True)
        except Transient as error:
            if error.code == SOURCE_BEHIND:
                raise
        except Halted as error:
            if error.code == SOURCE_WENT_BACK:
                raise

    def _ask(self, writer: RelayWriter, *, beside: bool = False) -> tuple[Resume, SourceState]:
        """Reads the server's state. Returns where to resume, and this state.

        `beside`: a stream is open. A second dump with the same server id would end this stream, so another id is used.
        """
        config, state, start = self._config, writer.state, self._config.start
        with closing(connect(config.source, answer_within=_ANSWER_SECONDS)) as connection:
            info = server_info(connection)
            if beside:
                server_id = replica_id(connection, f"{self._replica} beside", info)
            else:
                # The default id of a dump is computed from the source's name alone. If two tasks started at the same
                # moment with the same id, each would end the other's dump.
                server_id = self._server_id = self._server_id or replica_id(connection, self._replica, info)
            server = source_state(connection, info)
            if state is None or not server.wrote(state.origin):
                place, executed = position(connection)
                server = replace(server, position=place, executed=executed)
            if state is not None:
                server = replace(server, has_last_event=self._prove(state, server, server_id))
                beside_at = self._place_of_standby(state, server, server_id)
                found = resume(state, server, use_gtid=config.use_gtid, where=self._where, beside=beside_at)
                if found.begin is not None:
                    check_fetched_again(state, read_refetches(self._folder), self._where)
                if isinstance(start, AppliedPlace):
                    check_not_outdated(found.begin or state.origin, start, self._where)
                return found, server
            if isinstance(start, AppliedPlace):
                source, use_gtid = config.source, config.use_gtid
                return begin_again(source, connection, info, server, start, server_id, use_gtid=use_gtid), server
            gtid_set = None
            if isinstance(start, Position):
                gtid_set = known_gtids_before(config.source, connection, info, start, server_id)
            return first_start(server, start, gtid_set, use_gtid=config.use_gtid), server

    def _place_of_standby(
        self, state: RelayState, server: SourceState, server_id: int | None
    ) -> tuple[Position, Lsn | None] | None:
        """Returns where to continue in a standby's log without GTIDs, and the place up to which changes may come again.

        Returns None if the server is not a standby with samples.
        """
        source = self._config.source
        address = f"{source.host}:{source.port}"
        if self._config.use_gtid or server.has_last_event or server.wrote(state.origin):
            return None
        if read_samples(self._folder.path, address) is None:
            return None
        with closing(RelayReader(self._config.relay, source.source_id)) as reader:
            found = standby_start(source, reader, server.identity, dict(server.logs), server_id)
        return found.place, found.repeats

    def _prove(self, state: RelayState, server: SourceState, server_id: int | None) -> bool | None:
        with closing(RelayReader(self._config.relay, self._config.source.source_id)) as reader:
            return has_last_event(self._config.source, reader, state, server, server_id)

    def _fail_if_too_late(self, error: Transient) -> None:
        if error.code != SOURCE_BEHIND:
            return
        self._source_behind_since = self._source_behind_since or monotonic()
        if monotonic() - self._source_behind_since >= self._config.patience:
            todo = "Point the task to a server that has these transactions (docs/operate/source-changed.md)."
            raise Halted(SOURCE_WENT_BACK, error.what, where=error.where, todo=todo) from error


def _receive_more(receiver: Receiver, stream: BinlogStream, stop: StopEvent) -> None:
    """Continues to receive, if events have just arrived, until the state has to be updated."""
    until = receiver.taken_at + _STATE_SECONDS
    while (left := until - monotonic()) > 0 and not stop.is_set():
        receiver.receive(stream, left)


def _ended(writer: RelayWriter) -> EndedLog | None:
    """Returns the end of the log in the relay; None if the relay is empty."""
    if writer.state is None or writer.lsn is None:
        return None
    return EndedLog(writer.state.origin.server, writer.lsn.position(writer.state.origin.log_base))
