"""Records, in `pidts_meta`, keys that may have moved from one shard to another; the SQL is for all servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

from pidts.model import Lsn, MovedKey, TableName
from pidts.model.records.altered_record import reading_record
from pidts.target.meta_schema import Run

_AT_ONCE = 1000
_OF_TABLE = "task = %s AND source = %s AND table_schema = %s AND table_name = %s"
_MEMBER = "member_schema = %s AND member_name = %s"
_COLUMNS = "task, source, table_schema, table_name, row_key, member_schema, member_name, lsn"

_Row = tuple[str, ...]


class MoveRecord:
    """Reads and writes moved keys in one session; the caller begins and commits transactions."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def any(self, task: str, source: str, target_table: TableName) -> bool:
        """Whether a target table has moved keys."""
        one = f"SELECT 1 FROM pidts_meta.moved WHERE {_OF_TABLE} LIMIT 1"
        return bool(self._run(one, (task, source, target_table.schema, target_table.name))[0])

    def find(self, task: str, source: str, target_table: TableName, keys: Sequence[str]) -> list[MovedKey]:
        """Returns the moved keys among `keys`. Usually one query shows that the table has no moved keys."""
        if not keys or not self.any(task, source, target_table):
            return []
        place = (task, source, target_table.schema, target_table.name)
        parts = (keys[first : first + _AT_ONCE] for first in range(0, len(keys), _AT_ONCE))
        rows = [row for part in parts for row in self._find(place, part)]
        with reading_record(
            "moved", task=task, source=source, table_schema=target_table.schema, table_name=target_table.name
        ):
            return [MovedKey(TableName(schema, name), key, Lsn.parse(lsn)) for schema, name, key, lsn in rows]

    def add(self, task: str, source: str, target_table: TableName, moved: Sequence[MovedKey]) -> None:
        """Adds moved keys, sorted by the table's primary key within each statement."""
        place = (task, source, target_table.schema, target_table.name)
        ordered = sorted(moved, key=attrgetter("key", "member"))
        for first in range(0, len(ordered), _AT_ONCE):
            part = ordered[first : first + _AT_ONCE]
            self._put([(*place, one.key, one.member.schema, one.member.name, str(one.lsn)) for one in part])

    def remove(self, task: str, source: str, target_table: TableName, member: TableName, keys: Sequence[str]) -> None:
        """Removes keys of one shard. The statements name complete primary keys, so they lock no other rows."""
        ordered = sorted(keys)
        place = (task, source, target_table.schema, target_table.name)
        for first in range(0, len(ordered), _AT_ONCE):
            self._remove(place, member, ordered[first : first + _AT_ONCE])

    def rename(self, task: str, source: str, names: Mapping[TableName, TableName]) -> None:
        """Renames shards. Reads all rows before it writes the first, since two shards may swap their names."""
        ours = "task = %s AND source = %s"
        there: list[tuple[TableName, list[tuple[Any, ...]]]] = []
        for old, new in names.items():
            member = (task, source, old.schema, old.name)
            rows, _ = self._run(f"SELECT {_COLUMNS} FROM pidts_meta.moved WHERE {ours} AND {_MEMBER}", member)
            if rows:
                self._run(f"DELETE FROM pidts_meta.moved WHERE {ours} AND {_MEMBER}", member)
                there.append((new, rows))
        for new, rows in there:
            for first in range(0, len(rows), _AT_ONCE):
                part = rows[first : first + _AT_ONCE]
                self._put([(*row[:5], new.schema, new.name, row[7]) for row in part])

    def target_tables(self, task: str, source: str) -> list[TableName]:
        """Returns the target tables that have moved keys, in the order of their names."""
        sql = "SELECT DISTINCT table_schema, table_name FROM pidts_meta.moved WHERE task = %s AND source = %s"
        return sorted(TableName(schema, name) for schema, name in self._run(sql, (task, source))[0])

    def forget(self, task: str, source: str, target_table: TableName) -> None:
        """Removes all moved keys of a target table in one statement."""
        self._run(
            f"DELETE FROM pidts_meta.moved WHERE {_OF_TABLE}", (task, source, target_table.schema, target_table.name)
        )

    def _find(self, place: _Row, keys: Sequence[str]) -> list[tuple[Any, ...]]:
        rows, _ = self._run(
            f"SELECT member_schema, member_name, row_key, lsn FROM pidts_meta.moved WHERE {_OF_TABLE} "
            f"AND row_key IN ({', '.join(['%s'] * len(keys))})",
            (*place, *keys),
        )
        return rows

    def _put(self, rows: Sequence[_Row]) -> None:
        self._run(
            f"INSERT INTO pidts_meta.moved ({_COLUMNS}) VALUES "
            + ", ".join(["(%s, %s, %s, %s, %s, %s, %s, %s)"] * len(rows))
            + " ON DUPLICATE KEY UPDATE lsn = VALUES(lsn)",
            [value for row in rows for value in row],
        )

    def _remove(self, place: _Row, member: TableName, keys: Sequence[str]) -> None:
        self._run(
            f"DELETE FROM pidts_meta.moved WHERE {_OF_TABLE} AND row_key IN ({', '.join(['%s'] * len(keys))}) "
            f"AND {_MEMBER}",
            (*place, *keys, member.schema, member.name),
        )
