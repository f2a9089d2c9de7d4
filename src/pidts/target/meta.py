"""The records of `pidts_meta` that all servers keep with the same SQL.

A record only executes statements of one session; its caller decides about transactions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pidts.model import DdlJournal, DdlState, Lsn, RecordKey, Table, TableName, record_key, record_text
from pidts.target.halts import HaltRecord, OrderRecord
from pidts.target.meta_schema import META_EXISTS, Run, seconds
from pidts.target.shadows import ShadowRecord


class SharedRecords:
    """A server's `meta` adds its checkpoints, tombstones, moves and locks to these."""

    def __init__(self, run: Run) -> None:
        self.structures = StructureRecord(run)
        self.journal = JournalRecord(run)
        self.notes = NoteRecord(run)
        self.safe_range = SafeRangeRecord(run)
        self.halts = HaltRecord(run)
        self.orders = OrderRecord(run)
        self.shadows = ShadowRecord(run)


class StructureRecord:
    """The structures of the sources' tables."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def save(self, task: str, key: RecordKey, lsn: Lsn, structures: Mapping[TableName, Table | None]) -> None:
        """Saves one row a table, always the latest."""
        for name, table in sorted(structures.items()):
            place = (task, record_text(key), name.schema, name.name)
            self._run(
                "DELETE FROM pidts_meta.structure "
                "WHERE task = %s AND source = %s AND table_schema = %s AND table_name = %s",
                place,
            )
            if table is not None:
                self._run(
                    "INSERT INTO pidts_meta.structure (task, source, table_schema, table_name, lsn, structure) "
                    "VALUES (%s, %s, %s, %s, %s, %s)",
                    (*place, str(lsn), json.dumps(table.to_json(), ensure_ascii=True)),
                )

    def load(self, task: str, key: RecordKey) -> dict[TableName, Table]:
        """Returns the structures that were saved last."""
        rows, _ = self._run(
            "SELECT table_schema, table_name, structure FROM pidts_meta.structure WHERE task = %s AND source = %s",
            (task, record_text(key)),
        )
        return {TableName(schema, name): Table.from_json(json.loads(text)) for schema, name, text in rows}

    def tables(self) -> list[tuple[str, RecordKey, TableName]]:
        """Returns the task, key and table of each saved structure, for all tasks that have run."""
        if not self._run(META_EXISTS, ())[0]:
            return []
        rows, _ = self._run("SELECT task, source, table_schema, table_name FROM pidts_meta.structure", ())
        return [(task, record_key(text), TableName(schema, name)) for task, text, schema, name in rows]


class JournalRecord:
    """The schema changes that were begun."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def read(self, task: str, source: str, lsn: Lsn) -> DdlJournal | None:
        """The schema change at `lsn`."""
        rows, _ = self._run(
            "SELECT statement, rendered, step, before_change, state, epoch, updated_at FROM pidts_meta.ddl_journal "
            "WHERE task = %s AND source = %s AND lsn = %s",
            (task, source, str(lsn)),
        )
        if not rows:
            return None
        statement, rendered, step, before, state, epoch, saved = rows[0]
        return DdlJournal(
            task=task,
            source=source,
            lsn=lsn,
            statement=statement,
            rendered=tuple(json.loads(rendered)),
            step=int(step),
            before=json.loads(before),
            state=DdlState(state),
            epoch=int(epoch),
            saved_at=seconds(saved),
        )

    def write(self, journal: DdlJournal) -> None:
        """Inserts or overwrites the journal."""
        place = (journal.task, journal.source, str(journal.lsn))
        self._run("DELETE FROM pidts_meta.ddl_journal WHERE task = %s AND source = %s AND lsn = %s", place)
        self._run(
            "INSERT INTO pidts_meta.ddl_journal "
            "(task, source, lsn, statement, rendered, step, before_change, state, epoch) "
            "VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)",
            (
                *place,
                journal.statement,
                json.dumps(journal.rendered),
                journal.step,
                json.dumps(dict(journal.before)),
                journal.state.value,
                journal.epoch,
            ),
        )


class NoteRecord:
    """One text for each table."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def read(self, task: str, key: RecordKey, name: TableName) -> str:
        """Returns the note that was written last."""
        rows, _ = self._run(
            "SELECT told FROM pidts_meta.note "
            "WHERE task = %s AND source = %s AND table_schema = %s AND table_name = %s",
            (task, record_text(key), name.schema, name.name),
        )
        return str(rows[0][0]) if rows else ""

    def write(self, task: str, key: RecordKey, name: TableName, text: str) -> None:
        """One row a table."""
        place = (task, record_text(key), name.schema, name.name)
        self._run(
            "DELETE FROM pidts_meta.note WHERE task = %s AND source = %s AND table_schema = %s AND table_name = %s",
            place,
        )
        self._run(
            "INSERT INTO pidts_meta.note (task, source, table_schema, table_name, told) VALUES (%s, %s, %s, %s, %s)",
            (*place, text),
        )


class SafeRangeRecord:
    """The changes that are written in safe mode."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def read(self, task: str, source: str) -> Lsn | None:
        """Returns the end of the safe range; None where the task began with a copy, or at the source's own position."""
        rows, _ = self._run("SELECT lsn FROM pidts_meta.safe_range WHERE task = %s AND source = %s", (task, source))
        return Lsn.parse(rows[0][0]) if rows else None

    def save(self, task: str, source: str, lsn: Lsn | None) -> None:
        """One row a task."""
        self._run("DELETE FROM pidts_meta.safe_range WHERE task = %s AND source = %s", (task, source))
        if lsn is not None:
            self._run(
                "INSERT INTO pidts_meta.safe_range (task, source, lsn) VALUES (%s, %s, %s)", (task, source, str(lsn))
            )
