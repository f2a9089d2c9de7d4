"""Decides whose journal concerns a merged table that members change, where DDL is not part of transactions.

One journal at a time is open. The next member continues it if the journal's own member has arrived, too. If not, it
waits, for only that member knows whether its statement has happened. A statement that the target has *refused* has not
happened, if it was the first one and the table looks as before. That is noted, and then others go on. The first of them
to begin empties that journal in the same commit. The counterexample is a table that looks different when the refused
change is run again, but not because of it. A journal that was refused and runs again before another member has begun is
continued: changes that somebody has made by hand count.

Crash before the refusal is noted: the statement is run again, and refused again. After that: others go on, or its own
member arrives again and withdraws the note before it runs anything.
"""

from __future__ import annotations

from dataclasses import replace

from pidts.apply.ddl.change import OpenJournal, SchemaChange
from pidts.apply.port import TargetSession
from pidts.model import DdlJournal, DdlState, Lsn, OfGroups, OrderKind, TableName

_REFUSED = "refused "


def begun_by(
    session: TargetSession, task: str, change: SchemaChange, own: tuple[str, Lsn]
) -> DdlJournal | OpenJournal | None:
    """Returns the journal that a member has begun and not ended: to be continued, or to be waited for."""
    if change.shared is None or (change.order is not None and change.order.kind is OrderKind.SKIP):
        return None  # a skipped change runs nothing, whatever the table looks like
    journal, is_refused = _noted(session, task, change.shared)
    if journal is None:
        return None
    if (journal.source, journal.lsn) in {own, *((party.source, party.lsn) for party in change.others)}:
        return journal
    return None if is_refused else OpenJournal(journal.source, journal.lsn)


def lead(session: TargetSession, change: SchemaChange, journal: DdlJournal) -> None:
    """Makes this the journal that concerns the table; in the open transaction."""
    if change.shared is not None:
        before, _ = _noted(session, journal.task, change.shared)
        if before is not None and (before.source, before.lsn) != (journal.source, journal.lsn):
            session.meta.journal.write(replace(before, rendered=(), step=0, before={}))
        session.meta.notes.write(journal.task, OfGroups(), change.shared, f"{journal.lsn} {journal.source}")


def note_refused(session: TargetSession, table: TableName, journal: DdlJournal) -> None:
    """Notes that nothing of the journal's statement has happened; in the open transaction."""
    session.meta.notes.write(journal.task, OfGroups(), table, f"{_REFUSED}{journal.lsn} {journal.source}")


def is_emptied(journal: DdlJournal) -> bool:
    """Whether another member has started the change since; then no statement of this journal has run."""
    return journal.state is not DdlState.DONE and not journal.rendered


def _noted(session: TargetSession, task: str, table: TableName) -> tuple[DdlJournal | None, bool]:
    """Returns the journal, if it is open, and whether it was refused."""
    noted = session.meta.notes.read(task, OfGroups(), table)
    if not noted:
        return None, False
    at, _, source = noted.removeprefix(_REFUSED).partition(" ")
    journal = session.meta.journal.read(task, source, Lsn.parse(at))
    if journal is None or journal.state is DdlState.DONE or is_emptied(journal):
        return None, False
    return journal, noted.startswith(_REFUSED)
