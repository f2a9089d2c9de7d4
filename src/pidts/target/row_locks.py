"""Records, in `pidts_meta`, rows that are set aside, with their held changes; the SQL is for all servers.

An *early removal* is the DELETE of a row that the target did not have: another task may still bring the INSERT of the
row (`pidts.apply.locks.early_removals`). The task that applies the DELETE notes it, with the time of the DELETE.
"""

from __future__ import annotations

import json
import re
import shlex
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from hashlib import sha256
from operator import attrgetter
from typing import Any, TypeAlias

from pidts.model import EarlyRemoval, HeldChanges, LeftOut, Lsn, RowLock, Table, TableName, Transient, Where
from pidts.target.meta_schema import META_EXISTS, Insert, QueueQuery, Run

_AT_ONCE = 200
_FORMS_AT_ONCE = 1000
_REMOVALS_KEPT_SECONDS = 7 * 86_400
"""The age at which the record of an early removal is deleted.

A task with a larger lag may insert the row after that.
"""
_PRUNE_SECONDS = 3600.0
_PRUNED_AT_ONCE = 10_000
_MOST_LOOKED_THROUGH = 2_000
_Place: TypeAlias = tuple[str, str, TableName]
_ANY = (
    "SELECT * FROM (SELECT 1 FROM pidts_meta.row_lock WHERE task = %s AND source = %s LIMIT 1) AS a UNION ALL "
    "SELECT * FROM (SELECT 2 FROM pidts_meta.early_removal LIMIT 1) AS b"
)
_OF_TABLE = "task = %s AND source = %s AND table_schema = %s AND table_name = %s"


class RowLockRecord:
    """The locked rows, as one session reads and writes them; the caller decides about transactions."""

    def __init__(self, run: Run, insert: Insert, queue_query: QueueQuery | None = None) -> None:
        self._run, self._insert, self._queue_query = run, insert, queue_query
        self._asked: tuple[tuple[str, str], Callable[[], Sequence[tuple[Any, ...]]]] | None = None
        """The query that `ask` has sent in the open transaction, and the function that returns its rows."""
        self._have_forms: set[tuple[_Place, str]] = set()
        """Pairs of a table and the beginning of a form (`pidts.apply.locks.known_locks`).

        This session has seen that each lock of the table has a form that begins with this text.
        """
        self._given: set[_Place] = set()
        self._structures: dict[str, Table] = {}
        """Structures, keyed by their digests. They stay valid after a rollback."""
        self._notes = False
        """Whether this session has seen that the table of early removals exists."""
        self._pruned_at: dict[_Place, float] = {}
        """For each table, the time at which this session looks for old early removals again."""
        self._noted: Counter[_Place] = Counter()

    def tables(self, task: str, source: str) -> dict[TableName, int]:
        """Returns the number of locked rows of each target table that has locked rows."""
        sql = (
            "SELECT table_schema, table_name, COUNT(*) FROM pidts_meta.row_lock "
            "WHERE task = %s AND source = %s GROUP BY table_schema, table_name"
        )
        return {TableName(schema, name): int(count) for schema, name, count in self._run(sql, (task, source))[0]}

    def ask(self, task: str, source: str) -> None:
        """Queues the query of `present`, if the session can send it right after the transaction's next statement."""
        self._asked = None if self._queue_query is None else ((task, source), self._queue_query(_ANY, (task, source)))

    def present(self, task: str, source: str, tables: Collection[TableName]) -> tuple[set[TableName], bool]:
        """Returns which of these target tables have locked rows, and whether early removals are on record."""
        found: set[TableName] = set()
        if not tables:
            return found, False
        asked, self._asked = self._asked, None
        is_asked = asked is not None and asked[0] == (task, source)
        rows = asked[1]() if asked is not None and is_asked else self._run(_ANY, (task, source))[0]
        there = {int(number) for (number,) in rows}
        if 1 not in there:
            return found, 2 in there
        one = f"SELECT table_schema, table_name FROM pidts_meta.row_lock WHERE {_OF_TABLE} LIMIT 1"
        for part in _portions(sorted(tables)):
            each = (f"SELECT * FROM ({one}) AS t{place}" for place in range(len(part)))
            values = [value for table in part for value in (task, source, *_pair(table))]
            found.update(TableName(*names) for names in self._run(" UNION ALL ".join(each), values)[0])
        return found, 2 in there

    def count(self, task: str, source: str, table: TableName) -> int:
        """Returns the number of locked rows of a table."""
        sql = f"SELECT COUNT(*) FROM pidts_meta.row_lock WHERE {_OF_TABLE}"
        return int(self._run(sql, (task, source, *_pair(table)))[0][0][0])

    def recorded(self, task: str, source: str) -> dict[TableName, int]:
        """Returns the same as `tables`, even on a target where the task has never run."""
        exists = META_EXISTS.replace("'checkpoint'", "'row_lock'")
        return self.tables(task, source) if self._run(exists, ())[0] else {}

    def read(self, task: str, source: str, table: TableName, *, waiting: bool = False) -> list[RowLock]:
        """Returns all locks of a table, or only locks that wait for another lock; the oldest first."""
        sql, values = f"SELECT row_key, about FROM pidts_meta.row_lock WHERE {_OF_TABLE}", [task, source, *_pair(table)]
        if waiting:
            sql += " AND about NOT LIKE %s"
            values.append('%"needs": ""%')
        return self._locks(task, source, table, self._run(f"{sql} ORDER BY lsn, row_key", values)[0])

    def ids(self, task: str, source: str, table: TableName, origin: TableName | None = None) -> list[str]:
        """Returns the ids of a table's locks, the oldest first.

        With `origin`, only locks of that source table count.
        """
        sql, values = f"SELECT row_key FROM pidts_meta.row_lock WHERE {_OF_TABLE}", [task, source, *_pair(table)]
        if origin is not None:
            text = re.sub("([!%_])", r"!\1", json.dumps({"origin": _pair(origin)})[1:-1])
            sql += " AND about LIKE %s ESCAPE '!'"
            values.append(f"%{text}%")
        return [id_ for (id_,) in self._run(f"{sql} ORDER BY lsn, row_key", values)[0]]

    def some(self, task: str, source: str, table: TableName, ids: Collection[str]) -> list[RowLock]:
        """Returns the locks with these ids that exist."""
        return self._some(task, source, table, ids)

    def among(self, task: str, source: str, table: TableName, ids: Collection[str]) -> set[str]:
        """Returns which of these ids are ids of locks."""
        found: set[str] = set()
        for part in _portions(sorted(ids), _FORMS_AT_ONCE):
            sql = f"SELECT row_key FROM pidts_meta.row_lock WHERE {_OF_TABLE} AND row_key IN ({_places(part)})"
            found.update(id_ for (id_,) in self._run(sql, (task, source, *_pair(table), *part))[0])
        return found

    def of_forms(self, task: str, source: str, table: TableName, forms: Collection[str]) -> list[RowLock]:
        """Returns the locks whose keys have these forms.

        A form is a digest of a key. Keys that the target treats as equal have the same form
        (`pidts.apply.locks.known_locks`).
        """
        ids: set[str] = set()
        for part in _portions(sorted(forms), _FORMS_AT_ONCE):
            sql = f"SELECT row_key FROM pidts_meta.locked_form WHERE {_OF_TABLE} AND form IN ({_places(part)})"
            ids.update(id_ for (id_,) in self._run(sql, (task, source, *_pair(table), *part))[0])
        return self._some(task, source, table, ids)

    def without_form(self, task: str, source: str, table: TableName, start: str) -> list[str]:
        """Returns the ids of the table's locks whose form does not begin with `start`, and of locks without a form."""
        place = task, source, table
        if (place, start) in self._have_forms:
            return []
        sql = f"SELECT row_key FROM pidts_meta.row_lock WHERE {_OF_TABLE} AND about NOT LIKE %s ORDER BY row_key"
        found = [id_ for (id_,) in self._run(sql, (task, source, *_pair(table), f'%"form": "{start}%'))[0]]
        if not found and place not in self._given:
            self._have_forms.add((place, start))
        return found

    def give_forms(self, task: str, source: str, locks: Sequence[RowLock]) -> None:
        """Overwrites these records and their forms. This transaction has already locked the records (`lock`)."""
        for table in {one.table.name for one in locks}:
            old = self._some(task, source, table, [one.id for one in locks if one.table.name == table])
            self._remove_forms(task, source, old)
        self.change(task, source, locks)
        self._insert_forms(task, source, locks)
        self._given.update((task, source, one.table.name) for one in locks)

    def lock(self, task: str, source: str, table: TableName, ids: Collection[str]) -> list[RowLock]:
        """Returns the locks with these ids that still exist.

        Until the transaction ends, no other session resolves these locks.
        """
        return self._some(task, source, table, ids, " FOR UPDATE")

    def add(self, task: str, source: str, locks: Sequence[RowLock]) -> None:
        """Inserts locks, sorted by the table's primary key."""
        self._keep_structures(task, source, locks)
        ordered = sorted(locks, key=attrgetter("id"))
        values = {
            "row_key": [one.id for one in ordered],
            "lsn": [str(one.lsn) for one in ordered],
            "about": [one.dumps() for one in ordered],
        }
        self._put("row_lock", task, source, [one.table.name for one in ordered], values)
        self._insert_forms(task, source, locks)

    def change(self, task: str, source: str, locks: Sequence[RowLock]) -> None:
        """Overwrites locks that this transaction has locked, all of one table."""
        self._keep_structures(task, source, locks)
        for part in _portions(sorted(locks, key=attrgetter("id"))):
            ids = [one.id for one in part]
            cases = " ".join(["WHEN row_key = %s THEN %s"] * len(part))
            sql = (
                f"UPDATE pidts_meta.row_lock SET about = CASE {cases} ELSE about END WHERE {_OF_TABLE} "
                f"AND row_key IN ({_places(part)})"
            )
            arguments = [value for one in part for value in (one.id, one.dumps())]
            self._run(sql, (*arguments, task, source, *_pair(part[0].table.name), *ids))

    def hold(self, task: str, source: str, table: TableName, held: Sequence[HeldChanges]) -> None:
        """Inserts held changes."""
        ordered = sorted(held, key=attrgetter("id", "lsn"))
        values = {
            "row_key": [one.id for one in ordered],
            "lsn": [str(one.lsn) for one in ordered],
            "changes": [one.changes for one in ordered],
        }
        self._put("held_change", task, source, [table] * len(ordered), values)

    def held(self, task: str, source: str, table: TableName, ids: Collection[str]) -> list[HeldChanges]:
        """Returns the held changes of these locks. The changes of a lock are in the order of the log."""
        found = []
        for part in _portions(sorted(ids)):
            sql = (
                f"SELECT row_key, lsn, changes FROM pidts_meta.held_change WHERE {_OF_TABLE} "
                f"AND row_key IN ({_places(part)}) ORDER BY row_key, lsn"
            )
            found += self._run(sql, (task, source, table.schema, table.name, *part))[0]
        return [HeldChanges(id_, Lsn.parse(lsn), changes) for id_, lsn, changes in found]

    def remove(self, task: str, source: str, table: TableName, ids: Collection[str]) -> None:
        """Removes locks with their held changes."""
        self._remove_forms(task, source, self._some(task, source, table, ids))
        for part in _portions(sorted(ids)):
            for record in ("held_change", "row_lock"):
                sql = f"DELETE FROM pidts_meta.{record} WHERE {_OF_TABLE} AND row_key IN ({_places(part)})"
                self._run(sql, (task, source, table.schema, table.name, *part))

    def forget(self, task: str, source: str, table: TableName) -> None:
        """Removes all locks of a table."""
        for record in ("held_change", "locked_form", "row_lock"):
            sql = f"DELETE FROM pidts_meta.{record} WHERE {_OF_TABLE}"
            self._run(sql, (task, source, table.schema, table.name))

    def note_removed(self, task: str, source: str, table: TableName, removals: Mapping[str, int]) -> None:
        """Inserts or overwrites records of early removals: DELETEs of rows that the target did not have.

        From time to time it also deletes the task's old records.
        """
        if not self._has_notes():
            return
        now = int(time.time())
        place = (task, source, table)
        self._noted[place] += len(removals)
        if time.monotonic() >= self._pruned_at.get(place, 0.0) or self._noted[place] >= _PRUNED_AT_ONCE:
            self._pruned_at[place], self._noted[place] = time.monotonic() + _PRUNE_SECONDS, 0
            sql = f"SELECT row_key FROM pidts_meta.early_removal WHERE {_OF_TABLE} AND noted_at < %s"
            old = self._run(
                f"{sql} LIMIT {_PRUNED_AT_ONCE}", (task, source, *_pair(table), now - _REMOVALS_KEPT_SECONDS)
            )[0]
            self._remove_noted(task, source, table, [key for (key,) in old])
        self._remove_noted(task, source, table, removals)
        ordered = sorted(removals.items())
        values: dict[str, Sequence[Any]] = {
            "row_key": [key for key, _ in ordered],
            # The time of a change is too early if another server's log was replayed into the source's log.
            "removed_at": [at and max(at, now) for _, at in ordered],
            "noted_at": [now] * len(ordered),
        }
        self._put("early_removal", task, source, [table] * len(ordered), values)

    def show_left_out(self, task: str, source: str, table: TableName, notes: Sequence[LeftOut]) -> None:
        """Inserts notes about left out changes and deletes the notes again, so that only the server's log has them."""
        if not notes:
            return
        by_key = {(sha256(one.key.encode()).hexdigest(), one.removed): one for one in notes}
        values: dict[str, Sequence[Any]] = {
            "row_key": [key for key, _ in by_key],
            "removed": [removed for _, removed in by_key],
            "key_values": [one.key for one in by_key.values()],
            "made_at": [one.time for one in by_key.values()],
        }
        self._put("left_out", task, source, [table] * len(by_key), values)
        for part in _portions(sorted({key for key, _ in by_key}), _FORMS_AT_ONCE):
            sql = f"DELETE FROM pidts_meta.left_out WHERE {_OF_TABLE} AND row_key IN ({_places(part)})"
            self._run(sql, (task, source, *_pair(table), *part))

    def _remove_noted(self, task: str, source: str, table: TableName, keys: Collection[str]) -> None:
        for part in _portions(sorted(keys), _FORMS_AT_ONCE):
            sql = f"DELETE FROM pidts_meta.early_removal WHERE {_OF_TABLE} AND row_key IN ({_places(part)})"
            self._run(sql, (task, source, *_pair(table), *part))

    def removed_early(self, task: str, source: str, table: TableName, keys: Collection[str]) -> list[EarlyRemoval]:
        """Returns the early removals that other tasks have recorded in `pidts_meta` for these keys."""
        found = []
        for part in _portions(sorted(keys), _FORMS_AT_ONCE):
            sql = (
                "SELECT row_key, task, removed_at FROM pidts_meta.early_removal WHERE table_schema = %s "
                f"AND table_name = %s AND row_key IN ({_places(part)}) AND NOT (task = %s AND source = %s)"
            )
            found += self._run(sql, (*_pair(table), *part, task, source))[0]
        return [EarlyRemoval(key, other, int(at)) for key, other, at in found]

    def noted(self, table: TableName, keys: Collection[str]) -> list[EarlyRemoval]:
        """Returns the early removals that any task has recorded in `pidts_meta` for these keys."""
        found = []
        for part in _portions(sorted(keys), _FORMS_AT_ONCE):
            sql = (
                "SELECT row_key, task, removed_at FROM pidts_meta.early_removal WHERE table_schema = %s "
                f"AND table_name = %s AND row_key IN ({_places(part)})"
            )
            found += self._run(sql, (*_pair(table), *part))[0]
        return [EarlyRemoval(key, task, int(at)) for key, task, at in found]

    def has_noted(self, table: TableName, since: int) -> bool:
        """Whether a task may have recorded the removal of a row of this table that the target did not have.

        Only removals at `since` (in seconds since 1970) or later, or at an unknown time, count.
        """
        # No index contains the times of removals. If there are many early removals, only some of them are read, and the
        # unread ones count as recent.
        sql = (
            "SELECT COUNT(*), COALESCE(SUM(CASE WHEN removed_at >= %s OR removed_at = 0 THEN 1 ELSE 0 END), 0) "
            "FROM (SELECT removed_at FROM pidts_meta.early_removal WHERE table_schema = %s AND table_name = %s "
            "LIMIT %s) AS a"
        )
        ((count, recent),) = self._run(sql, (since, *_pair(table), _MOST_LOOKED_THROUGH))[0]
        return bool(int(recent)) or int(count) >= _MOST_LOOKED_THROUGH

    def forget_noted(self, table: TableName, keys: Collection[str]) -> None:
        """Deletes the records of early removals that any task has made for these keys."""
        if not self._has_notes():
            return
        for part in _portions(sorted(keys), _FORMS_AT_ONCE):
            sql = (
                "DELETE FROM pidts_meta.early_removal WHERE table_schema = %s AND table_name = %s "
                f"AND row_key IN ({_places(part)})"
            )
            self._run(sql, (*_pair(table), *part))

    def _has_notes(self) -> bool:
        """Whether the table of early removals exists: a command may find the records of a version without it."""
        if not self._notes:
            self._notes = bool(self._run(META_EXISTS.replace("'checkpoint'", "'early_removal'"), ())[0])
        return self._notes

    def _some(self, task: str, source: str, table: TableName, ids: Collection[str], tail: str = "") -> list[RowLock]:
        found = []
        for part in _portions(sorted(ids)):
            sql = (
                f"SELECT row_key, about FROM pidts_meta.row_lock WHERE {_OF_TABLE} AND row_key IN ({_places(part)}) "
                f"ORDER BY row_key{tail}"
            )
            found += self._run(sql, (task, source, *_pair(table), *part))[0]
        return self._locks(task, source, table, found)

    def _locks(self, task: str, source: str, table: TableName, rows: Sequence[tuple[Any, ...]]) -> list[RowLock]:
        """Returns the locks in these rows; each row has the id and the text of one lock."""
        named = {digest for _, about in rows for digest in RowLock.digests(about)}
        if named - self._structures.keys():
            sql = f"SELECT digest, structure FROM pidts_meta.locked_structure WHERE {_OF_TABLE}"
            known = self._run(sql, (task, source, *_pair(table)))[0]
            self._structures |= {digest: Table.from_json(json.loads(text)) for digest, text in known}
        if named - self._structures.keys():  # an older lock may be getting a digest in another session just now
            raise Transient(
                "target-busy",
                "pidts_meta.locked_structure lacks a structure that pidts_meta.row_lock names",
                where=Where(table=str(table)),
                todo="If this error does not go away, somebody has removed the structure. Copy the table again, "
                f"which ends its locks: pidts run TASK --resync {shlex.quote(str(table))}",
            )
        return [RowLock.loads(id_, about, self._structures) for id_, about in rows]

    def _keep_structures(self, task: str, source: str, locks: Sequence[RowLock]) -> None:
        """Inserts the structures of these locks, except structures that are already recorded.

        Two workers may insert one structure at the same time, each under a lock of its own. No structure is removed
        while the task exists, since another worker may be about to use it.
        """
        named: dict[str, tuple[RowLock, Table]] = {}
        for one in {(id(one.table), id(one.now)): one for one in reversed(locks)}.values():
            for digest, table in one.structures().items():
                named.setdefault(digest, (one, table))
        for digest, (one, table) in sorted(named.items()):
            place = (task, source, *_pair(one.table.name), digest)
            sql = f"SELECT 1 FROM pidts_meta.locked_structure WHERE {_OF_TABLE} AND digest = %s LIMIT 1"
            if not self._run(sql, place)[0]:
                values = {"digest": [digest], "row_key": [one.id], "structure": [json.dumps(table.to_json())]}
                self._put("locked_structure", task, source, [one.table.name], values)

    def _insert_forms(self, task: str, source: str, locks: Sequence[RowLock]) -> None:
        self._remove_forms(
            task, source, locks
        )  # when an earlier version resolved a lock, it did not remove the lock's forms
        ordered = sorted((one for one in locks if one.form), key=attrgetter("form", "id"))
        values = {"form": [one.form for one in ordered], "row_key": [one.id for one in ordered]}
        self._put("locked_form", task, source, [one.table.name for one in ordered], values)

    def _remove_forms(self, task: str, source: str, locks: Sequence[RowLock]) -> None:
        for part in _portions(sorted((one for one in locks if one.form), key=attrgetter("form", "id"))):
            pairs = " OR ".join(["form = %s AND row_key = %s"] * len(part))
            sql = f"DELETE FROM pidts_meta.locked_form WHERE {_OF_TABLE} AND ({pairs})"
            values = [value for one in part for value in (one.form, one.id)]
            self._run(sql, (task, source, *_pair(part[0].table.name), *values))

    def _put(
        self,
        record: str,
        task: str,
        source: str,
        tables: Sequence[TableName],
        values: Mapping[str, Sequence[Any]],
    ) -> None:
        """Inserts rows, each about one of the tables."""
        if not tables:
            return
        about = {
            "task": [task] * len(tables),
            "source": [source] * len(tables),
            "table_schema": [one.schema for one in tables],
            "table_name": [one.name for one in tables],
        }
        self._insert(record, {**about, **values})


def _pair(name: TableName) -> tuple[str, str]:
    return name.schema, name.name


def _places(part: Sequence[object]) -> str:
    return ", ".join(["%s"] * len(part))


def _portions(values: Sequence[Any], most: int = _AT_ONCE) -> Iterator[Sequence[Any]]:
    return (values[first : first + most] for first in range(0, len(values), most))
