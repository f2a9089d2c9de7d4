"""Who has rows in a table of the target, by its record: tables of all sources and of all tasks.

Every source notes its rules before its first row is written, and its tables stand on record before theirs. So whoever
sees a row of another one finds its table here; asked in the transaction that would remove rows, the answer holds.

A table that was dropped or emptied, and has left its rows among those of others, stands on record as well from the
commit on that makes it so. Another table with the same extracted values would else take these rows for its own:

    a.t_1, b.t_1 -> t (id, part), part = '1' for both        DROP b.t_1        a.t_1 is copied once more
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from unicodedata import combining, normalize

from pidts.apply.port import TargetSession
from pidts.apply.schema_change import SHARED, left_by
from pidts.model import ConfigError, TableName
from pidts.rules import Landing, Rules
from pidts.rules.record import from_text

RULES = TableName("", "")
"""The note of a source that is about no table: by which rules its rows have landed."""

_LEFT = left_by("")


@dataclass(frozen=True, slots=True)
class Resident:
    """A table of a source, whose rows are there."""

    task: str
    source: str
    table: TableName | None = None
    """None: several were there together, of which some may be gone, and their rows not."""
    extracted: tuple[tuple[str, str], ...] = ()
    """What tells its rows from those of others."""
    has_left: bool = False
    """It is gone, or was emptied, and its rows are there."""


def residents(session: TargetSession) -> dict[TableName, list[Resident]]:
    """By the target's tables."""
    found: dict[TableName, list[Resident]] = {}
    for landed, one in _recorded(session):
        if not one.has_left:
            found.setdefault(landed, []).append(one)
    return found


def has_others(session: TargetSession, landed: TableName, task: str, source: str) -> bool:
    """Whether rows may be there that are not one source's, or not one table's only."""
    there = residents(session).get(landed, ())
    return any((one.task, one.source) != (task, source) or one.table is None for one in there)


def tells_apart(session: TargetSession, rules: Rules, task: str, source: str, table: TableName) -> bool:
    """Whether all rows with the extracted values of this table are its own, by the target's key.

    Not where these columns are no part of the key: a row may keep what was extracted from an earlier name of its table,
    and be another one's by now. Not where others have, or have left, rows with the same values, or this table has; nor
    where another task has rows there, whatever these hold.
    """
    landing = rules.routes.landing(table)
    if landing.name not in rules.keyed:
        return False
    for one in (one for landed, one in _recorded(session) if landed == landing.name):
        if one.task != task and not one.has_left:
            return False
        is_itself = (one.source, one.table) == (source, table) and not one.has_left
        if one.table is not None and not is_itself and _meet(landing, one):
            return False
    return True


def _recorded(session: TargetSession) -> Iterator[tuple[TableName, Resident]]:
    """All that the record knows of, those that are gone as well, with where they land."""
    rules: dict[tuple[str, str], Rules] = {}
    for task, record, name in session.known():
        if record == SHARED:
            yield name, Resident(task, record)
            continue
        has_left = record.startswith(_LEFT)
        if has_left or not record.startswith(SHARED):
            source = record.removeprefix(_LEFT) if has_left else record
            landing = _landing(session, rules, task, source, name)
            if landing is not None:
                yield landing.name, Resident(task, source, name, landing.extracted, has_left)


def _landing(
    session: TargetSession, rules: dict[tuple[str, str], Rules], task: str, source: str, name: TableName
) -> Landing | None:
    """By the rules that a source has noted, which are read once; None where it has never landed anywhere."""
    if (task, source) not in rules:
        text = session.noted(task, source, RULES)
        rules[task, source] = from_text(text) if text else Rules()
    try:
        return rules[task, source].routes.landing(name)
    except ConfigError:
        return None


def _meet(landing: Landing, other: Resident) -> bool:
    """Whether the other one's rows may have these values; columns of the target may fold them."""
    here, there = dict(landing.extracted), dict(other.extracted)
    return here.keys() != there.keys() or all(_folded(here[name]) == _folded(there[name]) for name in here)


def _folded(text: str) -> str:
    plain = "".join(letter for letter in normalize("NFKD", text.casefold()) if not combining(letter))
    return plain.casefold().strip()
