"""Queries the source regularly, on a separate connection, for facts that the binlog stream does not contain.

The observer checks whether the source will purge log files before the relay has received them. It reads the table
structures when the relay begins, and again after a statement that could not be parsed. The observer must never
delay or end the stream, so it has a thread and a connection of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from threading import Event as StopEvent
from threading import Thread

import structlog

from pidts.model import Lsn, PidtsError, TableName, Transient
from pidts.relay import RelayReader
from pidts.relay.folder import Folder
from pidts.relay.structures import StoredStructures, dialect_at, history_at, is_stored, store_structures
from pidts.replicate.expiry import ExpiryOutlook, SourceLogs, outlook
from pidts.replicate.status import RELAY_FULL, ReplicatorState
from pidts.replicate.watch import ends_before
from pidts.schema import Dialect
from pidts.schema.evolve.known_structures import KnownStructures
from pidts.source import SourceConfig, binary_logs, connect, query, server_info
from pidts.source.connection import variables
from pidts.source.current_tables import look_at_tables

_POLL = 0.05
_SOON = 1.0
"""The seconds until the next attempt to read all structures, if the relay needs them."""
_END_SECONDS = 5.0
_DAY = 86400
_TRIES = 5
_RECEIVE_SECONDS = 30.0
_EXPIRY = ("binlog_expire_logs_seconds", "binlog_expire_logs_auto_purge", "expire_logs_days", "max_binlog_total_size")
_logger: structlog.stdlib.BoundLogger = structlog.get_logger("pidts.replicate")


class Observer:
    """Observes the source of one replicator, in its own thread."""

    def __init__(
        self, source: SourceConfig, relay: Path, interval: float, state: Callable[[], ReplicatorState]
    ) -> None:
        self._source, self._interval, self._state = source, interval, state
        self._folder = Folder.of(relay, source.source_id)
        self._reader = RelayReader(relay, source.source_id)
        self._log = _logger.bind(source=source.source_id)
        self._end = StopEvent()
        self._thread: Thread | None = None
        self._followed: tuple[Lsn, KnownStructures, Dialect] | None = None
        self._accepted: frozenset[object] = frozenset()
        """Tables whose structures were still unknown after the last reading: they are no reason to read again."""
        self._reported = ""
        self.outlook: ExpiryOutlook | None = None
        """The latest outlook; the replicator's thread reads it."""

    def start(self) -> None:
        """Starts the thread, just before the replicator begins to follow the source's log."""
        self._end.clear()
        self._thread = Thread(target=self._run, name="observer", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stops the thread; does not wait for a query that hangs on a dead connection."""
        self._end.set()
        if self._thread is not None:
            self._thread.join(_END_SECONDS)

    def _run(self) -> None:
        while not self._end.is_set():
            if not (self._state().connected or self._is_full):
                self._end.wait(_POLL)
                continue
            try:
                self._look()
                self._reported = ""
            except PidtsError as error:
                if not isinstance(error, Transient) and error.code != self._reported:
                    self._log.warning("source cannot be queried", code=error.code, what=error.what, todo=error.todo)
                    self._reported = error.code
            except OSError as error:
                self._log.warning("structures not stored", what=str(error))
            self._end.wait(self._interval if is_stored(self._reader) else min(self._interval, _SOON))
        self._reader.close()

    @property
    def _is_full(self) -> bool:
        """Whether the relay's disk is full: then no log is received, and the source may purge its log meanwhile."""
        error = self._state().error
        return error is not None and error.code == RELAY_FULL

    def _look(self) -> None:
        self._look_at_logs()
        if self._lacks_structures():
            self._store_structures()

    def _look_at_logs(self) -> None:
        origin, received = self._reader.origin, self._reader.received
        with closing(connect(self._source)) as session:
            if origin is None or received is None or server_info(session).identity != origin.server:
                return
            files = tuple(binary_logs(session))
            limits = variables(session, *_EXPIRY)
            now = int(query(session, "SELECT UNIX_TIMESTAMP()")[0][0])
        if received.change_no != origin.change_no or not files:
            return
        reading = received.position(origin.log_base)
        if ends_before(files, reading):
            return  # The listed files belong to another log than the received one; `LogWatch` handles this case.
        logs = SourceLogs(files, expire_seconds(limits), int(limits.get("max_binlog_total_size", 0)), now)
        found = outlook(logs, reading, self._state().source_time)
        if found.warning and (self.outlook is None or self.outlook.warning != found.warning):
            self._log.warning("source may purge its log", warning=found.warning, behind_bytes=found.behind_bytes)
        self.outlook = found

    def _lacks_structures(self) -> bool:
        """Whether the structures have to be read: the relay has none, or a statement has made a structure unknown."""
        if not is_stored(self._reader):
            self._followed = None
            return True
        received = self._reader.received
        if received is None:
            return False
        if self._followed is None:
            history = history_at(self._reader, received)
            self._followed = received, history, dialect_at(self._reader, received)
        lsn, history, dialect = self._followed
        for change in self._reader.schema_changes(lsn, received):
            history = history.after(change, dialect)
        self._followed = received, history, dialect
        return bool(_open_questions(history) - self._accepted)

    def _store_structures(self) -> None:
        stored = structures_now(self._source, self._reader, self._end)
        if stored is None:
            return
        store_structures(self._folder, stored)
        self._followed = stored.lsn, stored.history, stored.dialect
        self._accepted = _open_questions(stored.history)
        self._log.info(
            "structures stored",
            at=str(stored.lsn),
            tables=len(stored.history.tables),
            unknown=[str(name) for name in stored.history.unknown],
        )


def structures_now(source: SourceConfig, reader: RelayReader, stop: StopEvent) -> StoredStructures | None:
    """Reads all structures at a place near the end of the relay; None if they cannot be read now.

    No table is locked: the position is read, then the structures, then the position again. The relay's log between the
    two positions shows which tables were altered meanwhile. If there are any, everything is read again. If tables are
    altered even during the last attempt, their structures are recorded as unknown and read later.
    """
    for last in (*[False] * (_TRIES - 1), True):
        origin, received = reader.origin, reader.received
        with closing(connect(source)) as session:
            info = server_info(session)
            if origin is None or info.identity != origin.server:
                return None
            seen = look_at_tables(session, lambda _: True, stop.wait)
        after, to = Lsn.at(seen.began, origin.change_no), Lsn.at(seen.ended, origin.change_no)
        first = reader.first
        if first is None or received is None or not max(first, received) <= after <= to:
            return None  # The log was reset, so the two positions belong to different logs.
        if not _is_received(reader, to, stop):
            return None
        changes = list(reader.schema_changes(after, to))
        history = seen.history.doubting(changes, seen.dialect)
        if history is seen.history:
            return StoredStructures(after, history, seen.dialect)
        if last:
            return StoredStructures(to, history, seen.dialect)
    return None


def _is_received(reader: RelayReader, lsn: Lsn, stop: StopEvent) -> bool:
    deadline = time.monotonic() + _RECEIVE_SECONDS
    while (received := reader.received) is None or received < lsn:
        if time.monotonic() > deadline or stop.wait(_POLL):
            return False
    return True


def expire_seconds(found: dict[str, str]) -> int:
    """Returns the age at which a server with these variables purges log files; 0 if it does not purge by age."""
    if found.get("binlog_expire_logs_auto_purge", "ON").upper() in {"OFF", "0"}:
        return 0
    seconds = int(found.get("binlog_expire_logs_seconds", 0))
    return seconds or int(float(found.get("expire_logs_days", 0)) * _DAY)


def _open_questions(history: KnownStructures) -> frozenset[object]:
    known: list[tuple[TableName, str]] = list(history.unknown.items())
    unread = [name for name, table in history.tables.items() if table.has_unknown_charset]
    return frozenset([*known, *history.unclear, *unread])
