"""Shows on the target that a run or a cutover of a task is active, on whichever machine.

A run holds a named lock of the target's server, on the connection by which it checks whether the task is being cut
over. A cutover holds such a lock on a connection of its own. The lock ends with the connection, so it soon disappears
if the machine dies. The lock prevents nothing: the checkpoint's epoch decides whether a run may write, and the record
of a cutover decides what the next command does.
"""

from __future__ import annotations

from hashlib import sha256

from pidts.apply import TargetSession
from pidts.model import Halted
from pidts.target.iceberg.connection import CatalogConnection
from pidts.target.mysql import MySqlSession
from pidts.target.postgres import PostgresSession

_CUTOVER_SECONDS = 7 * 24 * 3600
_TAKE = "SELECT pg_catalog.pg_try_advisory_lock(%s)"
_LOOK = (
    "SELECT 1 FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_database d ON d.oid = l.database "
    "WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND d.datname = current_database() "
    "AND (l.classid::bigint << 32) | l.objid::bigint = %s"
)


def show_presence(session: TargetSession, task: str, source: str) -> None:
    """Shows that a run of the task is active, as long as the session lives."""
    _show(session, "run", task, source)


def is_present(session: TargetSession, task: str, source: str) -> bool:
    """Whether another session shows that a run of the task is active."""
    return _is_shown(session, "run", task, source)


def show_cutover(session: TargetSession, task: str) -> None:
    """Shows that a cutover of the task is active, as long as the session lives; nothing else may use the session."""
    if isinstance(session, MySqlSession):
        # A comparison may last longer than the server keeps an idle session.
        session.rows(f"SET SESSION wait_timeout = {_CUTOVER_SECONDS}")
    _show(session, "cutover", task)


def is_being_cut_over(session: TargetSession, task: str) -> bool:
    """Whether another session shows that a cutover of the task is active."""
    return _is_shown(session, "cutover", task)


def _show(session: TargetSession, what: str, task: str, source: str = "") -> None:
    digest = _digest(session, what, task, source)
    if isinstance(session, PostgresSession):
        session.rows(_TAKE, (_number(digest),))
    elif isinstance(session, MySqlSession):
        try:
            session.rows("SELECT GET_LOCK(%s, 0)", (_name(what, digest),))
        except Halted:
            return  # without named locks, as in some clusters, other machines do not see it
    elif isinstance(session, CatalogConnection):
        session.show(what, task, source)


def _is_shown(session: TargetSession, what: str, task: str, source: str = "") -> bool:
    digest = _digest(session, what, task, source)
    if isinstance(session, PostgresSession):
        return bool(session.rows(_LOOK, (_number(digest),)))
    if isinstance(session, MySqlSession):
        try:
            ((owner,),) = session.rows("SELECT IS_USED_LOCK(%s)", (_name(what, digest),))
        except Halted:
            return False
        return owner is not None
    return isinstance(session, CatalogConnection) and session.is_shown(what, task, source)


def _digest(session: TargetSession, what: str, task: str, source: str) -> bytes:
    """Returns a digest of the task and its meta schema, since tasks of one name may have different meta schemas."""
    schema = session.meta_schema if isinstance(session, MySqlSession | PostgresSession) else ""
    return sha256(f"{what}\0{schema}\0{task}\0{source}".encode()).digest()


def _number(digest: bytes) -> int:
    return int.from_bytes(digest[:8], "big", signed=True)


def _name(what: str, digest: bytes) -> str:
    return f"pidts-{what}-{digest.hex()[:40]}"
