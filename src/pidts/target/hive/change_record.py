"""Records which change files wait for publication, the files into which they are merged, and the published Lsns."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from pidts.model import TableName
from pidts.target.iceberg.connection import CatalogConnection, mapped
from pidts.target.meta import Rows

_FILES = (
    "CREATE TABLE IF NOT EXISTS pidts_meta.change_file (name text NOT NULL PRIMARY KEY, task text NOT NULL, "
    "table_schema text NOT NULL, table_name text NOT NULL, columns text NOT NULL, size integer NOT NULL, "
    "published_as text NOT NULL)"
)
"""The files that wait for publication. `published_as` is the name of the published file into which a file is merged;
empty until this name is chosen.
"""

_TABLES = (
    "CREATE TABLE IF NOT EXISTS pidts_meta.change_table (task text NOT NULL, table_schema text NOT NULL, "
    "table_name text NOT NULL, lsn text NOT NULL, read_at real NOT NULL, problem text NOT NULL, "
    "PRIMARY KEY (task, table_schema, table_name))"
)
CHANGE_RECORDS = (_FILES, _TABLES)
_ONE_BYTES = 128 << 20
"""The largest size in memory of the changes that become one file. A single waiting file may be larger."""
_CHANGES = "hive-changes"
_EXISTS = "SELECT 1 FROM information_schema.tables WHERE table_schema = 'pidts_meta' AND table_name = 'change_table'"


@dataclass(frozen=True, slots=True)
class ChangeTable:
    """The published changes of a change table."""

    lsn: str = ""
    """The Lsn of the last change in the file that was published last."""
    read_at: float = 0.0
    """The time of the last publication, in seconds since 1970."""
    problem: str = ""
    """The reason why the changes after `lsn` are not published."""


@dataclass(frozen=True, slots=True)
class FilesToMerge:
    """Files of changes that wait to be merged into one file of a change table, or into one file for each day."""

    table: TableName
    name: str
    columns: tuple[tuple[str, str], ...]
    """Names and types of the columns, which are the same in all of the waiting files."""
    files: tuple[str, ...] = field(repr=False)


class ChangeRecord:
    """Reads and changes the records, each in a transaction of its own."""

    def __init__(self, connection: CatalogConnection) -> None:
        self._connection = connection
        self._tables = Rows(connection.run, "change_table", "task", "table_schema", "table_name")

    def of(self, task: str) -> dict[TableName, ChangeTable]:
        """Returns the change tables of a task."""
        if not self._connection.run(_EXISTS, ())[0]:
            return {}
        rows = self._tables.read("table_schema, table_name, lsn, read_at, problem", task)
        return {TableName(schema, name): ChangeTable(*rest) for schema, name, *rest in rows}

    def put(self, task: str, table: TableName, one: ChangeTable) -> None:
        """Inserts or overwrites the record of a change table."""
        with self._connection.transaction():
            where = (task, table.schema, table.name)
            self._tables.put(*where, lsn=one.lsn, read_at=one.read_at, problem=one.problem)

    def is_waiting(self, task: str) -> bool:
        """Whether any files of the task wait for publication."""
        return bool(self._connection.run("SELECT 1 FROM pidts_meta.change_file WHERE task = %s LIMIT 1", (task,))[0])

    def choose(self, task: str) -> list[FilesToMerge]:
        """Chooses the published file into which each waiting file is merged, unless an earlier call has chosen it."""
        with self._connection.transaction():
            self._connection.own_database()
            sql = (
                "SELECT name, table_schema, table_name, columns, size FROM pidts_meta.change_file "
                "WHERE task = %s AND published_as = '' ORDER BY table_schema, table_name, rowid"
            )
            rows, _ = self._connection.run(sql, (task,))
            for _, alike in groupby(rows, key=lambda row: row[1:4]):
                taken, size = uuid.uuid4().hex, 0
                for name, *_, bytes_ in alike:
                    if size and size + bytes_ > _ONE_BYTES:
                        taken, size = uuid.uuid4().hex, 0
                    size += bytes_
                    sql = "UPDATE pidts_meta.change_file SET published_as = %s WHERE name = %s"
                    self._connection.run(sql, (taken, name))
            sql = (
                "SELECT table_schema, table_name, published_as, columns, name FROM pidts_meta.change_file "
                "WHERE task = %s ORDER BY table_schema, table_name, rowid"
            )
            rows, _ = self._connection.run(sql, (task,))
        return [
            FilesToMerge(
                TableName(schema, table),
                name,
                tuple((column, kind) for column, kind in json.loads(columns)),
                tuple(str(row[-1]) for row in alike),
            )
            for (schema, table, name, columns), alike in groupby(rows, key=lambda row: row[:4])
        ]

    def published(self, task: str, chosen: FilesToMerge, one: ChangeTable) -> None:
        """Records that these files are published and do not wait any more."""
        with self._connection.transaction():
            self._connection.own_database()
            sql = "DELETE FROM pidts_meta.change_file WHERE task = %s AND published_as = %s"
            self._connection.run(sql, (task, chosen.name))
            self.put(task, chosen.table, one)

    def unrecorded(self) -> Iterator[Path]:
        """Yields the waiting files of interrupted transactions.

        The database is locked until the caller has got the last file, so that no session writes a waiting file.
        """
        folder = waiting_folder(self._connection)
        with mapped():
            if not folder.exists():
                return
        with self._connection.transaction():
            self._connection.own_database()
            rows, _ = self._connection.run("SELECT name FROM pidts_meta.change_file", ())
            recorded = {str(name) for (name,) in rows}
            with mapped():
                there = list(folder.iterdir())
            yield from (path for path in there if path.name not in recorded)


def waiting_folder(connection: CatalogConnection) -> Path:
    """Returns the folder of a warehouse's waiting files, which is always on this machine."""
    return Path(connection.warehouse) / _CHANGES / connection.meta_schema / ".waiting"


def changes_folders(connection: CatalogConnection) -> list[str]:
    """Returns the folders of the change tables of this meta schema; the first folder gets new tables."""
    from pidts.target.hive.places import roots_of  # loads pyiceberg, which other targets do not need

    return roots_of(connection, _CHANGES)
