"""Rows of the target that are set aside until an operator decides, and their held changes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from pidts.model.lsn import Lsn
from pidts.model.table import Table, TableName

_DIGESTS = 63


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLock:
    """A locked key of a target table. The key's changes are stored, not applied, until somebody resolves the lock."""

    table: Table
    """The target table. Held changes that record no structure have the columns of this table."""
    id: str
    """A digest of the key, which identifies the lock among the locks of the table."""
    key: str
    """The key's values, packed (`pidts.apply.uncopied_keys.packed`)."""
    shown: str
    """The key in a readable form."""
    origin: TableName
    """The source table."""
    lsn: Lsn
    """The place of the first held change."""
    why: str
    since: float
    """When the row was locked, in seconds since 1970."""
    needs: str = ""
    """The id of another lock, whose row has a unique value that this row needs. Empty: this row differs."""
    form: str = ""
    """A digest of the key as the target compares it. Empty: the key has no text, or an older version made the lock."""
    is_reported: bool = False
    """Whether an alert has named the row."""
    winner: str = ""
    """The zone whose row all zones get. A command that resolves the row's locks in all zones first records this zone.
    If the command is killed, the record stays. Empty: no such command has begun.
    """
    now: Table | None = None
    """The table after the schema changes since the lock; None if there were none."""
    gone: tuple[str, ...] = ()
    """The columns that later schema changes have dropped, in lower case."""

    @property
    def structure(self) -> Table:
        """Returns the current structure of the table."""
        return self.now or self.table

    def structures(self) -> dict[str, Table]:
        """Returns the lock's structures by their digests, as `dumps` has them: thousands of locks share structures."""
        return {structure_digest(table): table for table in (self.table, self.now) if table is not None}

    def dumps(self) -> str:
        """Returns the lock as JSON, without `id`, and with digests in place of structures."""
        data: dict[str, Any] = {
            "of": structure_digest(self.table),
            "key": self.key,
            "shown": self.shown,
            "origin": [self.origin.schema, self.origin.name],
            "lsn": str(self.lsn),
            "why": self.why,
            "since": self.since,
            "needs": self.needs,
        }
        data |= {"form": self.form} if self.form else {}
        data |= {"told": True} if self.is_reported else {}
        data |= {"winner": self.winner} if self.winner else {}
        data |= {"now_of": structure_digest(self.now), "gone": self.gone} if self.now is not None else {}
        return json.dumps(data)

    @staticmethod
    def digests(text: str) -> list[str]:
        """Returns the digests of structures in this text. A text of an earlier version has whole structures instead."""
        data = json.loads(text)
        return [data[name] for name in ("of", "now_of") if name in data]

    @classmethod
    def loads(cls, id_: str, text: str, structures: Mapping[str, Table]) -> RowLock:
        """The inverse of `dumps`; `structures` has the structures by their digests."""
        data = json.loads(text)

        def structure(digest: str, whole: str) -> Table | None:
            if digest in data:
                return structures[data[digest]]
            return Table.from_json(data[whole]) if whole in data else None

        table = structure("of", "structure")
        if table is None:
            raise ValueError("a lock without a structure")
        return cls(
            table=table,
            id=id_,
            key=data["key"],
            shown=data["shown"],
            origin=TableName(*data["origin"]),
            lsn=Lsn.parse(data["lsn"]),
            why=data["why"],
            since=data["since"],
            needs=data["needs"],
            form=data.get("form", ""),
            is_reported=data.get("told", False),
            winner=data.get("winner", ""),
            now=structure("now_of", "now"),
            gone=tuple(data.get("gone", ())),
        )


@dataclass(frozen=True, slots=True)
class SourceTransaction:
    """The transaction of a held change, as far as it is known."""

    gtid: str = ""
    time: int = 0
    """When the transaction was committed, by the source's clock in seconds since 1970; 0: unknown."""


_digests: tuple[tuple[Table, str], ...] = ()
"""The structures whose digests were used last: hashing a structure takes longer than writing a lock."""


def structure_digest(table: Table) -> str:
    """Returns the digest with which locks name the structure of their table."""
    global _digests  # noqa: PLW0603 - replaced as a whole, so any thread may read it
    for known, digest in _digests:
        if known is table:
            return digest
    digest = sha256(json.dumps(table.to_json()).encode()).hexdigest()
    _digests = ((table, digest), *_digests[:_DIGESTS])
    return digest


@dataclass(frozen=True, slots=True)
class HeldChanges:
    """The changes of one locked key in one batch."""

    id: str
    """The id of the lock."""
    lsn: Lsn
    """The place of the first change."""
    changes: str
    """The changes in the order of the log, packed (`pidts.apply.locks.held_changes`)."""
