"""Records, in the warehouse, which state of each table is published.

`folder` is the folder that the metastore named when it was last asked. `next` is a folder that the metastore may name
by now: PiDTS records it before it asks the metastore to switch to this folder. A reader that begins now sees one of
these two folders.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass

from pidts.model import TableName
from pidts.target.iceberg.connection import CatalogConnection
from pidts.target.meta import Rows

_PUBLICATION = (
    "CREATE TABLE IF NOT EXISTS pidts_meta.publication (task text NOT NULL, table_schema text NOT NULL, "
    "table_name text NOT NULL, folder text NOT NULL, next text NOT NULL, metadata text NOT NULL, lsn text NOT NULL, "
    "read_at real NOT NULL, problem text NOT NULL, PRIMARY KEY (task, table_schema, table_name))"
)
_FOLDERS = (
    "CREATE TABLE IF NOT EXISTS pidts_meta.unneeded_folder (folder text NOT NULL PRIMARY KEY, since integer NOT NULL)"
)
PUBLICATION_TABLES = (_PUBLICATION, _FOLDERS)
_EXISTS = "SELECT 1 FROM information_schema.tables WHERE table_schema = 'pidts_meta' AND table_name = 'publication'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """The published state of one table."""

    folder: str = ""
    """The folder of the published files; empty if nothing is published yet."""
    next: str = ""
    """The folder to which the metastore was asked to switch, if it has not answered yet; otherwise empty."""
    metadata: str = ""
    """The table's metadata file in the warehouse, from which the files were made."""
    lsn: str = ""
    """The Lsn of the published state; with several sources, the Lsns in their logs."""
    read_at: float = 0.0
    """The last time, in seconds since 1970, at which this state was the newest state in the warehouse."""
    problem: str = ""
    """The reason why the next state is not published."""


class PublicationRecord:
    """Reads and changes the records, in the open transaction or in a transaction of its own."""

    def __init__(self, connection: CatalogConnection) -> None:
        self._connection = connection
        self._rows = Rows(connection.run, "publication", "task", "table_schema", "table_name")

    def of(self, task: str) -> dict[TableName, Publication]:
        """Returns the published states of a task's tables."""
        if not self._connection.run(_EXISTS, ())[0]:
            return {}
        rows = self._rows.read("table_schema, table_name, folder, next, metadata, lsn, read_at, problem", task)
        return {
            TableName(schema, name): Publication(
                folder=folder, next=after, metadata=metadata, lsn=lsn, read_at=read_at, problem=problem
            )
            for schema, name, folder, after, metadata, lsn, read_at, problem in rows
        }

    def put(self, task: str, table: TableName, one: Publication) -> None:
        """Inserts or overwrites the record of a table."""
        with self._connection.transaction():
            self._rows.put(
                *(task, table.schema, table.name),
                folder=one.folder,
                next=one.next,
                metadata=one.metadata,
                lsn=one.lsn,
                read_at=one.read_at,
                problem=one.problem,
            )

    def remove(self, task: str, table: TableName) -> None:
        """Removes the record of a table that is no longer published."""
        with self._connection.transaction():
            self._rows.remove(task, table.schema, table.name)

    def forget(self, folder: str) -> None:
        """Removes the record which says that no publication names this folder."""
        with self._connection.transaction():
            self._connection.run("DELETE FROM pidts_meta.unneeded_folder WHERE folder = %s", (folder,))

    def unneeded(self, folders: Collection[str], seconds: float) -> list[str]:
        """Records the folders that no publication names; returns those that were recorded at least `seconds` ago."""
        with self._connection.transaction():
            self._connection.own_database()
            rows, _ = self._connection.run("SELECT folder, next FROM pidts_meta.publication", ())
            named = {name for row in rows for name in row}
            rows, _ = self._connection.run("SELECT folder, since FROM pidts_meta.unneeded_folder", ())
            noted = {str(folder): int(since) for folder, since in rows}
            now, free = int(time.time()), {each for each in folders if each not in named}
            for each in noted.keys() - free:
                self._connection.run("DELETE FROM pidts_meta.unneeded_folder WHERE folder = %s", (each,))
            for each in free - noted.keys():
                sql = "INSERT INTO pidts_meta.unneeded_folder (folder, since) VALUES (%s, %s)"
                self._connection.run(sql, (each, now))
        return sorted(each for each in free if noted.get(each, now) < now - seconds)


def tables_folders(connection: CatalogConnection) -> list[str]:
    """Returns the folders of the tables that this meta schema publishes; the first folder gets new states.

    Each meta schema has its own folder, since its records do not protect files of other meta schemas.
    """
    from pidts.target.hive.places import roots_of  # loads pyiceberg, which other targets do not need

    return roots_of(connection, "hive-tables")
