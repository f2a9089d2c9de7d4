"""Who has rows in a table of the target, by its record: tables of all sources and of all tasks.

Every source notes its rules before its first row is written, and its tables stand on record before theirs. So whoever
sees a row of another one finds its table here; asked in the transaction that would remove rows, the answer holds.
"""

from __future__ import annotations

from dataclasses import dataclass

from pidts.apply.port import TargetSession
from pidts.apply.schema_change import SHARED
from pidts.model import ConfigError, TableName
from pidts.rules import Rules
from pidts.rules.record import from_text

RULES = TableName("", "")
"""The note of a source that is about no table: by which rules its rows have landed."""


@dataclass(frozen=True, slots=True)
class Resident:
    """A table of a source, whose rows are there."""

    task: str
    source: str
    table: TableName | None = None
    """None: several were there together, of which some may be gone, and their rows not."""


def residents(session: TargetSession) -> dict[TableName, list[Resident]]:
    """By the target's tables."""
    found: dict[TableName, list[Resident]] = {}
    noted: dict[tuple[str, str], Rules] = {}
    for task, source, name in session.known():
        if source == SHARED:
            found.setdefault(name, []).append(Resident(task, source))
        elif not source.startswith(SHARED):
            if (task, source) not in noted:
                text = session.noted(task, source, RULES)
                noted[task, source] = from_text(text) if text else Rules()
            try:
                landed = noted[task, source].landed_name(name)
            except ConfigError:  # it has never landed anywhere
                continue
            found.setdefault(landed, []).append(Resident(task, source, name))
    return found


def has_others(session: TargetSession, landed: TableName, task: str, source: str) -> bool:
    """Whether rows may be there that are not one source's, or not one table's only."""
    there = residents(session).get(landed, ())
    return any((one.task, one.source) != (task, source) or one.table is None for one in there)
