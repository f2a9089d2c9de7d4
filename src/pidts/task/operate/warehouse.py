"""Checks whether the warehouse of a task exists and can be written to."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

from pidts.apply import TargetSession
from pidts.model import PidtsError
from pidts.source.finding import Finding
from pidts.target.hive.change_record import ChangeRecord
from pidts.target.hive.record import PublicationRecord
from pidts.target.iceberg.connection import CATALOG, CatalogConnection


def demand_warehouse(session: TargetSession) -> None:
    """Raises if the warehouse that a command is to read does not exist.

    Targets of other kinds exist, since the connection to them has succeeded.
    """
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


def reached(session: TargetSession) -> str:
    """Returns the message about a target to which the connection has succeeded."""
    if isinstance(session, CatalogConnection) and not session.has_warehouse():
        return f"there is no warehouse at {session.warehouse} yet: pidts run makes one"
    return "reachable"


def access_finding(session: CatalogConnection) -> Finding:
    """Returns a finding that says whether this account may write to the warehouse, or create it."""
    item, place = "target_privilege", Path(session.warehouse)
    while not place.exists():
        place = place.parent
    lacking = [each for each in (place, place / CATALOG) if each.exists() and not os.access(each, os.W_OK | os.R_OK)]
    if not place.is_dir() or lacking:
        what = f"{lacking[0]} cannot be written to" if place.is_dir() else f"{place} is not a directory"
        return Finding(item, ok=False, message=what, fix="Correct warehouse, or give the directory to the account")
    if problem := _store_problem(session):
        return Finding(item, ok=False, message=problem, fix="Correct files, or the variables AWS_… of this account")
    return Finding(item, ok=True, message=f"{place} may be written to")


def _store_problem(session: CatalogConnection) -> str:
    """Returns the reason why no object can be written to the object store and removed; empty if there is none."""
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
