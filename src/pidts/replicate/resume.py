"""Where to go on, and whether the server at hand is one on which going on is right.

A pure decision over what the relay holds and what the server says of itself. The counterexample that it prevents: the
source is restored from yesterday's backup and comes back at the same address. Its log files have the same names and
soon the same lengths; reading on at the old position would join two different histories without any error.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from pidts.model import GtidSet, Halted, Lsn, Position, Where, parse_gtid_set
from pidts.model.errors import Transient
from pidts.relay import Origin, RelayState

SOURCE_BEHIND = "source-behind"
"""Code of the one error here that time may heal; it is not waited for without end."""
_FILE_HEAD = 4
_FAR = 2**32
"""A dump can be asked to start in the first 4 GiB of a file only."""
_WRITER = struct.Struct("<IxI")
_VERSION = slice(21, 71)

Start = Position | GtidSet


@dataclass(frozen=True, slots=True)
class Server:
    """What the source says of itself before the stream starts."""

    identity: str
    is_mariadb: bool
    gtid_mode: bool
    logs: tuple[tuple[str, int], ...]
    """Its log files and their sizes, oldest first."""
    position: Position | None = None
    """The end of its log; known where it matters, like the next one."""
    executed: str | None = None

    @property
    def log_base(self) -> str:
        """Its log files' name without the number."""
        return self.logs[-1][0].rpartition(".")[0]

    def wrote(self, origin: Origin) -> bool:
        """Whether its log is the one of this origin."""
        return (self.identity, self.log_base) == (origin.server, origin.log_base)


@dataclass(frozen=True, slots=True)
class Resume:
    """What to ask the server for."""

    start: Start
    begin: Origin | None = None
    """A new stretch of the relay begins: an empty relay, or another server."""
    begin_lsn: Lsn | None = None
    """The Lsn before it; None where only the first event will tell."""
    gtid_set: str | None = None
    """What was executed up to there."""


def first_start(server: Server, start: Position | str | None, gtid_set: str | None, *, use_gtid: bool) -> Resume:
    """For an empty relay: from where the caller says, else from the end of the server's log."""
    if start is None:
        if server.position is None:
            raise ValueError("the end of the server's log is not known")
        start, gtid_set = server.position, server.executed
    if isinstance(start, str):
        gtids = parse_gtid_set(start, server.is_mariadb)
        return Resume(gtids, Origin(server.identity, server.log_base, 0), None, str(gtids))
    origin = Origin(server.identity, start.base, 0)
    asked: Start = start
    if use_gtid and gtid_set is not None:
        asked = parse_gtid_set(gtid_set, server.is_mariadb)
    return Resume(asked, origin, Lsn.at(start), gtid_set)


def resume(state: RelayState, server: Server, *, use_gtid: bool, where: Where) -> Resume:
    """For a relay that holds something."""
    if not server.wrote(state.origin):
        return _other_server(state, server, use_gtid=use_gtid, where=where)
    position = state.position
    if position is not None:
        _check_not_behind(position, server, where)
    by_gtid = use_gtid or position is None or position.offset >= _FAR
    if by_gtid and state.gtid_set is not None and server.gtid_mode:
        return Resume(parse_gtid_set(state.gtid_set, server.is_mariadb))
    if position is None:
        raise _needs_gtid(state, server, where)
    return Resume(position)


def check_same_file(known: bytes, seen: bytes, where: Where) -> None:
    """Refuse a log file that only has the name of the one that was read before.

    Its FORMAT_DESCRIPTION event tells the second in which it was created, and by whom. The rest of it may differ: a
    server clears fields in it when it is asked to start in the middle of the file.
    """
    if _WRITER.unpack_from(known) != _WRITER.unpack_from(seen) or known[_VERSION] != seen[_VERSION]:
        raise _went_back("the log file of this name is not the one that was read before", where)


def _check_not_behind(position: Position, server: Server, where: Where) -> None:
    sizes = dict(server.logs)
    newest, end = server.logs[-1]
    size = sizes.get(position.file)
    if size is not None and position.offset > size:
        raise _went_back(f"{position} was received, but {position.file} ends at byte {size}", where)
    last = Position(newest, end).log_index
    if size is None and position.offset == _FILE_HEAD and position.log_index == last + 1:
        what = f"{newest} was read to its end, and {position.file} is not there yet"
        raise Transient(SOURCE_BEHIND, what, where=where, todo="Waiting for it")
    if size is None and position.log_index > last:
        raise _went_back(f"{position} was received, but the log ends in {newest}", where)


def _other_server(state: RelayState, server: Server, *, use_gtid: bool, where: Where) -> Resume:
    if not use_gtid or state.gtid_set is None or not server.gtid_mode:
        raise _needs_gtid(state, server, where)
    received = parse_gtid_set(state.gtid_set, server.is_mariadb)
    executed = parse_gtid_set(server.executed or "", server.is_mariadb)
    if not _is_within(received, executed):
        what = f"this server has not executed all that was received from the last one: {received} (it has {executed})"
        raise Transient(SOURCE_BEHIND, what, where=where, todo="Waiting for it to catch up")
    origin = Origin(server.identity, server.log_base, state.origin.change_no + 1)
    return Resume(received, origin, state.lsn, str(received))


def _is_within(received: GtidSet, executed: GtidSet) -> bool:
    return type(received) is type(executed) and received.issubset(executed)  # type: ignore[arg-type]


def _needs_gtid(state: RelayState, server: Server, where: Where) -> Halted:
    what = f"this is another server ({server.identity}) than the one that was read before ({state.origin.server})"
    todo = "Positions of one server mean nothing on another. Point the source back"
    if not server.gtid_mode:
        todo += "; this server writes no GTIDs, so nothing else can be done but a new full copy"
    elif state.gtid_set is None:
        todo += "; the executed GTID set is not known at this place, so nothing else can be done but a new full copy"
    else:
        todo += ", or set `enable-gtid: true` to go on here by GTID"
    return Halted("other-source", what, where=where, todo=todo)


def _went_back(what: str, where: Where) -> Halted:
    todo = (
        "The source was restored, reset (RESET MASTER) or lost its last writes. "
        "Start with an empty relay and a new full copy."
    )
    return Halted("source-went-back", what, where=where, todo=todo)
