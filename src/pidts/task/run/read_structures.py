"""Reads the structures of a source's tables at an Lsn of its log, while the source is in use. Nothing is locked.

The reader reads the position, the structures, and the position again. The relay then shows whether the log between the
two positions has a schema change of these tables. If so, the reader reads the structures again, now from the later
position on.

A position becomes an Lsn together with the number of its server in the relay (`LogPoint`). After a failover, the start
of a task may be connected to the new server before the relay receives its log, or still to the old server. With the
number of the wrong server, the structures would not be those at the Lsn, or the Lsn would be after changes that the
target lacks.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace

import structlog

from pidts.batch.online_ddl import online_of
from pidts.batch.transaction_classifier import TransactionClassifier
from pidts.binlog.machine_code import compiled, last_kept_at
from pidts.model import LogFile, Lsn, Position, Shadow, Table, TableName, Transient, Where
from pidts.plan import RelevanceKind
from pidts.relay import Origin, RelayReader
from pidts.relay.retention import PurgeLimits, release
from pidts.replicate import RELAY_FULL, log_file_at
from pidts.schema.online.names import Role
from pidts.source import Session, position, read_structures, server_info, source_dialect
from pidts.task.config.task_file import TaskConfig
from pidts.task.run.replicator_process import ReplicatorProcess, because_of

_log = structlog.get_logger(__name__)

_RELAY_SECONDS = 60.0
_LOOK_SECONDS = 1.0
"""The interval at which the replicator's status is read."""
_ONE_SERVER = (
    "Do nothing if the source was replaced just now: the start is tried again. If the error stays, use an address that "
    "always leads to the same server (docs/operate/source-changed.md)"
)

_BEHIND = (
    "Do nothing if the relay server is behind: the start is tried again until the relay has the log of this server. On "
    "the relay server's machine, pidts relay list DIR shows its log. If the error stays, use addresses that lead both "
    "machines to the same server (docs/operate/source-changed.md)"
)


class StartStopped(Exception):
    """The user has stopped the task before it ran."""


@dataclass(frozen=True, slots=True)
class LogPoint:
    """A place in the source's log: the end of the log when it was read, or the place at which a task begins."""

    lsn: Lsn
    position: Position
    gtids: str


@dataclass(frozen=True, slots=True)
class StructureReading:
    """The structures that were read; they are valid from `lsn` up to `end`."""

    lsn: Lsn
    end: Lsn
    gtids: str
    position: Position
    structures: Mapping[TableName, Table]
    shadows: Mapping[TableName, Shadow]
    """Shadow tables of online schema changes under way. Their earlier statements are not known."""
    log_file: LogFile | None = None
    """The log file of `position`; None if it is not known, or not needed."""


@dataclass(frozen=True, slots=True)
class LoggedSchemaChange:
    """A schema change in the log between the wanted Lsn and the reading of the structures."""

    lsn: Lsn
    tables: frozenset[TableName]
    """The task's tables that the statement changes; empty if they are not known."""
    statement: str


@dataclass(frozen=True, slots=True)
class StructureReader:
    """Reads structures for one task whose replicator is running."""

    config: TaskConfig
    source: Session
    replicator: ReplicatorProcess
    stop: threading.Event
    show_step: Callable[[str], None] = lambda _: None
    """Receives a text about what the reader waits for."""
    needed: Lsn | None = None
    """At a first start: the place from which the task needs the relay's log, as soon as it is known."""
    patience: float = 60.0
    """The seconds in which the relay has to begin to receive the log of the server that answers."""

    def log_end(self, relay: RelayReader) -> LogPoint:
        """Returns the end of the log of the server that answers, after the relay has begun to receive this log.

        The number of failovers only grows. So the position is in the relay's last log if the relay's origin is the same
        before and after the position is read.
        """
        own, began = server_info(self.source).identity, time.monotonic()
        look_at = began + _LOOK_SECONDS
        while True:
            before = relay.origin
            place, gtids = position(self.source)
            origin = relay.origin
            if origin is not None and origin == before and (origin.server, origin.log_base) == (own, place.base):
                return LogPoint(Lsn.at(place, origin.change_no), place, gtids)
            self.replicator.watch()
            if self.stop.wait(0.05):
                raise StartStopped
            if time.monotonic() > began + self.patience:
                raise self._moved(own, origin)
            if time.monotonic() > look_at:
                look_at = time.monotonic() + _LOOK_SECONDS
                self.say(self._wait_text(own, origin))

    def wait_for(self, lsn: Lsn | None, relay: RelayReader) -> None:
        """Waits until the relay has everything up to `lsn`; if `lsn` is None, until it has anything."""
        wait_for_relay(self.config, self.replicator, lsn, self.stop, relay, show_step=self.say, needed=self.needed)

    def say(self, text: str) -> None:
        """Shows what the start waits for."""
        self.show_step(f"step 2 of 3: {text}")

    def wait(self, relay: RelayReader, end: LogPoint) -> None:
        """Waits until the relay has the log up to `end`. Raises if the relay gets another server's log before that."""
        self.wait_for(end.lsn, relay)
        received = relay.received
        if received is None or received.change_no != end.lsn.change_no:
            what = f"while PiDTS waited for the log up to {end.position}, the source was replaced by another server"
            raise Transient("source-moved", what, where=self.config.source.server.where, todo=_ONE_SERVER)

    def _wait_text(self, own: str, origin: Origin | None) -> str:
        there = f"ends in the log of {origin.server}" if origin is not None else "is empty"
        cause = because_of(self.replicator.lack())
        return f"waiting for the log of {own}, which answers at the source's address; the relay {there}{cause}"

    def _moved(self, own: str, origin: Origin | None) -> Transient:
        """Returns the error for a relay that does not get the log of the server that answers."""
        where = self.config.source.server.where
        if (lack := self.replicator.lack()) is not None:
            return Transient(lack.error.code, lack.error.what, where=lack.error.where, todo=lack.error.todo)
        there = origin.server if origin is not None else "no server yet"
        what = f"{own} answers at the source's address, but the relay receives the log of {there}"
        return Transient(
            "source-moved", what, where=where, todo=_ONE_SERVER if self.config.relay_from is None else _BEHIND
        )

    def read(
        self,
        relay: RelayReader,
        at: LogPoint,
        *,
        on_change: Callable[[LoggedSchemaChange], None] = lambda _: None,
        only: Collection[TableName] | None = None,
    ) -> StructureReading:
        """Reads the structures at the place `at`, or at a later place.

        If the structures may already show a schema change that the log has after `at`, this method calls `on_change`,
        which may raise. It then reads the structures again at a later place. If `only` is given, only schema changes of
        these tables count.
        """
        allow = self.config.allow
        while True:
            found = read_structures(self.source, lambda name: allow(name) or self._is_shadow(name))
            after = self.log_end(relay)
            self.wait(relay, after)
            changed = next(self._schema_changes(relay, at.lsn, after.lsn, only), None)
            if changed is None:
                start = relay.position(at.lsn) or at.position
                structures = {name: table for name, table in found.items() if allow(name)}
                shadows = {
                    name: Shadow(table, complete=False) for name, table in found.items() if name not in structures
                }
                # A busy server may return a GTID set without the last few transactions. The set in the log is complete.
                gtids = relay.gtid_set(at.lsn) or at.gtids
                return StructureReading(at.lsn, after.lsn, gtids, start, structures, shadows)
            on_change(changed)
            _log.info("a table changed while structures were read, reading again", at=str(changed.lsn))
            at = after

    def with_log_file(self, relay: RelayReader, read: StructureReading) -> StructureReading:
        """Returns the reading with the log file of its position, for a checkpoint at this position."""
        return replace(read, log_file=log_file_at(self.config.source.server, self.source, relay, read.lsn))

    def _is_shadow(self, name: TableName) -> bool:
        online = online_of(self.config.allow)
        return online.role(name) is Role.SHADOW and any(map(self.config.allow, online.reals(name) or ()))

    def _schema_changes(
        self, relay: RelayReader, after: Lsn, to: Lsn, only: Collection[TableName] | None
    ) -> Iterator[LoggedSchemaChange]:
        classifier = TransactionClassifier(self.config.allow, source_dialect(self.source))
        for entry in relay.entries(after):
            if entry.transaction.lsn > to:
                return
            relevance = classifier(entry)
            if relevance.kind is RelevanceKind.DDL and (
                only is None or relevance.tables is None or relevance.tables.intersection(only)
            ):
                transaction = entry.transaction
                yield LoggedSchemaChange(transaction.lsn, relevance.tables or frozenset(), transaction.ddl or "")


def wait_for_relay(
    config: TaskConfig,
    replicator: ReplicatorProcess,
    lsn: Lsn | None,
    stop: threading.Event,
    relay: RelayReader,
    *,
    patience: float = _RELAY_SECONDS,
    show_step: Callable[[str], None] = lambda _: None,
    needed: Lsn | None = None,
) -> None:
    """Waits until the relay has everything up to `lsn`; if `lsn` is None, until it has anything.

    Raises if for `patience` seconds the relay does not grow and no process compiles code. `show_step` receives a text
    with the reason why no log is received, if there is one. `needed`: the place from which a task that has not begun
    needs the log; None: its recorded need counts. If the disk is full, earlier log that no other task needs is removed.
    """
    limits = PurgeLimits(checkpoints={} if needed is None else {config.name: needed})
    deadline = time.monotonic() + patience
    last, size, look_at, is_lacking = None, _bytes(relay), 0.0, False
    while True:
        received = relay.received
        if received is not None and (lsn is None or received >= lsn):
            return
        if relay.damage is not None:
            raise relay.damage
        if received != last:
            last, deadline = received, time.monotonic() + patience
        replicator.watch()
        if time.monotonic() >= look_at:
            look_at = time.monotonic() + _LOOK_SECONDS
            lack = replicator.lack()
            if lack is not None or is_lacking:
                show_step(f"waiting for the source's log{because_of(lack)}")
            is_lacking = lack is not None
            if lack is not None and lack.error.code == RELAY_FULL:
                # The log that no task needs is removed, to make room for the awaited log.
                release(config.relay, config.source.source_id, limits)
        if stop.wait(0.02):
            raise StartStopped
        if time.monotonic() > deadline:
            if (now := _bytes(relay)) != size:  # one transaction may take longer than a minute to receive
                size, deadline = now, time.monotonic() + patience
                continue
            if _compiles(patience):
                deadline = time.monotonic() + patience
                continue
            if (lack := replicator.lack()) is not None:
                raise Transient(lack.error.code, lack.error.what, where=lack.error.where, todo=lack.error.todo)
            # On a busy machine the replicator may still be starting. So the error is transient: the run waits.
            raise Transient(
                "relay-stuck",
                f"the relay has received nothing for {patience:.0f} seconds",
                where=Where(source=config.source.source_id),
                todo=f"If this lasts, read {config.relay / config.source.source_id / 'replicator.log'}",
            )


def _compiles(seconds: float) -> bool:
    """Whether a process has compiled code in the last `seconds`. A replicator may compile before it receives log."""
    if not compiled():
        return False
    return time.time() - last_kept_at() < seconds


def _bytes(relay: RelayReader) -> int:
    """Returns the size of the segment that is being written, including incomplete transactions."""
    numbers = relay.folder.numbers()
    return relay.folder.log_bytes(numbers[-1]) if numbers else 0
