"""One schema change of the source on the target, exactly once, beside the batches of rows.

The journal's row for the statement's Lsn is the truth: "done" means that the target has the change, and its record of
structures, too. No checkpoint is written here. A run that finds its position before the statement asks for it again,
is told ALREADY, and its next batch moves the position over it like over anything else.

What the caller guarantees: when a change begins, everything before it is in the target, on all workers, and nothing of
its tables that lies behind it goes there until it is done. So the state before it may be read, and it may be run again,
for as long as the journal does not say "done".

**Where DDL is part of a transaction** one transaction runs the statements, then locks a checkpoint row to look at the
epoch, writes structures and "done", and commits. The row is locked last, since batches of other tables go on meanwhile.
Crash before the COMMIT: nothing happened. After: the next attempt finds "done". A run that was taken over can still be
executing statements; it waits for our locks or we wait for its, and it ends with `Fenced` before it can commit.

**Elsewhere** (MySQL, MariaDB, TiDB) each DDL statement commits by itself, and no row lock can keep a late one out.
So:

1. Take the lock of this change. It lives and dies with the connection on which the statements run. While we hold it
   nobody else runs this change; when we lose it, we have lost the connection, and with it the means to run anything. A
   server that still executes the statement of a lost connection still holds its lock, so we wait for that.
2. Lock a checkpoint row, look at the epoch, write the intent with the fingerprint of the tables before, commit. Crash
   before the commit: nothing happened. After: step 3 begins from the journal.
3. Run the statement. Crash before, during or after: the journal says "intent". Whoever continues holds the lock, so
   the statement is not running any more; a statement is atomic by itself, so the tables look as before (run it: it
   did not happen, or it is one that leaves no trace in the structure, such as TRUNCATE, and running it twice is
   running it once) or they look different (it happened; what is there must then fit the structure that the source
   has, else a person has to look).
4. More statements: the journal moves to the next step with new fingerprints, in one commit. Crash: step 3 of either
   statement.
5. Look at the epoch, write "done" and the structures, in one commit. Crash before: step 3 finds the change made and
   comes here again. After: the journal says so.

A run that was taken over in the middle of this keeps the lock until its statement has ended, and the new run waits for
it in step 1; the old one is refused in step 5, and the new one finds the change made. Rows never wait for any of this.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import structlog

from pidts.apply.checkpoint import Outcome, fenced
from pidts.apply.port import Target, TargetSession
from pidts.apply.retry import Retry
from pidts.model import DdlJournal, DdlState, Halted, Lsn, Table, TableName, Transient, Where
from pidts.schema import CreateTable, CreateTableLike, Statement

_log = structlog.get_logger(__name__)

_Answer = TypeVar("_Answer")


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

    def is_done(self, lsn: Lsn) -> bool:
        """Whether the target has the change that stands at this Lsn."""
        return self._attempts(lambda session: self._journal_says_done(session, lsn))

    def run(self, change: SchemaChange, lsn: Lsn) -> Outcome:
        """Make the change that stands at this Lsn.

        ALREADY is never said of what this very call did, whatever became of the connection.
        """
        self._begun = False
        outcome = self._attempts(lambda session: self._run(session, change, lsn))
        return Outcome.APPLIED if self._begun else outcome

    def _attempts(self, work: Callable[[TargetSession], _Answer]) -> _Answer:
        for attempt in range(1, self._retry.attempts + 1):
            session: TargetSession | None = None
            try:
                session = self._target.connect()
                return work(session)
            except Transient as error:
                if attempt == self._retry.attempts:
                    raise
                _log.warning("schema change is tried again", source=self._source, error=str(error))
                self._sleep(self._retry.pause(attempt))
            finally:
                if session is not None:
                    session.close()
        raise AssertionError  # the loop returns or raises

    def _run(self, session: TargetSession, change: SchemaChange, lsn: Lsn) -> Outcome:
        if session.transactional_ddl:
            return self._in_one_transaction(session, change, lsn)
        with session.ddl_lock(self._task, f"{self._source} {lsn}"):
            return self._journaled(session, change, lsn)

    def _in_one_transaction(self, session: TargetSession, change: SchemaChange, lsn: Lsn) -> Outcome:
        session.begin()
        self._check_epoch(session)
        done = self._journal_says_done(session, lsn)
        session.rollback()
        if done:
            return Outcome.ALREADY
        session.begin()
        self._begun = True
        rendered = tuple(self._render(session, change))
        for sql in rendered:
            session.execute(sql)
        journal = DdlJournal(
            task=self._task,
            source=self._source,
            lsn=lsn,
            statement=change.text,
            rendered=rendered,
            step=len(rendered),
            epoch=self._epoch,
        )
        self._finish(session, change, journal)
        return Outcome.APPLIED

    def _journaled(self, session: TargetSession, change: SchemaChange, lsn: Lsn) -> Outcome:
        tables = sorted({*change.before, *change.after})
        session.begin()
        self._check_epoch(session)
        journal = session.read_journal(self._task, self._source, lsn)
        session.rollback()
        if journal is not None and journal.state is DdlState.DONE:
            return Outcome.ALREADY
        self._begun = True
        resumed = journal is not None
        if journal is None:
            # Without the checkpoint's lock, for which batches would wait: this may look through a whole table.
            rendered = tuple(self._render(session, change))
            journal = DdlJournal(
                task=self._task,
                source=self._source,
                lsn=lsn,
                statement=change.text,
                rendered=rendered,
                step=0,
                before=_fingerprints(session, tables),
                epoch=self._epoch,
            )
            session.begin()
            self._check_epoch(session)
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
        self._finish(session, change, journal)
        return Outcome.APPLIED

    def _finish(self, session: TargetSession, change: SchemaChange, journal: DdlJournal) -> None:
        """In the open transaction, which ends here."""
        self._check_epoch(session)
        session.save_structures(self._task, self._source, journal.lsn, change.structures)
        session.write_journal(replace(journal, state=DdlState.DONE, before={}))
        session.commit()

    def _check_epoch(self, session: TargetSession) -> None:
        """All workers' rows have the same epoch; the first one's lock keeps a take-over waiting until we commit."""
        stored = session.lock_checkpoint(self._task, self._source, 0)
        if stored.epoch != self._epoch:
            raise fenced(stored, self._epoch)

    def _journal_says_done(self, session: TargetSession, lsn: Lsn) -> bool:
        journal = session.read_journal(self._task, self._source, lsn)
        return journal is not None and journal.state is DdlState.DONE

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
        rendered = session.ddl_statements(change.statement, change.before, change.after, change.executed_at)
        for note in rendered.notes:
            _log.warning("schema change differs on the target", source=self._source, statement=change.text, note=note)
        return rendered.statements


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
