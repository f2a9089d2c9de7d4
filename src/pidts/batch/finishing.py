"""What a copied table needs last, and what one whose copy begins anew needs before a schema change.

`finish`: keys that are better made when all rows are there, counters behind the highest value. `start_over`: a schema
change that touches keys makes a copy begin anew. Then the rows that were copied go first. Some of them may have been
read behind the change: they were loaded ahead, and what settles them comes behind it. Next to rows of before it they
need not have the keys that the source had at any time, and making those would fail. So the table is empty and has all
its keys, also those that were to come last, when the change speaks of them.

Crash points of `finish`: each statement may be run again, and the target is asked anew which of them are needed. Where
DDL is part of a transaction they are one, which locks a checkpoint's row last to look at the epoch: a run that was
taken over ends with `Fenced` before it can commit. A batch of the next run locks checkpoints first and the table behind
them: one of the two may be told of a deadlock then, and tries again. Elsewhere the lock of the table keeps a second run
waiting for the end of the first. What is for later is asked for once: a run that ends before leaves it to the server.

Crash points of `start_over`: the schema change comes next in the log, and no chunk is settled before it, because all
are read behind it. So a run that begins after a crash meets it first, and starts over again. It has the schema
change's own lock, under which it looks whether that is done: a run that was taken over cannot empty the table later.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import closing
from queue import Empty, SimpleQueue

import structlog

from pidts.apply import TargetSession
from pidts.apply.checkpoint import fenced
from pidts.batch.context import JobContext
from pidts.model import DdlState, Lsn, Rendered, Table
from pidts.schema import TruncateTable

_log = structlog.get_logger(__name__)


def finish(context: JobContext, table: Table) -> list[str]:
    """Returns when the target has it all, for as long as that may take, with what may be done later."""
    table = context.rules.landed(table)
    return _run(context, f"finish {table.name}", lambda session: [session.finish_statements(table)])


class Finishing:
    """The ends of several tables, as many side by side as may be read.

    In threads that nobody waits for who need not: making a key may take hours, and a run that is to end leaves it to
    itself.
    """

    def __init__(self, context: JobContext, tables: Iterable[Table]) -> None:
        self._context = context
        self._waiting: SimpleQueue[Table] = SimpleQueue()
        for table in tables:
            self._waiting.put(table)
        self._failures: list[BaseException] = []
        self.later: list[str] = []
        """What may be done behind all of it."""
        count = min(self._waiting.qsize(), context.copy_threads)
        self._threads = [threading.Thread(target=self._work, name="finish", daemon=True) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def wait(self, seconds: float) -> bool:
        """Whether all are done; raises what one of them failed by."""
        for thread in self._threads:
            thread.join(seconds / len(self._threads))
        if self._failures:
            raise self._failures[0]
        return not any(thread.is_alive() for thread in self._threads)

    def _work(self) -> None:
        while not self._failures:
            try:
                self.later += finish(self._context, self._waiting.get_nowait())
            except Empty:
                return
            except BaseException as error:  # noqa: BLE001 - told to the thread that runs the batches
                self._failures.append(error)


def start_over(context: JobContext, table: Table, lsn: Lsn) -> None:
    """Before the schema change at `lsn`, if that is not done."""
    table = context.rules.landed(table)

    def statements(session: TargetSession) -> Iterable[Rendered]:
        journal = session.read_journal(context.task, context.source.source_id, lsn)
        if journal is not None and journal.state is DdlState.DONE:
            return
        same = {table.name: table}
        yield session.ddl_statements(TruncateTable(table.name), same, same)
        yield session.finish_statements(table)

    _run(context, str(lsn), statements)


def _run(context: JobContext, lock: str, statements: Callable[[TargetSession], Iterable[Rendered]]) -> list[str]:
    """All in one transaction, or under a lock that others have to wait for; gives what is for later."""
    with closing(context.target.connect()) as session:
        if session.transactional_ddl:
            session.begin()
            later = _execute(session, statements(session))
            _check_epoch(context, session)
            session.commit()
            return later
        with session.ddl_lock(context.task, f"{context.source.source_id} {lock}"):
            session.begin()
            _check_epoch(context, session)
            session.rollback()
            return _execute(session, statements(session))


def _execute(session: TargetSession, all_rendered: Iterable[Rendered]) -> list[str]:
    later: list[str] = []
    for rendered in all_rendered:
        for note in rendered.notes:
            _log.info("note on a copied table", note=note)
        for statement in rendered.statements:
            session.execute(statement)
        later += rendered.later
    return later


def _check_epoch(context: JobContext, session: TargetSession) -> None:
    stored = session.lock_checkpoint(context.task, context.source.source_id, 0)
    if stored.epoch != context.epoch:
        raise fenced(stored, context.epoch)
