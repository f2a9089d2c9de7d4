"""Records which metadata file of each table is in the catalog of a server.

A commit changes the warehouse's own catalog first, and a publication changes the server's catalog later. Until then,
the files that the server's catalog needs must not be removed: the metadata files that these records name, and the files
of their snapshots. All tasks of a warehouse share the records, whatever their meta schemas, since a commit of any task
may remove files.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from pyiceberg.table.metadata import TableMetadata

from pidts.model import Halted, PidtsError, TableName
from pidts.target.iceberg.connection import CatalogConnection
from pidts.target.iceberg.metadata_file import MetadataFile

_ENTRIES = (
    "CREATE TABLE IF NOT EXISTS pidts_server_entry (place text NOT NULL, table_schema text NOT NULL, "
    "table_name text NOT NULL, metadata text NOT NULL, next text NOT NULL, problem text NOT NULL, "
    "PRIMARY KEY (place, table_schema, table_name))"
)
_TASKS = (
    "CREATE TABLE IF NOT EXISTS pidts_server_task (place text NOT NULL, meta_schema text NOT NULL, "
    "task text NOT NULL, PRIMARY KEY (place, meta_schema, task))"
)
SERVER_TABLES = (_ENTRIES, _TASKS)
DROPPED = "dropped"
"""The value of `Entry.next` if the table has to be removed from the server's catalog."""
_LATE_SECONDS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A table in the catalog of a server."""

    metadata: str = ""
    """The metadata file that the server named when it last answered; empty if the server does not have the table."""
    next: str = ""
    """The metadata file that the server may name by now, or `DROPPED`; empty if the server has answered."""
    problem: str = ""
    """The reason why the server's catalog does not get the next state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogLag:
    """The difference between the catalog of a server and the warehouse's own catalog."""

    place: str
    tables: int
    """The number of tables that the server has."""
    behind: int
    """The number of tables whose current state the server does not have."""
    lag_seconds: float
    """The seconds since the first change that the server does not have; 0 if the server has all changes."""
    problems: Mapping[TableName, str]
    """Tables that are not published, each with the reason."""

    def to_json(self) -> dict[str, object]:
        """Returns plain values for JSON."""
        problems = [{"table": str(name), "problem": problem} for name, problem in sorted(self.problems.items())]
        return {
            "place": self.place,
            "tables": self.tables,
            "behind": self.behind,
            "lag_seconds": round(self.lag_seconds),
            "problems": problems,
        }


class ServerRecord:
    """Reads and changes the records, in the open transaction or in a transaction of its own."""

    def __init__(self, connection: CatalogConnection) -> None:
        self._connection = connection
        self._is_made = False

    def entries(self, place: str) -> dict[TableName, Entry]:
        """Returns the entries of the catalog at `place`, by table."""
        if not self._exists():
            return {}
        sql = "SELECT table_schema, table_name, metadata, next, problem FROM pidts_server_entry WHERE place = %s"
        rows, _ = self._connection.run(sql, (place,))
        return {
            TableName(schema, name): Entry(metadata=metadata, next=after, problem=problem)
            for schema, name, metadata, after, problem in rows
        }

    def state(self, place: str, current: Mapping[TableName, str]) -> CatalogLag:
        """Compares a server's catalog with the current metadata files of the tables to be published."""
        entries = self.entries(place)
        behind = [
            (entries.get(name, Entry()).metadata, current.get(name, ""))
            for name in entries.keys() | current.keys()
            if entries.get(name, Entry()).metadata != current.get(name, "")
        ]
        now = time.time()
        return CatalogLag(
            place=place,
            tables=sum(bool(one.metadata) for one in entries.values()),
            behind=len(behind),
            lag_seconds=max((max(now - self._since(*each, now), 0.0) for each in behind), default=0.0),
            problems={name: one.problem for name, one in entries.items() if one.problem},
        )

    def _since(self, shown: str, current: str, now: float) -> float:
        """Returns the time since which warehouse and server name different metadata files; `now` if it is unknown."""
        rows, _ = self._connection.run("SELECT since FROM pidts_meta.retired_file WHERE path = %s", (shown,))
        with suppress(PidtsError):
            if not rows and not current:
                sql = "SELECT since FROM pidts_meta.dropped_table WHERE location = %s"
                rows, _ = self._connection.run(sql, (_read(shown).location,))
            if not rows and current:
                return _read(current).last_updated_ms / 1000
        return float(rows[0][0]) if rows else now

    def locations(self) -> set[str]:
        """Returns the metadata files that a server may name."""
        return self._named("") - {"", DROPPED}

    def _named(self, start: str) -> set[str]:
        """Returns `metadata` and `next` of each entry in which one of the two begins with this text."""
        if not self._exists():
            return set()
        sql = "SELECT metadata, next FROM pidts_server_entry WHERE instr(metadata, %s) = 1 OR instr(next, %s) = 1"
        rows, _ = self._connection.run(sql, (start, start))
        return {str(each) for row in rows for each in row}

    def needed(self, folder: str) -> tuple[set[str], set[int]] | None:
        """Returns the metadata files of a table that a server may name, and their snapshots' sequence numbers.

        Returns None if one of these files cannot be read, so that the snapshots in it are not known.
        """
        locations = {each for each in self._named(f"{folder}/") if each.startswith(f"{folder}/")}
        try:
            return locations, {number for each in locations for number in _numbers(_read(each))}
        except PidtsError:
            return None

    def put(self, place: str, name: TableName, entry: Entry) -> None:
        """Inserts or overwrites the record of a table."""
        with self._connection.transaction():
            self._connection.run(
                "INSERT INTO pidts_server_entry (place, table_schema, table_name, metadata, next, problem) "
                "VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT DO UPDATE SET metadata = excluded.metadata, "
                "next = excluded.next, problem = excluded.problem",
                (place, name.schema, name.name, entry.metadata, entry.next, entry.problem),
            )

    def moved(self, place: str, name: TableName, former: Entry) -> None:
        """Records that the server has the table's next state now.

        Readers may have begun with the former state a moment ago. So the files of this state stay for an hour.
        """
        with self._connection.transaction():
            self._connection.own_database()
            if former.metadata not in ("", former.next):
                self._keep(former.metadata)
            if former.next == DROPPED:
                sql = "DELETE FROM pidts_server_entry WHERE place = %s AND table_schema = %s AND table_name = %s"
                self._connection.run(sql, (place, name.schema, name.name))
            else:
                self.put(place, name, Entry(metadata=former.next))

    def register(self, place: str, task: str) -> None:
        """Records the place to which a task publishes; empty if it does not publish. Forgets places without a task."""
        known, _ = self._connection.run("SELECT 1 FROM pidts_server_task LIMIT 1", ())
        if not place and not known:
            return  # no task of the warehouse publishes: nothing is recorded, so nothing is locked
        with self._connection.transaction():
            if place:
                self._connection.run(
                    "INSERT INTO pidts_server_task (place, meta_schema, task) VALUES (%s, %s, %s) "
                    "ON CONFLICT DO NOTHING",
                    (place, self._connection.meta_schema, task),
                )
            self._connection.run(
                "DELETE FROM pidts_server_task WHERE place <> %s AND meta_schema = %s AND task = %s",
                (place, self._connection.meta_schema, task),
            )
            self._connection.run(
                "DELETE FROM pidts_server_entry WHERE place NOT IN (SELECT place FROM pidts_server_task)", ()
            )

    def _keep(self, location: str) -> None:
        """Postpones the removal of a dropped table's folder, and of the files that the file at `location` needs."""
        # A missing file needs no other files. If the store does not answer, an error ends the publication, and the next
        # publication repeats this.
        with suppress(Halted):
            metadata, now = _read(location), int(time.time())
            self._connection.run(
                "UPDATE pidts_meta.dropped_table SET since = %s WHERE location = %s", (now, metadata.location)
            )
            late, _ = self._connection.run(
                "SELECT 1 FROM pidts_meta.retired_file WHERE table_location = %s AND path = %s AND since < %s",
                (metadata.location, location, now - _LATE_SECONDS),
            )
            if late:
                self._connection.run(
                    "UPDATE pidts_meta.retired_file SET since = %s WHERE table_location = %s AND (path = %s OR EXISTS "
                    "(SELECT 1 FROM json_each(%s) WHERE value >= first AND value < next))",
                    (now, metadata.location, location, json.dumps(sorted(_numbers(metadata)))),
                )

    def _exists(self) -> bool:
        """Whether the tables of these records exist: an earlier version of PiDTS has not created them."""
        if not self._is_made:
            sql = "SELECT 1 FROM sqlite_master WHERE name = 'pidts_server_entry'"
            self._is_made = bool(self._connection.run(sql, ())[0])
        return self._is_made


def _read(location: str) -> TableMetadata:
    return MetadataFile.read(TableName("", ""), location).metadata


def _numbers(metadata: TableMetadata) -> set[int]:
    return {one.sequence_number or 0 for one in metadata.snapshots}
