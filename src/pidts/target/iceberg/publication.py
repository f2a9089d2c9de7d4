"""One publication: makes the present states of a warehouse's tables visible in the catalog of a server.

Rows, checkpoints and schema changes are committed to the warehouse's own catalog only. A server's catalog names
metadata files that the warehouse's catalog has named before; no file is copied. A publication

1. chooses, all at the same moment, the tables whose state in the warehouse differs from the published state, and
   records the next state of each;
2. lets the server replace the former states by the next states, each only if the server still has the former state;
3. records that the server has the next states.

The state after an interruption:

- in or before 1: the warehouse's database contains the record of all tables or of none, since the record is one
  transaction.
- after 1: the server has the former states. The next publication begins with step 2 for the recorded states.
- in 2: the server has the former states or the next states. A server that cannot change several tables at once may have
  the former states of some tables and the next states of others. The next publication repeats step 2, and changes
  nothing for a table that already has its next state.
- after 2: the server has all next states. The next publication repeats step 2, and finds nothing to change.

The record protects the files of both states from removal (`server_record.py`): the files of the former state until step
3, the files of the next state from step 1 on. Step 1 holds the lock of the warehouse's database. So the next states are
current when they are recorded, and their files exist.

If the server has neither the former nor the next state of a table, another program has changed the table on the server.
Then the publication does not change the table, and records both states and the reason. Each later publication tries
again. If somebody removes the table from the server, the next publication creates it.

One process at a time publishes to a server from a warehouse: this process holds a file lock. The server may complete a
call of a killed process late:

- a replacement or a removal names the former state. So a late call can succeed only before the next publication changes
  the table. It does no harm: that publication repeats step 2, with the same change.
- a creation is refused if the table exists. If it arrives after later publications have created and removed the table,
  the server's catalog has a table that is no longer published. An operator has to remove it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import structlog

from pidts.model import Halted, TableName
from pidts.target.iceberg.metadata_file import STRUCTURE, MetadataFile
from pidts.target.iceberg.server_catalog import CatalogUpdate, ServerCatalog
from pidts.target.iceberg.server_record import DROPPED, CatalogLag, Entry, ServerRecord
from pidts.target.iceberg.session import IcebergSession

_log = structlog.get_logger(__name__)


def publish(session: IcebergSession, server: ServerCatalog, *, whole: bool = False) -> bool:
    """Publishes the tables whose state has changed; returns True if all of them are published.

    With `whole`, all published tables are compared with the server.
    """
    record = ServerRecord(session)
    with session.locked("publish", server.place, everywhere=True):
        if any(one.next for one in record.entries(server.place).values()):
            _move(session, record, server)
        if _choose(session, record, server.place, whole=whole):
            _move(session, record, server)
        return not any(one.problem for one in record.entries(server.place).values())


def _choose(session: IcebergSession, record: ServerRecord, place: str, *, whole: bool) -> bool:
    """Records the next states; returns whether there are any."""
    seen = dict[str, bool]()  # filled before the database is locked, since reading metadata files takes time
    if not _differing(session, record, place, seen) and not whole:
        return False
    with session.transaction():
        session.own_database()
        there, chosen = record.entries(place), _differing(session, record, place, seen)
        if whole:
            chosen = {name: one.metadata for name, one in there.items() if one.metadata and not one.next} | chosen
        for name, after in chosen.items():
            record.put(place, name, replace(there.get(name, Entry()), next=after))
    return bool(chosen)


def _differing(
    session: IcebergSession, record: ServerRecord, place: str, seen: dict[str, bool]
) -> dict[TableName, str]:
    """Returns the next state of each table whose published state is old.

    Leaves out tables whose last change the server has not confirmed.
    """
    there, current = record.entries(place), session.tables.all()
    gone = {name: DROPPED for name, entry in there.items() if name not in current and not entry.next}
    changed = {}
    for name, location in current.items():
        entry = there.get(name, Entry())
        if entry.metadata != location and not entry.next:
            if location not in seen:
                seen[location] = _is_own(name, location)
            if seen[location]:
                changed[name] = location
    return gone | changed


def server_state(session: IcebergSession, place: str) -> CatalogLag:
    """Compares a server's catalog with the warehouse."""
    record = ServerRecord(session)
    entries, current = record.entries(place), session.tables.all()
    strange = {
        name
        for name, location in current.items()
        if entries.get(name, Entry()).metadata != location and not _is_own(name, location)
    }
    return record.state(place, {name: location for name, location in current.items() if name not in strange})


def _is_own(name: TableName, location: str) -> bool:
    """Whether PiDTS has created the table. False if the metadata cannot be read: such a table is not published."""
    with suppress(Halted):
        return STRUCTURE in MetadataFile.read(name, location).metadata.properties
    return False


def _move(session: IcebergSession, record: ServerRecord, server: ServerCatalog) -> None:
    place = server.place
    waiting = {name: entry for name, entry in record.entries(place).items() if entry.next}
    problems = server.move(
        [
            CatalogUpdate(name, None if entry.next == DROPPED else entry.next, entry.metadata)
            for name, entry in sorted(waiting.items())
        ]
    )
    with session.transaction():
        session.own_database()
        for name, entry in waiting.items():
            if (problem := problems.get(name, "")) == "":
                record.moved(place, name, entry)
            else:
                if problem != entry.problem:
                    _log.warning("a table is not published", table=str(name), place=place, why=problem)
                # If the server did not have the table before (no `metadata`), it does not have the table now.
                record.put(place, name, replace(entry, next=entry.next if entry.metadata else "", problem=problem))
