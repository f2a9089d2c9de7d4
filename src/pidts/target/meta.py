"""The records of `pidts_meta` that all servers keep with the same SQL.

A record executes statements in one session. Its caller begins and commits the transactions.

A halt only informs operators and commands. A ddl command decides what the task does with a schema change. An operator
*gives* the command, and the transaction that begins the change's journal *takes* the command. So a later run knows
whether the journal contains the change as the command wants it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from pidts.model import (
    CommandKind,
    Cutover,
    CutoverStage,
    DdlCommand,
    DdlJournal,
    DdlState,
    Halt,
    Lsn,
    RangeOwner,
    RecordKey,
    Shadow,
    Table,
    TableName,
    record_key,
    record_text,
)
from pidts.model.records.altered_record import members, reading_record, texts
from pidts.target.early_removals import EarlyRemovalRecord
from pidts.target.meta_schema import (
    CUTOVER_EXISTS,
    META_EXISTS,
    SWITCH_EXISTS,
    Insert,
    QueueQuery,
    Run,
    inserts,
    seconds,
)
from pidts.target.row_locks import RowLockRecord

_CUTOVER = "pidts_meta.cutover"
_UNDONE = "/undone"
_TABLE_KEY = ("task", "source", "table_schema", "table_name")
_ANY_PLACE = re.sub("[^.]", "_", str(Lsn(0, 0, 0)))
"""A LIKE pattern that the text of every Lsn matches: all have the same length, and dots at the same characters."""


class Rows:
    """Reads and writes the rows of one meta table by the table's key, or by the first columns of this key."""

    def __init__(self, run: Run, table: str, *key: str) -> None:
        self._run, self._table, self._key = run, f"pidts_meta.{table}", key

    def read(self, columns: str, *place: object, tail: str = "") -> list[tuple[Any, ...]]:
        """Returns these columns of the rows whose key is `place` or begins with it."""
        return self._run(f"SELECT {columns} FROM {self._table} WHERE {self._at(place)}{tail}", place)[0]

    def put(self, *place: object, **values: object) -> None:
        """Inserts the row with this complete key, or overwrites it."""
        self.remove(*place)
        columns = (*self._key, *values)
        places = ", ".join(["%s"] * len(columns))
        sql = f"INSERT INTO {self._table} ({', '.join(columns)}) VALUES ({places})"
        self._run(sql, (*place, *values.values()))

    def change(self, *place: object, **values: object) -> None:
        """Updates the row with this complete key, if it exists. A reader always finds the row, unlike during `put`."""
        columns = ", ".join(f"{name} = %s" for name in values)
        self._run(f"UPDATE {self._table} SET {columns} WHERE {self._at(place)}", (*values.values(), *place))

    def remove(self, *place: object) -> None:
        """Removes the rows whose key is `place` or begins with it."""
        self._run(f"DELETE FROM {self._table} WHERE {self._at(place)}", place)

    def _at(self, place: tuple[object, ...]) -> str:
        return " AND ".join(f"{name} = %s" for name in self._key[: len(place)])


class SharedRecords:
    """The records that are the same on all kinds of servers.

    The module `meta` of each kind of server adds checkpoints, tombstones, moved keys, and a lock for schema changes.
    """

    def __init__(self, run: Run, insert: Insert | None = None, queue_query: QueueQuery | None = None) -> None:
        """`insert` is the server's fastest function for inserting many rows. Without it, INSERT statements write them.

        `queue_query` sends a query together with the next statement, to save a round trip. Without it, each query is
        sent alone.
        """
        self.structures = StructureRecord(run)
        self.journal = JournalRecord(run)
        self.notes = NoteRecord(run)
        self.safe_range = SafeRangeRecord(run)
        self.halts = HaltRecord(run)
        self.ddl_commands = DdlCommandRecord(run)
        self.shadows = ShadowRecord(run)
        self.rereads = RereadRecord(run)
        self.cutovers = CutoverRecord(run)
        self.range_owners = RangeOwnerRecord(run)
        self.row_locks = RowLockRecord(run, insert or inserts(run), queue_query)
        self.early_removals = EarlyRemovalRecord(run, insert or inserts(run))


class StructureRecord:
    """The structures of the sources' tables."""

    def __init__(self, run: Run) -> None:
        self._run, self._rows = run, Rows(run, "structure", *_TABLE_KEY)

    def save(self, task: str, key: RecordKey, lsn: Lsn, structures: Mapping[TableName, Table | None]) -> None:
        """Saves the structure of each table in one row; None removes the table's row."""
        for name, table in sorted(structures.items()):
            place = (task, record_text(key), name.schema, name.name)
            if table is None:
                self._rows.remove(*place)
            else:
                self._rows.put(*place, lsn=str(lsn), structure=json.dumps(table.to_json(), ensure_ascii=True))

    def load(self, task: str, key: RecordKey) -> dict[TableName, Table]:
        """Returns the structures that were saved last."""
        rows = self._rows.read("table_schema, table_name, structure", task, record_text(key))
        return _structures("structure", rows, task=task, source=record_text(key))

    def tables(self, task: str | None = None) -> list[tuple[str, RecordKey, TableName]]:
        """Returns the task, key and table of each structure that this task has saved; without a task, of all tasks."""
        if not self._run(META_EXISTS, ())[0]:
            return []
        of, values = ("", ()) if task is None else (" WHERE task = %s", (task,))
        rows, _ = self._run(f"SELECT task, source, table_schema, table_name FROM pidts_meta.structure{of}", values)
        return [
            (its, _key("structure", its, text, table_schema=schema, table_name=name), TableName(schema, name))
            for its, text, schema, name in rows
        ]


class JournalRecord:
    """The schema changes that were begun."""

    def __init__(self, run: Run) -> None:
        self._rows = Rows(run, "ddl_journal", "task", "source", "lsn")

    def read(self, task: str, source: str, lsn: Lsn) -> DdlJournal | None:
        """Returns the schema change at `lsn`; None if no run has begun it."""
        columns = "statement, rendered, step, before_change, state, epoch, updated_at"
        for statement, rendered, step, before, state, epoch, saved in self._rows.read(columns, task, source, str(lsn)):
            with reading_record("ddl_journal", task=task, source=source, lsn=str(lsn)):
                return DdlJournal(
                    task=task,
                    source=source,
                    lsn=lsn,
                    statement=statement,
                    rendered=texts(rendered),
                    step=int(step),
                    before=members(before),
                    state=DdlState(state),
                    epoch=int(epoch),
                    saved_at=seconds(saved),
                )
        return None

    def write(self, journal: DdlJournal) -> None:
        """Inserts or overwrites the record of a schema change."""
        self._rows.put(
            *(journal.task, journal.source, str(journal.lsn)),
            statement=journal.statement,
            rendered=json.dumps(journal.rendered),
            step=journal.step,
            before_change=json.dumps(dict(journal.before)),
            state=journal.state.value,
            epoch=journal.epoch,
        )


class NoteRecord:
    """Notes, one text for each table: for example, how a table without a key was loaded."""

    def __init__(self, run: Run) -> None:
        self._run, self._rows = run, Rows(run, "note", *_TABLE_KEY)

    def read(self, task: str, key: RecordKey, name: TableName) -> str:
        """Returns the table's note; empty if the table has no note."""
        rows = self._rows.read("told", task, record_text(key), name.schema, name.name)
        return str(rows[0][0]) if rows else ""

    def write(self, task: str, key: RecordKey, name: TableName, text: str) -> None:
        """Inserts or overwrites the table's note."""
        self._rows.put(task, record_text(key), name.schema, name.name, told=text)

    def places(self, name: TableName) -> list[tuple[str, RecordKey]]:
        """Returns the task and the key of each note of this name that is not empty."""
        rows, _ = self._run(
            "SELECT task, source FROM pidts_meta.note WHERE table_schema = %s AND table_name = %s AND told <> '' "
            "ORDER BY task, source",
            (name.schema, name.name),
        )
        return [(task, _key("note", task, text, table_schema=name.schema, table_name=name.name)) for task, text in rows]


class SafeRangeRecord:
    """The end of the changes that each part of a task writes in safe mode."""

    def __init__(self, run: Run) -> None:
        self._rows = Rows(run, "safe_range", "task", "source")

    def read(self, task: str, source: str) -> Lsn | None:
        """Returns the end of the safe range; None if the task began with a copy or at the source's current position."""
        rows = self._rows.read("lsn", task, source)
        with reading_record("safe_range", task=task, source=source):
            return Lsn.parse(rows[0][0]) if rows else None

    def save(self, task: str, source: str, lsn: Lsn | None) -> None:
        """Inserts or overwrites the end of the safe range; None removes it."""
        if lsn is None:
            self._rows.remove(task, source)
        else:
            self._rows.put(task, source, lsn=str(lsn))


class HaltRecord:
    """The tables that wait for an operator."""

    def __init__(self, run: Run) -> None:
        self._rows = Rows(run, "halt", "task", "source", "place")

    def read(self, task: str, source: str) -> list[Halt]:
        """Returns the halts, sorted by the column `place`."""
        halts = []
        for place, about in self._rows.read("place, about", task, source, tail=" ORDER BY place"):
            with reading_record("halt", task=task, source=source, place=place):
                halts.append(Halt.loads(about))
        return halts

    def save(self, task: str, source: str, halt: Halt) -> None:
        """Inserts or overwrites the halt. While a halt is overwritten, a reader still finds it."""
        is_known = bool(self._rows.read("place", task, source, halt.place))
        (self._rows.change if is_known else self._rows.put)(task, source, halt.place, about=halt.dumps())

    def overwrite(self, task: str, source: str, halt: Halt) -> None:
        """Overwrites the halt, if a run has not removed it meanwhile."""
        self._rows.change(task, source, halt.place, about=halt.dumps())

    def resolve(self, task: str, source: str, places: Collection[str] | None = None) -> None:
        """Removes the halts at these places, or all halts if `places` is None."""
        if places is None:
            self._rows.remove(task, source)
        for place in places or ():
            self._rows.remove(task, source, place)


class DdlCommandRecord:
    """The ddl commands of operators that wait to be carried out."""

    def __init__(self, run: Run) -> None:
        self._run, self._rows = run, Rows(run, "ddl_order", "task", "source", "lsn")

    def read(self, task: str, source: str) -> list[DdlCommand]:
        """Returns the ddl commands in the order of the log."""
        return sorted(self._commands(task, source), key=lambda command: command.lsn)

    def find(self, task: str, source: str, lsn: Lsn) -> DdlCommand | None:
        """Returns the ddl command for the schema change at this Lsn; None if no operator has given one."""
        return next(iter(self._commands(task, source, str(lsn))), None)

    def give(self, task: str, source: str, command: DdlCommand) -> None:
        """Records a ddl command. It replaces an earlier command for the same change."""
        place = (task, source, str(command.lsn))
        numbers = [int(number) for (number,) in self._rows.read("number", *place, tail=" FOR UPDATE")]
        kind, statements = command.kind.value, json.dumps(command.statements)
        self._rows.put(*place, kind=kind, statements=statements, number=max(numbers, default=0) + 1, taken=0)

    def take(self, task: str, source: str, command: DdlCommand) -> bool:
        """Marks a ddl command as taken, in the change's first transaction. Returns False if it is taken or replaced."""
        sql = (
            "UPDATE pidts_meta.ddl_order SET taken = 1 "
            "WHERE task = %s AND source = %s AND lsn = %s AND number = %s AND taken = 0"
        )
        return self._run(sql, (task, source, str(command.lsn), command.number))[1] == 1

    def _commands(self, *place: str) -> list[DdlCommand]:
        found = []
        for lsn, kind, statements, number, taken in self._rows.read("lsn, kind, statements, number, taken", *place):
            with reading_record("ddl_order", task=place[0], source=place[1], lsn=lsn):
                found.append(
                    DdlCommand(
                        lsn=Lsn.parse(lsn),
                        kind=CommandKind(kind),
                        statements=texts(statements),
                        number=int(number),
                        taken=bool(int(taken)),
                    )
                )
        return found


class ShadowRecord:
    """The online schema changes that are under way."""

    def __init__(self, run: Run) -> None:
        self._rows = Rows(run, "shadow", *_TABLE_KEY)

    def load(self, task: str, source: str) -> dict[TableName, Shadow]:
        """Returns all online changes of a source, keyed by the table's name on the source."""
        rows = self._rows.read("table_schema, table_name, about", task, source)
        found = {}
        for schema, name, about in rows:
            with reading_record("shadow", task=task, source=source, table_schema=schema, table_name=name):
                found[TableName(schema, name)] = Shadow.from_json(json.loads(about))
        return found

    def save(self, task: str, source: str, shadows: Mapping[TableName, Shadow | None]) -> None:
        """Inserts or overwrites the records of these tables; None removes a table's record."""
        for name, shadow in sorted(shadows.items(), key=lambda item: item[0]):
            place = (task, source, name.schema, name.name)
            if shadow is None:
                self._rows.remove(*place)
            else:
                self._rows.put(*place, about=json.dumps(shadow.to_json(), ensure_ascii=True))

    def replace(self, task: str, source: str, shadows: Mapping[TableName, Shadow]) -> None:
        """Saves these records and removes all other records, which an earlier task of this name has made."""
        self._rows.remove(task, source)
        self.save(task, source, shadows)


class RereadRecord:
    """The keys of the rows that a copy has to read again from the source."""

    def __init__(self, run: Run) -> None:
        self._run, self._rows = run, Rows(run, "reread", *_TABLE_KEY, "lsn")

    def add(self, task: str, source: str, name: TableName, lsn: Lsn, keys: str) -> None:
        """Inserts or overwrites the keys that belong to this Lsn."""
        self._rows.put(task, source, name.schema, name.name, str(lsn), row_keys=keys)

    def read(self, task: str, source: str, name: TableName, after: Lsn, most: int) -> list[tuple[Lsn, str]]:
        """Returns at most `most` records: the first records after this Lsn, in the order of the log.

        Raises if a record has a text that is no Lsn: this text may sort before every Lsn.
        """
        tail = f" AND (lsn > '{after}' OR lsn NOT LIKE '{_ANY_PLACE}') ORDER BY lsn LIMIT {most}"
        rows = self._rows.read("lsn, row_keys", task, source, name.schema, name.name, tail=tail)
        with reading_record("reread", task=task, source=source, table_schema=name.schema, table_name=name.name):
            return [(Lsn.parse(lsn), keys) for lsn, keys in rows]

    def forget(self, task: str, source: str, name: TableName, upto: Lsn) -> None:
        """Removes the records up to this Lsn."""
        where = "task = %s AND source = %s AND table_schema = %s AND table_name = %s AND lsn <= %s AND lsn LIKE %s"
        place = (task, source, name.schema, name.name, str(upto), _ANY_PLACE)
        self._run(f"DELETE FROM pidts_meta.reread WHERE {where}", place)

    def rename(self, task: str, source: str, names: Mapping[TableName, TableName]) -> None:
        """Renames tables in all records. Reads them before it writes the first, since two tables may swap names."""
        there = {new: self.read(task, source, old, Lsn(0, 0, 0), 1 << 30) for old, new in names.items()}
        for name in {*names, *names.values()}:
            self._rows.remove(task, source, name.schema, name.name)
        for name, records in there.items():
            for lsn, keys in records:
                self.add(task, source, name, lsn, keys)


class CutoverRecord:
    """The cutovers: one row for each task, and the structures of this server's tables when a cutover switched to it."""

    def __init__(self, run: Run) -> None:
        self._run, self._rows = run, Rows(run, "cutover", "task")
        self._structures = Rows(run, "switch_structure", "task", "table_schema", "table_name")

    def read(self, task: str) -> Cutover | None:
        """Returns a task's cutover; None if no cutover has begun, or if the meta tables are from an earlier version."""
        if not self._run(CUTOVER_EXISTS, ())[0]:
            return None
        rows = self._rows.read("about", task)
        return _cutover(task, rows[0][0]) if rows else None

    def replace(self, task: str, before: Cutover | None, after: Cutover | None) -> bool:
        """Saves `after` if the record is `before`; returns whether `after` is saved.

        UPDATE and DELETE name the text that this session has just read. If another session has committed another text
        since, the statement finds no row. INSERT fails if another session has inserted a record.
        """
        rows = self._rows.read("about", task)
        # Texts are compared, not objects: reading a record sorts its constraints by their kinds.
        now = _cutover(task, rows[0][0]).dumps() if rows else ""
        if now != (before.dumps() if before is not None else ""):
            return False
        if after is None:
            if rows and not self._run(f"DELETE FROM {_CUTOVER} WHERE task = %s AND about = %s", (task, rows[0][0]))[1]:
                return False
            if self._run(SWITCH_EXISTS, ())[0]:  # an earlier version has not created this table
                self._structures.remove(task)
            return True
        if not rows:
            self._run(f"INSERT INTO {_CUTOVER} (task, about) VALUES (%s, %s)", (task, after.dumps()))
            return True
        sql = f"UPDATE {_CUTOVER} SET about = %s WHERE task = %s AND about = %s"
        return bool(self._run(sql, (after.dumps(), task, rows[0][0]))[1])

    def save_structures(self, task: str, tables: Iterable[Table]) -> None:
        """Overwrites the structures at the switch."""
        self._structures.remove(task)
        for table in tables:
            text = json.dumps(table.to_json(), ensure_ascii=True)
            self._structures.put(task, table.name.schema, table.name.name, structure=text)

    def keep_undone(self, task: str, record: Cutover) -> None:
        """Keeps the record and the structures of a switch that is undone, under a name that no task can have."""
        kept = f"{task}{_UNDONE}"
        self._rows.put(kept, about=record.dumps())
        if self._run(SWITCH_EXISTS, ())[0]:
            self._structures.remove(kept)
            self._run("UPDATE pidts_meta.switch_structure SET task = %s WHERE task = %s", (kept, task))

    def undone(self, task: str) -> Cutover | None:
        """Returns the record that the undo of the task's last switch has kept."""
        return self.read(f"{task}{_UNDONE}")

    def structures_at(self, position: str) -> dict[TableName, Table]:
        """Returns the structures at the switch at this position of the server's own log; none if they are unknown."""
        if not (self._run(CUTOVER_EXISTS, ())[0] and self._run(SWITCH_EXISTS, ())[0]):
            return {}
        for task, about in self._run("SELECT task, about FROM pidts_meta.cutover", ())[0]:
            cutover = _cutover(task, about)
            if cutover.stage is CutoverStage.DONE and cutover.position == position:
                rows = self._structures.read("table_schema, table_name, structure", task)
                return _structures("switch_structure", rows, task=task)
        return {}


class RangeOwnerRecord:
    """The owners of ranges of rows that have moved to another zone: one row for each range."""

    def __init__(self, run: Run) -> None:
        self._run, self._rows = run, Rows(run, "range_owner", "range_key")

    def read(self) -> list[RangeOwner]:
        """Returns all ranges that have moved, with their owners."""
        rows, _ = self._run("SELECT range_key, about FROM pidts_meta.range_owner ORDER BY range_key", ())
        return [_range_owner(id_, about) for id_, about in rows]

    def recorded(self) -> list[RangeOwner]:
        """Returns the same as `read`, even on a target where no task has run."""
        exists = META_EXISTS.replace("'checkpoint'", "'range_owner'")
        return self.read() if self._run(exists, ())[0] else []

    def lock(self, id_: str) -> RangeOwner | None:
        """Locks the record of a range and returns it; None if there is no such record."""
        rows = self._rows.read("about", id_, tail=" FOR UPDATE")
        return _range_owner(id_, rows[0][0]) if rows else None

    def save(self, owner: RangeOwner) -> None:
        """Inserts or overwrites the record of a range."""
        self._rows.put(owner.id, about=owner.dumps())


def _structures(record: str, rows: Iterable[tuple[Any, ...]], **key: str) -> dict[TableName, Table]:
    """Returns the structures in these rows of (schema, name, text of the structure)."""
    found = {}
    for schema, name, text in rows:
        with reading_record(record, **key, table_schema=schema, table_name=name):
            found[TableName(schema, name)] = Table.from_json(json.loads(text))
    return found


def _key(record: str, task: str, text: str, **place: str) -> RecordKey:
    with reading_record(record, column="source", task=task, source=text, **place):
        return record_key(text)


def _cutover(task: str, about: str) -> Cutover:
    with reading_record("cutover", column="about", task=task):
        return Cutover.loads(about)


def _range_owner(id_: str, about: str) -> RangeOwner:
    with reading_record("range_owner", column="about", range_key=id_):
        return RangeOwner.loads(about)
