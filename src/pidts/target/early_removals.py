"""Records, in `pidts_meta`, rows that a task removed before another task had inserted them; the SQL is for all servers.

An *early removal* is the DELETE of a row that the target did not have: another task may still bring the INSERT of the
row (`pidts.apply.locks.early_removals`). The task that applies the DELETE records it, with the time of the DELETE.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from typing import Any

from pidts.model import EarlyRemoval, LeftOut, TableName
from pidts.model.records.altered_record import reading_record
from pidts.target.meta_schema import META_EXISTS, Insert, Run
from pidts.target.table_key import DIGESTS_AT_ONCE, OF_TABLE, insert_about, placeholders, portions, schema_and_name

_KEPT_SECONDS = 7 * 86_400
"""The age at which a record is deleted. If another task has a larger lag, it may still insert the row after that."""
_PRUNE_SECONDS = 3600.0
_PRUNED_AT_ONCE = 10_000
_MOST_LOOKED_THROUGH = 2_000
_MOST_AHEAD_SECONDS = 86_400 * 366
"""The most seconds by which a removal may be later than its record, since the source's clock may be ahead."""
_COLUMNS = "row_key, task, source, removed_at, noted_at"


def _early_removal(table: TableName, key: str, task: str, source: str, removed: Any, noted: Any) -> EarlyRemoval:
    """Returns the early removal in a row of the record. Raises if somebody has changed one of the row's times.

    If a changed time were too early, an INSERT would count as later, and the removed row would come back.
    """
    at, noted_at = int(removed), int(noted)
    with reading_record(
        "early_removal",
        column="removed_at",
        table_schema=table.schema,
        table_name=table.name,
        row_key=key,
        task=task,
        source=source,
    ):
        if noted_at <= 0 or (at and not noted_at <= at <= noted_at + _MOST_AHEAD_SECONDS):
            raise ValueError(f"no removal was recorded at {noted_at} with the time {at}")
    return EarlyRemoval(key, task, at)


def _recorded_time(at: int, now: int) -> int:
    """Returns the time to record for a removal at the time `at` of its source; 0 if the time is not known.

    If `at` is in the past, the present time is recorded: a change that was replayed from another server's log has too
    early a time. If the source's clock is more than a year ahead, the time counts as unknown, and each INSERT of the
    row counts as earlier. A time so far ahead could not be distinguished from a time that somebody has written by hand.
    """
    return 0 if at > now + _MOST_AHEAD_SECONDS else at and max(at, now)


class EarlyRemovalRecord:
    """Reads and writes early removals in one session; the caller begins and commits transactions."""

    def __init__(self, run: Run, insert: Insert) -> None:
        self._run, self._insert = run, insert
        self._is_there = False
        """Whether this session has seen that the table of early removals exists."""
        self._pruned_at: dict[tuple[str, str, TableName], float] = {}
        """For each table, the time at which this session looks for old early removals again."""
        self._noted: Counter[tuple[str, str, TableName]] = Counter()

    def add(self, task: str, source: str, table: TableName, removals: Mapping[str, int]) -> None:
        """Inserts or overwrites records of early removals: DELETEs of rows that the target did not have.

        From time to time it also deletes the task's old records.
        """
        if not self._exists():
            return
        now = int(time.time())
        place = (task, source, table)
        self._noted[place] += len(removals)
        if time.monotonic() >= self._pruned_at.get(place, 0.0) or self._noted[place] >= _PRUNED_AT_ONCE:
            self._pruned_at[place], self._noted[place] = time.monotonic() + _PRUNE_SECONDS, 0
            sql = f"SELECT row_key FROM pidts_meta.early_removal WHERE {OF_TABLE} AND noted_at < %s"
            old = self._run(
                f"{sql} LIMIT {_PRUNED_AT_ONCE}", (task, source, *schema_and_name(table), now - _KEPT_SECONDS)
            )[0]
            self._remove(task, source, table, [key for (key,) in old])
        self._remove(task, source, table, removals)
        ordered = sorted(removals.items())
        values: dict[str, Sequence[Any]] = {
            "row_key": [key for key, _ in ordered],
            "removed_at": [_recorded_time(at, now) for _, at in ordered],
            "noted_at": [now] * len(ordered),
        }
        insert_about(self._insert, "early_removal", task, source, [table] * len(ordered), values)

    def show_left_out(self, task: str, source: str, table: TableName, notes: Sequence[LeftOut]) -> None:
        """Inserts records of changes that the task has left out, and deletes them: they remain in the server's log."""
        if not notes:
            return
        by_key = {(sha256(one.key.encode()).hexdigest(), one.removed): one for one in notes}
        values: dict[str, Sequence[Any]] = {
            "row_key": [key for key, _ in by_key],
            "removed": [removed for _, removed in by_key],
            "key_values": [one.key for one in by_key.values()],
            "made_at": [one.time for one in by_key.values()],
        }
        insert_about(self._insert, "left_out", task, source, [table] * len(by_key), values)
        for part in portions(sorted({key for key, _ in by_key}), DIGESTS_AT_ONCE):
            sql = f"DELETE FROM pidts_meta.left_out WHERE {OF_TABLE} AND row_key IN ({placeholders(part)})"
            self._run(sql, (task, source, *schema_and_name(table), *part))

    def _remove(self, task: str, source: str, table: TableName, keys: Collection[str]) -> None:
        for part in portions(sorted(keys), DIGESTS_AT_ONCE):
            sql = f"DELETE FROM pidts_meta.early_removal WHERE {OF_TABLE} AND row_key IN ({placeholders(part)})"
            self._run(sql, (task, source, *schema_and_name(table), *part))

    def of_other_tasks(self, task: str, source: str, table: TableName, keys: Collection[str]) -> list[EarlyRemoval]:
        """Returns the early removals that other tasks have recorded in `pidts_meta` for these keys."""
        found = []
        for part in portions(sorted(keys), DIGESTS_AT_ONCE):
            sql = (
                f"SELECT {_COLUMNS} FROM pidts_meta.early_removal WHERE table_schema = %s "
                f"AND table_name = %s AND row_key IN ({placeholders(part)}) AND NOT (task = %s AND source = %s)"
            )
            found += self._run(sql, (*schema_and_name(table), *part, task, source))[0]
        return [_early_removal(table, *row) for row in found]

    def of_all_tasks(self, table: TableName, keys: Collection[str]) -> list[EarlyRemoval]:
        """Returns the early removals that any task has recorded in `pidts_meta` for these keys."""
        found = []
        for part in portions(sorted(keys), DIGESTS_AT_ONCE):
            sql = (
                f"SELECT {_COLUMNS} FROM pidts_meta.early_removal WHERE table_schema = %s "
                f"AND table_name = %s AND row_key IN ({placeholders(part)})"
            )
            found += self._run(sql, (*schema_and_name(table), *part))[0]
        return [_early_removal(table, *row) for row in found]

    def any_since(self, table: TableName, since: int) -> bool:
        """Whether a task may have recorded the removal of a row of this table that the target did not have.

        Only removals at `since` (in seconds since 1970) or later, or at an unknown time, count.
        """
        # No index contains the times of removals. So at most `_MOST_LOOKED_THROUGH` of the table's early removals are
        # read. If there are that many, the result is True, whatever their times are. A removal also counts as recent if
        # somebody has changed its time (`_early_removal`).
        sql = (
            "SELECT COUNT(*), COALESCE(SUM(CASE WHEN removed_at >= %s OR removed_at < noted_at THEN 1 ELSE 0 END), 0) "
            "FROM (SELECT removed_at, noted_at FROM pidts_meta.early_removal "
            "WHERE table_schema = %s AND table_name = %s LIMIT %s) AS a"
        )
        ((count, recent),) = self._run(sql, (since, *schema_and_name(table), _MOST_LOOKED_THROUGH))[0]
        return bool(int(recent)) or int(count) >= _MOST_LOOKED_THROUGH

    def forget(self, table: TableName, keys: Collection[str]) -> None:
        """Deletes the records of early removals that any task has made for these keys."""
        if not self._exists():
            return
        for part in portions(sorted(keys), DIGESTS_AT_ONCE):
            sql = (
                "DELETE FROM pidts_meta.early_removal WHERE table_schema = %s AND table_name = %s "
                f"AND row_key IN ({placeholders(part)})"
            )
            self._run(sql, (*schema_and_name(table), *part))

    def _exists(self) -> bool:
        """Whether the table of early removals exists: a command may find the records of a version without it."""
        if not self._is_there:
            self._is_there = bool(self._run(META_EXISTS.replace("'checkpoint'", "'early_removal'"), ())[0])
        return self._is_there
