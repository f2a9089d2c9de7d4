"""Shows on the target that a run or a cutover of a task is active, on whichever machine.

A run holds a named lock of the target's server, on the connection by which it checks whether the task is being cut
over. A cutover and its undo hold another named lock, on a separate connection: while it is held, a second cutover
command is refused. A lock ends with its connection. If the machine dies, the connection may end hours later; an
operator can end the session on the target earlier.

A lock that is not seen proves nothing: some clusters have no such locks, and a connection may be cut. So the locks only
inform operators. The checkpoint's epoch decides whether a run may write, and a cutover's record whether it may
continue.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256

from pidts.apply import TargetSession
from pidts.model import Halted
from pidts.replicate import silent_since
from pidts.replicate.status import is_silent, read_status
from pidts.target.iceberg.connection import CatalogConnection
from pidts.target.mysql import MySqlSession
from pidts.target.postgres import PostgresSession
from pidts.task.config.task_file import TaskConfig
from pidts.task.operate.sole_run import has_run_here, running_process

_CUTOVER_SECONDS = 7 * 24 * 3600
_TAKE = "SELECT pg_catalog.pg_try_advisory_lock(%s)"
_LOOK = (
    "SELECT l.pid FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_database d ON d.oid = l.database "
    "WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND d.datname = current_database() "
    "AND (l.classid::bigint << 32) | l.objid::bigint = %s"
)
_CLIENT = "SELECT pg_catalog.host(client_addr) FROM pg_catalog.pg_stat_activity WHERE pid = %s"
_MYSQL_CLIENT = "SELECT host FROM information_schema.processlist WHERE id = %s"


@dataclass(frozen=True, slots=True)
class CutoverSession:
    """The session on the target by which a cutover command shows that it is active."""

    number: int
    client: str
    """The address from which the command has connected; empty if the target does not show it."""
    end: str
    """The statement that ends the session."""

    def __str__(self) -> str:
        return f"session {self.number} on the target" + (f", from {self.client}" if self.client else "")


def show_presence(session: TargetSession, task: str, source: str) -> None:
    """Shows that a run of the task is active, as long as the session lives."""
    _show(session, "run", task, source)


def is_present(session: TargetSession, task: str, source: str) -> bool:
    """Whether another session shows that a run of the task is active."""
    return _is_shown(session, "run", task, source)


def sees_run(config: TaskConfig, target: TargetSession) -> bool | None:
    """Whether a run of the task is active with this source; None if this machine cannot tell.

    Some targets do not show other machines' runs. If this machine has run the task, probably no other machine runs it.
    """
    source = config.source.source_id
    if running_process(config) or is_present(target, config.name, source):
        return True
    return False if has_run_here(config) or silent_since(config.relay, source) else None


def is_received_here(config: TaskConfig) -> bool:
    """Whether a replicator on this machine receives the source's log."""
    with suppress(OSError, ValueError):
        status = read_status(config.relay, config.source.source_id)
        if status is None or is_silent(status):
            return False
        os.kill(int(status["pid"]), 0)
        return True
    return False


def show_cutover(session: TargetSession, task: str) -> bool:
    """Shows that a cutover of the task is active, as long as the session lives; nothing else may use the session.

    Returns False if another session already shows a cutover. On a server without named locks, shows nothing and returns
    True.
    """
    if isinstance(session, MySqlSession):
        # A comparison may last longer than the server keeps an idle session.
        session.rows(f"SET SESSION wait_timeout = {_CUTOVER_SECONDS}")
    return _show(session, "cutover", task)


def is_being_cut_over(session: TargetSession, task: str) -> bool:
    """Whether another session shows that a cutover of the task is active."""
    return _is_shown(session, "cutover", task)


def cutover_session(session: TargetSession, task: str) -> CutoverSession | None:
    """Returns the session by which a cutover of the task shows that it is active; None if no such session is seen.

    On a target without named locks, none is seen.
    """
    number = _holder(session, "cutover", task)
    if number is None or not isinstance(session, PostgresSession | MySqlSession):
        return None
    is_postgres = isinstance(session, PostgresSession)
    rows = session.rows(_CLIENT if is_postgres else _MYSQL_CLIENT, (number,))
    end = f"SELECT pg_terminate_backend({number})" if is_postgres else f"KILL {number}"
    return CutoverSession(number, str(rows[0][0] or "") if rows else "", end)


def _show(session: TargetSession, what: str, task: str, source: str = "") -> bool:
    digest = _digest(session, what, task, source)
    if isinstance(session, PostgresSession):
        return bool(session.rows(_TAKE, (_number(digest),))[0][0])
    if isinstance(session, MySqlSession):
        try:
            return bool(session.rows("SELECT GET_LOCK(%s, 0)", (_name(what, digest),))[0][0] != 0)
        except Halted:
            return True  # without named locks, as in some clusters, other machines do not see the run or cutover
    if isinstance(session, CatalogConnection):
        session.show(what, task, source)
    return True


def _is_shown(session: TargetSession, what: str, task: str, source: str = "") -> bool:
    if isinstance(session, CatalogConnection):
        return session.is_shown(what, task, source)
    return _holder(session, what, task, source) is not None


def _holder(session: TargetSession, what: str, task: str, source: str = "") -> int | None:
    """Returns the number of the session that holds the named lock; None if no session holds it."""
    digest = _digest(session, what, task, source)
    if isinstance(session, PostgresSession):
        found = session.rows(_LOOK, (_number(digest),))
    elif isinstance(session, MySqlSession):
        try:
            found = session.rows("SELECT IS_USED_LOCK(%s)", (_name(what, digest),))
        except Halted:
            return None
    else:
        return None
    return int(found[0][0]) if found and found[0][0] is not None else None


def _digest(session: TargetSession, what: str, task: str, source: str) -> bytes:
    """Returns a digest of the task and its meta schema: tasks of the same name may have different meta schemas."""
    schema = session.meta_schema if isinstance(session, MySqlSession | PostgresSession) else ""
    return sha256(f"{what}\0{schema}\0{task}\0{source}".encode()).digest()


def _number(digest: bytes) -> int:
    return int.from_bytes(digest[:8], "big", signed=True)


def _name(what: str, digest: bytes) -> str:
    return f"pidts-{what}-{digest.hex()[:40]}"
