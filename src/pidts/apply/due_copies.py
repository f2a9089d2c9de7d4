"""The record of tables that have to be copied again after an operator's ddl command.

An example: the source has computed the values of a new column, and only the source has them. The halt at this statement
prints a `pidts ddl replace` without these values, and says that the table has to be copied again after it. When the
command is carried out, the halt is over. The record lets `pidts status` name the table until its copy begins.

The transaction that records the ddl command also writes this record. If the operator withdraws the command, the record
stays, and has no effect: it counts only if the command at its place is done.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping

from pidts.apply.port import TargetSession
from pidts.model import Lsn, SourceTablesKey, TableName
from pidts.model.records.altered_record import reading_note

_DUE = TableName("", "due copies")
"""The name of the note. The note concerns no single table."""


def add_due(target: TargetSession, task: str, source: str, tables: Collection[TableName], lsn: Lsn) -> None:
    """Adds tables to the record, in the open transaction. `lsn` is the place of the ddl command's statement."""
    _write(target, task, source, recorded_due(target, task, source) | dict.fromkeys(tables, lsn))


def remove_due(target: TargetSession, task: str, source: str, copied: Collection[TableName]) -> None:
    """Removes tables whose copy begins from the record, in the open transaction."""
    known = recorded_due(target, task, source)
    if not known.keys().isdisjoint(copied):
        _write(target, task, source, {name: lsn for name, lsn in known.items() if name not in copied})


def recorded_due(target: TargetSession, task: str, source: str) -> dict[TableName, Lsn]:
    """Returns the recorded tables, each with the place of its ddl command."""
    text = target.meta.notes.read(task, SourceTablesKey(source), _DUE)
    with reading_note(task, source, _DUE.name):
        return {TableName(str(schema), str(name)): Lsn.parse(lsn) for schema, name, lsn in json.loads(text or "[]")}


def _write(target: TargetSession, task: str, source: str, due: Mapping[TableName, Lsn]) -> None:
    text = json.dumps([[name.schema, name.name, str(lsn)] for name, lsn in sorted(due.items())], ensure_ascii=False)
    target.meta.notes.write(task, SourceTablesKey(source), _DUE, text)
