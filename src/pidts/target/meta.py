"""The tables of `pidts_meta`, in the SQL that all servers share."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from pidts.model import Checkpoint, DdlJournal, DdlState, Fenced, Halted, Lsn, Table, TableName, Where

Run = Callable[[str, Sequence[Any]], tuple[list[tuple[Any, ...]], int]]
"""Executes a statement with `%s` places; gives the rows and the number of rows matched."""

SCHEMA = "pidts_meta"

_META_EXISTS = "SELECT 1 FROM information_schema.tables WHERE table_schema = 'pidts_meta' AND table_name = 'checkpoint'"
_COLUMNS = "task, source, worker, batch, lsn, gtid, log_position, epoch, copy_progress"


class MetaStore:
    """Statements only; who calls decides about transactions."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def checkpoints(self, task: str, source: str, *, lock: str = "") -> list[Checkpoint]:
        """All workers' rows; none where no task has ever run. `lock` is the clause that locks them."""
        if not lock and not self._run(_META_EXISTS, ())[0]:
            return []
        rows, _ = self._run(
            f"SELECT {_COLUMNS}, updated_at FROM pidts_meta.checkpoint "
            f"WHERE task = %s AND source = %s ORDER BY worker {lock}",
            (task, source),
        )
        return [_checkpoint(row) for row in rows]

    def lock_checkpoint(self, task: str, source: str, worker: int) -> Checkpoint:
        """The row, locked."""
        rows, _ = self._run(
            f"SELECT {_COLUMNS} FROM pidts_meta.checkpoint WHERE task = %s AND source = %s AND worker = %s FOR UPDATE",
            (task, source, worker),
        )
        if not rows:
            raise no_checkpoint(task, source, worker)
        return _checkpoint(rows[0])

    def save_checkpoint(self, new: Checkpoint) -> None:
        """The epoch in the condition costs nothing and keeps a caller honest who did not lock the row."""
        _, matched = self._run(
            "UPDATE pidts_meta.checkpoint SET batch = %s, lsn = %s, gtid = %s, log_position = %s, copy_progress = %s, "
            "updated_at = CURRENT_TIMESTAMP(6) WHERE task = %s AND source = %s AND worker = %s AND epoch = %s",
            (new.batch, str(new.lsn), new.gtid, new.position, new.copy, new.task, new.source, new.worker, new.epoch),
        )
        if matched != 1:
            raise Fenced(
                "fenced",
                f"worker {new.worker} of task {new.task} has no row of epoch {new.epoch}",
                where=Where(source=new.source),
            )

    def claim(self, task: str, source: str, workers: int, start: Checkpoint) -> list[Checkpoint]:
        """Inside a transaction of the caller, who also keeps a second claim out."""
        claimed, rewrite = claimed_rows(self.checkpoints(task, source, lock="FOR UPDATE"), task, source, workers, start)
        if claimed[0].epoch == 1:
            # What an earlier task of this name did is not what this one will do at the same place of the log.
            for table in ("ddl_journal", "ddl_order", "halt", "note", "moved"):
                self._run(f"DELETE FROM pidts_meta.{table} WHERE task = %s AND source = %s", (task, source))
        if rewrite:
            self._run("DELETE FROM pidts_meta.checkpoint WHERE task = %s AND source = %s", (task, source))
            for row in claimed:
                self._run(
                    f"INSERT INTO pidts_meta.checkpoint ({_COLUMNS}) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)",
                    (task, source, row.worker, row.batch, str(row.lsn), row.gtid, row.position, row.epoch, row.copy),
                )
        else:
            self._run(
                "UPDATE pidts_meta.checkpoint SET epoch = %s WHERE task = %s AND source = %s",
                (claimed[0].epoch, task, source),
            )
        return claimed

    def noted(self, task: str, source: str, name: TableName) -> str:
        """What was noted last."""
        rows, _ = self._run(
            "SELECT told FROM pidts_meta.note "
            "WHERE task = %s AND source = %s AND table_schema = %s AND table_name = %s",
            (task, source, name.schema, name.name),
        )
        return str(rows[0][0]) if rows else ""

    def note(self, task: str, source: str, name: TableName, text: str) -> None:
        """One row a table."""
        place = (task, source, name.schema, name.name)
        self._run(
            "DELETE FROM pidts_meta.note WHERE task = %s AND source = %s AND table_schema = %s AND table_name = %s",
            place,
        )
        self._run(
            "INSERT INTO pidts_meta.note (task, source, table_schema, table_name, told) VALUES (%s, %s, %s, %s, %s)",
            (*place, text),
        )

    def save_structures(self, task: str, source: str, lsn: Lsn, structures: Mapping[TableName, Table | None]) -> None:
        """One row a table, always the latest."""
        for name, table in sorted(structures.items()):
            place = (task, source, name.schema, name.name)
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

    def load_structures(self, task: str, source: str) -> dict[TableName, Table]:
        """What was saved last."""
        rows, _ = self._run(
            "SELECT table_schema, table_name, structure FROM pidts_meta.structure WHERE task = %s AND source = %s",
            (task, source),
        )
        return {TableName(schema, name): Table.from_json(json.loads(text)) for schema, name, text in rows}

    def known(self) -> list[tuple[str, str, TableName]]:
        """Of all tasks that have run."""
        if not self._run(_META_EXISTS, ())[0]:
            return []
        rows, _ = self._run("SELECT task, source, table_schema, table_name FROM pidts_meta.structure", ())
        return [(task, source, TableName(schema, name)) for task, source, schema, name in rows]

    def read_journal(self, task: str, source: str, lsn: Lsn) -> DdlJournal | None:
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
            saved_at=_seconds(saved),
        )

    def write_journal(self, journal: DdlJournal) -> None:
        """Insert or overwrite."""
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


def claimed_rows(
    stored: Sequence[Checkpoint], task: str, source: str, workers: int, start: Checkpoint
) -> tuple[list[Checkpoint], bool]:
    """The rows of the next epoch, and whether others must take the place of those stored.

    With another number of workers the rows fall to other workers than before. That is only right where all workers
    stand at the same place: else the rows of one of them would be written twice or not at all.
    """
    if not stored:
        fresh = replace(start, task=task, source=source, epoch=1)
        return [replace(fresh, worker=worker) for worker in range(workers)], True
    epoch = max(row.epoch for row in stored) + 1
    if [row.worker for row in stored] == list(range(workers)):
        return [replace(row, epoch=epoch) for row in stored], False
    places = {(row.lsn, row.copy) for row in stored}
    if len(places) > 1:
        raise Halted(
            "worker-count-changed",
            f"the target holds {len(stored)} workers of task {task} at {len(places)} places, now it is {workers}",
            where=Where(source=source),
            todo=f"Run the task with worker-count: {len(stored)} until its batch is done, then change it",
        )
    latest = max(stored, key=lambda row: row.batch)
    return [replace(latest, worker=worker, epoch=epoch) for worker in range(workers)], True


def no_checkpoint(task: str, source: str, worker: int) -> Fenced:
    """A worker without a row never claimed the task, or was claimed away with fewer workers."""
    return Fenced("fenced", f"task {task} has no worker {worker} on this target", where=Where(source=source))


def _checkpoint(row: tuple[Any, ...]) -> Checkpoint:
    task, source, worker, batch, lsn, gtid, position, epoch, copy, *saved = row
    return Checkpoint(
        task=task,
        source=source,
        worker=int(worker),
        batch=int(batch),
        lsn=Lsn.parse(lsn),
        gtid=gtid,
        position=position,
        epoch=int(epoch),
        copy=copy,
        saved_at=_seconds(saved[0]) if saved else 0.0,
    )


def _seconds(moment: datetime) -> float:
    """A session's clock is UTC, whether its driver says so or not."""
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
