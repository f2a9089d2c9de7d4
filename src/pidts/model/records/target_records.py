"""The target's records of rows that were deleted or may have moved, and of online schema changes under way."""

from __future__ import annotations

from dataclasses import astuple, dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pidts.model.lsn import Lsn
from pidts.model.table import Table, TableName


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A record of a deleted row, which keeps events from before the deletion from inserting the row again."""

    key: str
    """The row's identity, see `pidts.apply.rows.tombstone_keys.key_texts`."""
    version: str | None
    """The version of the deleted row; None for a NULL."""
    source: str
    lsn: Lsn
    """The place where `source` logged the deletion."""


@dataclass(frozen=True, slots=True)
class Tombstones:
    """The tombstones of rows whose deletion one source has logged, as columns: a batch may have many."""

    keys: pa.StringArray
    versions: pa.StringArray
    source: str
    lsns: pa.StringArray
    """The texts of the places where `source` logged the deletions."""

    def __len__(self) -> int:
        return len(self.keys)

    def in_key_order(self) -> Tombstones:
        """Returns the tombstones sorted by their keys."""
        order = pc.sort_indices(self.keys)
        return replace(self, keys=self.keys.take(order), versions=self.versions.take(order), lsns=self.lsns.take(order))

    def slice(self, first: int, count: int) -> Tombstones:
        """Returns at most `count` tombstones from a place on."""
        return replace(
            self,
            keys=self.keys.slice(first, count),
            versions=self.versions.slice(first, count),
            lsns=self.lsns.slice(first, count),
        )

    def each(self) -> list[Tombstone]:
        """Returns the tombstones one by one."""
        columns = (self.keys.to_pylist(), self.versions.to_pylist(), self.lsns.to_pylist())
        return [
            Tombstone(key, version, self.source, Lsn.parse(lsn)) for key, version, lsn in zip(*columns, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class EarlyRemoval:
    """A row whose removal a task applied before another task had inserted the row, or after the row was gone."""

    key: str
    """A digest of the row's key as the target compares it."""
    task: str
    time: int
    """When the source removed the row, in seconds since 1970; 0: unknown."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A note to other zones: a task has brought a change of this row that was already made in this zone."""

    key: str
    """The values of the row's key, as `pidts.apply.uncopied_keys.packed` writes them."""
    removed: str
    """A digest of the row that the change removed. Empty: there was no such row, or equal rows can have different
    digests.
    """
    time: int
    """When the source made the change, in seconds since 1970; 0: unknown."""


@dataclass(frozen=True, slots=True)
class MovedKey:
    """A record that a member of a merged table got a row with this key while another member lagged."""

    member: TableName
    key: str
    """The row's identity, see `pidts.apply.merge.moved_rows.key_names`."""
    lsn: Lsn
    """The Lsn of the change by which the row got the key."""


@dataclass(frozen=True, slots=True)
class LoggedStatement:
    """A statement in the log with all settings that decide its meaning."""

    sql: str
    schema: str = ""
    sql_mode: int | None = None
    time_zone: str = ""
    utf8_literals: bool = False
    """Whether the session's literals are in UTF-8. Columns of bytes store literals in the session's charset."""


@dataclass(frozen=True, slots=True)
class Shadow:
    """A table that a schema change tool fills, and then puts in place of another. Shadow rows are never applied."""

    structure: Table | None
    """The structure after the log's statements on the shadow table. None: PiDTS could not interpret a statement."""
    statements: tuple[LoggedStatement, ...] = ()
    """The statements that altered the shadow table, in order."""
    complete: bool = True
    """Whether the whole history of the shadow table is known. False if the shadow table existed before the task."""

    def to_json(self) -> dict[str, Any]:
        """Returns plain values. Earlier versions read four values of a statement, without `utf8_literals`."""
        return {
            "structure": self.structure and self.structure.to_json(),
            "statements": [list(astuple(logged)[:4]) for logged in self.statements],
            "complete": self.complete,
            "utf8_literals": [logged.utf8_literals for logged in self.statements],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Shadow:
        """The inverse of `to_json`."""
        texts = data["statements"]
        in_utf8 = data.get("utf8_literals") or [False] * len(texts)
        return cls(
            structure=data["structure"] and Table.from_json(data["structure"]),
            statements=tuple(
                replace(LoggedStatement(*text), utf8_literals=known) for text, known in zip(texts, in_utf8, strict=True)
            ),
            complete=data["complete"],
        )
