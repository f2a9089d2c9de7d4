"""The marks by which a zone's log shows that a change came from another zone.

A transaction that carries rows from zone `a` changes a row of the table `pidts_from_zone_a` in the task's meta schema.
The log names that table in the same transaction, whatever the row images hold. A statement that commits by itself ends
with a comment instead. Servers write DROP TABLE anew, without comments, so that one names a further table to drop.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from pidts.model.table import TableName

ZONE_NAME = re.compile(r"[a-z0-9_]{1,32}", re.ASCII)
"""The names of zones. A server may fold the case of table names, so a name has lower-case letters only."""

_FROM = "pidts_from_zone_"
_DROPPED = "_drop"
_COMMENT = re.compile(rf"/\* {_FROM}{ZONE_NAME.pattern} \*/\s*\Z", re.ASCII)


def mark_table(zone: str) -> str:
    """Returns the name of the table that each transaction with rows from this zone changes."""
    return f"{_FROM}{zone}"


def drop_mark(zone: str) -> str:
    """Returns the name of the table that each DROP TABLE from this zone drops, too."""
    return f"{mark_table(zone)}{_DROPPED}"


def mark_comment(zone: str) -> str:
    """Returns the comment at the end of each other schema change from this zone."""
    return f"/* {mark_table(zone)} */"


def has_mark(tables: Iterable[TableName]) -> bool:
    """Whether a transaction that changes these tables came from another zone."""
    return any(table.name.startswith(_FROM) for table in tables)


def is_marked(statement: str, tables: Iterable[TableName]) -> bool:
    """Whether a statement that names these tables came from another zone."""
    if _COMMENT.search(statement):
        return True
    return any(table.name.startswith(_FROM) and table.name.endswith(_DROPPED) for table in tables)
