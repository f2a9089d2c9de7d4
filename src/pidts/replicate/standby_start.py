"""Finds, without GTIDs, the place in a standby's log that corresponds to the received end of its source's log.

A sample (`pidts.relay.standby_samples`) gives a place in the standby's log: all changes before this place were
received. From this place on, the standby's log is read once. Each of its transactions is looked up among the received
transactions, by its identity (`pidts.binlog.transaction_identity`):

- The relay continues at the first transaction that was not received. If the standby has committed in the order of its
  source, no transaction comes twice. If it has not, received transactions may follow that transaction, and come again.
  The place after the last such transaction is recorded (`pidts.relay.repeats`), and rows before this place are written
  in safe mode.
- If the standby's log ends before all received transactions have been found, the standby lacks some of them. It may
  still get these transactions.
- Transactions may have no identity (MySQL before 8.0.1), or the relay may not have the received transactions any more.
  Then the relay continues at the sampled place, and all changes after this place may have been received before.

Crash points: this module writes no file. Until the first event of the standby's log is in the relay, a restart finds
the same samples and searches again. After each search, the replicator records the place up to which changes may repeat.
The last of the recorded places is valid.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TypeAlias

from pidts.binlog import EventType, LogWalker, iter_raw
from pidts.binlog.rows_event import ROW_EVENTS
from pidts.binlog.transaction_identity import Identity, begins_transaction, identity_of
from pidts.model import Halted, Lsn, Position, Transient, Where
from pidts.relay import Origin, RelayReader
from pidts.relay.repeats import after_whole_log
from pidts.relay.servers_read import EndedLog, ended_log, servers_read
from pidts.relay.standby_samples import Sample, read_samples
from pidts.replicate.resume import FAR, SOURCE_BEHIND
from pidts.source import SourceConfig, binary_logs, connect, log_events, query, server_info
from pidts.source.replica import replica_id

_MOST_BYTES = 256 << 20
"""A standby's transactions are searched in at most this many bytes of the relay."""
_CONNECT_SECONDS, _ANSWER_SECONDS = 3.0, 10.0
_CONTENT = frozenset({*ROW_EVENTS, EventType.XID, EventType.QUERY})

Begun = tuple[Position, Identity | None]
"""The place at which a transaction begins, and its identity."""


@dataclass(frozen=True, slots=True)
class StandbyStart:
    """The place in a standby's log at which the relay continues."""

    place: Position
    repeats: Lsn | None
    """The place up to which received changes may come again; None if no change can come again."""


@dataclass(frozen=True, slots=True)
class Known:
    """The received transactions among which the standby's transactions are looked up."""

    all: Counter[Identity]
    awaited: Counter[Identity]
    """The transactions that were received after the sample's place in the source's log. The standby's log must have all
    of them after the sample's place in the standby's log. It has none of them before: up to there, it has only changes
    from before the sample's place in the source's log.
    """


def demand_standby(source: SourceConfig, relay: Path) -> None:
    """Raises if a standby cannot follow the log in the relay."""
    server = replace(source, connect_timeout=_CONNECT_SECONDS)
    with (
        closing(connect(server, answer_within=_ANSWER_SECONDS)) as session,
        closing(RelayReader(relay, source.source_id)) as reader,
    ):
        info = server_info(session)
        beside = replica_id(session, f"{source.source_id} beside", info)
        standby_start(source, reader, info.identity, dict(binary_logs(session)), beside)


def standby_start(
    source: SourceConfig, reader: RelayReader, identity: str, logs: Mapping[str, int], server_id: int | None
) -> StandbyStart:
    """Returns where to continue in this server's log, which has the files `logs`; raises if this is impossible."""
    origin, received, where = reader.origin, reader.received, source.where
    samples = read_samples(reader.folder.path, f"{source.host}:{source.port}")
    if origin is None or received is None or samples is None or (samples.source, samples.standby) != (origin, identity):
        raise _impossible("PiDTS has not compared its log with the source's log while both servers were running", where)
    if received.change_no != origin.change_no:
        raise _impossible("no log was received yet from the server that took over last", where)
    usable = samples.usable(received.position(origin.log_base))
    if not usable:
        raise _impossible(f"all known places in its log are after {received}, the last place that was received", where)
    change_no = origin.change_no + 1
    sample, awaited = _awaited(reader, usable, received)
    start = sample.standby
    if start.offset > logs.get(start.file, -1) or start.offset >= FAR:
        raise _impossible(f"it no longer has its log from {start} on", where)
    if awaited is None:
        return StandbyStart(start, after_whole_log(change_no))
    walk = _Walk(source, start, server_id)
    first = next(walk, None)
    known = Known(awaited, awaited)
    is_complete = first is None
    if first is not None and first[1] is not None:
        known = Known(_back_to(reader, origin, usable, sample, awaited, first[1]), awaited)
        is_complete = first[1] in known.all
    begun = chain([] if first is None else [first], walk)
    found = aligned(begun, lambda: walk.end, known, change_no, where)
    return found if is_complete else replace(found, repeats=after_whole_log(change_no))


Looked: TypeAlias = dict[tuple[str, int], Position]
"""The place up to which each earlier source server's log was searched, by its address and its part of the relay."""


@dataclass(frozen=True, slots=True)
class Unreceived:
    """A transaction of an earlier source server that was not received."""

    place: Position
    is_certain: bool
    """False if a later source may have this transaction: the relay no longer has that source's whole log, or the
    transaction has no identity.
    """


def first_unreceived(server: SourceConfig, reader: RelayReader, looked: Looked) -> Unreceived | None:
    """Returns the first transaction of an earlier source server that was never received.

    The function searches transactions that the server itself committed after the received end of its log. It ignores
    transactions that the relay has received from a later source: a standby may have got a transaction that the relay
    had not got. It never ignores a transaction without an identity.

    Returns None if there is no such transaction, if this server was never read, or if it was installed again. After the
    whole log was searched, its end is stored in `looked`, and the next call reads only new transactions.
    """
    address = f"{server.host}:{server.port}"
    numbers = [number for number, known in servers_read(reader.folder.path).items() if known == address]
    if not numbers:
        return None
    number = max(numbers)
    former, ended = reader.former_source_log(number), ended_log(reader.folder.path, number)
    if former is not None:
        ended = EndedLog(former.origin.server, former.end.position(former.origin.log_base))
    if ended is None:
        raise Transient("no-position", "it is not known where this server's log has ended", where=server.where)
    is_certain = former is not None or (address, number) in looked
    with closing(connect(replace(server, connect_timeout=_CONNECT_SECONDS), answer_within=_ANSWER_SECONDS)) as session:
        info = server_info(session)
        if info.identity != ended.server:
            return None  # the server was installed again
        ((own, *_),) = query(session, "SELECT @@GLOBAL.server_id")
        beside = replica_id(session, f"{server.source_id} beside", info)
        walk = _Walk(server, looked.get((address, number), ended.end), beside)
    later: Counter[Identity] | None = None
    for begin, identity in walk:
        if walk.server_id != int(own):
            continue
        if identity is None:
            return Unreceived(begin, is_certain=False)
        if later is None:
            later = _taken_over(reader, former.end if former is not None else None)
        if not later[identity]:
            return Unreceived(begin, is_certain)
    looked[address, number] = walk.end
    return None


def _taken_over(reader: RelayReader, after: Lsn | None) -> Counter[Identity]:
    """Returns the transactions of servers that took over after `after`, from the first `_MOST_BYTES` of their log.

    None: from the first `_MOST_BYTES` of the log that the relay still has.
    """
    found: Counter[Identity] = Counter()
    size = 0
    for entry in reader.entries(after, joined=True):
        size += entry.extent.size
        if size > _MOST_BYTES:
            break
        for raw in iter_raw(reader.read(entry.extent)):
            if begins_transaction(raw) and (identity := identity_of(raw)) is not None:
                found[identity] += 1
    return found


class _Walk(Iterator[Begun]):
    """Iterates over the transactions of a server's log."""

    def __init__(self, source: SourceConfig, start: Position, server_id: int | None) -> None:
        self._walker = LogWalker(start.file, start.offset)
        self._events = log_events(source, start, server_id)
        self._has_gtid_events = False
        """Whether each transaction begins with a GTID event. MySQL before 5.7 writes such events only with GTIDs on."""
        self.server_id = 0
        """The id of the server that first executed the transaction that was read last."""

    @property
    def end(self) -> Position:
        """Returns the place after the part that was read."""
        return Position(self._walker.file, self._walker.offset)

    def __next__(self) -> Begun:
        """Returns the next transaction."""
        for raw in self._events:
            event = self._walker.feed(raw)
            if event.is_artificial:
                continue
            if begins_transaction(raw):
                self._has_gtid_events, self.server_id = True, event.server_id
                return Position(self._walker.file, event.offset), identity_of(raw)
            if event.type == EventType.QUERY and not self._has_gtid_events:
                self.server_id = event.server_id
                return Position(self._walker.file, event.offset), None
        raise StopIteration


def _awaited(reader: RelayReader, usable: Sequence[Sample], received: Lsn) -> tuple[Sample, Counter[Identity] | None]:
    """Returns the last sample after which transactions were received, and these transactions (None: not known).

    The standby's log must have these transactions: without this check, the log of a lagging standby would look
    complete.
    """
    for sample in usable:
        try:
            found = _identities(reader, Lsn.at(sample.source, received.change_no), received)
        except Halted:  # this part of the relay is purged
            break
        if found is None:
            break
        if found:
            return sample, found
    return usable[0], None


def _back_to(
    reader: RelayReader,
    origin: Origin,
    usable: Sequence[Sample],
    sample: Sample,
    awaited: Counter[Identity],
    first: Identity,
) -> Counter[Identity]:
    """Adds earlier received transactions to `awaited`, back to the transaction `first`, if the relay has it.

    `first` is the standby's first transaction after the sampled place. If the standby lagged when the sample was made,
    some transactions are after the sample's place in the standby's log, and before the sample's place in the source's
    log.
    """
    found, end = awaited.copy(), Lsn.at(sample.source, origin.change_no)
    older = [Lsn.at(one.source, origin.change_no) for one in usable]
    for begin in chain((place for place in older if place < end), (reader.first,)):
        if first in found:
            break
        if begin is None or begin >= end:
            continue
        try:
            part = _identities(reader, begin, end)
        except Halted:
            break
        if part is None:
            break
        found += part
        end = begin
    return found


def _identities(reader: RelayReader, after: Lsn, to: Lsn) -> Counter[Identity] | None:
    """Returns the transactions between two places; None if a transaction has no identity, or the log is too long."""
    found: Counter[Identity] = Counter()
    size = 0
    for entry in reader.entries(after, to, joined=True):
        size += entry.extent.size
        if size > _MOST_BYTES:
            return None
        has_begun = False
        for raw in iter_raw(reader.read(entry.extent)):
            if begins_transaction(raw):
                identity, has_begun = identity_of(raw), True
                if identity is None:
                    return None
                found[identity] += 1
            elif raw[4] in _CONTENT and not has_begun:
                return None
    return found


def aligned(
    begun: Iterable[Begun], end: Callable[[], Position], known: Known, change_no: int, where: Where
) -> StandbyStart:
    """Returns where the standby's first unreceived transaction begins; raises if an awaited transaction is missing.

    `begun` has the standby's transactions from the sampled place on. After the last transaction was read, `end` returns
    the place after it. The relay continues there if all transactions were received.
    """
    left, awaited = known.all.copy(), known.awaited.copy()
    place: Position | None = None
    repeats = False
    for begin, identity in begun:
        if not awaited and place is not None:
            return StandbyStart(place, Lsn.at(begin, change_no) if repeats else None)
        if identity is None or not left[identity]:
            place = place or begin
            continue
        repeats = repeats or place is not None
        left[identity] -= 1
        awaited -= Counter([identity])
    if awaited:
        what = f"this server lacks {awaited.total()} transactions that were received from the server before it"
        raise Transient(
            SOURCE_BEHIND, what, where=where, todo="Nothing to do now: the replicator waits until this server has them"
        )
    return StandbyStart(place or end(), Lsn.at(end(), change_no) if repeats else None)


def _impossible(why: str, where: Where) -> Halted:
    todo = (
        "Point the task back to the former server, use GTIDs (enable-gtid: true), or continue from here: "
        "`pidts run TASK --resync`"
    )
    return Halted("other-source", f"this server cannot take over without GTIDs: {why}", where=where, todo=todo)
