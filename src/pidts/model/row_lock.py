"""Rows of the target that are set aside for a person, and the changes that wait for that."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pidts.model.lsn import Lsn
from pidts.model.table import Table, TableName


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLock:
    """A key of a target table that is set aside: its changes are held until somebody resolves the lock."""

    table: Table
    """The target table, with the columns of its held changes that have no structure of their own."""
    id: str
    """A digest of the key, which tells the locks of one table apart."""
    key: str
    """The key's values, packed (`pidts.apply.unread.packed`)."""
    shown: str
    """The key as people read it."""
    origin: TableName
    """The source table."""
    lsn: Lsn
    """The place of the first held change."""
    why: str
    since: float
    """The time of the lock, in seconds since 1970."""
    needs: str = ""
    """The lock whose row has, on the target, a unique value that this row needs; empty: the row itself differs."""
    form: str = ""
    """A digest of the key as the target compares it; empty where it has no text, or an earlier version made it."""
    told: bool = False
    """Whether an alert has named the row."""
    now: Table | None = None
    """The table as schema changes have made it since; None where there were none."""
    gone: tuple[str, ...] = ()
    """The columns that these have dropped, in lower case."""

    @property
    def structure(self) -> Table:
        """Returns the table as it is now."""
        return self.now or self.table

    def dumps(self) -> str:
        """Returns all but the place of the record as one text."""
        data: dict[str, Any] = {
            "key": self.key,
            "shown": self.shown,
            "origin": [self.origin.schema, self.origin.name],
            "lsn": str(self.lsn),
            "why": self.why,
            "since": self.since,
            "needs": self.needs,
        }
        data |= {"form": self.form} if self.form else {}
        data |= {"told": True} if self.told else {}
        data |= {"now": self.now.to_json(), "gone": self.gone} if self.now is not None else {}
        # Thousands of locks have one structure.
        return f'{{"structure": {_structure_text(self.table)}, {json.dumps(data)[1:]}'

    @classmethod
    def loads(cls, id_: str, text: str) -> RowLock:
        """Returns the lock of such a text."""
        data = json.loads(text)
        return cls(
            table=Table.from_json(data["structure"]),
            id=id_,
            key=data["key"],
            shown=data["shown"],
            origin=TableName(*data["origin"]),
            lsn=Lsn.parse(data["lsn"]),
            why=data["why"],
            since=data["since"],
            needs=data["needs"],
            form=data.get("form", ""),
            told=data.get("told", False),
            now=Table.from_json(data["now"]) if "now" in data else None,
            gone=tuple(data.get("gone", ())),
        )


@dataclass(frozen=True, slots=True)
class Moment:
    """The transaction of a held change, as far as it is known."""

    gtid: str = ""
    time: int = 0
    """The source's clock in seconds since 1970; 0: not known."""


@lru_cache(maxsize=64)
def _structure_text(table: Table) -> str:
    return json.dumps(table.to_json())


@dataclass(frozen=True, slots=True)
class HeldChanges:
    """The changes of one locked key that one batch brought."""

    id: str
    """The lock."""
    lsn: Lsn
    """The place of the first of them."""
    changes: str
    """The changes in the order of the log, packed (`pidts.apply.locks.held`)."""
