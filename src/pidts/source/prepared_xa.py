"""Finds where the log has the rows of XA transactions that are prepared and not committed yet.

A server writes the rows of such a transaction to its log when the transaction is prepared. Its COMMIT, later in the
log, has no rows. A relay that begins between the two would lack the rows. So a relay begins before the first
transaction that is prepared and not committed. The order of events:

1. The end of the log is read, then the names of the prepared transactions.
2. The relay begins at that end, or before the first of these transactions.
3. The end of the log is read again: the task begins there, or later.

A transaction that is undecided at the task's place was prepared when step 1 read the names, or after that. In both
cases, the relay has its rows. If it was decided between steps 1 and 3, the task begins after its COMMIT.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import structlog

from pidts.binlog import EventType, LogWalker
from pidts.binlog.xa import XaPrepare, xid_text
from pidts.model import PidtsError, Position, Transient
from pidts.model.errors import listed
from pidts.source.connection import ServerInfo, Session, SourceConfig, query, server_info
from pidts.source.log_proof import TRANSACTIONS, log_events
from pidts.source.position import binary_logs
from pidts.source.replica import replica_id

_log = structlog.get_logger(__name__)

_LOGS_PREPARED = {"mysql": (5, 7, 7), "mariadb": (10, 5, 0)}
"""The first versions that log an XA transaction when it is prepared."""
_FILE_HEAD, _KIND_AT = 4, 4
_READ = frozenset({EventType.ROTATE, EventType.FORMAT_DESCRIPTION, EventType.XA_PREPARE, *TRANSACTIONS})
_MOST_BYTES = 1 << 30
"""The largest number of bytes of the log that are searched."""


def prepared_xids(connection: Session) -> frozenset[str]:
    """Returns the names of the XA transactions that are prepared now, as the log has them.

    Returns none for older servers, which log such a transaction only when it is committed, and none if the account may
    not see prepared transactions (MySQL: XA_RECOVER_ADMIN).
    """
    server = server_info(connection)
    if server.number < _LOGS_PREPARED[server.product]:
        return frozenset()
    try:
        rows = query(connection, recover_statement(server))
    except Transient:
        raise
    except PidtsError:
        return frozenset()
    found = set()
    for format_id, size, _, data in rows:
        name = data if isinstance(data, bytes) else str(data).encode()
        if not server.is_mariadb:
            name = bytes.fromhex(name.decode().removeprefix("0x"))
        found.add(xid_text(name[: int(size)], name[int(size) :], int(format_id)))
    return frozenset(found)


def recover_statement(server: ServerInfo) -> str:
    """Returns the statement that lists the prepared transactions.

    MySQL declares their names as text, although they may be any bytes. Such an answer could not be read.
    """
    return "XA RECOVER" if server.is_mariadb or server.number < (5, 7, 5) else "XA RECOVER CONVERT XID"


def begin_with_prepared(config: SourceConfig, connection: Session, place: Position) -> Position:
    """Returns the place at which a relay begins that has all rows of a task which begins at `place` or later."""
    if not (xids := prepared_xids(connection)):
        return place
    begin, missing = begin_of_prepared(config, connection, xids)
    if missing:
        _log.warning(
            "XA transactions are prepared, and their rows were not found in the source's log",
            source=config.source_id,
            xids=listed(sorted(missing)),
            todo="Commit them or roll them back. If one is committed after the task has begun, the task halts "
            "(xa-not-received)",
        )
    if begin is None or (begin.log_index, begin.offset) >= (place.log_index, place.offset):
        return place
    _log.info("the relay begins before prepared XA transactions", source=config.source_id, position=str(begin))
    return begin


def begin_of_prepared(
    config: SourceConfig, connection: Session, xids: Iterable[str], *, most_bytes: int = _MOST_BYTES
) -> tuple[Position | None, frozenset[str]]:
    """Returns the place before the first of these transactions' events, and the transactions that were not found.

    The newest log files are read first, `most_bytes` at most. The place is None if no transaction was found.
    """
    left, begin, read = set(xids), None, 0
    server_id = replica_id(connection, f"{config.source_id} prepared {os.getpid()}", server_info(connection))
    for name, size in reversed(binary_logs(connection)):
        read += size
        if not left or read > most_bytes:
            break
        found = _prepared_in(config, name, server_id)
        if those := left & found.keys():
            begin = min((found[xid] for xid in those), key=lambda place: place.offset)
            left -= those
    return begin, frozenset(left)


def _prepared_in(config: SourceConfig, name: str, server_id: int | None) -> dict[str, Position]:
    """Returns where the events of each XA transaction begin that is prepared in this log file, by its name."""
    found: dict[str, Position] = {}
    walker, begin = LogWalker(name), _FILE_HEAD
    for raw in log_events(config, Position(name, _FILE_HEAD), server_id):
        if raw[_KIND_AT] not in _READ:
            continue
        event = walker.feed(raw)
        if walker.file != name:
            break
        if event.type in TRANSACTIONS:
            begin = event.offset
        elif event.type == EventType.XA_PREPARE and not (prepare := XaPrepare.parse(event)).one_phase:
            found[prepare.xid] = Position(name, begin)
    return found
