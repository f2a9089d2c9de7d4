"""The record of tables that have to be copied again after an operator's ddl command.

An example: the source has computed the values of a new column, and only the source has them. The halt at this statement
prints a `pidts ddl replace` without these values, and says that the table has to be copied again after it. When the
command is carried out, the halt is over. The record lets `pidts status` name the table until its copy begins.

The transaction that records the ddl command also writes this record, in place of what an earlier command at the same
place has recorded. A table counts only if the command at the recorded place is done. The command for one shard concerns
the rows of all shards, so the record of one source may name the place of a command for another source.
"""

from __future__ import annotations

import json
from collections.abc import Collection

from pidts.apply.port import TargetSession
from pidts.model import Lsn, SourceTablesKey, TableName
from pidts.model.records.altered_record import reading_note

_DUE = TableName("", "due copies")
"""The name of the note. The note concerns no single table."""


def put_due(
    target: TargetSession, task: str, source: str, tables: Collection[TableName], command: tuple[str, Lsn]
) -> None:
    """Records a source's tables that are due after a ddl command, and no others, in the open transaction.

    `command` is the source and the place of the command's statement.
    """
    known = recorded_due(target, task, source)
    due = {one for one in known if one[1:] != command} | {(name, *command) for name in tables}
    if due != known:
        _write(target, task, source, due)


def remove_due(target: TargetSession, task: str, source: str, copied: Collection[TableName]) -> None:
    """Removes tables whose copy begins from the record, in the open transaction."""
    known = recorded_due(target, task, source)
    left = {one for one in known if one[0] not in copied}
    if left != known:
        _write(target, task, source, left)


def recorded_due(target: TargetSession, task: str, source: str) -> set[tuple[TableName, str, Lsn]]:
    """Returns the recorded tables, each with the source and the place of its ddl command."""
    text = target.meta.notes.read(task, SourceTablesKey(source), _DUE)
    with reading_note(task, source, _DUE.name):
        return {
            (TableName(str(schema), str(name)), str(of), Lsn.parse(lsn))
            for schema, name, of, lsn in json.loads(text or "[]")
        }


def _write(target: TargetSession, task: str, source: str, due: Collection[tuple[TableName, str, Lsn]]) -> None:
    text = json.dumps([[name.schema, name.name, of, str(lsn)] for name, of, lsn in sorted(due)], ensure_ascii=False)
    target.meta.notes.write(task, SourceTablesKey(source), _DUE, text)
