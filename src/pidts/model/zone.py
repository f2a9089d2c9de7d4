"""The marks by which a zone's log shows that a change came from another zone.

A transaction that carries rows from zone `a` changes a row of the table `pidts_from_zone_a` in the task's meta schema.
So the log names that table in the same transaction, whatever columns the row images have. A statement that commits by
itself ends with a comment instead. Servers rewrite DROP TABLE without comments, so such a statement names an additional
table to drop.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from pidts.model.table import TableName

RETURNING = "PIDTS_ZONE_RETURN"
"""The environment variable by which `pidts zones return` says to its run that the zone may have rows."""

ZONE_NAME = re.compile(r"[a-z0-9_]{1,32}", re.ASCII)
"""The names of zones: only lower-case letters, since a server may ignore the case of table names."""

ZONE_NOTE = TableName("", "zone")
"""Among a task's records, the key of the note that names the zone of the task's source."""

RETURN_RECORD = "pidts zones return"
"""The task name of the note `COUNTED_UP_TO`. No real task has this name."""

COUNTED_UP_TO = TableName("", "returns")
"""The key of a note about a zone that returns. The note has the end of the part of the zone's log in which
`pidts zones return` has counted the zone's changes. It exists until the zone has returned.
"""

LEFT_OUT = "left_out"
"""The meta table of notes about changes that were already made in the zone, for the tasks that read the zone's log."""

_FROM = "pidts_from_zone_"
_DROPPED_FROM = "pidts_dropped_from_zone_"
_COMMENT = re.compile(rf"/\* {_FROM}({ZONE_NAME.pattern}) \*/\s*\Z", re.ASCII)


def mark_table(zone: str) -> str:
    """Returns the name of the table that each transaction with rows from this zone changes."""
    return f"{_FROM}{zone}"


def drop_mark(zone: str) -> str:
    """Returns the name of the table that a DROP TABLE from this zone lists among the tables to drop."""
    return f"{_DROPPED_FROM}{zone}"


def mark_comment(zone: str) -> str:
    """Returns the comment at the end of each schema change from this zone, except DROP TABLE."""
    return f"/* {mark_table(zone)} */"


def origin_of(meta_schema: str, tables: Iterable[TableName]) -> str:
    """Returns the zone from which a transaction that changes these tables came; empty if it is the log's own zone.

    `meta_schema` is the meta schema, which has the same name in all zones.
    """
    return _named(meta_schema, _FROM, tables)


def left_out_in(meta_schema: str, tables: Iterable[TableName]) -> TableName | None:
    """Returns the table of notes, if it is one of these tables, with its name as in the log; otherwise None."""
    schema = meta_schema.lower()
    return next((table for table in tables if table.name == LEFT_OUT and table.schema.lower() == schema), None)


def statement_origin(meta_schema: str, statement: str, tables: Iterable[TableName]) -> str:
    """Returns the zone from which a statement that names these tables came; empty if it is the log's own zone."""
    comment = _COMMENT.search(statement)
    return comment[1] if comment is not None else _named(meta_schema, _DROPPED_FROM, tables)


def _named(meta_schema: str, prefix: str, tables: Iterable[TableName]) -> str:
    """Returns the zone, which follows `prefix` in a table's name; empty if there is none.

    A server may log the name of a schema in lower case.
    """
    schema = meta_schema.lower()
    marks = (name for table in tables if table.schema.lower() == schema and (name := table.name).startswith(prefix))
    return next((name.removeprefix(prefix) for name in marks), "")
