"""Whose journal is about a table that several members of a group change, where DDL is not part of transactions.

One at a time is open. Who comes next continues it if its member has come, too, and waits for it if not, for nobody else
knows whether its statement has happened. A statement that the target has *refused* has not, if it was the first one and
the table looks as before. That is noted, and then others go on. The first of them to begin empties that journal in the
same commit: the counterexample is a table that looks different when the refused change comes again, and not by it.
A journal that was refused and comes again before anybody has begun is continued: what somebody has made by hand counts.

Crash before it is noted: it is run again, and refused again. Behind that: others go on, or its own member comes again
and takes the word back before it runs anything.
"""

from __future__ import annotations

from dataclasses import replace

from pidts.apply.port import TargetSession
from pidts.apply.schema_change import SHARED, JournalOpen, SchemaChange
from pidts.model import DdlJournal, DdlState, Lsn, OrderKind, TableName

_REFUSED = "refused "


def begun_by(session: TargetSession, task: str, change: SchemaChange, own: tuple[str, Lsn]) -> DdlJournal | None:
    """What some member of the group has begun and not ended."""
    if change.shared is None or (change.order is not None and change.order.kind is OrderKind.SKIP):
        return None  # of what is skipped nothing is run, whatever the table looks like
    journal, is_refused = _noted(session, task, change.shared)
    if journal is None:
        return None
    if (journal.source, journal.lsn) in {own, *((party.source, party.lsn) for party in change.others)}:
        return journal
    if not is_refused:
        raise JournalOpen(journal.source, journal.lsn)
    return None


def lead(session: TargetSession, change: SchemaChange, journal: DdlJournal) -> None:
    """It is this journal that is about the table from now on; in the open transaction."""
    if change.shared is not None:
        before, _ = _noted(session, journal.task, change.shared)
        if before is not None and (before.source, before.lsn) != (journal.source, journal.lsn):
            session.write_journal(replace(before, rendered=(), step=0, before={}))
        session.note(journal.task, SHARED, change.shared, f"{journal.lsn} {journal.source}")


def note_refused(session: TargetSession, table: TableName, journal: DdlJournal) -> None:
    """Nothing of it has happened; in the open transaction."""
    session.note(journal.task, SHARED, table, f"{_REFUSED}{journal.lsn} {journal.source}")


def is_emptied(journal: DdlJournal) -> bool:
    """Whether another member has begun since: of this one nothing has happened."""
    return journal.state is not DdlState.DONE and not journal.rendered


def _noted(session: TargetSession, task: str, table: TableName) -> tuple[DdlJournal | None, bool]:
    """The journal, if it is open; whether it was refused."""
    noted = session.noted(task, SHARED, table)
    if not noted:
        return None, False
    at, _, source = noted.removeprefix(_REFUSED).partition(" ")
    journal = session.read_journal(task, source, Lsn.parse(at))
    if journal is None or journal.state is DdlState.DONE or is_emptied(journal):
        return None, False
    return journal, noted.startswith(_REFUSED)
