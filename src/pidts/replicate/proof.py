"""Proves that a relay was received from a server's log, by checking that this log contains the relay's last event.

Names and sizes do not prove this. An example: a virtual machine is reset to yesterday's snapshot. The server there
still has the same UUID and a log file of the same name. The file may even be longer than the received log, but it has
different transactions after the snapshot. An event's bytes prove more: they contain the event's time, its place and a
checksum over its content.

If the relay has received no event yet, it has only the head of the log file in which it begins. The head contains the
second in which the server created the file. So the head shows whether RESET MASTER has made the log anew.
"""

from __future__ import annotations

import os
from contextlib import closing, suppress
from dataclasses import dataclass, replace

from pidts.binlog import FILE_HEAD
from pidts.binlog.events import HEADER, HEADER_SIZE
from pidts.model import Extent, Halted, LogFile, Lsn, Position
from pidts.model.errors import PrecheckFailed, Transient
from pidts.relay import Origin, RelayReader, RelayState
from pidts.replicate.resume import (
    FAR,
    SOURCE_BEHIND,
    AppliedPlace,
    Resume,
    SourceState,
    demand_own_log,
    is_same_file,
    is_same_log,
    start_again,
)
from pidts.source import (
    ServerInfo,
    Session,
    SourceConfig,
    binary_logs,
    connect,
    event_at,
    gtids_before,
    log_end,
    position,
    server_info,
)
from pidts.source.replica import replica_id

_PIECE = 1 << 20
_ANSWER_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class LastEvent:
    """The last event that the relay has received from a log."""

    place: Position
    raw: bytes

    @property
    def end(self) -> int:
        """Returns the offset of the first byte after the event."""
        return self.place.offset + len(self.raw)


def last_event(reader: RelayReader, state: RelayState) -> LastEvent | None:
    """Returns the last event received from the current log; None if there is none, or if no dump can begin at it."""
    origin: Origin = state.origin
    entry = reader.find(state.lsn)
    if entry is None or not entry.extent.size or entry.transaction.lsn.change_no != origin.change_no:
        return None
    begin = entry.transaction.begin
    if begin.change_no != origin.change_no or begin.offset + entry.extent.size >= FAR:
        return None
    raw = _last(reader, entry.extent)
    end, size = HEADER.unpack_from(raw)[4], len(raw)
    if end < size:
        return None
    return LastEvent(Position.of(origin.log_base, begin.log_index, end - size), raw)


def has_last_event(
    source: SourceConfig, reader: RelayReader, state: RelayState, server: SourceState, server_id: int | None
) -> bool | None:
    """Whether the server's log has the relay's last event; None if this is not known.

    If the relay has no event yet, the head of its log file is compared.
    """
    if not server.may_have_written(state.origin):
        return None
    if reader.find(state.lsn) is None:
        return _has_file(source, reader, state, server, server_id)
    last = last_event(reader, state)
    if last is None or last.place.file not in (sizes := dict(server.logs)):
        return None
    if last.end > sizes[last.place.file]:
        return False
    return event_at(source, last.place, server_id) == last.raw


def _has_file(
    source: SourceConfig, reader: RelayReader, state: RelayState, server: SourceState, server_id: int | None
) -> bool | None:
    """Whether a relay without events begins in this server's log; None if this cannot be checked.

    The relay may have the head of the next log file. This happens if the server died at the relay's place, and the
    replicator ended before it had received the first event of the next file. So the heads of both files are compared.
    """
    place, segments, files = state.position, reader.folder.numbers(), [name for name, _ in server.logs]
    if place is None or place.offset <= FILE_HEAD or place.file not in files or not segments:
        return None
    known, at = reader.format(segments[-1]), files.index(place.file)
    heads = [event_at(source, Position(name, FILE_HEAD), server_id) for name in files[at : at + 2]]
    return any(is_same_file(known, head) for head in heads if head is not None) if None not in heads else None


def source_state(session: Session, info: ServerInfo) -> SourceState:
    """Returns the facts about a server, without the end of its log."""
    return SourceState(info.identity, info.is_mariadb, info.gtid_mode, tuple(binary_logs(session)))


def _own_server_id(source: SourceConfig, session: Session, info: ServerInfo) -> int:
    """Returns a server id other than the replicator's: a dump with the same id would end the replicator's dump."""
    return replica_id(session, f"{source.source_id} proof {os.getpid()}", info)


def begin_again(
    source: SourceConfig,
    session: Session,
    info: ServerInfo,
    server: SourceState,
    applied: AppliedPlace,
    server_id: int | None,
    *,
    use_gtid: bool,
) -> Resume:
    """Returns where an empty relay of a task with a checkpoint continues; raises if it cannot continue in this log."""
    place = applied.place
    known = known_gtids_before(source, session, info, place, server_id) if place is not None else None
    there = _log_file_there(source, server, applied.log_file, server_id)
    return start_again(server, applied, known, there, use_gtid=use_gtid, where=source.where)


def demand_begins_again(source: SourceConfig, applied: AppliedPlace, *, use_gtid: bool) -> None:
    """Raises if a replicator with an empty relay could not continue at a checkpoint in the source's log."""
    with closing(connect(source, answer_within=_ANSWER_SECONDS)) as session:
        info, (place, executed) = server_info(session), position(session)
        server = replace(source_state(session, info), position=place, executed=executed)
        server_id = _own_server_id(source, session, info)
        begin_again(source, session, info, server, applied, server_id, use_gtid=use_gtid)


def demand_checkpoint_in_log(source: SourceConfig, applied: AppliedPlace) -> None:
    """Raises if the source has made the checkpoint's log file anew, or if its log ends before the checkpoint.

    A machine that only applies log may have an account that may not read the log. Then only the log's end is compared.
    """
    there: LogFile | None = None
    with closing(connect(source, answer_within=_ANSWER_SECONDS)) as session:
        info = server_info(session)
        server = source_state(session, info)
        server_id = _own_server_id(source, session, info)
    with suppress(PrecheckFailed):
        there = _log_file_there(source, server, applied.log_file, server_id)
    demand_own_log(server, applied, there, source.where)


def known_gtids_before(
    source: SourceConfig, session: Session, info: ServerInfo, place: Position, server_id: int | None
) -> str | None:
    """Returns the GTIDs executed up to a place; None if the log does not have this place, or if they are not known."""
    if place.offset > dict(binary_logs(session)).get(place.file, -1):
        return None
    return gtids_before(source, session, info, place, server_id)


def _log_file_there(
    source: SourceConfig, server: SourceState, known: LogFile | None, server_id: int | None
) -> LogFile | None:
    """Returns the server's log file with a known file's name; None if there is no such file, or it cannot be read."""
    if known is None or known.name not in dict(server.logs):
        return None
    return _log_file(source, known.name, server.identity, server_id)


def _log_file(source: SourceConfig, name: str, identity: str, server_id: int | None) -> LogFile | None:
    head = event_at(source, Position(name, FILE_HEAD), server_id)
    return LogFile.of_head(name, head, identity) if head is not None else None


def log_file_named(source: SourceConfig, session: Session, name: str) -> LogFile | None:
    """Returns the server's log file with this name; None if it has none, or if the account may not read it."""
    info = server_info(session)
    with suppress(Halted, PrecheckFailed):
        return _log_file(source, name, info.identity, _own_server_id(source, session, info))
    return None


def log_file_at(source: SourceConfig, session: Session, relay: RelayReader, at: Lsn) -> LogFile | None:
    """Returns the log file of a place in the relay's current log; None if it cannot be found.

    A relay that has received no event after its beginning has only the head of a log file, without the file's name.
    This file may be the one after the place's file. So the head is compared with the head of the server's file at this
    place.
    """
    if (known := relay.log_file(at)) is not None:
        return known
    origin, segments = relay.origin, relay.folder.numbers()
    if origin is None or origin.change_no != at.change_no or not segments:
        return None
    name, head = at.position(origin.log_base).file, None
    with suppress(Halted, PrecheckFailed):  # the account may not read the log, for example
        server_id = _own_server_id(source, session, server_info(session))
        head = event_at(source, Position(name, FILE_HEAD), server_id)
    if head is None or not is_same_file(relay.format(segments[-1]), head):
        return None
    return LogFile.of_head(name, head, origin.server)


def end_of_same_log(source: SourceConfig, reader: RelayReader) -> Lsn | None:
    """Returns the end of the source's log; None if the source is another server, or this cannot be decided now.

    A task calls this function before it reports completion. The replicator does not know this end: it may not have
    connected yet, may be frozen, or may belong to another task. If the source is another server, the replicator decides
    what to do. Raises `source-went-back` if the source lacks log that the relay has received.
    """
    # The order of reading: first the relay's last event, then the end of the source's log, then the source's event at
    # the place of the relay's last event. If both events are equal, the end, which was read between them, belongs to
    # the same log.
    origin, received = reader.origin, reader.received
    if origin is None or received is None:
        return None
    state = RelayState(received, origin, None, b"", 0, received)
    with closing(connect(source, answer_within=_ANSWER_SECONDS)) as session:
        info, end = server_info(session), log_end(session)
        server = source_state(session, info)
        if not server.wrote(origin):
            return None
        server_id = _own_server_id(source, session, info)
    server = replace(server, has_last_event=has_last_event(source, reader, state, server, server_id))
    try:
        return Lsn.at(end, origin.change_no) if is_same_log(state, server, source.where) else None
    except Transient as error:
        if error.code != SOURCE_BEHIND:
            raise
        return None


def _last(reader: RelayReader, extent: Extent) -> bytes:
    """Returns an entry's last event. The events are read in pieces, since a transaction may be larger than memory."""
    at, piece, first = extent.offset, b"", 0
    while True:
        if at + HEADER_SIZE > first + len(piece):
            first = at
            piece = reader.read(Extent(extent.segment, first, min(_PIECE, extent.end - first)))
        size = HEADER.unpack_from(piece, at - first)[3]
        if at + size >= extent.end:
            return reader.read(Extent(extent.segment, at, extent.end - at))
        at += size
