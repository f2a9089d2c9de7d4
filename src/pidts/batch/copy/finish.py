"""Finishes copied tables, and empties tables whose copy begins again because of a schema change.

`finish` creates the keys that are better created after all rows are copied, and sets counters above the highest value.
`start_over` is for a schema change that touches keys: a copy begins again, and the copied rows are removed first. Some
copied rows may have been loaded ahead of the log, after the schema change on the source. Together with earlier rows,
such rows may violate the source's keys. Then these keys could not be created. So before such a schema change is run,
the table is emptied and gets all of its keys, including the keys that `finish` would create.

Crash points of `finish`: each statement may be run again, and the target is asked again which of them are needed. Where
DDL is part of a transaction, all statements are in one transaction. The last step before the COMMIT locks the
checkpoints' rows and checks the epoch. A run that another run has replaced ends with `Fenced` before it can commit. A
batch of the next run locks checkpoints first and then the table. So one of the two may get a deadlock error, and tries
again. Where DDL is not part of a transaction, each table has a lock for these statements, and a second run waits for it
until the first one ends. Some statements only do what the server would later do by itself (`RenderedChange.later`).
These statements are run at most once: if a run ends before them, the server does their work.

Crash points of `start_over`: the schema change comes next in the log, and no chunk is settled before it, because all
chunks are read after it. So a run that begins after a crash reaches the change first, and empties the table again.
`start_over` checks under the schema change's own lock whether the change is done. So a run that was replaced cannot
empty the table later.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import closing
from queue import Empty, SimpleQueue

import structlog

from pidts.apply import TargetSession
from pidts.apply.checkpoint import demand_epoch
from pidts.batch.context import JobContext
from pidts.batch.copy.rereads import forget_settled, has_recorded_keys
from pidts.model import DdlState, Lsn, RenderedChange, Table
from pidts.plan import ChunkRequest
from pidts.schema import TruncateTable

_log = structlog.get_logger(__name__)


def finish(context: JobContext, session: TargetSession, request: ChunkRequest) -> list[str] | None:
    """Finishes a table, however long this takes. Returns the statements that can run later (`RenderedChange.later`).

    Returns None if the copy has to read recorded keys first. If the target's DDL is not transactional, the statements
    run under the target's lock for DDL (`ddl_lock`). The lock is not taken if no statement has to run now.
    """
    table = context.rules.target_table(context.structures[request.table])
    is_read = True

    def statements() -> list[RenderedChange]:
        nonlocal is_read
        is_read = not has_recorded_keys(session, context.task, context.source.source_id, request)
        return [session.schema.finish_statements(table)] if is_read else []

    forget_settled(session, context.task, context.source.source_id, context.epoch, request)
    if not session.schema.transactional_ddl:
        _check_epoch_now(context, session)
        found = statements()
        if not any(rendered.statements for rendered in found):
            later = _execute(session, found)
            return later if is_read else None
    later = _run(context, session, f"finish {table.name}", statements)
    return later if is_read else None


class FinishThreads:
    """Finishes up to `copy_threads` tables at the same time.

    Creating a key may take hours. So a run that ends does not wait for the threads. Such a run calls `begin_no_more`,
    and the target's server completes the statements that it has begun.
    """

    def __init__(self, context: JobContext, requests: Iterable[ChunkRequest]) -> None:
        self._context = context
        self._waiting: SimpleQueue[ChunkRequest] = SimpleQueue()
        for request in requests:
            self._waiting.put(request)
        self._failures: list[BaseException] = []
        self._begins_no_more = False
        self.later: list[str] = []
        """The statements that no batch waits for (`RenderedChange.later`). All other statements run first."""
        self.unread: set[ChunkRequest] = set()
        """The requests whose tables could not be finished, because recorded keys have to be read first."""
        count = min(self._waiting.qsize(), context.copy_threads)
        self._threads = [threading.Thread(target=self._work, name="finish", daemon=True) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def wait(self, seconds: float) -> bool:
        """Waits for this time at most. Returns whether all tables are finished; raises the error of a failed table."""
        for thread in self._threads:
            thread.join(seconds / len(self._threads))
        if self._failures:
            raise self._failures[0]
        return not any(thread.is_alive() for thread in self._threads)

    def begin_no_more(self) -> None:
        """Keeps the threads from beginning further tables, whose statements would run during the next attempt."""
        self._begins_no_more = True

    def _work(self) -> None:
        try:
            with closing(self._context.target.connect()) as session:
                while not self._failures and not self._begins_no_more:
                    request = self._waiting.get_nowait()
                    later = finish(self._context, session, request)
                    if later is None:
                        self.unread.add(request)
                    else:
                        self.later += later
        except Empty:
            return
        except BaseException as error:  # noqa: BLE001 - passed on to the thread that runs the batches
            self._failures.append(error)


def start_over(context: JobContext, table: Table, lsn: Lsn) -> None:
    """Empties the table before the schema change at `lsn`, if that change is not done."""
    table = context.rules.target_table(table)

    def statements() -> Iterable[RenderedChange]:
        journal = session.meta.journal.read(context.task, context.source.source_id, lsn)
        if journal is not None and journal.state is DdlState.DONE:
            return
        same = {table.name: table}
        yield session.schema.ddl_statements(TruncateTable(table.name), same, same)
        yield session.schema.finish_statements(table)

    with closing(context.target.connect()) as session:
        _run(context, session, str(lsn), statements)


def _run(
    context: JobContext, session: TargetSession, lock: str, statements: Callable[[], Iterable[RenderedChange]]
) -> list[str]:
    """Runs all statements in one transaction, or under a lock for which other runs wait.

    Statements that can run later (`RenderedChange.later`) are not run but returned.
    """
    if session.schema.transactional_ddl:
        session.begin()
        later = _execute(session, statements())
        _check_epoch(context, session)
        session.commit()
        return later
    with session.meta.ddl_lock(context.task, f"{context.source.source_id} {lock}"):
        _check_epoch_now(context, session)
        return _execute(session, statements())


def _execute(session: TargetSession, all_rendered: Iterable[RenderedChange]) -> list[str]:
    later: list[str] = []
    for rendered in all_rendered:
        for note in rendered.notes:
            _log.info("note on a copied table", note=note)
        for statement in rendered.statements:
            session.execute(statement)
        later += rendered.later
    return later


def _check_epoch_now(context: JobContext, session: TargetSession) -> None:
    session.begin()
    _check_epoch(context, session)
    session.rollback()


def _check_epoch(context: JobContext, session: TargetSession) -> None:
    source = context.source.source_id
    stored = session.meta.checkpoints.lock_places(context.task, source)
    demand_epoch(stored, context.task, source, context.epoch)
