"""Records, in `pidts_meta`, rows that are set aside and the changes that they hold; the SQL is for all servers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from operator import attrgetter
from typing import Any

from pidts.model import HeldChanges, Lsn, RowLock, TableName
from pidts.target.meta_schema import META_EXISTS, Run

_AT_ONCE = 200
_OF_TABLE = "task = %s AND source = %s AND table_schema = %s AND table_name = %s"


class RowLockRecord:
    """The locked rows, as one session reads and writes them; the caller decides about transactions."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def tables(self, task: str, source: str) -> dict[TableName, int]:
        """Returns the number of locked rows of each target table that has some."""
        sql = (
            "SELECT table_schema, table_name, COUNT(*) FROM pidts_meta.row_lock "
            "WHERE task = %s AND source = %s GROUP BY table_schema, table_name"
        )
        return {TableName(schema, name): int(count) for schema, name, count in self._run(sql, (task, source))[0]}

    def recorded(self, task: str, source: str) -> dict[TableName, int]:
        """Returns what `tables` does, also on a target where the task has never run."""
        exists = META_EXISTS.replace("'checkpoint'", "'row_lock'")
        return self.tables(task, source) if self._run(exists, ())[0] else {}

    def read(self, task: str, source: str, table: TableName) -> list[RowLock]:
        """Returns all locks of a table, the oldest first."""
        sql = f"SELECT row_key, about FROM pidts_meta.row_lock WHERE {_OF_TABLE} ORDER BY lsn, row_key"
        rows, _ = self._run(sql, (task, source, table.schema, table.name))
        return [RowLock.loads(id_, about) for id_, about in rows]

    def ids(self, task: str, source: str, table: TableName) -> set[str]:
        """Returns the ids of all locks of a table."""
        sql = f"SELECT row_key FROM pidts_meta.row_lock WHERE {_OF_TABLE}"
        return {id_ for (id_,) in self._run(sql, (task, source, table.schema, table.name))[0]}

    def lock(self, task: str, source: str, table: TableName, ids: Collection[str]) -> list[RowLock]:
        """Returns those of these locks that are there still; nobody else resolves them before the transaction ends."""
        found = []
        for part in _parts(sorted(ids)):
            sql = (
                f"SELECT row_key, about FROM pidts_meta.row_lock WHERE {_OF_TABLE} AND row_key IN ({_places(part)}) "
                "ORDER BY row_key FOR UPDATE"
            )
            found += self._run(sql, (task, source, table.schema, table.name, *part))[0]
        return [RowLock.loads(id_, about) for id_, about in found]

    def add(self, task: str, source: str, locks: Sequence[RowLock]) -> None:
        """Inserts locks, in the order of the table's own key."""
        for part in _parts(sorted(locks, key=attrgetter("id"))):
            rows = [(task, source, *_pair(one.table.name), one.id, str(one.lsn), one.dumps()) for one in part]
            self._insert("row_lock", "lsn, about", rows)

    def change(self, task: str, source: str, locks: Sequence[RowLock]) -> None:
        """Overwrites locks that this transaction has locked, all of one table."""
        for part in _parts(sorted(locks, key=attrgetter("id"))):
            ids = [one.id for one in part]
            cases = " ".join(["WHEN row_key = %s THEN %s"] * len(part))
            sql = (
                f"UPDATE pidts_meta.row_lock SET about = CASE {cases} ELSE about END WHERE {_OF_TABLE} "
                f"AND row_key IN ({_places(part)})"
            )
            told = [value for one in part for value in (one.id, one.dumps())]
            self._run(sql, (*told, task, source, *_pair(part[0].table.name), *ids))

    def hold(self, task: str, source: str, table: TableName, held: Sequence[HeldChanges]) -> None:
        """Inserts held changes."""
        for part in _parts(sorted(held, key=attrgetter("id", "lsn"))):
            rows = [(task, source, *_pair(table), one.id, str(one.lsn), one.changes) for one in part]
            self._insert("held_change", "lsn, changes", rows)

    def held(self, task: str, source: str, table: TableName, ids: Collection[str]) -> list[HeldChanges]:
        """Returns the held changes of these locks, each lock's in the order of the log."""
        found = []
        for part in _parts(sorted(ids)):
            sql = (
                f"SELECT row_key, lsn, changes FROM pidts_meta.held_change WHERE {_OF_TABLE} "
                f"AND row_key IN ({_places(part)}) ORDER BY row_key, lsn"
            )
            found += self._run(sql, (task, source, table.schema, table.name, *part))[0]
        return [HeldChanges(id_, Lsn.parse(lsn), changes) for id_, lsn, changes in found]

    def remove(self, task: str, source: str, table: TableName, ids: Collection[str]) -> None:
        """Removes locks with the changes that they hold."""
        for part in _parts(sorted(ids)):
            for record in ("held_change", "row_lock"):
                sql = f"DELETE FROM pidts_meta.{record} WHERE {_OF_TABLE} AND row_key IN ({_places(part)})"
                self._run(sql, (task, source, table.schema, table.name, *part))

    def forget(self, task: str, source: str, table: TableName) -> None:
        """Removes all locks of a table."""
        for record in ("held_change", "row_lock"):
            sql = f"DELETE FROM pidts_meta.{record} WHERE {_OF_TABLE}"
            self._run(sql, (task, source, table.schema, table.name))

    def _insert(self, record: str, values: str, rows: Sequence[tuple[Any, ...]]) -> None:
        places = f"({', '.join(['%s'] * len(rows[0]))})"
        self._run(
            f"INSERT INTO pidts_meta.{record} (task, source, table_schema, table_name, row_key, {values}) VALUES "
            + ", ".join([places] * len(rows)),
            [value for row in rows for value in row],
        )


def _pair(name: TableName) -> tuple[str, str]:
    return name.schema, name.name


def _places(part: Sequence[object]) -> str:
    return ", ".join(["%s"] * len(part))


def _parts(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    return (values[first : first + _AT_ONCE] for first in range(0, len(values), _AT_ONCE))
