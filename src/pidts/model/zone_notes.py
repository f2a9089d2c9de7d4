"""Defines the table of notes in a zone's log (`pidts.apply.locks.zone_notes`). Finds notes among the log's changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pyarrow as pa

from pidts.model.batch import ChangeBatch
from pidts.model.event import Op
from pidts.model.table import Column, Key, Table, TableName
from pidts.model.types import ColumnType, Kind
from pidts.model.zone import LEFT_OUT

_NAME = ColumnType(Kind.VARCHAR, length=190, charset="utf8mb4", collation="utf8mb4_bin")
_OBJECT = replace(_NAME, length=64)
_CODE = ColumnType(Kind.VARCHAR, length=80, charset="ascii", collation="ascii_bin")
_TYPES = {
    "task": _NAME,
    "source": _NAME,
    "table_schema": _OBJECT,
    "table_name": _OBJECT,
    "row_key": _CODE,
    "removed": _CODE,
    "key_values": replace(_NAME, kind=Kind.LONGTEXT, length=None),
    "made_at": ColumnType(Kind.BIGINT),
}
NOTES = Table(
    TableName("", LEFT_OUT),
    tuple(Column(name, type_, nullable=False) for name, type_ in _TYPES.items()),
    (Key("PRIMARY", tuple(_TYPES)[:6], unique=True, primary=True),),
)
"""The structure of the table of notes. This name has no schema, so it is never the name of a task's table."""


def only_notes(batches: Iterable[ChangeBatch]) -> list[ChangeBatch]:
    """Returns each note once: the log contains an INSERT and a DELETE of it."""
    found = []
    for batch in batches:
        is_note = batch.rows.column("op").to_numpy() == Op.INSERT
        found.append(replace(batch, table=NOTES, rows=batch.rows.filter(pa.array(is_note))))
    return found


def notes_and_rows(batches: Sequence[ChangeBatch]) -> tuple[list[ChangeBatch], list[ChangeBatch]]:
    """Returns the notes, and the changes of rows."""
    notes = [batch for batch in batches if batch.table.name == NOTES.name]
    return notes, [batch for batch in batches if batch.table.name != NOTES.name] if notes else list(batches)
