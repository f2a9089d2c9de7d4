"""Decides which member's journal counts for a merged table, on targets where DDL is not part of transactions.

Before a member makes a schema change, it begins a journal: a row of the target's journal. The journal is *open* until
the change is done. One journal at a time is open.

- A member arrives, and the member of the open journal has also reached the schema change: the arriving member continues
  the open journal.
- A member arrives, and the member of the open journal has not reached the change: the arriving member waits. Only the
  member that began the journal can find out whether the statement was executed.
- The target has *refused* the first statement of the journal, and the table looks as before: the statement has changed
  nothing. A note records this, and then other members go on. The first of them that begins a change empties the refused
  journal in the same commit. Otherwise the member of the refused journal would later find a changed table, and take
  another member's change for its own.
- The refused change runs again before another member has begun: its journal is continued. Changes that somebody has
  meanwhile made to the table by hand then count as made by this schema change.

Crash before the note of a refusal: the statement is run again, and refused again. Crash after it: other members go on,
or the member of the refused journal arrives again and removes the note before it runs anything.
"""

from __future__ import annotations

from dataclasses import replace

from pidts.apply.ddl.change import OpenJournal, SchemaChange
from pidts.apply.port import TargetSession
from pidts.model import CommandKind, DdlJournal, DdlState, Lsn, MergedTablesKey, TableName

_REFUSED = "refused "


def begun_by(
    session: TargetSession, task: str, change: SchemaChange, own: tuple[str, Lsn]
) -> DdlJournal | OpenJournal | None:
    """Returns the journal to continue, or another member's journal that has to end first; None if there is neither."""
    if change.shared is None or (change.command is not None and change.command.kind is CommandKind.SKIP):
        return None  # a skipped change runs nothing, whatever structure the table has
    journal, is_refused = _noted(session, task, change.shared)
    if journal is None:
        return None
    if (journal.source, journal.lsn) in {own, *((one.source, one.lsn) for one in change.others)}:
        return journal
    return None if is_refused else OpenJournal(journal.source, journal.lsn)


def lead(session: TargetSession, change: SchemaChange, journal: DdlJournal) -> None:
    """Records, in the open transaction, that this journal is the table's open journal."""
    if change.shared is not None:
        before, _ = _noted(session, journal.task, change.shared)
        if before is not None and (before.source, before.lsn) != (journal.source, journal.lsn):
            session.meta.journal.write(replace(before, rendered=(), step=0, before={}))
        session.meta.notes.write(journal.task, MergedTablesKey(), change.shared, f"{journal.lsn} {journal.source}")


def note_refused(session: TargetSession, table: TableName, journal: DdlJournal) -> None:
    """Notes, in the open transaction, that the journal's statement has changed nothing."""
    session.meta.notes.write(journal.task, MergedTablesKey(), table, f"{_REFUSED}{journal.lsn} {journal.source}")


def is_emptied(journal: DdlJournal) -> bool:
    """Whether another member's change has emptied this journal. None of the journal's statements was executed."""
    return journal.state is not DdlState.DONE and not journal.rendered


def _noted(session: TargetSession, task: str, table: TableName) -> tuple[DdlJournal | None, bool]:
    """Returns the table's open journal, or None, and whether the target has refused that journal's first statement."""
    noted = session.meta.notes.read(task, MergedTablesKey(), table)
    if not noted:
        return None, False
    at, _, source = noted.removeprefix(_REFUSED).partition(" ")
    journal = session.meta.journal.read(task, source, Lsn.parse(at))
    if journal is None or journal.state is DdlState.DONE or is_emptied(journal):
        return None, False
    return journal, noted.startswith(_REFUSED)
