"""Finds the tables, of all sources and tasks, whose rows are in a target table, by the target's record.

Every source notes its rules before its first row is written, and its tables are on record before their rows are. So a
reader that sees a row of another table finds that table here. Asked in the transaction that would remove rows, the
answer holds.

A table that was dropped or emptied, and has left its rows among those of others, is on record as well, from the commit
on that makes it so. Another table with the same extracted values would else take these rows for its own:

    a.t_1, b.t_1 -> t (id, part), part = '1' for both        DROP b.t_1        a.t_1 is copied once more
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from unicodedata import combining, normalize

from pidts.apply.port import TargetSession
from pidts.model import ConfigError, LeftBy, OfGroups, OfSource, TableName
from pidts.rules import Destination, Rules
from pidts.rules.record import from_text

RULES = TableName("", "")
"""The note of a source that concerns no single table: the rules under which its rows were written."""


@dataclass(frozen=True, slots=True)
class Resident:
    """A source table with rows in a target table."""

    task: str
    source: str = ""
    table: TableName | None = None
    """The source table. Without it: several shared the target table, and some may be gone while their rows are not."""
    extracted: tuple[tuple[str, str], ...] = ()
    """The extracted values that tell its rows from those of others."""
    has_left: bool = False
    """Whether it is gone, or was emptied, while its rows are still there."""


def residents(session: TargetSession) -> dict[TableName, list[Resident]]:
    """Returns the source tables with rows in each target table."""
    found: dict[TableName, list[Resident]] = {}
    for target_table, one in _recorded(session):
        if not one.has_left:
            found.setdefault(target_table, []).append(one)
    return found


def has_others(session: TargetSession, target_table: TableName, task: str, source: str) -> bool:
    """Whether the target table may have rows of other sources, or of several tables."""
    there = residents(session).get(target_table, ())
    return any((one.task, one.source) != (task, source) or one.table is None for one in there)


def tells_apart(session: TargetSession, rules: Rules, task: str, source: str, table: TableName) -> bool:
    """Whether all rows with the extracted values of this table are its own, by the target's key.

    They may not be where these columns are no part of the key: a row may keep the value extracted from its table's
    earlier name, and be another table's by now. They may not be where other tables have, or have left, rows with the
    same values, or where this table has left some. And they may not be where another task has rows there, whatever
    these hold.
    """
    destination = rules.routes.destination(table)
    if destination.name not in rules.keyed:
        return False
    for one in (one for target_table, one in _recorded(session) if target_table == destination.name):
        if one.task != task and not one.has_left:
            return False
        is_itself = (one.source, one.table) == (source, table) and not one.has_left
        if one.table is not None and not is_itself and _meet(destination, one):
            return False
    return True


def _recorded(session: TargetSession) -> Iterator[tuple[TableName, Resident]]:
    """Yields all tables of the record, including those that are gone, each with its target table."""
    rules: dict[tuple[str, str], Rules] = {}
    for task, key, name in session.meta.structures.tables():
        match key:
            case OfGroups():
                yield name, Resident(task)
            case OfSource(source) | LeftBy(source):
                destination = _destination(session, rules, task, source, name)
                if destination is not None:
                    yield destination.name, Resident(task, source, name, destination.extracted, isinstance(key, LeftBy))


def _destination(
    session: TargetSession, rules: dict[tuple[str, str], Rules], task: str, source: str, name: TableName
) -> Destination | None:
    """Returns the target of a table by the rules that its source has noted; None if it never had a target.

    The rules of a source are read once.
    """
    if (task, source) not in rules:
        text = session.meta.notes.read(task, OfSource(source), RULES)
        rules[task, source] = from_text(text) if text else Rules()
    try:
        return rules[task, source].routes.destination(name)
    except ConfigError:
        return None


def _meet(destination: Destination, other: Resident) -> bool:
    """Whether the other table's rows may have these values; columns of the target may fold them."""
    here, there = dict(destination.extracted), dict(other.extracted)
    return here.keys() != there.keys() or all(_folded(here[name]) == _folded(there[name]) for name in here)


def _folded(text: str) -> str:
    plain = "".join(letter for letter in normalize("NFKD", text.casefold()) if not combining(letter))
    return plain.casefold().strip()
