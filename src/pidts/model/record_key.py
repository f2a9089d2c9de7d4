"""The keys of a task's records for single tables on the target: structures and notes.

A record belongs to a source, or to the shard groups of the task. The meta tables have one text column for both. A
source's name cannot contain a star, so a text with a star is never a source.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_SHARD_KEY = re.compile(r"\*(?:(?P<left>-)|(?P<place>\d*)) (?P<source>.+)")


@dataclass(frozen=True, slots=True)
class OfSource:
    """The records of a source's tables, as they are after its last schema change."""

    source: str


@dataclass(frozen=True, slots=True)
class OfGroups:
    """The records of merged tables, keyed by their names on the target.

    They have the structures on which shards have agreed.
    """


@dataclass(frozen=True, slots=True)
class DroppedBy:
    """The columns that shards of a source have dropped while the target still has them."""

    source: str


@dataclass(frozen=True, slots=True)
class LeftBy:
    """The tables that were dropped or emptied on a source, while their rows stay on the target."""

    source: str


@dataclass(frozen=True, slots=True)
class MissedBy:
    """The missed changes of a source's shards: `place` 0 has the first of each shard, 1 the second, ..."""

    source: str
    place: int


RecordKey = OfSource | OfGroups | DroppedBy | LeftBy | MissedBy


def record_text(key: RecordKey) -> str:
    """Returns the text for the key in the meta tables' column `source`."""
    match key:
        case OfSource(source):
            return source
        case OfGroups():
            return "*"
        case DroppedBy(source):
            return f"* {source}"
        case LeftBy(source):
            return f"*- {source}"
        case MissedBy(source, place):
            return f"*{place} {source}"


def record_key(text: str) -> RecordKey:
    """Returns the key for this text."""
    if "*" not in text:
        return OfSource(text)
    if text == "*":
        return OfGroups()
    found = _SHARD_KEY.fullmatch(text)
    if found is None:
        raise ValueError(f"not the key of a record: {text!r}")
    if found["left"]:
        return LeftBy(found["source"])
    return MissedBy(found["source"], int(found["place"])) if found["place"] else DroppedBy(found["source"])
