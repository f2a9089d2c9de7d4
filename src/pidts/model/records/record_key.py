"""The keys of a task's records for single tables on the target: structures and notes.

A record belongs to a source, or to the shard groups of the task. The meta tables have one text column for both. A
source's name cannot contain a star. So a text with a star is never a source.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_SHARD_KEY = re.compile(r"\*(?:(?P<left>-)|(?P<place>\d*)) (?P<source>.+)")


@dataclass(frozen=True, slots=True)
class SourceTablesKey:
    """The records of a source's tables, as the tables are after the source's last schema change."""

    source: str


@dataclass(frozen=True, slots=True)
class MergedTablesKey:
    """The structures on which shards have agreed, by the names of merged tables on the target."""


@dataclass(frozen=True, slots=True)
class DroppedColumnsKey:
    """The columns that shards of a source have dropped while the target still has them."""

    source: str


@dataclass(frozen=True, slots=True)
class RemainingRowsKey:
    """The tables that were dropped or emptied on a source, while their rows stay on the target."""

    source: str


@dataclass(frozen=True, slots=True)
class MissedChangesKey:
    """The missed changes of a source's shards: `place` 0 has the first of each shard, 1 the second, ..."""

    source: str
    place: int


RecordKey = SourceTablesKey | MergedTablesKey | DroppedColumnsKey | RemainingRowsKey | MissedChangesKey


def record_text(key: RecordKey) -> str:
    """Returns the text for the key in the meta tables' column `source`."""
    match key:
        case SourceTablesKey(source):
            return source
        case MergedTablesKey():
            return "*"
        case DroppedColumnsKey(source):
            return f"* {source}"
        case RemainingRowsKey(source):
            return f"*- {source}"
        case MissedChangesKey(source, place):
            return f"*{place} {source}"


def record_key(text: str) -> RecordKey:
    """The inverse of `record_text`."""
    if "*" not in text:
        return SourceTablesKey(text)
    if text == "*":
        return MergedTablesKey()
    found = _SHARD_KEY.fullmatch(text)
    if found is None:
        raise ValueError(f"not the key of a record: {text!r}")
    if found["left"]:
        return RemainingRowsKey(found["source"])
    return (
        MissedChangesKey(found["source"], int(found["place"])) if found["place"] else DroppedColumnsKey(found["source"])
    )
