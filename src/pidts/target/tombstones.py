"""Reads, writes and removes tombstones in `pidts_meta`. PostgreSQL has its own statement for writing them.

A session that writes tombstones also removes old tombstones. For each tombstone that it writes for a user's table, it
examines one stored tombstone of this table. It begins at the key where it last stopped. So while the number of the
table's tombstones doubles, all former tombstones are examined. The meta table has no index by age: maintaining this
index would be two thirds of all writes.

Old tombstones are found without locks and removed by their keys: a DELETE by age and the statements of other workers
would wait for each other. They are removed after the COMMIT, outside of transactions. In a serializable transaction,
every SELECT would lock the rows that it reads, and two sessions would wait for each other's new tombstones.

If a session ends after its COMMIT and before the removal, a later session finds the old tombstones.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from pidts.model import Lsn, TableName, Tombstone, Tombstones
from pidts.model.records.altered_record import reading_record
from pidts.target.meta_schema import Run

KEPT_SECONDS = 7 * 86_400
"""The age in seconds at which a tombstone may be removed. After that, an older event finds no tombstone."""

_AT_ONCE = 1000


class TombstoneRecord:
    """Reads and writes tombstones in one session; the caller begins and commits transactions."""

    def __init__(self, run: Run, *, locks_gaps: bool = False) -> None:
        self._run = run
        self._locks_gaps = locks_gaps
        self._looked_at: dict[TableName, str] = {}
        self._written: Counter[TableName] = Counter()
        """For each table, the number of tombstones that the open transaction has written."""

    def read(self, name: TableName, keys: Sequence[str]) -> list[Tombstone]:
        """Returns the tombstones of these keys.

        The first query asks whether the table has any tombstones, since most tables have none. It is left out if
        sessions lock gaps: it would lock the table's first tombstone, which other sessions may be writing.
        """
        place = (name.schema, name.name)
        one = "SELECT 1 FROM pidts_meta.tombstone WHERE table_schema = %s AND table_name = %s LIMIT 1"
        if not keys or not (self._locks_gaps or self._run(one, place)[0]):
            return []
        parts = (keys[first : first + _AT_ONCE] for first in range(0, len(keys), _AT_ONCE))
        rows = [row for part in parts for row in self._find(place, part)]
        found = []
        for key, version, source, lsn in rows:
            with reading_record("tombstone", table_schema=name.schema, table_name=name.name, row_key=key):
                found.append(Tombstone(key, version, source, Lsn.parse(lsn)))
        return found

    def write(self, name: TableName, tombstones: Tombstones) -> None:
        """Inserts or overwrites tombstones, in the order of the meta table's own key."""
        now = int(time.time())
        ordered = tombstones.in_key_order()
        for first in range(0, len(ordered), _AT_ONCE):
            self._put((name.schema, name.name), ordered.slice(first, _AT_ONCE), now)
        self._written[name] += len(ordered)

    def prune(self) -> None:
        """Removes old tombstones of the tables for which the last transaction has written tombstones."""
        before = int(time.time()) - KEPT_SECONDS
        while self._written:
            name, count = self._written.popitem()
            if count:
                self._prune(name, count, before)

    def forget(self) -> None:
        """Forgets the tombstones that a rolled back transaction has written."""
        self._written.clear()

    def _prune(self, name: TableName, count: int, before: int) -> None:
        behind = "FROM pidts_meta.tombstone WHERE table_schema = %s AND table_name = %s AND row_key > %s"
        place = (name.schema, name.name)
        start = self._looked_at.get(name, "")
        last, _ = self._run(f"SELECT row_key {behind} ORDER BY row_key LIMIT 1 OFFSET {count - 1}", (*place, start))
        self._looked_at[name] = last[0][0] if last else ""
        upto = "AND row_key <= %s" if last else "AND %s = ''"
        old, _ = self._run(
            f"SELECT row_key {behind} {upto} AND buried_at < %s",
            (*place, start, self._looked_at[name], before),
        )
        for first in range(0, len(old), _AT_ONCE):
            keys = [key for (key,) in old[first : first + _AT_ONCE]]
            self._run(
                "DELETE FROM pidts_meta.tombstone WHERE table_schema = %s AND table_name = %s "
                f"AND buried_at < %s AND row_key IN ({', '.join(['%s'] * len(keys))})",
                (*place, before, *keys),  # another session may have written the key again
            )

    def _find(self, place: tuple[str, str], keys: Sequence[str]) -> list[tuple[Any, ...]]:
        rows, _ = self._run(
            "SELECT row_key, version_value, source, lsn FROM pidts_meta.tombstone "
            f"WHERE table_schema = %s AND table_name = %s AND row_key IN ({', '.join(['%s'] * len(keys))})",
            (*place, *keys),
        )
        return rows

    def _put(self, place: tuple[str, str], tombstones: Tombstones, now: int) -> None:
        self._run(
            "INSERT INTO pidts_meta.tombstone "
            "(table_schema, table_name, row_key, version_value, source, lsn, buried_at) VALUES "
            + ", ".join(["(%s, %s, %s, %s, %s, %s, %s)"] * len(tombstones))
            + " ON DUPLICATE KEY UPDATE version_value = VALUES(version_value), source = VALUES(source), "
            "lsn = VALUES(lsn), buried_at = VALUES(buried_at)",
            [value for t in tombstones.each() for value in (*place, t.key, t.version, t.source, str(t.lsn), now)],
        )
