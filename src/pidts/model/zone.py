"""The marks by which a zone's log shows that a change came from another zone.

A transaction that carries rows from zone `a` changes a row of the table `pidts_from_zone_a` in the task's meta schema.
The log names that table in the same transaction, whatever the row images hold. A statement that commits by itself ends
with a comment instead. Servers write DROP TABLE anew, without comments, so that one names a further table to drop.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from pidts.model.table import TableName

ZONE_NAME = re.compile(r"[a-z0-9_]{1,32}", re.ASCII)
"""The names of zones. A server may fold the case of table names, so a name has lower-case letters only."""


@dataclass(frozen=True, slots=True)
class Zones:
    """The zones between which a task carries changes."""

    source: str
    target: str


def mark_table(zone: str) -> str:
    """Returns the name of the table that each transaction with rows from this zone changes."""
    return f"pidts_from_zone_{zone}"


def drop_mark(zone: str) -> str:
    """Returns the name of the table that each DROP TABLE from this zone drops, too."""
    return f"{mark_table(zone)}_drop"


def mark_comment(zone: str) -> str:
    """Returns the comment at the end of each other schema change from this zone."""
    return f"/* {mark_table(zone)} */"


def has_mark(zone: str, tables: Iterable[TableName]) -> bool:
    """Whether a transaction that changes these tables came from the zone."""
    name = mark_table(zone)
    return any(table.name == name for table in tables)


def is_marked(zone: str, statement: str, tables: Iterable[TableName]) -> bool:
    """Whether a statement that names these tables came from the zone."""
    name = drop_mark(zone)
    return statement.rstrip().endswith(mark_comment(zone)) or any(table.name == name for table in tables)
