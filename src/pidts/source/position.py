"""Reads the end of the source's log, and finds a position up to which a reader sees every change.

A server writes a transaction to its log *before* the transaction's rows become visible: a replica may have a change
that a SELECT on the source does not show yet. A copy that reads at this moment would lose the change: the SELECT does
not return it, and the log up to the copy's position counts as applied. So `settled` returns a position only when all
transactions up to this position are visible.
"""

from __future__ import annotations

import time

from pidts.model import PidtsError, Position, PrecheckFailed
from pidts.model.errors import Transient
from pidts.source.connection import ServerInfo, Session, named, query, server_info, where_of

_STATUS = ("SHOW BINARY LOG STATUS", "SHOW MASTER STATUS", "SHOW BINLOG STATUS")
_SETTLE_SECONDS = 600.0
"""The time within which a logged transaction has to become visible in the tables.

The limit is high because of sources that are replicas themselves. On a replica, a transaction has its GTID from its
beginning on. So it counts as logged and not yet visible until it ends.
"""

NOT_SETTLED = "source-not-settled"
_EXACT_TRIES = 20
_EXACT_SECONDS = 1.0


def position(connection: Session) -> tuple[Position, str]:
    """Returns the end of the log, and the GTID set up to this position as text.

    If a MySQL server is never idle, the set may lack the last few transactions before the position. It never has a
    transaction after the position.
    """
    place, gtids = _status(connection)
    mariadb = server_info(connection).is_mariadb
    if not (mariadb or gtids):
        return place, gtids
    deadline = time.monotonic() + _EXACT_SECONDS
    for _ in range(_EXACT_TRIES):
        if mariadb:
            exact = str(query(connection, "SELECT @@GLOBAL.gtid_binlog_pos")[0][0] or "")
            again, _unused = _status(connection)
        else:
            if not _await_owned(connection, deadline):
                break
            again, exact = _status(connection)
        if again == place:
            # No transaction was logged in between, so the set belongs to the position.
            return place, exact
        place, gtids = again, exact
    if not mariadb:
        return place, gtids
    # BINLOG_GTID_POS is exact even while the server commits, but the server reads its log file up to the position.
    found = query(connection, "SELECT BINLOG_GTID_POS(%s, %s)", (place.file, place.offset))[0][0]
    if found is None:
        raise Transient(
            "no-position",
            f"the source does not know the GTID at {place}",
            where=where_of(connection),
        )
    return place, str(found)


def log_end(connection: Session) -> Position:
    """Returns the current end of the log."""
    return _status(connection)[0]


def binary_logs(connection: Session) -> list[tuple[str, int]]:
    """Returns the existing log files, oldest first, with their sizes."""
    return [(str(row["log_name"]), int(row["file_size"])) for row in named(connection, "SHOW BINARY LOGS")]


def settled(connection: Session, server: ServerInfo, *, within: float = _SETTLE_SECONDS) -> Position:
    """Returns a position of the log. The next statement of the session sees all changes before this position.

    The position is the end of the log when the call begins, or later. Raises a Transient with the code `NOT_SETTLED`
    if the changes are not visible within the given seconds.

    On MariaDB the function opens a read transaction whose snapshot is exactly at the position; the caller has to end
    this transaction. MySQL without GTIDs does not show which changes are visible: there, a reader has to wait for row
    locks (`row_lock`).
    """
    place, _ = _status(connection)
    deadline = time.monotonic() + within
    if server.is_mariadb:
        while (snapshot := _snapshot(connection)) < (place.log_index, place.offset):
            query(connection, "ROLLBACK")
            if not _wait(deadline):
                raise _unsettled(connection, within)
        return Position.of(place.base, *snapshot)
    if server.gtid_mode and not _await_owned(connection, deadline):
        raise _unsettled(connection, within)
    return place


def needs_row_locks(server: ServerInfo) -> bool:
    """Whether a reader has to lock rows to see all changes that are in the log."""
    return not server.gtid_mode


def row_lock(server: ServerInfo) -> str:
    """Returns the last clause of a SELECT. With it, the SELECT waits until all logged transactions are visible."""
    if not needs_row_locks(server):
        return ""
    # Before 8.0.22, FOR SHARE requires the privilege to write.
    return "FOR SHARE" if server.number >= (8, 0, 22) else "LOCK IN SHARE MODE"


def _status(connection: Session) -> tuple[Position, str]:
    errors = []
    for statement in _STATUS:
        try:
            rows = named(connection, statement)
        except (Transient, PrecheckFailed):
            raise
        except PidtsError as error:
            errors.append(f"{statement}: {error.what}")
            continue
        if not rows:
            todo = "Set log_bin and server_id in the server's configuration and restart it"
            raise PrecheckFailed("binlog-off", "the source writes no binary log", where=where_of(connection), todo=todo)
        gtids = "".join(str(rows[0].get("executed_gtid_set") or "").split())
        try:
            return Position(str(rows[0]["file"]), int(rows[0]["position"])), gtids
        except ValueError as error:
            # MariaDB 12.3 can have its log inside InnoDB, in files of another kind.
            what = f"the source keeps its log in files that PiDTS cannot read: {error}"
            todo = "Set binlog_storage_engine to an empty value in the server's configuration and restart it"
            raise PrecheckFailed("unsupported-log", what, where=where_of(connection), todo=todo) from None
    raise PidtsError(
        "no-position",
        "; ".join(errors),
        where=where_of(connection),
        todo="Check whether the account has REPLICATION CLIENT, and whether the server is a MySQL or MariaDB",
    )


def _snapshot(connection: Session) -> tuple[int, int]:
    """Opens a read transaction, and returns file number and byte of its snapshot in the log."""
    query(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
    found = {str(name).lower(): str(value) for name, value in query(connection, "SHOW STATUS LIKE 'binlog_snapshot_%'")}
    place = Position(found["binlog_snapshot_file"], int(found["binlog_snapshot_position"]))
    return place.log_index, place.offset


def _await_owned(connection: Session, deadline: float) -> bool:
    """Waits until all transactions that run now and have a GTID have ended. Returns False if this takes too long."""
    waiting = _owned(connection)
    while waiting:
        waiting &= _owned(connection)
        if waiting and not _wait(deadline):
            return False
    return True


def _owned(connection: Session) -> set[str]:
    """Returns the GTIDs of running transactions, with the numbers of sessions: `uuid:7#12:8#13, uuid2:…`."""
    text = "".join(str(query(connection, "SELECT @@GLOBAL.gtid_owned")[0][0] or "").split())
    owned = set()
    for entry in text.split(","):
        uuid, *parts = entry.split(":")
        tag = ""
        for part in parts:
            number, _, session = part.partition("#")
            if not session and not number[:1].isdigit():
                tag = number
            else:
                owned.add(f"{uuid}:{tag}:{number}")
    return owned


def _wait(deadline: float) -> bool:
    time.sleep(0.002)
    return time.monotonic() < deadline


def _unsettled(connection: Session, seconds: float) -> Transient:
    what = f"a transaction in the log has not become visible in the tables for {seconds:.0f} seconds"
    return Transient(NOT_SETTLED, what, where=where_of(connection))
