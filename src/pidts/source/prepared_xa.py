"""Finds where the log has the rows of XA transactions that are prepared and not committed yet.

A server writes the rows of such a transaction to its log when the transaction is prepared. Its COMMIT, later in the
log, has no rows. A relay that begins between the two would lack the rows. So a relay begins before the first
transaction that is prepared and not committed. The order of events:

1. The end of the log is read.
2. A transaction is in the log before the server lists it as prepared; with semi-synchronous replication, seconds may
   pass in between. So if programs prepare XA transactions, the start waits until all transactions in the log have ended
   their statement. MariaDB shows the end before the preparation is durable, and MySQL without GTIDs never shows the
   end. So the start also waits for a second.
3. The names of the prepared transactions are read.
4. The relay begins at the end of step 1, or before the first of these transactions.
5. The end of the log is read again: the task begins there, or later.

If a transaction is undecided at the task's place, step 3 has listed it, or it was logged after step 1. In both cases,
the relay has its rows. If a transaction was decided before step 5, the task begins after its COMMIT. If a preparation
takes longer than step 2 waits, the transaction is missed: the task halts at its COMMIT.

A failed search does not end the start: the transactions count as not found, as if the source had purged their log.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable

import structlog

from pidts.binlog import FILE_HEAD, Event, EventType, LogWalker
from pidts.binlog.compressed import payload_events
from pidts.binlog.gtid_events import GTID_EVENTS
from pidts.binlog.xa import XaPrepare, xid_text
from pidts.model import PidtsError, Position, Transient
from pidts.model.errors import listed
from pidts.source.connection import ServerInfo, Session, SourceConfig, query, server_info
from pidts.source.log_proof import log_events
from pidts.source.position import NOT_SETTLED, binary_logs, settled
from pidts.source.replica import replica_id

_log = structlog.get_logger(__name__)

_LOGS_PREPARED = {"mysql": (5, 7, 7), "mariadb": (10, 5, 0)}
"""The first versions that log an XA transaction when it is prepared."""
_KIND_AT = 4
_ENDS = frozenset({EventType.XA_PREPARE, EventType.TRANSACTION_PAYLOAD})
"""The events that may show that a transaction is prepared. MySQL can compress a whole transaction into one event."""
_READ = frozenset({EventType.ROTATE, EventType.FORMAT_DESCRIPTION, *_ENDS, *GTID_EVENTS})
_MOST_BYTES = 1 << 30
"""After this many bytes of the log, no further log file is searched."""
_VISIBLE_SECONDS = 30.0
"""The longest time to wait until the transactions in the log have ended their statement."""
_DURABLE_SECONDS = 1.0
"""The time within which a server lists a transaction whose statement has ended."""


def prepared_xids(connection: Session) -> frozenset[str] | None:
    """Returns the names of the XA transactions that are prepared now, as the log has them.

    Returns no names for older servers, which log such a transaction only when it is committed. Returns None if the
    account may not see prepared transactions (MySQL: XA_RECOVER_ADMIN).
    """
    server = server_info(connection)
    if server.number < _LOGS_PREPARED[server.product]:
        return frozenset()
    try:
        rows = query(connection, recover_statement(server))
    except Transient:
        raise
    except PidtsError:
        return None
    found = set()
    for format_id, size, _, data in rows:
        name = data if isinstance(data, bytes) else str(data).encode()
        if not server.is_mariadb:
            name = bytes.fromhex(name.decode().removeprefix("0x"))
        found.add(xid_text(name[: int(size)], name[int(size) :], int(format_id)))
    return frozenset(found)


def recover_statement(server: ServerInfo) -> str:
    """Returns the statement that lists the prepared transactions.

    Without CONVERT XID, MySQL declares the names as text, although they may be any bytes: the answer may be unreadable.
    """
    return "XA RECOVER" if server.is_mariadb or server.number < (5, 7, 5) else "XA RECOVER CONVERT XID"


def begin_with_prepared(config: SourceConfig, connection: Session, place: Position, stop: threading.Event) -> Position:
    """Returns where a relay has to begin so that it has all rows for a task that begins at `place` or later.

    The search ends early when `stop` is set.
    """
    server = server_info(connection)
    if server.number < _LOGS_PREPARED[server.product]:
        return place
    prepares = any(int(count) for _, count in query(connection, "SHOW GLOBAL STATUS LIKE 'Com_xa_prepare'"))
    if prepares and not _await_listed(connection, server, stop) and not stop.is_set():
        _log.warning(
            "transactions on the source have not ended for a long time",
            source=config.source_id,
            todo="If one of them prepares an XA transaction, the task may halt when it is committed (xa-not-received)",
        )
    xids = prepared_xids(connection)
    if xids is None and prepares:
        _log.warning(
            "programs prepare XA transactions on the source, and the task's account may not see them",
            source=config.source_id,
            todo="If one is prepared now, the task may halt when it is committed (xa-not-received). To prevent this, "
            "run GRANT XA_RECOVER_ADMIN ON *.* TO the account before the first start",
        )
    if not xids:
        return place
    _log.info("the log is searched for the rows of prepared XA transactions", source=config.source_id, upto=str(place))
    begin, missing = begin_of_prepared(config, connection, xids, place, stop)
    if missing and not stop.is_set():
        _log.warning(
            "XA transactions are prepared, and their rows were not found in the source's log before the relay begins",
            source=config.source_id,
            position=str(place),
            xids=listed(sorted(missing)),
            todo="If they were prepared before this position, commit them or roll them back. If one of those is "
            "committed after the task has begun, the task may halt (xa-not-received)",
        )
    if begin is None:
        return place
    _log.info("the relay begins before prepared XA transactions", source=config.source_id, position=str(begin))
    return begin


def begin_of_prepared(
    config: SourceConfig,
    connection: Session,
    xids: Iterable[str],
    upto: Position,
    stop: threading.Event,
    *,
    most_bytes: int = _MOST_BYTES,
) -> tuple[Position | None, frozenset[str]]:
    """Returns the place before the first event of these transactions, and the transactions that were not found.

    The log before `upto` is read in whole files, the newest file first, until `most_bytes` are read. The place is None
    if no transaction was found.
    """
    left, begin, read = set(xids), None, 0
    try:
        server_id = replica_id(connection, f"{config.source_id} prepared {os.getpid()}", server_info(connection))
        for name, size in reversed(binary_logs(connection)):
            file = Position(name, FILE_HEAD)
            if file.log_index > upto.log_index:
                continue
            end = upto.offset if file.log_index == upto.log_index else size
            if not left or read >= most_bytes or stop.is_set():
                break
            read += end
            found = _prepared_in(config, file, end, server_id, stop)
            if those := left & found.keys():
                begin = min((found[xid] for xid in those), key=lambda place: place.offset)
                left -= those
    except PidtsError as error:
        _log.warning("the search for prepared XA transactions failed", source=config.source_id, cause=str(error))
    return begin, frozenset(left)


def _await_listed(connection: Session, server: ServerInfo, stop: threading.Event) -> bool:
    """Waits until the server lists the transactions whose preparation is in its log.

    Returns False if this takes too long, or if `stop` is set.
    """
    deadline = time.monotonic() + _VISIBLE_SECONDS
    while not stop.is_set() and time.monotonic() < deadline:
        try:
            settled(connection, server, within=1)
        except Transient as error:
            if error.code != NOT_SETTLED:
                raise
        else:
            query(connection, "ROLLBACK")
            stop.wait(_DURABLE_SECONDS)
            return True
    return False


def _prepared_in(
    config: SourceConfig, file: Position, end: int, server_id: int | None, stop: threading.Event
) -> dict[str, Position]:
    """Returns the XA transactions that are prepared before `end`, by name, with the place where their events begin."""
    found: dict[str, Position] = {}
    walker, begin = LogWalker(file.file), FILE_HEAD
    for raw in log_events(config, file, server_id):
        if stop.is_set():
            break
        if raw[_KIND_AT] not in _READ:
            continue
        event = walker.feed(raw)
        if walker.file != file.file or (not event.is_artificial and event.offset >= end):
            break
        if event.type in GTID_EVENTS:
            begin = event.offset
        elif event.type in _ENDS and (xid := _prepared_by(event)) is not None:
            found[xid] = Position(file.file, begin)
    return found


def _prepared_by(event: Event) -> str | None:
    """Returns the name of the XA transaction that this event prepares, or None."""
    events = (inner for _, inner in payload_events(event)) if event.type == EventType.TRANSACTION_PAYLOAD else (event,)
    prepares = (XaPrepare.parse(one) for one in events if one.type == EventType.XA_PREPARE)
    return next((one.xid for one in prepares if not one.one_phase), None)
