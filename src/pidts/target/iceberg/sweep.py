"""Removes files that nothing needs: files of interrupted transactions and of dropped tables.

A file of a table is *needed* as long as a snapshot in the table's metadata, or the table `retired_file`, names it. A
table may have two metadata files: the warehouse's current one, and another one in the catalog of a server. Other files
are orphans. The sweep records them in `pidts_meta.orphan`, and a sweep at least a day later removes the orphans that
are still not needed. So if somebody has begun to read a file, it stays for at least a day. No decision depends on the
clock of a file system.

Cases that could go wrong, and why they do not:

- *A commit names a file after the sweep has found that it is not needed.* Files are removed under the database's lock,
  after the metadata was read once more. A transaction writes its files under the same lock, except data files of loaded
  rows.
- *A process writes data files of loaded rows without that lock, and is then frozen for more than a day before its
  COMMIT.* No metadata names its files, so they are removed. When the process wakes up, it locks the database, finds
  that the files are gone, and reads the rows again (`OpenTable.demand_files`).
- *Another program's transaction is under way.* Its own files have names unlike those of PiDTS, so these files are not
  removed. If the transaction names files of PiDTS, it has read their names from the metadata with which it began. The
  catalog accepts its commit only if that metadata is still current.

Crash points, and what is true after each:

1. before or after records of orphans are committed: the earlier or the new records exist. A record removes no file.
2. between the removals of files, or before the COMMIT that deletes their records: some records name files that are
   gone. The next sweep deletes these records.
3. between the renaming of a dropped table's folder and the COMMIT that forgets the table: the record names a folder
   that is gone. The next sweep forgets this record.
4. after that COMMIT, before the renamed folder is removed: the next sweep removes all renamed folders.
5. in an object store, where no folder can be renamed, before the COMMIT that forgets a dropped table: the record names
   objects of which some are gone. The next sweep removes the others.
"""

from __future__ import annotations

import os
import re
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import structlog
from pyiceberg.table.metadata import TableMetadata

from pidts.model import Halted, TableName
from pidts.target.iceberg.connection import LOCKS, CatalogConnection, mapped
from pidts.target.iceberg.files import (
    IO,
    SCHEME,
    files_in,
    is_local,
    name_of,
    path_of,
    reading,
    remove,
    remove_folder,
)
from pidts.target.iceberg.metadata_file import STRUCTURE, MetadataFile, live_entries
from pidts.target.iceberg.server_record import ServerRecord

ORPHAN_SECONDS = 86_400
"""The time after which a sweep removes a recorded orphan, or the folder of a dropped table."""

_OURS = re.compile(r"\d{8,}-(\d+-)?[0-9a-f]{32}\.((deletes\.)?parquet|(snap\.)?avro|metadata\.json)")
_OUR_FOLDER = re.compile(r".+-[0-9a-f]{8}")
_AT_ONCE = 500
_LOCK_SECONDS = 5.0
"""The time after which `_remove_orphans` unlocks the database for other sessions: a store may remove files slowly."""
_DROPPED = "dropped-"

_log = structlog.get_logger(__name__)


class NeededFiles:
    """The files that a table's metadata names. When another metadata file is added, only its new snapshots are read.

    Through symbolic links, several paths may lead to one warehouse. The metadata gives each file's address through the
    path to the warehouse that the table's first commit used. So symbolic links are resolved before addresses are
    compared.
    """

    def __init__(self) -> None:
        self._uris: set[str] = set()
        self._folders: dict[str, str] = {}
        self._snapshots: set[int] = set()

    def __contains__(self, uri: str) -> bool:
        return self._real(uri) in self._uris

    def add(self, location: str, metadata: TableMetadata) -> None:
        """Adds a metadata file and the files that it names."""
        self._add(location, *(one.metadata_file for one in metadata.metadata_log))
        for one in metadata.snapshots:
            if one.snapshot_id in self._snapshots:
                continue
            with reading(one.manifest_list):
                manifests = one.manifests(IO)
            for manifest in manifests:
                if manifest.manifest_path not in self:
                    self._add(*(entry.data_file.file_path for entry in live_entries(manifest)))
                    self._add(manifest.manifest_path)
            self._add(one.manifest_list)
            self._snapshots.add(one.snapshot_id)

    def _add(self, *uris: str) -> None:
        self._uris.update(self._real(uri) for uri in uris)

    def _real(self, uri: str) -> str:
        folder = uri.rpartition("/")[0]
        if folder not in self._folders:
            self._folders[folder] = _real(folder)
        return f"{self._folders[folder]}/{name_of(uri)}"


def sweep(session: CatalogConnection) -> int:
    """Records orphans, and removes long recorded orphans and dropped tables; returns their number."""
    if not session.has_warehouse():
        return 0
    removed = 0
    with session.locked("sweep"):
        for folder in _table_folders(session):
            try:
                removed += _sweep_table(session, folder)
            except Halted as error:
                _log.warning("unneeded files of a table are not removed this time", folder=folder, cause=str(error))
        removed += _sweep_dropped(session)
    return removed


def _sweep_table(session: CatalogConnection, place: str) -> int:
    needed = NeededFiles()
    _add_current(session, place, needed)
    there = [
        uri for each in ("data", "metadata") for uri in files_in(f"{place}/{each}") if _OURS.fullmatch(name_of(uri))
    ]
    with session.transaction():
        session.own_database()
        # Adds the files of commits that were made meanwhile, and the files that these commits made unnecessary.
        _add_current(session, place, needed)
        kept = _texts(session, "SELECT path FROM pidts_meta.retired_file WHERE table_location = %s", place)
        known = _texts(session, "SELECT path FROM pidts_meta.orphan WHERE table_location = %s", place)
        found = {uri for uri in there if uri not in needed} - kept
        for path in known - found:
            session.run("DELETE FROM pidts_meta.orphan WHERE table_location = %s AND path = %s", (place, path))
        now = int(time.time())
        for path in found - known:
            session.run(
                "INSERT INTO pidts_meta.orphan (table_location, path, since) VALUES (%s, %s, %s)", (place, path, now)
            )
    removed = 0
    while count := _remove_orphans(session, place, needed):
        removed += count
    return removed


def _remove_orphans(session: CatalogConnection, place: str, needed: NeededFiles) -> int:
    """Removes some orphans and returns their number. Other sessions wait for the database's lock meanwhile."""
    with session.transaction():
        session.own_database()
        _add_current(session, place, needed)
        rows, _ = session.run(
            "SELECT path FROM pidts_meta.orphan o WHERE table_location = %s AND since < %s AND NOT EXISTS (SELECT 1 "
            "FROM pidts_meta.retired_file r WHERE r.table_location = o.table_location AND r.path = o.path) "
            f"LIMIT {_AT_ONCE}",
            (place, int(time.time()) - ORPHAN_SECONDS),
        )
        count, until = 0, time.monotonic() + _LOCK_SECONDS
        for (path,) in rows:
            if path not in needed:
                remove(path)
            session.run("DELETE FROM pidts_meta.orphan WHERE table_location = %s AND path = %s", (place, path))
            count += 1
            if time.monotonic() > until:
                break
    return count


def _add_current(session: CatalogConnection, folder: str, needed: NeededFiles) -> None:
    """Adds the files that the tables in a folder need now. The folder may have a table under several catalog names."""
    for location, metadata in _tables(session, folder):
        needed.add(location, metadata)


def _table_folders(session: CatalogConnection) -> list[str]:
    """Returns the folders of the tables that PiDTS has created in this warehouse."""
    found = set()
    for location in _locations(session):
        with suppress(Halted):
            metadata = _read(location)
            folder = _usual(metadata.location)
            if STRUCTURE in metadata.properties and _is_own(session, folder):
                found.add(folder)
    return sorted(found)


def _sweep_dropped(session: CatalogConnection) -> int:
    """Removes the folders of tables that were dropped long ago; returns the number of removed folders.

    A local folder is first renamed under the database's lock, and removed without the lock.
    """
    aside = Path(session.warehouse) / LOCKS
    old, _ = session.run(
        "SELECT location FROM pidts_meta.dropped_table WHERE since < %s", (int(time.time()) - ORPHAN_SECONDS,)
    )
    removed = 0
    for (text,) in old:
        folder = _usual(text)
        if not _is_own(session, folder):
            continue  # a record from the path where the warehouse was before it was copied or moved
        with session.transaction():
            session.own_database()
            if any(_is_in(each, folder) for each in ServerRecord(session).locations()):
                continue  # the catalog of a server still has the table
            # Another program may have registered the dropped table again.
            if not any(_is_in(each, folder) for each in _locations(session)):
                if not is_local(folder):
                    removed += remove_folder(folder)
                elif path_of(folder).is_dir():
                    with mapped():
                        path_of(folder).rename(aside / f"{_DROPPED}{uuid.uuid4().hex}")
            session.run("DELETE FROM pidts_meta.dropped_table WHERE location = %s", (text,))
            session.run("DELETE FROM pidts_meta.orphan WHERE table_location = %s", (text,))
            session.run("DELETE FROM pidts_meta.retired_file WHERE table_location = %s", (text,))
    for each in aside.glob(f"{_DROPPED}*"):
        shutil.rmtree(each, ignore_errors=True)
        removed += 1
    return removed


def _tables(session: CatalogConnection, folder: str) -> Iterator[tuple[str, TableMetadata]]:
    for location in _locations(session):
        if _is_in(location, folder):
            yield location, _read(location)


def _is_in(location: str, folder: str) -> bool:
    return _real(location).startswith(f"{_real(folder)}/")


def _usual(location: str) -> str:
    """Returns the address of a folder as the records contain it."""
    return f"{SCHEME}{path_of(location)}" if is_local(location) else location


def _real(uri: str) -> str:
    """Returns an address without symbolic links."""
    return f"{SCHEME}{os.path.realpath(path_of(uri))}" if is_local(uri) else uri


def _locations(session: CatalogConnection) -> list[str]:
    """Returns the metadata files of all tables under all catalog names.

    These are the current files, and the files that the catalog of a server may name.
    """
    rows, _ = session.run("SELECT metadata_location FROM iceberg_tables WHERE metadata_location IS NOT NULL", ())
    return sorted({str(location) for (location,) in rows} | ServerRecord(session).locations())


def _read(location: str) -> TableMetadata:
    return MetadataFile.read(TableName("", ""), location).metadata


def _is_own(session: CatalogConnection, folder: str) -> bool:
    """Whether a folder is among the warehouse's files and has a name that PiDTS gives."""
    parent, name = _real(folder.rpartition("/")[0]), name_of(folder)
    roots = {f"{SCHEME}{os.path.realpath(session.warehouse)}", _real(session.files)}
    return any(parent.startswith(f"{root}/") for root in roots) and _OUR_FOLDER.fullmatch(name) is not None


def _texts(session: CatalogConnection, sql: str, *values: object) -> set[str]:
    return {str(text) for (text,) in session.run(sql, values)[0]}
