"""Runs one schema change of the source on the target, exactly once, while batches of rows go on.

The journal's row for the statement's Lsn decides: "done" means that the target has the change, and that its record of
structures has it, too. No checkpoint is written here. If a run starts at a position before the statement, it asks for
the change again and gets ALREADY. The run's next batch moves the position past the statement.

The caller guarantees two things:

- When a schema change begins, the target has everything before it, from all workers.
- Rows that its tables get after the schema change are not written until the schema change is done.

So, until the journal says "done", the tables can be compared with their state before the change, and the change can run
again.

**Where DDL is part of a transaction**, one transaction runs the statements, locks a checkpoint row to check the epoch,
writes structures and "done", and commits. The row is locked last, so that batches of other tables can commit until
then. Crash before the COMMIT: nothing happened. After: the next attempt finds "done". A run that was replaced may still
execute statements. The old run waits for the locks of the new run, or the new run waits for the locks of the old run.
The old run ends with `Fenced` before it can commit.

**Where each DDL statement commits by itself** (MySQL, MariaDB, TiDB), no row lock stops a late statement of a run that
was replaced. So:

1. Take the lock of this change. The lock ends with the connection on which the statements run. While a run holds it, no
   other run makes this change. A run that loses the lock has lost the connection, and cannot run anything. A server may
   still execute the statement of a lost connection. This connection keeps the lock, and the next run waits.
2. Lock a checkpoint row, check the epoch, write "intent" with the fingerprint of the tables before, commit. Crash
   before the commit: nothing happened. After: the journal says that the next attempt continues with step 3.
3. Run the statement. Crash before, during or after: the journal says "intent". The attempt that continues holds the
   lock, so the statement is not running any more. A statement is atomic by itself, so there are two cases:

   - The tables look as before. Either the statement was not executed, or it changes no structure, like TRUNCATE, and
     may be executed twice. So run it.
   - The tables look different. Then the statement was executed, and the tables must fit the structure on the source. If
     they do not, the change halts for an operator.
4. If there are more statements, the journal moves to the next one with new fingerprints, in one commit. Crash before
   this commit: the next attempt continues with step 3 of the earlier statement. After: with step 3 of the next one.
5. Check the epoch, write "done" and the structures, in one commit. Crash before: step 3 finds that the change was made,
   and step 5 is repeated. After: the journal says "done".

**A ddl command** about the change is given before the change runs, or after it has failed, and is stored on the target.
One commit begins the journal with the command's statements, and marks the command as taken if no newer command has
replaced it. Crash before this commit: nothing happened, and the next attempt reads the command again, or a newer one.
After: the journal says which step is next. If a journal was begun without the command, the command begins a new journal
in its place. Steps that the old journal has completed are not undone. PiDTS cannot compute the structure after the
command's statements. So an interrupted statement counts as made if the tables have changed; otherwise it is run again.

**For several members of a group** (`SchemaChange.others`), only the statement of one member, the leader, is run. Its
last commit says "done" for all members. That commit first locks a checkpoint row of each member's source, in the order
of the sources, and checks the epochs. Then it writes the journals and structures of all members. Where DDL is not part
of a transaction, the lock of step 1 has the table's name. The commit that begins the journal notes which member's
journal it is.

- Crash before the last commit: all members reach the change again. Then another member may be the leader, or only some
  members may have arrived. The note names the journal that was begun (see `group_journal`). If the member of that
  journal has arrived, the journal is continued; if not, the other members wait.
- Crash after it: each member finds its own "done".
- Another run has taken over one of these sources: the commit records "done" for no member. The members of that source
  arrive again in the new run.

A run may be replaced in the middle of a change. The old run keeps the lock until its statement has ended, and the new
run waits for the lock in step 1. The old run fails in step 5, and the new one finds that the change was made. Batches
of rows never wait for a schema change here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import TypeVar

import structlog

from pidts.apply.checkpoint import Outcome, fenced
from pidts.apply.ddl.change import AttemptSuperseded, ChangeEnd, OpenJournal, SchemaChange
from pidts.apply.ddl.group_journal import begun_by, is_emptied, lead, note_refused
from pidts.apply.ddl.verify_shape import (
    demand_new_columns,
    drops_that_are_left,
    fingerprints,
    misfit,
    must_compute_alike,
    must_fit,
)
from pidts.apply.ddl.wrong_in_log import demand_right_values, demand_right_values_after
from pidts.apply.ddl.zone_ddl import is_made_by_zone, warn_if_not_shown
from pidts.apply.port import Target, TargetSession
from pidts.apply.retry import Retry
from pidts.apply.shared_session import SharedSession
from pidts.model import CommandKind, DdlJournal, DdlState, Halted, Lsn, Shadow, SourceTablesKey, TableName, Transient
from pidts.model.advice import REPLACE, RETRY, SKIP
from pidts.schema import AlterTable, CreateTable, CreateTableLike

_log = structlog.get_logger(__name__)

_Answer = TypeVar("_Answer")


class DdlRunner:
    """Runs schema changes for one run of a task; it belongs to one thread."""

    def __init__(
        self,
        target: Target,
        task: str,
        source: str,
        epoch: int,
        *,
        retry: Retry | None = None,
        sleep: Callable[[float], None] = time.sleep,
        is_superseded: Callable[[], bool] = lambda: False,
        records: SharedSession | None = None,
    ) -> None:
        """`is_superseded` says, between two attempts at a change, whether a new ddl command was given for it.

        `records`, if it is given, is the session on which records are read. Each change has its own session.
        """
        self._target = target
        self._task, self._source, self._epoch = task, source, epoch
        self._retry = retry or Retry()
        self._sleep, self._is_superseded, self._records = sleep, is_superseded, records
        self._begun = False

    def is_done(self, lsn: Lsn) -> bool:
        """Whether the target has the change at this Lsn."""
        return self._attempts(lambda session: self._journal_says_done(session, lsn), records=self._records)

    def shadows(self) -> dict[TableName, Shadow]:
        """Returns the online schema changes that are under way."""
        return self._attempts(
            lambda session: session.meta.shadows.load(self._task, self._source), records=self._records
        )

    def run(self, change: SchemaChange, lsn: Lsn) -> ChangeEnd:
        """Makes the change at this Lsn; returns how the attempt has ended.

        The call does not make the change in three cases:

        - The target already has the change: ALREADY. If this call itself made the change, the call never returns
          ALREADY, even if the connection was lost.
        - A newer ddl command was given, or the part of another source has begun a new attempt: `AttemptSuperseded`.
        - Another member has begun a change of the merged table and not ended it: `OpenJournal`.

        When the target refuses the change, the raised error names a table of the change.
        """
        self._begun = False
        ended = self._attempts(
            lambda session: self._run(session, change, lsn),
            lambda: AttemptSuperseded() if self._is_superseded() else None,
        )
        return Outcome.APPLIED if self._begun and ended is Outcome.ALREADY else ended

    def _attempts(
        self,
        work: Callable[[TargetSession], _Answer],
        instead: Callable[[], _Answer | None] = lambda: None,
        records: SharedSession | None = None,
    ) -> _Answer:
        """Repeats the work until it succeeds, or until `instead` returns an answer between two attempts."""
        for attempt in range(1, self._retry.attempts + 1):
            try:
                if records is not None:
                    return records.ask(self._target, work)
                with closing(self._target.connect()) as session:
                    return work(session)
            except Transient as error:
                if attempt == self._retry.attempts:
                    raise
                _log.warning("schema change is tried again", source=self._source, error=str(error))
                self._sleep(self._retry.pause(attempt))
                if (answer := instead()) is not None:
                    return answer
        raise AssertionError  # never reached: the loop returns or raises

    def _run(self, session: TargetSession, change: SchemaChange, lsn: Lsn) -> ChangeEnd:
        if session.schema.transactional_ddl:
            ended = self._in_one_transaction(session, change, lsn)
        else:
            place = f"* {change.shared}" if change.shared else f"{self._source} {lsn}"
            with session.meta.ddl_lock(self._task, place):
                ended = self._journaled(session, change, lsn)
        if ended is Outcome.ALREADY and change.others:
            # An earlier attempt may have committed, although its answer was lost. That commit does not say "done" for
            # members that have arrived since.
            session.begin()
            if left := self._lock_epochs(session, change):
                return left
            self._record_others(session, change)
            session.commit()
        return ended

    def _in_one_transaction(self, session: TargetSession, change: SchemaChange, lsn: Lsn) -> ChangeEnd:
        session.begin()
        if left := self._lock_epochs(session, change):
            return left
        done = self._journal_says_done(session, lsn)
        session.rollback()
        if done:
            return Outcome.ALREADY
        session.begin()
        self._begun = True
        if replaced := self._take(session, change):
            return replaced
        with _about(change):
            for sql in change.first:
                _execute(session, change, sql)
            rendered = change.own(lambda: self._render(session, change))
            with _refused_with(rendered):
                for sql in rendered:
                    _execute(session, change, sql)
            rendered = (*change.first, *rendered)
            must_compute_alike(session, change)
        journal = DdlJournal(
            task=self._task,
            source=self._source,
            lsn=lsn,
            statement=change.text,
            rendered=rendered,
            step=len(rendered),
            epoch=self._epoch,
        )
        return self._finish(session, change, journal, lsn)

    def _journaled(self, session: TargetSession, change: SchemaChange, lsn: Lsn) -> ChangeEnd:
        tables = sorted({*change.before, *change.after})
        known = self._known_journal(session, change, lsn)
        if not (known is None or isinstance(known, DdlJournal)):
            return known
        self._begun = True
        command = change.command
        anew = command is not None and not command.taken and command.kind is not CommandKind.UNLOCK
        resumed = known is not None and not anew
        if known is None or anew:
            journal = self._begin_journal(session, change, lsn)
        else:
            journal = self._resume_journal(session, change, known)
        if not isinstance(journal, DdlJournal):
            return journal
        guessed = False
        while True:
            while journal.step < len(journal.rendered):
                if resumed and journal.before != fingerprints(session, tables):
                    guessed = True
                else:
                    left = journal.rendered[journal.step :]
                    with self._refusable(session, change, journal), _about(change), _refused_with(left):
                        _execute_unless_made(session, change, journal.rendered[journal.step])
                resumed = False
                done, before = journal.step + 1, fingerprints(session, tables)
                journal = replace(journal, step=done, before=before, epoch=self._epoch)
                if journal.step < len(journal.rendered):
                    self._note(session, journal)
            own: Sequence[str] = ()
            with _about(change):
                if change.first and journal.rendered == change.first:
                    # The statements of the ddl command have run first. After that, the target may need other
                    # statements for the change itself.
                    own = change.own(lambda: self._render(session, change))
                elif guessed and change.is_foreseen:
                    own = drops_that_are_left(session, change)
            if not own:
                break
            journal = replace(journal, rendered=(*journal.rendered, *own))
            self._note(session, journal)
        if guessed and change.is_foreseen:
            with _about(change):
                must_fit(session, change)
        session.begin()
        return self._finish(session, change, journal, lsn)

    def _known_journal(self, session: TargetSession, change: SchemaChange, lsn: Lsn) -> DdlJournal | ChangeEnd | None:
        """Returns the journal's entry for the change if it was begun and not completed.

        If this attempt has to end here, returns how it ends. Returns None if the change is to begin: the journal has no
        entry for it, or another member's change has emptied the entry.
        """
        session.begin()
        if left := self._lock_epochs(session, change):
            return left
        journal = session.meta.journal.read(self._task, self._source, lsn)
        if journal is None or journal.state is not DdlState.DONE:
            begun = begun_by(session, self._task, change, (self._source, lsn))
            if isinstance(begun, OpenJournal):
                return begun
            journal = begun or journal
        session.rollback()
        if journal is not None and journal.state is DdlState.DONE:
            return Outcome.ALREADY
        return None if journal is None or is_emptied(journal) else journal

    def _resume_journal(
        self, session: TargetSession, change: SchemaChange, journal: DdlJournal
    ) -> DdlJournal | AttemptSuperseded:
        session.begin()
        if replaced := self._take(session, change):
            return replaced
        lead(session, change, journal)
        session.commit()
        return journal

    def _begin_journal(self, session: TargetSession, change: SchemaChange, lsn: Lsn) -> DdlJournal | ChangeEnd:
        # This block may read a whole table. So the checkpoint, for whose lock batches wait, is locked only afterwards.
        with _about(change):
            rendered = change.first or change.own(lambda: self._render(session, change))
        journal = DdlJournal(
            task=self._task,
            source=self._source,
            lsn=lsn,
            statement=change.text,
            rendered=rendered,
            step=0,
            before=fingerprints(session, sorted({*change.before, *change.after})),
            epoch=self._epoch,
        )
        session.begin()
        if superseded := self._lock_epochs(session, change) or self._take(session, change):
            return superseded
        if not rendered:
            # If a ddl command runs nothing, the commit that marks it as taken also completes it.
            return self._finish(session, change, journal, lsn)
        session.meta.journal.write(journal)
        lead(session, change, journal)
        session.commit()
        return journal

    def _note(self, session: TargetSession, journal: DdlJournal) -> None:
        session.begin()
        session.meta.journal.write(journal)
        session.commit()

    @contextmanager
    def _refusable(self, session: TargetSession, change: SchemaChange, journal: DdlJournal) -> Iterator[None]:
        """Runs a step of the change in its block; notes if the target refuses the first step and nothing has changed.

        Nothing has changed if the tables look as before. After this note, other members need not wait for this member.
        """
        try:
            yield
        except Halted:
            if change.shared is not None and journal.step == 0:
                tables = sorted({*change.before, *change.after})
                if journal.before == fingerprints(session, tables):
                    session.begin()
                    if self._lock_epochs(session, change) is None:
                        note_refused(session, change.shared, journal)
                        session.commit()
            raise

    def _take(self, session: TargetSession, change: SchemaChange) -> AttemptSuperseded | None:
        """Marks the ddl commands as taken. Returns `AttemptSuperseded` if another command has replaced one of them."""
        commands = [(self._source, change.command), *((one.source, one.command) for one in change.others)]
        for source, command in commands:
            if command is None or command.taken or not change.does(command):
                continue
            if not session.meta.ddl_commands.take(self._task, source, command):
                return AttemptSuperseded()
        return None

    def _finish(self, session: TargetSession, change: SchemaChange, journal: DdlJournal, lsn: Lsn) -> ChangeEnd:
        """Ends the transaction with "done"; returns how the attempt ends. Another member may have begun `journal`."""
        if left := self._lock_epochs(session, change):
            return left
        self._record_others(session, change)
        session.meta.structures.save(self._task, SourceTablesKey(self._source), lsn, change.structures)
        session.meta.shadows.save(self._task, self._source, change.shadows)
        self._rename(session, self._source, change.renamed)
        for record, structures in change.records.items():
            session.meta.structures.save(self._task, record, lsn, structures)
        own = replace(journal, source=self._source, lsn=lsn, statement=change.text)
        session.meta.journal.write(replace(own, state=DdlState.DONE, before={}))
        session.commit()
        return Outcome.APPLIED

    def _record_others(self, session: TargetSession, change: SchemaChange) -> None:
        """Records, in the open transaction, that the change is done for the other members, too."""
        for one in change.others:
            session.meta.structures.save(self._task, SourceTablesKey(one.source), one.lsn, one.structures)
            session.meta.shadows.save(self._task, one.source, one.shadows)
            if not self._journal_says_done(session, one.lsn, one.source):
                self._rename(session, one.source, one.renamed)
            session.meta.journal.write(one.journal(self._task))

    def _rename(self, session: TargetSession, source: str, renamed: Mapping[TableName, TableName]) -> None:
        session.meta.moves.rename(self._task, source, renamed)
        session.meta.rereads.rename(self._task, source, renamed)

    def _lock_epochs(self, session: TargetSession, change: SchemaChange) -> AttemptSuperseded | None:
        """Locks the epoch of each source until the transaction ends.

        Returns None if there is no newer epoch, and `AttemptSuperseded` for a newer epoch of another source. A newer
        epoch of this source raises `Fenced`. One row of each source is enough: all workers' rows have the same epoch,
        and a run that takes over has to wait for this row's lock.
        """
        epochs = {one.source: one.epoch for one in change.others} | {self._source: self._epoch}
        for source in sorted(epochs):
            stored = session.meta.checkpoints.lock(self._task, source, 0)
            if stored.epoch != epochs[source]:
                if source == self._source:
                    raise fenced(stored, self._epoch)
                return AttemptSuperseded(source)
        return None

    def _journal_says_done(self, session: TargetSession, lsn: Lsn, source: str = "") -> bool:
        journal = session.meta.journal.read(self._task, source or self._source, lsn)
        return journal is not None and journal.state is DdlState.DONE

    def _render(self, session: TargetSession, change: SchemaChange) -> Sequence[str]:
        statement = change.statement
        if statement is None or is_made_by_zone(session, change):
            return ()
        if isinstance(statement, CreateTable | CreateTableLike):
            table = change.after.get(statement.table)
            if table is not None:
                if not statement.or_replace and table == change.before.get(statement.table):
                    return ()  # the statement has IF NOT EXISTS, and the table existed
                problems = None if statement.or_replace else session.schema.misfits(table)
                if problems:
                    raise misfit(table.name, problems)
                demand_right_values(session, change, table, is_created=problems is None)
                if problems is not None:
                    return ()
        if isinstance(statement, AlterTable):
            demand_new_columns(session, statement, change)
        try:
            rendered = session.schema.ddl_statements(statement, change.before, change.after, change.executed_at)
        except Halted:
            # The refusal's advice, or a copy, would make a plain column for values that the log has wrong.
            if isinstance(statement, AlterTable):
                demand_right_values_after(session, statement, change, None)
            raise
        if isinstance(statement, AlterTable):
            demand_right_values_after(session, statement, change, rendered.computed)
        for note in rendered.notes:
            _log.warning("schema change differs on the target", source=self._source, statement=change.text, note=note)
        warn_if_not_shown(change)
        return rendered.statements


def _execute_unless_made(session: TargetSession, change: SchemaChange, sql: str) -> None:
    """Runs a statement. Ignores a refusal if a program of the zone has made the change meanwhile."""
    try:
        _execute(session, change, sql)
    except Halted:
        if not is_made_by_zone(session, change):
            raise


def _execute(session: TargetSession, change: SchemaChange, sql: str) -> None:
    try:
        session.execute(sql, change.origin)
    except Halted as error:
        command = change.command
        if command is None or sql not in command.statements:
            raise
        raise Halted(
            "order-refused",
            f"the target refuses a statement of `pidts ddl {command.kind}`: {sql}: {error.what}",
            where=error.where,
            todo=f"Give a changed statement: run {REPLACE}. Or make the change on the target by hand, and then run: "
            f"{SKIP}. To run the source's own statement after all: {RETRY}",
        ) from error


@contextmanager
def _refused_with(statements: Sequence[str]) -> Iterator[None]:
    """If the target refuses a statement, adds the statements to the error. An operator can correct them."""
    try:
        yield
    except Halted as error:
        if error.code != "order-refused":  # the statements are those that an operator has given
            error.instead = error.instead or tuple(statements)
        raise


@contextmanager
def _about(change: SchemaChange) -> Iterator[None]:
    """Names the change's own tables in a refusal by the target, but not in an error about the journal."""
    try:
        yield
    except Halted as error:
        if not error.where.table:
            named = change.structures or {**change.before, **change.after}
            error.where = replace(error.where, table=", ".join(map(str, sorted(named))))
        raise
