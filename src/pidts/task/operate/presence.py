"""Shows on the target that a run of a task is active, on whichever machine.

A run holds a named lock of the target's server, on the connection by which it checks whether the task is being cut
over. The lock ends with the connection, so it soon disappears if the machine dies. The lock prevents nothing: the
checkpoint's epoch decides whether a run may write.
"""

from __future__ import annotations

from hashlib import sha256

from pidts.apply import TargetSession
from pidts.model import Halted
from pidts.target.iceberg.connection import CatalogConnection
from pidts.target.mysql import MySqlSession
from pidts.target.postgres import PostgresSession

_TAKE = "SELECT pg_catalog.pg_try_advisory_lock(%s)"
_LOOK = (
    "SELECT 1 FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_database d ON d.oid = l.database "
    "WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND d.datname = current_database() "
    "AND (l.classid::bigint << 32) | l.objid::bigint = %s"
)


def show_presence(session: TargetSession, task: str, source: str) -> None:
    """Shows that a run of the task is active, as long as the session lives."""
    digest = _digest(session, task, source)
    if isinstance(session, PostgresSession):
        session.rows(_TAKE, (_number(digest),))
    elif isinstance(session, MySqlSession):
        try:
            session.rows("SELECT GET_LOCK(%s, 0)", (_name(digest),))
        except Halted:
            return  # without named locks, as in some clusters, other machines do not see the run
    elif isinstance(session, CatalogConnection):
        session.show("run", task, source)


def is_present(session: TargetSession, task: str, source: str) -> bool:
    """Whether another session shows that a run of the task is active."""
    digest = _digest(session, task, source)
    if isinstance(session, PostgresSession):
        return bool(session.rows(_LOOK, (_number(digest),)))
    if isinstance(session, MySqlSession):
        try:
            ((owner,),) = session.rows("SELECT IS_USED_LOCK(%s)", (_name(digest),))
        except Halted:
            return False
        return owner is not None
    return isinstance(session, CatalogConnection) and session.is_shown("run", task, source)


def _digest(session: TargetSession, task: str, source: str) -> bytes:
    """Returns a digest of the task and its meta schema, since tasks of one name may have different meta schemas."""
    schema = session.meta_schema if isinstance(session, MySqlSession | PostgresSession) else ""
    return sha256(f"run\0{schema}\0{task}\0{source}".encode()).digest()


def _number(digest: bytes) -> int:
    return int.from_bytes(digest[:8], "big", signed=True)


def _name(digest: bytes) -> str:
    return f"pidts-run-{digest.hex()[:40]}"
