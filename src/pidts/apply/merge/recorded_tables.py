"""Reads from the target's records which source tables, of all sources and tasks, have rows in a target table.

The rules and the tables of every source are recorded before the first row of these tables is written. So a reader that
sees a row of another table finds that table in the records. The answer is valid until the transaction that asks ends.
That transaction may remove rows because of the answer.

If a table was dropped or emptied, and its rows stayed among those of other tables, the commit of this change recorded
that they stayed. Without this record, another table with the same extracted values would treat these rows as its own:

    a.t_1, b.t_1 -> t (id, part), part = '1' for both        DROP b.t_1        a.t_1 is copied once more
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from unicodedata import combining, normalize

from pidts.apply.port import TargetSession
from pidts.model import ConfigError, MergedTablesKey, RemainingRowsKey, SourceTablesKey, TableName
from pidts.model.records.altered_record import reading_note
from pidts.model.zone import COUNTED_UP_TO, RETURN_RECORD
from pidts.rules import Destination, Rules
from pidts.rules.record import from_text

RULES = TableName("", "")
"""The name of the note with the rules under which a source's rows were written. The note is about no single table."""


def recorded_rules(note: str, task: str, source: str) -> Rules | None:
    """Returns the rules in a source's note `RULES`; None if the note is empty."""
    with reading_note(task, source, RULES.name):
        return from_text(note) if note else None


@dataclass(frozen=True, slots=True)
class RecordedTable:
    """A source table with rows in a target table."""

    task: str
    source: str = ""
    table: TableName | None = None
    """The source table; None: several tables shared the target table, and dropped ones may have left rows."""
    extracted: tuple[tuple[str, str], ...] = ()
    """The extracted values that separate this table's rows from those of other tables."""
    has_left: bool = False
    """Whether the table was dropped or emptied, and its rows are still on the target."""


def tables_in_targets(session: TargetSession) -> dict[TableName, list[RecordedTable]]:
    """Returns the source tables with rows in each target table."""
    found: dict[TableName, list[RecordedTable]] = {}
    for target_table, one in _recorded(session):
        if not one.has_left:
            found.setdefault(target_table, []).append(one)
    return found


def has_others(session: TargetSession, target_table: TableName, task: str, source: str) -> bool:
    """Whether the target table may have rows of other sources, or of several tables."""
    there = tables_in_targets(session).get(target_table, ())
    return any((one.task, one.source) != (task, source) or one.table is None for one in there)


def removes_extra_rows(
    session: TargetSession, target_table: TableName, task: str, source: str, into_zone: str | None
) -> bool:
    """Whether a copy may, in this transaction, remove rows that the copied source table lacks.

    In a zone, such a row may be a program's row that has not reached the source yet. So it stays. The exception is a
    zone that returns: it gets exactly its seed's rows, although the zone has records of other tasks. This is safe:

    - The note of the return exists from before the copy's beginning until after its end, even if a process crashes.
    - Meanwhile no other task writes rows: the return has removed the checkpoints of the other tasks into the zone, so
      their runs commit nothing.
    - These tasks cannot start again while the seed's task carries the same changes (`topology_findings`), and a
      hand-over is refused while the seed's task copies.
    """
    if into_zone is not None:
        return bool(into_zone and session.meta.notes.read(RETURN_RECORD, SourceTablesKey(into_zone), COUNTED_UP_TO))
    return not has_others(session, target_table, task, source)


def identifies_own_rows(session: TargetSession, rules: Rules, task: str, source: str, table: TableName) -> bool:
    """Whether the target's key guarantees that rows with this table's extracted values belong to this table.

    Such rows may belong to another table in these cases:

    - The extracted columns are not part of the key. A row may keep the value that was extracted from its table's
      earlier name, and belong to another table by now.
    - Other tables have rows with the same values, or have left some, or this table has left some.
    - Another task has rows in the target table, whatever their values.
    """
    destination = rules.routes.destination(table)
    if destination.name not in rules.keyed:
        return False
    for one in (one for target_table, one in _recorded(session) if target_table == destination.name):
        if one.task != task and not one.has_left:
            return False
        is_itself = (one.source, one.table) == (source, table) and not one.has_left
        if one.table is not None and not is_itself and _may_share_values(destination, one):
            return False
    return True


def _recorded(session: TargetSession) -> Iterator[tuple[TableName, RecordedTable]]:
    """Yields all recorded tables, including dropped ones, each with its target table."""
    rules: dict[tuple[str, str], Rules] = {}
    for task, key, name in session.meta.structures.tables():
        match key:
            case MergedTablesKey():
                yield name, RecordedTable(task)
            case SourceTablesKey(source) | RemainingRowsKey(source):
                destination = _destination(session, rules, task, source, name)
                if destination is not None:
                    yield (
                        destination.name,
                        RecordedTable(task, source, name, destination.extracted, isinstance(key, RemainingRowsKey)),
                    )


def _destination(
    session: TargetSession, rules: dict[tuple[str, str], Rules], task: str, source: str, name: TableName
) -> Destination | None:
    """Returns the target of a table under the rules that are recorded for its source; None if they give it no target.

    `rules` keeps the rules that earlier calls have read, so the rules of a source are read once.
    """
    if (task, source) not in rules:
        text = session.meta.notes.read(task, SourceTablesKey(source), RULES)
        rules[task, source] = recorded_rules(text, task, source) or Rules()
    try:
        return rules[task, source].routes.destination(name)
    except ConfigError:
        return None


def _may_share_values(destination: Destination, other: RecordedTable) -> bool:
    """Whether rows of the other table may have the same extracted values, or values that the target treats as equal."""
    here, there = dict(destination.extracted), dict(other.extracted)
    return here.keys() != there.keys() or all(_folded(here[name]) == _folded(there[name]) for name in here)


def _folded(text: str) -> str:
    plain = "".join(letter for letter in normalize("NFKD", text.casefold()) if not combining(letter))
    return plain.casefold().strip()
