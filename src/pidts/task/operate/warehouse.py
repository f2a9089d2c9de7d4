"""Checks whether the warehouse of a task exists and can be written to."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pidts.apply import TargetSession
from pidts.model import PidtsError
from pidts.source.finding import Finding
from pidts.target.hive.change_record import ChangeRecord
from pidts.target.hive.record import PublicationRecord
from pidts.target.iceberg.connection import CATALOG, CatalogConnection
from pidts.task.config.task_file import TaskConfig

if TYPE_CHECKING:
    from pidts.target.iceberg.server_record import CatalogLag


def demand_warehouse(session: TargetSession) -> None:
    """Raises if the target is a warehouse that does not exist. Any other target exists, since it has answered."""
    if isinstance(session, CatalogConnection):
        session.demand_warehouse()


def publications(session: TargetSession) -> PublicationRecord:
    """Returns the record of the tables that a warehouse has published."""
    assert isinstance(session, CatalogConnection)  # noqa: S101 - that is its type
    return PublicationRecord(session)


def change_tables(session: TargetSession) -> ChangeRecord:
    """Returns the record of the change tables that a warehouse has published."""
    assert isinstance(session, CatalogConnection)  # noqa: S101 - that is its type
    return ChangeRecord(session)


def server_state_of(session: TargetSession, config: TaskConfig) -> CatalogLag | None:
    """Returns the lag of a server's catalog after the warehouse; None if the task publishes to no server."""
    server = config.target.server_catalog
    if server is None:
        return None
    from pidts.target.iceberg.publication import server_state  # loads pyiceberg, which other targets do not need
    from pidts.target.iceberg.session import IcebergSession

    assert isinstance(session, IcebergSession)  # noqa: S101 - that is its type
    return server_state(session, server.place)


def catalog_finding(config: TaskConfig, *, resumed: bool) -> Iterator[Finding]:
    """Yields a finding about whether the catalog of a server can be written to.

    For a task that has begun (`resumed`), a problem is only a note: the task writes its rows into the warehouse, and
    `pidts status` shows the catalog's lag.
    """
    if (server := config.target.server_catalog) is None:
        return
    try:
        server.check()
    except PidtsError as error:
        yield Finding("target_connection", ok=resumed, is_note=resumed, message=error.what, fix=error.todo)
    else:
        yield Finding("target_connection", ok=True, message=f"tables are published to {server.place}")


def reached(session: TargetSession) -> str:
    """Returns the message of `pidts check` for a target that could be reached."""
    if isinstance(session, CatalogConnection) and not session.has_warehouse():
        return f"there is no warehouse at {session.warehouse} yet: `pidts run` makes one"
    return "reachable"


def access_finding(session: CatalogConnection) -> Finding:
    """Returns a finding about whether this account may write to the warehouse, or create it."""
    item, place = "target_privilege", Path(session.warehouse)
    while not place.exists():
        place = place.parent
    lacking = [each for each in (place, place / CATALOG) if each.exists() and not os.access(each, os.W_OK | os.R_OK)]
    if not place.is_dir() or lacking:
        what = f"{lacking[0]} cannot be written to" if place.is_dir() else f"{place} is not a directory"
        fix = "Correct `warehouse` in the task file, or give this account the directory"
        return Finding(item, ok=False, message=what, fix=fix)
    if problem := _store_problem(session):
        fix = "Correct `files` in the task file, or the AWS_… variables of this account"
        return Finding(item, ok=False, message=problem, fix=fix)
    return Finding(item, ok=True, message=f"the account can write to {place}")


def _store_problem(session: CatalogConnection) -> str:
    """Writes an object to the object store and removes it. Returns the problem; empty if there is none."""
    from pidts.target.iceberg.files import is_local, remove, write_bytes

    if is_local(session.files):
        return ""
    probe = f"{session.files}/pidts-check-{uuid.uuid4().hex}"
    try:
        write_bytes(probe, b"")
        remove(probe)
    except PidtsError as error:
        return f"{session.files} cannot be written to: {error.what}"
    return ""
