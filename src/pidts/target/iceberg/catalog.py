"""The tables of a warehouse in its catalog, each with its current metadata file."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from contextlib import suppress

from pyiceberg.table.metadata import TableMetadata

from pidts.model import Halted, PidtsError, TableName, Transient, Where
from pidts.target.iceberg.connection import CatalogConnection
from pidts.target.iceberg.files import name_of, remove
from pidts.target.iceberg.metadata_file import STRUCTURE, MetadataFile
from pidts.target.iceberg.publish import KEPT_SECONDS, NewMetadata
from pidts.target.iceberg.server_record import ServerRecord

_PLACE = "catalog_name = %s AND table_namespace = %s AND table_name = %s"
_TABLES = "(iceberg_type = 'TABLE' OR iceberg_type IS NULL)"
_MARGIN_SECONDS = 60
_DIGITS = 8
"""The smallest number of digits with which the names of PiDTS's files begin; Spark and pyiceberg give fewer."""
_AT_ONCE = 1000


class Catalog:
    """Reads and changes the catalog's rows in the transaction of its connection."""

    def __init__(self, connection: CatalogConnection) -> None:
        self._connection, self._run = connection, connection.run
        self._has_tables = False
        self._servers = ServerRecord(connection)
        self._unlinked: list[str] = []
        """The files to remove when the open transaction commits."""

    def location(self, name: TableName) -> str | None:
        """Returns the current metadata file of a table; None if there is no table."""
        if not self._is_made():
            return None
        sql = f"SELECT metadata_location FROM iceberg_tables WHERE {_PLACE} AND {_TABLES}"
        rows, _ = self._run(sql, self._place(name))
        return str(rows[0][0]) if rows else None

    def all(self) -> dict[TableName, str]:
        """Returns the current metadata file of each table."""
        if not self._is_made():
            return {}
        sql = "SELECT table_namespace, table_name, metadata_location FROM iceberg_tables WHERE catalog_name = %s"
        rows, _ = self._run(f"{sql} AND {_TABLES}", (self._connection.catalog,))
        return {TableName(schema, name): str(location) for schema, name, location in rows}

    def create(self, name: TableName, location: str) -> None:
        """Adds a table, and its namespace if it is new."""
        if self.location(name) is not None:
            raise Halted(
                "target-refused",
                "the table exists already",
                where=Where(table=str(name)),
                todo="Another program has made the table. Rename it or remove it from the catalog",
            )
        self._run(
            "INSERT INTO iceberg_namespace_properties (catalog_name, namespace, property_key, property_value) "
            "VALUES (%s, %s, 'exists', 'true') ON CONFLICT DO NOTHING",
            self._place(name.schema),
        )
        self._run(
            "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location, iceberg_type) "
            "VALUES (%s, %s, %s, %s, 'TABLE')",
            (*self._place(name), location),
        )

    def replace(self, name: TableName, before: str, new: NewMetadata) -> None:
        """Makes `new` the current metadata file of a table; raises if `before` is no longer the current file."""
        _, matched = self._run(
            "UPDATE iceberg_tables SET metadata_location = %s, previous_metadata_location = %s "
            f"WHERE {_PLACE} AND metadata_location = %s",
            (new.location, before, *self._place(name), before),
        )
        if matched != 1:
            raise Transient(
                "target-busy", "another program has changed the table meanwhile", where=Where(table=str(name))
            )
        if new.is_branched:
            self._run("DELETE FROM pidts_meta.retired_file WHERE table_location = %s", (new.metadata.location,))
        self._retire(new.metadata, new.retired)

    def drop(self, name: TableName) -> None:
        """Removes a table from the catalog. Its files stay for readers until a sweep removes them."""
        location = self.location(name)
        with suppress(Halted):  # a table with unreadable metadata may be dropped
            metadata = None if location is None else MetadataFile.read(name, location).metadata
            if metadata is not None and STRUCTURE in metadata.properties:
                self._run(
                    "INSERT INTO pidts_meta.dropped_table (location, since) VALUES (%s, %s) ON CONFLICT DO NOTHING",
                    (metadata.location, int(time.time())),
                )
        self._run(f"DELETE FROM iceberg_tables WHERE {_PLACE}", self._place(name))

    def rename(self, old: TableName, new: TableName) -> None:
        """Gives a table another name; its files stay where they are."""
        if self.location(old) is None or self.location(new) is not None:
            raise Halted(
                "target-refused",
                f"the table cannot be renamed to {new}",
                where=Where(table=str(old)),
                todo="The catalog may already have a table of that name: rename that table",
            )
        self._run(
            "INSERT INTO iceberg_namespace_properties (catalog_name, namespace, property_key, property_value) "
            "VALUES (%s, %s, 'exists', 'true') ON CONFLICT DO NOTHING",
            self._place(new.schema),
        )
        self._run(
            f"UPDATE iceberg_tables SET table_namespace = %s, table_name = %s WHERE {_PLACE}",
            (new.schema, new.name, *self._place(old)),
        )

    def remove_files(self) -> None:
        """Removes the files that the committed transaction no longer needs.

        After a crash some of these files remain, but nobody reads them. After an error, no further file is removed: if
        the store does not answer, the run would wait for each of them.
        """
        with suppress(PidtsError):
            while self._unlinked:
                remove(self._unlinked.pop())
        self._unlinked.clear()

    def forget(self) -> None:
        """Forgets the files that a rolled back transaction would have removed."""
        self._unlinked.clear()

    def _is_made(self) -> bool:
        """Whether the database has a catalog: a check may run before a task has created the catalog."""
        if not self._has_tables:
            self._has_tables = bool(self._run("SELECT 1 FROM sqlite_master WHERE name = 'iceberg_tables'", ())[0])
        return self._has_tables

    def _retire(self, new: TableMetadata, paths: Iterable[str]) -> None:
        """Records files that the table no longer needs, and marks for removal those that were recorded long ago.

        If a snapshot of the table may need a file, the file stays, whatever its age: snapshots may have tags, and
        schema changes do not expire snapshots. A file also stays if the catalog of a server needs it: that catalog may
        have an earlier state of the table.
        """
        now = int(time.time())
        for path in paths:
            self._run(
                "INSERT INTO pidts_meta.retired_file (table_location, path, since, first, next) "
                "VALUES (%s, %s, %s, %s, %s) ON CONFLICT DO NOTHING",
                (new.location, path, now, _sequence_of(path), new.last_sequence_number),
            )
        needed = self._servers.needed(new.location)
        if needed is None:
            return
        locations, numbers = needed[0], {one.sequence_number or 0 for one in new.snapshots} | needed[1]
        old, _ = self._run(
            "SELECT path FROM pidts_meta.retired_file WHERE table_location = %s AND since < %s "
            "AND NOT EXISTS (SELECT 1 FROM json_each(%s) WHERE value >= first AND value < next) "
            f"AND path NOT IN (SELECT value FROM json_each(%s)) LIMIT {_AT_ONCE}",
            (
                new.location,
                now - KEPT_SECONDS - _MARGIN_SECONDS,
                json.dumps(sorted(numbers)),
                json.dumps(sorted(locations)),
            ),
        )
        for (path,) in old:
            self._run(
                "DELETE FROM pidts_meta.retired_file WHERE table_location = %s AND path = %s", (new.location, path)
            )
            self._unlinked.append(path)

    def _place(self, name: TableName | str) -> tuple[str, ...]:
        return (
            (self._connection.catalog, name)
            if isinstance(name, str)
            else (self._connection.catalog, name.schema, name.name)
        )


def _sequence_of(path: str) -> int:
    """Returns the sequence number for which a file was written; 0 for a file of another program.

    The number of a loaded chunk's file is at most the number of the snapshot that contains the file.
    """
    number = name_of(path).partition("-")[0]
    return int(number) if number.isdecimal() and len(number) >= _DIGITS else 0
