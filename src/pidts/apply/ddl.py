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

**An order of an operator** about the change is given beforehand or while it fails, and stands in a table of the target.
The commit that begins the journal with what was ordered marks the order as taken, if it still stands. Crash before:
nothing happened, and whoever comes next reads the order that stands then. After: the journal says how far it is. So a
journal that was begun otherwise is begun anew by an order that was not taken, and steps that it had made stay made.
What an order runs leaves no structure that could be foreseen: a step of it that was broken off and left a trace counts
as made, and one that left none is run again.

A run that was taken over in the middle of this keeps the lock until its statement has ended, and the new run waits for
it in step 1; the old one is refused in step 5, and the new one finds the change made. Rows never wait for any of this.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar

import structlog

from pidts.apply.checkpoint import Outcome, fenced
from pidts.apply.port import Target, TargetSession
from pidts.apply.retry import Retry
from pidts.model import (
    DdlJournal,
    DdlOrder,
    DdlState,
    Halted,
    Lsn,
    OrderKind,
    Shadow,
    Table,
    TableName,
    Transient,
    Where,
)
from pidts.schema import AddColumn, AlterTable, CreateTable, CreateTableLike, Statement

_log = structlog.get_logger(__name__)

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaChange:
    """A statement of the source's log and what it does; `before` and `after` go by the names on the target."""

    statement: Statement | None
    """None: nothing of it is to run, it is only put on record."""
    text: str
    """As the source ran it, for the journal and for messages."""
    before: Mapping[TableName, Table | None]
    after: Mapping[TableName, Table | None]
    structures: Mapping[TableName, Table | None] = field(default_factory=dict)
    """What the change leaves on the source, by the source's names, for the target's record."""
    shadows: Mapping[TableName, Shadow | None] = field(default_factory=dict)
    """What it leaves of online schema changes that are under way; None forgets."""
    executed_at: int = 0
    order: DdlOrder | None = None
    """What an operator wants to be run instead, or before it."""

    def own(self, rendered: Callable[[], Sequence[str]]) -> tuple[str, ...]:
        """What is run, but for what an order puts in front of it."""
        match self.order:
            case DdlOrder(kind=OrderKind.SKIP):
                return ()
            case DdlOrder(kind=OrderKind.REPLACE, statements=statements):
                return statements
            case _:
                return tuple(rendered())

    @property
    def first(self) -> tuple[str, ...]:
        """What an order puts in front of it."""
        return self.order.statements if self.order is not None and self.order.kind is OrderKind.INJECT else ()

    @property
    def is_foreseen(self) -> bool:
        """Whether `after` is what the target has in the end."""
        return self.order is None or self.order.kind is OrderKind.REVERT


class OrderChanged(Exception):
    """An order was given, or another one, since it was read: read it again."""


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

    def shadows(self) -> dict[TableName, Shadow]:
        """What is remembered of online schema changes that are under way."""
        return self._attempts(lambda session: session.shadows.load(self._task, self._source))

    def run(self, change: SchemaChange, lsn: Lsn) -> Outcome:
        """Make the change that stands at this Lsn; what it is refused for names a table of it.

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
        self._take(session, change)
        with _about(change):
            for sql in change.first:
                session.execute(sql)
            rendered = change.own(lambda: self._render(session, change))
            for sql in rendered:
                session.execute(sql)
            rendered = (*change.first, *rendered)
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
        anew = change.order is not None and not change.order.taken
        resumed = journal is not None and not anew
        if journal is None or anew:
            # Without the checkpoint's lock, for which batches would wait: this may look through a whole table.
            with _about(change):
                rendered = change.first or change.own(lambda: self._render(session, change))
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
            self._take(session, change)
            session.write_journal(journal)
            session.commit()
        guessed = False
        while True:
            while journal.step < len(journal.rendered):
                if resumed and journal.before != _fingerprints(session, tables):
                    guessed = True
                else:
                    with _about(change):
                        session.execute(journal.rendered[journal.step])
                resumed = False
                done, before = journal.step + 1, _fingerprints(session, tables)
                journal = replace(journal, step=done, before=before, epoch=self._epoch)
                if journal.step < len(journal.rendered):
                    self._note(session, journal)
            if not change.first or journal.rendered != change.first:
                break
            # What an order puts in front may decide how the change itself is said.
            with _about(change):
                own = change.own(lambda: self._render(session, change))
            if not own:
                break
            journal = replace(journal, rendered=(*journal.rendered, *own))
            self._note(session, journal)
        if guessed and change.is_foreseen:
            with _about(change):
                _must_fit(session, change)
        session.begin()
        self._finish(session, change, journal)
        return Outcome.APPLIED

    def _note(self, session: TargetSession, journal: DdlJournal) -> None:
        session.begin()
        session.write_journal(journal)
        session.commit()

    def _take(self, session: TargetSession, change: SchemaChange) -> None:
        """In the open transaction."""
        order = change.order
        if order is not None and not order.taken and not session.halts.take(self._task, self._source, order):
            raise OrderChanged

    def _finish(self, session: TargetSession, change: SchemaChange, journal: DdlJournal) -> None:
        """In the open transaction, which ends here."""
        self._check_epoch(session)
        session.save_structures(self._task, self._source, journal.lsn, change.structures)
        session.shadows.save(self._task, self._source, change.shadows)
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
        if statement is None:
            return ()
        if isinstance(statement, CreateTable | CreateTableLike) and not statement.or_replace:
            table = change.after.get(statement.table)
            if table is not None and table == change.before.get(statement.table):
                return ()  # IF NOT EXISTS, and it did
            problems = session.misfits(table) if table is not None else None
            if table is not None and problems is not None:
                if problems:
                    raise _shape(table.name, problems)
                return ()
        if isinstance(statement, AlterTable):
            _demand_new_columns(session, statement, change)
        rendered = session.ddl_statements(statement, change.before, change.after, change.executed_at)
        for note in rendered.notes:
            _log.warning("schema change differs on the target", source=self._source, statement=change.text, note=note)
        return rendered.statements


@contextmanager
def _about(change: SchemaChange) -> Iterator[None]:
    """What is refused in here is refused for the change's own tables; trouble with the journal is not."""
    try:
        yield
    except Halted as error:
        if not error.where.table:
            named = change.structures or {**change.before, **change.after}
            error.where = replace(error.where, table=", ".join(map(str, sorted(named))))
        raise


def _demand_new_columns(session: TargetSession, statement: AlterTable, change: SchemaChange) -> None:
    """A column that the target has already is taken as it is, unless rows then have something else in it."""
    before, there = change.before.get(statement.table), session.structure(statement.table)
    if before is None or there is None:
        return
    present = {column.name for column in there.columns} - {column.name for column in before.columns}
    added = [action.column for action in statement.actions if isinstance(action, AddColumn)]
    taken = [column for column in added if column.name in present]
    if not taken:
        return
    problems = session.misfits(replace(before, columns=(*before.columns, *taken))) or []
    filled = [column.name for column in taken if not column.nullable or column.default is not None]
    if filled and session.read_rows(before, limit=1).num_rows:
        problems.append(f"column {', '.join(filled)} is there already, and nobody knows what its rows have in it")
    if problems:
        raise _shape(statement.table, problems)
    names = ", ".join(column.name for column in taken)
    _log.warning("a column is there already, and stays as it is", table=str(statement.table), columns=names)


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
