"""How far the full copy of a table has come, and the chunks by which it goes on.

A chunk is read in one batch and written in the next. Between the two lies its *window*: the chunk was read after
everything in the first batch had happened on the source, and before the position `high` that the source had when the
reading was over. The batch that writes the chunk therefore starts before the window and is made to end behind it, and
inside that batch every change of the log wins over the copied row. A row that was deleted between its reading and its
writing stays deleted; a row that was not touched in the window is what it was when it was read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pidts.model import Lsn, TableName

KeyValues = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class ChunkRequest:
    """Read up to `limit` rows of a table whose key lies behind `after` and not behind `upto`."""

    table: TableName
    number: int
    """No other request of this run for this table has it, also not one for the same rows."""
    after: KeyValues | None
    upto: KeyValues | None
    """The table's highest key when its copy began; None for the first chunk, whose reading finds it."""
    limit: int

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "table": [self.table.schema, self.table.name],
            "number": self.number,
            "after": self.after,
            "upto": self.upto,
            "limit": self.limit,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ChunkRequest:
        """The inverse of `to_json`."""
        return cls(
            TableName(*data["table"]),
            data["number"],
            key_values(data["after"]),
            key_values(data["upto"]),
            data["limit"],
        )


@dataclass(frozen=True, slots=True)
class StagedChunk:
    """A chunk that was read and waits to be written.

    `stale` says that the source refused to read these columns: the table has changed, and the log will say how.
    """

    request: ChunkRequest
    high: Lsn
    rows: int
    last_key: KeyValues | None
    upto: KeyValues | None
    is_last: bool
    stale: bool = False


@dataclass(frozen=True, slots=True)
class CopyState:
    """One table's progress: everything up to and including the key `after` is on the target."""

    after: KeyValues | None = None
    upto: KeyValues | None = None
    reads: int = 0
    """Chunks that were asked for, also those that were dropped."""
    rows: int = 0
    done: bool = False
    reading: ChunkRequest | None = None
    """The chunk that the batch which led to this state has read."""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "after": self.after,
            "upto": self.upto,
            "reads": self.reads,
            "rows": self.rows,
            "done": self.done,
            "reading": None if self.reading is None else self.reading.to_json(),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> CopyState:
        """The inverse of `to_json`."""
        return cls(
            after=key_values(data["after"]),
            upto=key_values(data["upto"]),
            reads=data["reads"],
            rows=data["rows"],
            done=data["done"],
            reading=None if data["reading"] is None else ChunkRequest.from_json(data["reading"]),
        )


def key_values(data: Sequence[Any] | None) -> KeyValues | None:
    """A key as JSON holds it."""
    return None if data is None else tuple(data)
