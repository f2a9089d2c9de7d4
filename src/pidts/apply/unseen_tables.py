"""The record of tables whose changes are left out because the account does not see them on the source.

A start warns of such a table once. The record lets `pidts status` name the table until the task has its structure, or
until the log has dropped it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable

from pidts.apply.port import TargetSession
from pidts.model import SourceTablesKey, TableName
from pidts.model.records.altered_record import reading_note
from pidts.schema import DropDatabase, DropTable, Statement

_UNSEEN = TableName("", "unseen tables")
"""The name of the note. The note concerns no single table."""


def record_unseen(
    target: TargetSession, task: str, source: str, tables: Iterable[TableName], joined: Collection[TableName] = ()
) -> None:
    """Adds `tables` to the record and removes the other tables in `joined`, in the open transaction."""
    known = unseen_tables(target, task, source)
    names = sorted({*known}.difference(joined).union(tables))
    if names != known:
        _write(target, task, source, names)


def forget_dropped(target: TargetSession, task: str, source: str, statement: Statement) -> None:
    """Removes from the record the tables that a statement of the log drops, in a transaction of its own.

    The target cannot lack changes of a dropped table. If the process ends before it has carried out the statement, the
    next run calls this function again.
    """
    match statement:
        case DropTable(tables=dropped):
            gone = {name for name in unseen_tables(target, task, source) if name in dropped}
        case DropDatabase(name=schema):
            gone = {name for name in unseen_tables(target, task, source) if name.schema == schema}
        case _:
            return
    if gone:
        target.begin()
        _write(target, task, source, [name for name in unseen_tables(target, task, source) if name not in gone])
        target.commit()


def _write(target: TargetSession, task: str, source: str, names: Collection[TableName]) -> None:
    text = json.dumps([[name.schema, name.name] for name in names], ensure_ascii=False)
    target.meta.notes.write(task, SourceTablesKey(source), _UNSEEN, text)


def unseen_tables(target: TargetSession, task: str, source: str) -> list[TableName]:
    """Returns the recorded tables."""
    text = target.meta.notes.read(task, SourceTablesKey(source), _UNSEEN)
    with reading_note(task, source, _UNSEEN.name):
        return [TableName(str(schema), str(name)) for schema, name in json.loads(text or "[]")]
