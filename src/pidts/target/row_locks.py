"""Records, in `pidts_meta`, rows that are set aside, with their held changes; the SQL is for all servers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Sequence
from operator import attrgetter
from typing import Any, TypeAlias

from pidts.model import HeldChanges, Lsn, RowLock, Table, TableName, Transient, Where
from pidts.model.advice import RESYNC
from pidts.model.records.altered_record import reading_record
from pidts.target.meta_schema import META_EXISTS, Insert, QueueQuery, Run
from pidts.target.table_key import DIGESTS_AT_ONCE, OF_TABLE, insert_about, placeholders, portions, schema_and_name

_AT_ONCE = 200
_Place: TypeAlias = tuple[str, str, TableName]
_ANY = (
    "SELECT * FROM (SELECT 1 FROM pidts_meta.row_lock WHERE task = %s AND source = %s LIMIT 1) AS a UNION ALL "
    "SELECT * FROM (SELECT 2 FROM pidts_meta.early_removal LIMIT 1) AS b"
)


class RowLockRecord:
    """Reads and writes locked rows in one session; the caller begins and commits transactions."""

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
        one = f"SELECT table_schema, table_name FROM pidts_meta.row_lock WHERE {OF_TABLE} LIMIT 1"
        for part in portions(sorted(tables), _AT_ONCE):
            each = (f"SELECT * FROM ({one}) AS t{place}" for place in range(len(part)))
            values = [value for table in part for value in (task, source, *schema_and_name(table))]
            found.update(TableName(*names) for names in self._run(" UNION ALL ".join(each), values)[0])
        return found, 2 in there

    def count(self, task: str, source: str, table: TableName) -> int:
        """Returns the number of locked rows of a table."""
        sql = f"SELECT COUNT(*) FROM pidts_meta.row_lock WHERE {OF_TABLE}"
        return int(self._run(sql, (task, source, *schema_and_name(table)))[0][0][0])

    def recorded(self, task: str, source: str) -> dict[TableName, int]:
        """Returns the same as `tables`, even on a target where the task has never run."""
        exists = META_EXISTS.replace("'checkpoint'", "'row_lock'")
        return self.tables(task, source) if self._run(exists, ())[0] else {}

    def read(self, task: str, source: str, table: TableName, *, waiting: bool = False) -> list[RowLock]:
        """Returns all locks of a table, or only locks that wait for another lock; the oldest first."""
        sql = f"SELECT row_key, about FROM pidts_meta.row_lock WHERE {OF_TABLE}"
        values = [task, source, *schema_and_name(table)]
        if waiting:
            sql += " AND about NOT LIKE %s"
            values.append('%"needs": ""%')
        return self._locks(task, source, table, self._run(f"{sql} ORDER BY lsn, row_key", values)[0])

    def ids(self, task: str, source: str, table: TableName, origin: TableName | None = None) -> list[str]:
        """Returns the ids of a table's locks, the oldest first; with `origin`, only those of that source table."""
        sql = f"SELECT row_key FROM pidts_meta.row_lock WHERE {OF_TABLE}"
        values = [task, source, *schema_and_name(table)]
        if origin is not None:
            text = re.sub("([!%_])", r"!\1", json.dumps({"origin": schema_and_name(origin)})[1:-1])
            sql += " AND about LIKE %s ESCAPE '!'"
            values.append(f"%{text}%")
        return [id_ for (id_,) in self._run(f"{sql} ORDER BY lsn, row_key", values)[0]]

    def some(self, task: str, source: str, table: TableName, ids: Collection[str]) -> list[RowLock]:
        """Returns the locks with these ids that exist."""
        return self._some(task, source, table, ids)

    def among(self, task: str, source: str, table: TableName, ids: Collection[str]) -> set[str]:
        """Returns which of these ids are ids of locks."""
        found: set[str] = set()
        for part in portions(sorted(ids), DIGESTS_AT_ONCE):
            sql = f"SELECT row_key FROM pidts_meta.row_lock WHERE {OF_TABLE} AND row_key IN ({placeholders(part)})"
            found.update(id_ for (id_,) in self._run(sql, (task, source, *schema_and_name(table), *part))[0])
        return found

    def of_forms(self, task: str, source: str, table: TableName, forms: Collection[str]) -> list[RowLock]:
        """Returns the locks whose keys have these forms.

        A form is a digest of a key. Keys that the target treats as equal have the same form
        (`pidts.apply.locks.known_locks`).
        """
        ids: set[str] = set()
        for part in portions(sorted(forms), DIGESTS_AT_ONCE):
            sql = f"SELECT row_key FROM pidts_meta.locked_form WHERE {OF_TABLE} AND form IN ({placeholders(part)})"
            ids.update(id_ for (id_,) in self._run(sql, (task, source, *schema_and_name(table), *part))[0])
        return self._some(task, source, table, ids)

    def without_form(self, task: str, source: str, table: TableName, start: str) -> list[str]:
        """Returns the ids of the table's locks that have no form, or a form that does not begin with `start`."""
        place = task, source, table
        if (place, start) in self._have_forms:
            return []
        sql = f"SELECT row_key FROM pidts_meta.row_lock WHERE {OF_TABLE} AND about NOT LIKE %s ORDER BY row_key"
        found = [id_ for (id_,) in self._run(sql, (task, source, *schema_and_name(table), f'%"form": "{start}%'))[0]]
        if not found and place not in self._given:
            self._demand_forms(place, start)
            self._have_forms.add((place, start))
        return found

    def _demand_forms(self, place: _Place, start: str) -> None:
        """Raises if somebody has changed a lock's form by hand: batches with another spelling need it."""
        task, source, table = place
        sql = (
            f"SELECT row_key FROM pidts_meta.row_lock WHERE {OF_TABLE} AND row_key NOT IN "
            f"(SELECT row_key FROM pidts_meta.locked_form WHERE {OF_TABLE} AND form LIKE %s) LIMIT 1"
        )
        values = (task, source, *schema_and_name(table))
        for (id_,) in self._run(sql, (*values, *values, f"{start}%"))[0]:
            with reading_record(
                "locked_form",
                column="form",
                task=task,
                source=source,
                table_schema=table.schema,
                table_name=table.name,
                row_key=id_,
            ):
                raise ValueError(f"the lock has no form that begins with {start}")

    def give_forms(self, task: str, source: str, locks: Sequence[RowLock]) -> None:
        """Overwrites these records and their forms. This transaction has already locked the records (`lock`)."""
        for table in {one.table.name for one in locks}:
            old = self._some(task, source, table, [one.id for one in locks if one.table.name == table])
            self._remove_forms(task, source, old)
        self.change(task, source, locks)
        self._insert_forms(task, source, locks)
        self._given.update((task, source, one.table.name) for one in locks)

    def lock(self, task: str, source: str, table: TableName, ids: Collection[str]) -> list[RowLock]:
        """Returns the locks with these ids that still exist. No other session resolves them in this transaction."""
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
        insert_about(self._insert, "row_lock", task, source, [one.table.name for one in ordered], values)
        self._insert_forms(task, source, locks)

    def change(self, task: str, source: str, locks: Sequence[RowLock]) -> None:
        """Overwrites locks that this transaction has locked, all of one table."""
        self._keep_structures(task, source, locks)
        for part in portions(sorted(locks, key=attrgetter("id")), _AT_ONCE):
            ids = [one.id for one in part]
            cases = " ".join(["WHEN row_key = %s THEN %s"] * len(part))
            sql = (
                f"UPDATE pidts_meta.row_lock SET about = CASE {cases} ELSE about END WHERE {OF_TABLE} "
                f"AND row_key IN ({placeholders(part)})"
            )
            arguments = [value for one in part for value in (one.id, one.dumps())]
            self._run(sql, (*arguments, task, source, *schema_and_name(part[0].table.name), *ids))

    def hold(self, task: str, source: str, table: TableName, held: Sequence[HeldChanges]) -> None:
        """Inserts held changes."""
        ordered = sorted(held, key=attrgetter("id", "lsn"))
        values = {
            "row_key": [one.id for one in ordered],
            "lsn": [str(one.lsn) for one in ordered],
            "changes": [one.changes for one in ordered],
        }
        insert_about(self._insert, "held_change", task, source, [table] * len(ordered), values)

    def held(self, task: str, source: str, table: TableName, ids: Collection[str]) -> list[HeldChanges]:
        """Returns the held changes of these locks. The changes of a lock are in the order of the log."""
        found = []
        for part in portions(sorted(ids), _AT_ONCE):
            sql = (
                f"SELECT row_key, lsn, changes FROM pidts_meta.held_change WHERE {OF_TABLE} "
                f"AND row_key IN ({placeholders(part)}) ORDER BY row_key, lsn"
            )
            found += self._run(sql, (task, source, table.schema, table.name, *part))[0]
        with reading_record(
            "held_change", column="lsn", task=task, source=source, table_schema=table.schema, table_name=table.name
        ):
            return [HeldChanges(id_, Lsn.parse(lsn), changes) for id_, lsn, changes in found]

    def remove(self, task: str, source: str, table: TableName, ids: Collection[str]) -> None:
        """Removes locks with their held changes."""
        self._remove_forms(task, source, self._some(task, source, table, ids))
        for part in portions(sorted(ids), _AT_ONCE):
            for record in ("held_change", "row_lock"):
                sql = f"DELETE FROM pidts_meta.{record} WHERE {OF_TABLE} AND row_key IN ({placeholders(part)})"
                self._run(sql, (task, source, table.schema, table.name, *part))

    def forget(self, task: str, source: str, table: TableName) -> None:
        """Removes all locks of a table."""
        for record in ("held_change", "locked_form", "row_lock"):
            sql = f"DELETE FROM pidts_meta.{record} WHERE {OF_TABLE}"
            self._run(sql, (task, source, table.schema, table.name))

    def _some(self, task: str, source: str, table: TableName, ids: Collection[str], tail: str = "") -> list[RowLock]:
        found = []
        for part in portions(sorted(ids), _AT_ONCE):
            sql = (
                f"SELECT row_key, about FROM pidts_meta.row_lock WHERE {OF_TABLE} "
                f"AND row_key IN ({placeholders(part)}) ORDER BY row_key{tail}"
            )
            found += self._run(sql, (task, source, *schema_and_name(table), *part))[0]
        return self._locks(task, source, table, found)

    def _locks(self, task: str, source: str, table: TableName, rows: Sequence[tuple[Any, ...]]) -> list[RowLock]:
        """Returns the locks in these rows; each row contains the id and the text of one lock."""
        place = {"task": task, "source": source, "table_schema": table.schema, "table_name": table.name}
        named = set()
        for id_, about in rows:
            with reading_record("row_lock", column="about", **place, row_key=id_):
                named.update(RowLock.digests(about))
        if named - self._structures.keys():
            sql = f"SELECT digest, structure FROM pidts_meta.locked_structure WHERE {OF_TABLE}"
            known = self._run(sql, (task, source, *schema_and_name(table)))[0]
            for digest, text in known:
                with reading_record("locked_structure", column="structure", **place, digest=digest):
                    self._structures[digest] = Table.from_json(json.loads(text))
        if named - self._structures.keys():  # an older lock may be getting a digest in another session just now
            raise Transient(
                "target-busy",
                "pidts_meta.locked_structure lacks a structure that pidts_meta.row_lock names",
                where=Where(table=str(table)),
                todo="If this error does not go away, somebody has removed the structure. Copy the table again, which "
                f"ends its locks: {RESYNC}",
            )
        locks = []
        for id_, about in rows:
            with reading_record("row_lock", column="about", **place, row_key=id_):
                locks.append(RowLock.loads(id_, about, self._structures))
        return locks

    def _keep_structures(self, task: str, source: str, locks: Sequence[RowLock]) -> None:
        """Inserts the structures of these locks, except structures that are already recorded.

        Two workers may insert the same structure at the same time, each with the id of another lock. No structure is
        removed while the task exists, since another worker may be about to use it.
        """
        named: dict[str, tuple[RowLock, Table]] = {}
        for one in {(id(one.table), id(one.now)): one for one in reversed(locks)}.values():
            for digest, table in one.structures().items():
                named.setdefault(digest, (one, table))
        for digest, (one, table) in sorted(named.items()):
            place = (task, source, *schema_and_name(one.table.name), digest)
            sql = f"SELECT 1 FROM pidts_meta.locked_structure WHERE {OF_TABLE} AND digest = %s LIMIT 1"
            if not self._run(sql, place)[0]:
                values = {"digest": [digest], "row_key": [one.id], "structure": [json.dumps(table.to_json())]}
                insert_about(self._insert, "locked_structure", task, source, [one.table.name], values)

    def _insert_forms(self, task: str, source: str, locks: Sequence[RowLock]) -> None:
        # Earlier versions did not remove a lock's forms when they resolved the lock.
        self._remove_forms(task, source, locks)
        ordered = sorted((one for one in locks if one.form), key=attrgetter("form", "id"))
        values = {"form": [one.form for one in ordered], "row_key": [one.id for one in ordered]}
        insert_about(self._insert, "locked_form", task, source, [one.table.name for one in ordered], values)

    def _remove_forms(self, task: str, source: str, locks: Sequence[RowLock]) -> None:
        for part in portions(sorted((one for one in locks if one.form), key=attrgetter("form", "id")), _AT_ONCE):
            pairs = " OR ".join(["form = %s AND row_key = %s"] * len(part))
            sql = f"DELETE FROM pidts_meta.locked_form WHERE {OF_TABLE} AND ({pairs})"
            values = [value for one in part for value in (one.form, one.id)]
            self._run(sql, (task, source, *schema_and_name(part[0].table.name), *values))
