"""The zone that owns a range of rows, if the owner has changed since the task files were written."""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeOwner:
    """The owner of a range, as recorded in one zone's meta tables for the tasks that write there."""

    schema: str
    table: str
    where: str = ""
    """The condition of the range; empty: all rows of the table that are in no other range."""
    zone: str
    """The owner; empty: no zone, while the range is moved."""
    origin: str
    """The zone that owned the range before the last move."""
    to: str
    """The zone to which the last move gives the range."""
    settled: bool
    """Whether the last move has ended."""
    number: int
    """How many moves the range has had, including moves that were taken over or undone. A record with a lower number
    does not overwrite a record with a higher one.
    """
    ranges: str
    """All ranges of the task files at the last move, in the form of `Owners.text`."""

    @property
    def id(self) -> str:
        """Returns a text that identifies the range."""
        place = self.schema.lower(), self.table.lower(), " ".join(self.where.split())
        return sha256("\0".join(place).encode()).hexdigest()

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}" + (f" where {self.where}" if self.where else "")

    def dumps(self) -> str:
        """Returns the record as text."""
        data: dict[str, Any] = {
            "schema": self.schema,
            "table": self.table,
            "where": self.where,
            "zone": self.zone,
            "origin": self.origin,
            "to": self.to,
            "settled": self.settled,
            "number": self.number,
            "ranges": self.ranges,
        }
        return json.dumps(data, ensure_ascii=True)

    @classmethod
    def loads(cls, text: str) -> RangeOwner:
        """The inverse of `dumps`."""
        return cls(**json.loads(text))
