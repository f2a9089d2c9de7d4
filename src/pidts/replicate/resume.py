"""Decides where to continue, and whether continuing on this server is safe.

The decision is a pure function of the relay's state and the server's state. It makes sure that two different logs are
never joined silently. An example: the source is restored from yesterday's backup, and has the same address. Its log
files have the same names, and soon the same lengths. Continuing at the old position would join the two logs.

The cases:

1. The same server, and its log contains the relay's last event (`proof`): continue, by position or by GTID.
2. The same server, but its log ends before the relay's last event or has another event there: the server has lost
   transactions. Halt.
3. A MariaDB of the same server id on another machine or in a new container: this is the same server if its log contains
   the relay's last event. Then a new part of the relay begins at the position. If the log lacks the event, this is
   another server.
4. Another server, with GTIDs configured: if the server has executed all transactions of the relay, continue by GTID. If
   it has not, wait for a limited time. Without GTIDs, continue at the place that was found in a standby's log
   (`standby_start`).
5. An empty relay, but the target has a checkpoint: if the GTIDs before the checkpoint's position equal the checkpoint's
   GTIDs, continue at this position. If they differ, this is another server, and continuing is only possible by GTID.
   The checkpoint also names the log file of its position, with the second in which the file was created. If the same
   server has made this file anew, the server was reset or restored: halt. The position and the file are stored in one
   row, so they belong together after any crash. If tables wait at an earlier place, the position is that place, and may
   be in an earlier file. The comparison is still right, since it finds the file by the name in the checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass

from pidts.binlog import FILE_HEAD
from pidts.model import GtidSet, Halted, LogFile, Lsn, MySqlGtidSet, Position, Where, parse_gtid_set
from pidts.model.advice import RESYNC_ALL, START_ANEW
from pidts.model.errors import Transient, plural
from pidts.model.log_file import creation
from pidts.relay import Origin, RelayState
from pidts.relay.reader import OWN_RELAY
from pidts.relay.refetch import Refetches
from pidts.source.connection import PLACE_OF_MARIADB

SOURCE_BEHIND = "source-behind"
"""The code of the error for a server that lacks log which the relay has received. The server may still get this log, so
the replicator waits for a limited time.
"""
SOURCE_WENT_BACK = "source-went-back"
FAR = 2**32
"""A dump can only begin in the first 4 GiB of a file."""
_VERSION = slice(21, 71)

Start = Position | GtidSet


@dataclass(frozen=True, slots=True)
class SourceState:
    """The facts that the source reports about itself before the stream starts."""

    identity: str
    is_mariadb: bool
    gtid_mode: bool
    logs: tuple[tuple[str, int], ...]
    """The server's log files and their sizes, oldest first."""
    position: Position | None = None
    """The end of the server's log; None if it was not read."""
    executed: str | None = None
    has_last_event: bool | None = None
    """Whether the server's log contains the relay's last event; None if this cannot be checked."""

    @property
    def log_base(self) -> str:
        """Returns the name of the server's log files without the number."""
        return self.logs[-1][0].rpartition(".")[0]

    def wrote(self, origin: Origin) -> bool:
        """Whether this server's log is the log of the origin."""
        return (self.identity, self.log_base) == (origin.server, origin.log_base)

    def may_have_written(self, origin: Origin) -> bool:
        """Whether this server may be the origin. For a MariaDB with its server id, the check of its log decides."""
        return self.log_base == origin.log_base and (
            self.identity == origin.server or (self.is_mariadb and _may_be_same(self.identity, origin.server))
        )


@dataclass(frozen=True, slots=True)
class Resume:
    """The place from which the replicator requests the server's log."""

    start: Start
    begin: Origin | None = None
    """The origin of a new part of the relay, for an empty relay or another server; None: the last part continues."""
    begin_lsn: Lsn | None = None
    """The Lsn before the new part; None if only the first event shows this Lsn."""
    gtid_set: str | None = None
    """The GTIDs executed up to `start`; None if they are not known."""
    repeats: Lsn | None = None
    """The place up to which the new part may repeat changes of the previous part; None if no change is repeated."""


@dataclass(frozen=True, slots=True)
class AppliedPlace:
    """The target's checkpoint of a source. An empty relay begins there if the old relay was lost."""

    lsn: Lsn
    position: str
    """The checkpoint's position in the log of the server from which the task then read; empty if it is not known."""
    gtid_set: str
    log_file: LogFile | None = None
    """The checkpoint's log file; None if it is not known."""

    @property
    def place(self) -> Position | None:
        """Returns the position; None if it is not known."""
        return Position.parse(self.position) if self.position else None


def first_start(server: SourceState, start: Position | str | None, gtid_set: str | None, *, use_gtid: bool) -> Resume:
    """Returns where an empty relay begins: at `start`, or at the end of the server's log if `start` is None.

    `gtid_set` has the GTIDs before `start`; with `use_gtid`, the log after these GTIDs is requested.
    """
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


def start_again(
    server: SourceState,
    applied: AppliedPlace,
    found: str | None,
    there: LogFile | None = None,
    *,
    use_gtid: bool,
    where: Where,
) -> Resume:
    """Returns where an empty relay of a task with a checkpoint continues.

    `found`: the GTIDs in the server's log up to the checkpoint's position. `there`: the server's log file with the name
    of the checkpoint's log file; None if there is none.
    """
    place, known = applied.place, applied.log_file
    is_another = known is not None and there is not None and known.is_another(there)
    demand_own_log(server, applied, there, where)
    if place is not None and place.base == server.log_base and not is_another:
        if not use_gtid:
            _check_not_behind(place, server, where)
        if _is_of(applied, found, server, exactly=use_gtid):
            origin = Origin(server.identity, server.log_base, applied.lsn.change_no)
            asked = parse_gtid_set(found, server.is_mariadb) if use_gtid and found is not None else place
            return Resume(asked, origin, applied.lsn, found)
    if not applied.gtid_set or not use_gtid or not server.gtid_mode:
        what = (
            f"the log of this server ({server.identity}) does not match the target's checkpoint "
            f"({applied.position or 'its position is not known'})"
        )
        raise Halted("other-source", what, where=where, todo=_by_gtid(server))
    received = _executed_all(applied.gtid_set, server, where)
    origin = Origin(server.identity, server.log_base, applied.lsn.change_no + 1)
    return Resume(received, origin, applied.lsn, str(received))


def demand_own_log(server: SourceState, applied: AppliedPlace, there: LogFile | None, where: Where) -> None:
    """Raises if this server wrote the checkpoint's log file, and has made it anew or ends before the checkpoint.

    `there`: the server's log file with the name of the checkpoint's log file; None if there is none.
    """
    known = applied.log_file
    if known is None or known.server != server.identity:
        return
    if there is not None and known.is_made_anew(there):
        raise log_made_anew(known, there, where, holder="the source now")
    place = applied.place
    if place is not None and place.base == server.log_base:
        _check_not_behind(place, server, where)


def resume(
    state: RelayState,
    server: SourceState,
    *,
    use_gtid: bool,
    where: Where,
    beside: tuple[Position, Lsn | None] | None = None,
) -> Resume:
    """Returns where a relay continues. `beside`: the place in a standby's log, and the last Lsn that may repeat."""
    position = state.position
    if not server.wrote(state.origin):
        same = server.has_last_event or (server.has_last_event is None and state.lsn == state.start)
        if position is None or not (server.may_have_written(state.origin) and same):
            if beside is None:
                return _other_server(state, server, use_gtid=use_gtid, where=where)
            (place, repeats), gtids = beside, state.gtid_set
            origin = Origin(server.identity, place.base, state.origin.change_no + 1)
            return Resume(place, origin, state.lsn, gtids if repeats is None else None, repeats)
        origin = Origin(server.identity, server.log_base, state.origin.change_no + 1)
        return Resume(position, origin, state.lsn, state.gtid_set)
    is_same_log(state, server, where)
    by_gtid = use_gtid or position is None or position.offset >= FAR or position.file not in dict(server.logs)
    if by_gtid and state.gtid_set is not None and server.gtid_mode:
        return Resume(parse_gtid_set(state.gtid_set, server.is_mariadb))
    if position is None:
        raise _needs_gtid(state, server, where)
    return Resume(position)


def is_same_log(state: RelayState, server: SourceState, where: Where) -> bool:
    """Whether the relay was received from this server's log; raises if the server has lost the end of this log.

    Returns False for another server, even if the replicator can continue there by GTID.
    """
    if not server.wrote(state.origin):
        return False
    if state.position is not None:
        _check_not_behind(state.position, server, where)
    if server.has_last_event is False:
        raise _went_back(f"the event before {state.position} is not the event that was received", where)
    return True


def check_not_outdated(origin: Origin, applied: AppliedPlace, where: Where) -> None:
    """Refuses an outdated relay: the task has continued with another relay, which has followed more failovers."""
    if origin.change_no < applied.lsn.change_no:
        what = (
            f"the target's checkpoint counts {plural('failover', applied.lsn.change_no)} of the source, but this relay "
            f"only {origin.change_no}"
        )
        todo = "The task has later run with another relay: empty this relay's folder and start again"
        raise Halted("relay-outdated", what, where=where, todo=todo)


def may_be_before(applied: str, found: str | None) -> bool:
    """Whether the GTIDs `found` in a log before a checkpoint's place may be the checkpoint's GTIDs, `applied`.

    True if one of the two sets is not known; False if one of them cannot be parsed.
    """
    if not applied or found is None:
        return True
    try:
        ours, there = parse_gtid_set(applied), parse_gtid_set(found, mariadb=":" not in applied)
    except ValueError:
        return False
    return _has_common_lasts(ours, there)


def demand_same_place(known: LogFile | None, gtid_set: str, there: LogFile, found: str | None, where: Where) -> None:
    """Raises if, at a checkpoint's place, the relay has a log file (`there`) of another server than the checkpoint's.

    `known` is the checkpoint's log file, of another server than `there`; None if it is not known. The relay's log is
    right nevertheless if the GTIDs `found` before this place are the checkpoint's GTIDs. The checkpoint's set may be
    unknown, or lack transactions from before its task began, in two cases: the two servers may be the same server, or
    one server has a copy of the other's log file. `start_again` also accepts such a server.
    """
    if known is None:
        is_same = may_be_before(gtid_set, found)
    else:
        has_copy = known.name == there.name or _may_be_same(known.server, there.server)
        may_lack = has_copy and not known.is_another(there)
        is_same = _are_same(gtid_set, found, may_lack=may_lack)
    if is_same:
        return
    before = f"the log file {known} of {known.server}" if known is not None else f"a log with the GTIDs {gtid_set}"
    what = (
        f"the checkpoint is in {before}. At this place, the relay has {there} of {there.server}, and different "
        f"transactions before it ({found})"
    )
    raise Halted("other-source", what, where=where, todo=OWN_RELAY)


def _has_common_lasts(ours: GtidSet, there: GtidSet) -> bool:
    """Whether a log's GTIDs (`there`) have the checkpoint's last transaction of each server UUID that both sets have.

    A first start may have stored MySQL's executed set in the checkpoint. This set may have GTIDs that no log file has:
    those in the backup from which the server was made.
    """
    if not (isinstance(ours, MySqlGtidSet) and isinstance(there, MySqlGtidSet)):
        return _is_within(ours, there)
    logged = dict(there.members)
    lasts = [(logged[one], intervals[-1][1]) for one, intervals in ours.members if one in logged]
    return bool(lasts) and all(any(first <= at <= last for first, last in intervals) for intervals, at in lasts)


def _are_same(gtid_set: str, found: str | None, *, may_lack: bool) -> bool:
    """Whether the two sets are equal. With `may_lack`, a set may be unknown, and `gtid_set` may lack old GTIDs."""
    if not gtid_set or found is None:
        return may_lack
    try:
        ours, there = parse_gtid_set(gtid_set), parse_gtid_set(found)
    except ValueError:
        return False
    return ours == there or (may_lack and _is_within(ours, there) and _has_lasts(ours, there))


def _may_be_same(one: str, other: str) -> bool:
    """Whether two identities may be of the same server: a MariaDB may be in a new container or on another machine."""
    return one.partition(PLACE_OF_MARIADB)[0] == other.partition(PLACE_OF_MARIADB)[0]


def check_fetched_again(state: RelayState, refetches: Refetches, where: Where) -> None:
    """Refuses another server while a part of the old server's log has to be received again.

    Tasks may already have applied changes of this part, at places in the old log. From the new server, the same changes
    would come with other Lsns, and would be applied twice.
    """
    ends = [one.to for one in refetches.done if one.to > state.lsn]
    if ends:
        what = f"the log from {state.lsn} to {max(ends)} has to be received again, and another server has taken over"
        todo = (
            "Point the task back to the old server until the relay has this log. If that server is gone, take a new "
            f"position: {RESYNC_ALL}"
        )
        raise Halted("relay-gap", what, where=where, todo=todo)


def check_same_file(known: bytes, seen: bytes, where: Where) -> None:
    """Refuses a log file that has the name of the file that was read before, and is another file."""
    if not is_same_file(known, seen):
        raise _went_back("the log file of this name is not the file that was read before", where)


def is_same_file(known: bytes, seen: bytes) -> bool:
    """Whether two FORMAT_DESCRIPTION events are of the same log file.

    A file's FORMAT_DESCRIPTION event records the second in which the file was created, and the server's id. The rest of
    the event may differ: a server clears some fields if a dump starts in the middle of the file.
    """
    return creation(known) == creation(seen) and known[_VERSION] == seen[_VERSION]


def _check_not_behind(position: Position, server: SourceState, where: Where) -> None:
    sizes = dict(server.logs)
    newest, end = server.logs[-1]
    size = sizes.get(position.file)
    if size is not None and position.offset > size:
        raise _went_back(f"{position} was received, but {position.file} ends at byte {size}", where)
    last = Position(newest, end).log_index
    if size is None and position.offset == FILE_HEAD and position.log_index == last + 1:
        what = f"{newest} was read to its end, and {position.file} is not there yet"
        raise Transient(SOURCE_BEHIND, what, where=where, todo="Nothing to do now: the replicator waits for this file")
    if size is None and position.log_index > last:
        raise _went_back(f"{position} was received, but the log ends in {newest}", where)


def _other_server(state: RelayState, server: SourceState, *, use_gtid: bool, where: Where) -> Resume:
    if not use_gtid or state.gtid_set is None or not server.gtid_mode:
        raise _needs_gtid(state, server, where)
    received = _executed_all(state.gtid_set, server, where)
    origin = Origin(server.identity, server.log_base, state.origin.change_no + 1)
    return Resume(received, origin, state.lsn, str(received))


def _executed_all(gtid_set: str, server: SourceState, where: Where) -> GtidSet:
    """Returns the set if the server has executed all of it."""
    try:
        received = parse_gtid_set(gtid_set, server.is_mariadb)
    except ValueError as error:
        todo = f"Correct the address. If the server was replaced by one of the other product, {START_ANEW}"
        raise Halted("other-server", str(error), where=where, todo=todo) from None
    executed = parse_gtid_set(server.executed or "", server.is_mariadb)
    if not _is_within(received, executed):
        what = (
            f"this server lacks transactions that were received from the server before it: {received} "
            f"(this server has {executed})"
        )
        raise Transient(
            SOURCE_BEHIND, what, where=where, todo="Nothing to do now: the replicator waits until this server has them"
        )
    return received


def _is_of(applied: AppliedPlace, found: str | None, server: SourceState, *, exactly: bool) -> bool:
    """Whether a place in this server's log may be the checkpoint's place: compares the GTIDs `found` before the place.

    A checkpoint's set may lack transactions from before its task began, but it has the last transactions before the
    checkpoint. So if another server may have taken over (`exactly`), `found` must contain all GTIDs of the checkpoint,
    and the last transaction of each server UUID or domain must be the same.
    """
    if not exactly:
        return may_be_before(applied.gtid_set, found)
    if not applied.gtid_set:
        return True
    if found is None:
        return False
    try:
        there, ours = (parse_gtid_set(text, server.is_mariadb) for text in (found, applied.gtid_set))
    except ValueError:
        return False
    return _is_within(ours, there) and _has_lasts(ours, there)


def _has_lasts(ours: GtidSet, there: GtidSet) -> bool:
    """Whether the last transaction of each server UUID or domain in `ours` is also its last transaction in `there`."""
    return _lasts(ours).items() <= _lasts(there).items()


def _lasts(gtids: GtidSet) -> dict[object, object]:
    if isinstance(gtids, MySqlGtidSet):
        return {source: intervals[-1][1] for source, intervals in gtids.members}
    return {at.domain: at for at in gtids.positions}


def _is_within(received: GtidSet, executed: GtidSet) -> bool:
    return type(received) is type(executed) and received.issubset(executed)  # type: ignore[arg-type]


def _needs_gtid(state: RelayState, server: SourceState, where: Where) -> Halted:
    what = f"this server ({server.identity}) is not the server that was read before ({state.origin.server})"
    return Halted("other-source", what, where=where, todo=_by_gtid(server, known=state.gtid_set is not None))


def _by_gtid(server: SourceState, *, known: bool = True) -> str:
    todo = "A position of one server means nothing on another server. Point the task back to the former server"
    if not server.gtid_mode:
        return f"{todo}: this server writes no GTIDs, so the place cannot be found in its log"
    if not known:
        return f"{todo}: the executed GTID set is not known at this place, so the place cannot be found in another log"
    return f"{todo}, or set `enable-gtid: true` to continue on this server by GTID"


def log_made_anew(known: LogFile, there: LogFile, where: Where, *, holder: str) -> Halted:
    """Returns the error for a source that has made a checkpoint's log file anew. `holder`: who has the new file."""
    return _went_back(f"the checkpoint is in the log file {known}, but {holder} has {there} under this name", where)


def _went_back(what: str, where: Where) -> Halted:
    todo = (
        "The source was restored, reset (RESET MASTER) or lost its last writes. Point the task to a server that has "
        "these transactions (docs/operate/source-changed.md)."
    )
    return Halted(SOURCE_WENT_BACK, what, where=where, todo=todo)
