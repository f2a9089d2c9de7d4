"""The record of tables whose changes are left out because the account does not see them on the source.

A start warns of such a table once. The record lets `pidts status` name the table until the task has its structure.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable

from pidts.apply import TargetSession
from pidts.model import SourceTablesKey, TableName
from pidts.model.records.altered_record import reading_note

_UNSEEN = TableName("", "unseen tables")
"""The name of the note. The note concerns no single table."""


def record_unseen(
    target: TargetSession, task: str, source: str, tables: Iterable[TableName], joined: Collection[TableName] = ()
) -> None:
    """Adds tables to the record, in the open transaction. Removes the tables that have just joined, unless unseen."""
    known = unseen_tables(target, task, source)
    names = sorted({*known}.difference(joined).union(tables))
    if names == known:
        return
    text = json.dumps([[name.schema, name.name] for name in names], ensure_ascii=False)
    target.meta.notes.write(task, SourceTablesKey(source), _UNSEEN, text)


def unseen_tables(target: TargetSession, task: str, source: str) -> list[TableName]:
    """Returns the recorded tables."""
    text = target.meta.notes.read(task, SourceTablesKey(source), _UNSEEN)
    with reading_note(task, source, _UNSEEN.name):
        return [TableName(str(schema), str(name)) for schema, name in json.loads(text or "[]")]
