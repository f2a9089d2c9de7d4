"""One schema change of the source on the target, exactly once, together with all workers' checkpoints.

A schema change is a batch of its own: every worker has finished the rows before it, none has begun those after it.

**Where DDL is part of a transaction** one transaction locks all checkpoint rows (epoch and position are looked at
under the lock), runs the statements, saves structures and checkpoints, and commits. What holds at a crash is what
holds for rows, see `committer`.

**Elsewhere** (MySQL, MariaDB, TiDB) each DDL statement commits by itself, and no row lock can keep a late one out.
So:

1. Take the task's DDL lock. It lives and dies with the connection on which the statements run, and `claim` waits for
   it. While we hold it nobody can take the task over; when we lose it, we have lost the connection, and with it the
   means to run anything. A server that still executes the statement of a lost connection still holds its lock.
2. Lock the checkpoint rows, look at epoch and position, write the intent with the fingerprint of the tables before,
   commit. Crash before the commit: nothing happened. After: step 3 begins from the journal.
3. Run the statement. Crash before, during or after: the journal says "intent". Whoever continues holds the lock, so
   the statement is not running any more; a statement is atomic by itself, so the tables look as before (run it: it
   did not happen, or it is one that leaves no trace in the structure, such as TRUNCATE, and running it twice is
   running it once) or they look different (it happened; what is there must then fit the structure that the source
   has, else a person has to look).
4. More statements: the journal moves to the next step with new fingerprints, in one commit. Crash: step 3 of either
   statement.
5. Journal "done", structures and all checkpoints in one commit. Crash before: step 3 finds the change made and comes
   here again. After: the checkpoint says ALREADY.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pidts.apply.checkpoint import Outcome, settle
from pidts.apply.port import Target, TargetSession
from pidts.apply.retry import Retry
from pidts.model import Checkpoint, DdlJournal, DdlState, Halted, Lsn, Table, TableName, Transient, Where
from pidts.schema import CreateTable, CreateTableLike, Statement


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaChange:
    """A statement of the source's log and what it does; `before` and `after` go by the names on the target."""

    statement: Statement
    text: str
    """As the source ran it, for the journal and for messages."""
    before: Mapping[TableName, Table | None]
    after: Mapping[TableName, Table | None]
    structures: Mapping[TableName, Table | None] = field(default_factory=dict)
    """What the change leaves on the source, by the source's names, for the target's record."""
    executed_at: int = 0


class DdlRunner:
    """Runs schema changes for one run of a task; one thread."""

    def __init__(
        self,
        target: Target,
        task: str,
        source: str,
        epoch: int,
        *,
        retry: Retry | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._target = target
        self._task, self._source, self._epoch = task, source, epoch
        self._retry = retry or Retry()
        self._sleep = sleep
        self._begun = False

    def run(self, change: SchemaChange, expected: Lsn, checkpoints: Sequence[Checkpoint]) -> Outcome:
        """Bring all workers from `expected` to the end of the change; `checkpoints` has one for each worker.

        ALREADY is never said of what this very call did, whatever became of the connection.
        """
        self._begun = False
        news = [replace(new, task=self._task, source=self._source, epoch=self._epoch) for new in checkpoints]
        for attempt in range(1, self._retry.attempts + 1):
            session: TargetSession | None = None
            try:
                session = self._target.connect()
                if session.transactional_ddl:
                    outcome = self._in_one_transaction(session, change, expected, news)
                else:
                    with session.ddl_lock(self._task, self._source):
                        outcome = self._journaled(session, change, expected, news)
                return Outcome.APPLIED if self._begun else outcome
            except Transient:
                if attempt == self._retry.attempts:
                    raise
                self._sleep(self._retry.pause(attempt))
            finally:
                if session is not None:
                    session.close()
        raise AssertionError  # the loop returns or raises

    def _in_one_transaction(
        self, session: TargetSession, change: SchemaChange, expected: Lsn, news: Sequence[Checkpoint]
    ) -> Outcome:
        session.begin()
        if self._settle(session, expected, news) is Outcome.ALREADY:
            session.rollback()
            return Outcome.ALREADY
        self._begun = True
        for sql in self._render(session, change):
            session.execute(sql)
        self._finish(session, change, news)
        session.commit()
        return Outcome.APPLIED

    def _journaled(
        self, session: TargetSession, change: SchemaChange, expected: Lsn, news: Sequence[Checkpoint]
    ) -> Outcome:
        tables = sorted({*change.before, *change.after})
        session.begin()
        if self._settle(session, expected, news) is Outcome.ALREADY:
            session.rollback()
            return Outcome.ALREADY
        self._begun = True
        journal = session.read_journal(self._task, self._source, news[0].lsn)
        resumed = journal is not None
        if journal is None:
            journal = DdlJournal(
                task=self._task,
                source=self._source,
                lsn=news[0].lsn,
                statement=change.text,
                rendered=tuple(self._render(session, change)),
                step=0,
                before=_fingerprints(session, tables),
                epoch=self._epoch,
            )
            session.write_journal(journal)
        session.commit()
        guessed = False
        while journal.step < len(journal.rendered):
            if resumed and journal.before != _fingerprints(session, tables):
                guessed = True
            else:
                session.execute(journal.rendered[journal.step])
            resumed = False
            journal = replace(journal, step=journal.step + 1, before=_fingerprints(session, tables), epoch=self._epoch)
            if journal.step < len(journal.rendered):
                session.begin()
                session.write_journal(journal)
                session.commit()
        if guessed:
            _must_fit(session, change)
        session.begin()
        self._settle(session, expected, news)
        session.write_journal(replace(journal, state=DdlState.DONE, before={}))
        self._finish(session, change, news)
        session.commit()
        return Outcome.APPLIED

    def _settle(self, session: TargetSession, expected: Lsn, news: Sequence[Checkpoint]) -> Outcome:
        """Workers move over a schema change together, so they must agree."""
        outcomes = set()
        for new in sorted(news, key=lambda checkpoint: checkpoint.worker):
            stored = session.lock_checkpoint(self._task, self._source, new.worker)
            outcomes.add(settle(stored, expected, new, rows=0))
        if len(outcomes) != 1:
            raise Halted(
                "checkpoint-mismatch",
                "some workers are past a schema change and others are not",
                where=Where(source=self._source, position=str(expected)),
                todo="Restart the task: it goes on from the target's own checkpoints",
            )
        return outcomes.pop()

    def _render(self, session: TargetSession, change: SchemaChange) -> Sequence[str]:
        statement = change.statement
        if isinstance(statement, CreateTable | CreateTableLike) and not statement.or_replace:
            table = change.after.get(statement.table)
            if table is not None and table == change.before.get(statement.table):
                return ()  # IF NOT EXISTS, and it did
            problems = session.misfits(table) if table is not None else None
            if table is not None and problems is not None:
                if problems:
                    raise _shape(table.name, problems)
                return ()
        return session.ddl_statements(change.statement, change.before, change.after, change.executed_at).statements

    def _finish(self, session: TargetSession, change: SchemaChange, news: Sequence[Checkpoint]) -> None:
        session.save_structures(self._task, self._source, news[0].lsn, change.structures)
        for new in news:
            session.save_checkpoint(new)


def _fingerprints(session: TargetSession, tables: Sequence[TableName]) -> dict[str, str | None]:
    return {str(name): session.fingerprint(name) for name in tables}


def _must_fit(session: TargetSession, change: SchemaChange) -> None:
    for name, table in change.after.items():
        if table is None:
            if session.structure(name) is not None:
                raise _shape(name, ["it is still there"])
        elif problems := session.misfits(table):
            raise _shape(name, problems)
        elif problems is None:
            raise _shape(name, ["it is not there"])


def _shape(name: TableName, problems: Sequence[str]) -> Halted:
    return Halted(
        "target-shape",
        f"the target's table does not fit: {'; '.join(problems)}",
        where=Where(table=str(name)),
        todo="Change the target's table to what the source has, then restart the task",
    )
