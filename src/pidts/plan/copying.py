"""How far the full copy of a table has come, and the requests by which it goes on.

A request is read in one batch, after that batch's changes of the log are in the target, and settled by the next. What
it reads is one or several neighbouring *chunks*, side by side. Between the two batches lies its *window*: the rows were
read after everything in the first batch had happened on the source (`low`), and before the position `high` that the
source had when the reading was over. The batch that settles the request starts before the window and is made to end
behind it, so whatever it writes of the log is newer than what was read. What cannot be settled, since a schema change
stands in the window or the window is too long to be reduced in memory, is read again.

Rows that nobody has on the target are loaded as soon as they are read, in a transaction of their own, while no worker
has gone behind `low`; see `pidts.apply.load`. A chunk of which the target holds a row, or a unique value, already is
kept aside (`waiting`), and is reduced together with the log of its window by the batch that settles it: there every
change of the log wins over the copied row. Either way a row that was deleted between its reading and its writing is
gone when that batch is done, and a row that was not touched in the window is what it was when it was read.

So between its loading and its settling a row may be *ahead*: it shows what the log will only bring. For a reader of the
target that is what a copy under way looks like. For what is written meanwhile it means that a unique value may be taken
by a row that will have given it away:

    the target, at 100, has (1, u=a)        the source: row 1 gets u=b at 110 and u=c at 120, row 2 gets u=b at 130
    read at 140 and loaded: (2, u=b)        the batch to 110 writes (1, u=b), and b is taken

A batch that settles what was loaded removes first whatever it changes: what is left are rows that nothing has changed
since the batch began, and those are right already. A batch that ends before, or is written in several parts, besides
lets rows with the same unique value give way (`CopyState.ahead`): the log behind it brings them back, or they are read
again.

A table without a key is read whole, from one snapshot. None of its changes is carried before that is settled, and the
request only counts if the log has none between its `low` and its `high`. Then the table stands at `high`, and goes on
from there by itself until it is where the others are.

A table that is repaired (`Way.REPAIR`) has rows on the target. After its rows were brought, the target's are gone
through for those that the source has not (`Phase.EXTRAS`). Where others have rows there, too (`Way.OWN`), these are not
looked at, and do not give way to anything either.

Every table ends with `Phase.FINISH`. A table whose copy is done is told once more, by the state after the batch that
ended it, and then no longer: a task with thousands of tables pays only for those that it is copying.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pidts.model import Lsn, TableName

KeyValues = tuple[Any, ...]


class Way(StrEnum):
    """What the target has of a table when its copy begins."""

    NEW = "new"
    """Nothing."""
    REPAIR = "repair"
    """Rows, of which nobody knows whether they are right."""
    ADD = "add"
    """Rows, some of which the source has not, or has under other keys: what is read is brought, none is removed."""
    OWN = "own"
    """Rows of others, too; by its key the target tells which ones are this table's, and only these are looked at."""


class Phase(StrEnum):
    """What is copied."""

    ROWS = "rows"
    EXTRAS = "extras"
    """Rows of the target that the source has not; keys are the target's, in its order."""
    FINISH = "finish"
    """Nothing is read: what is better made when all rows are there, keys and counters."""


@dataclass(frozen=True, slots=True)
class ChunkRequest:
    """Read up to `parts` chunks of `limit` rows of a table whose key lies behind `after` and not behind `upto`."""

    table: TableName
    number: int
    """No other request of this run for this table has it, also not one for the same rows."""
    after: KeyValues | None
    upto: KeyValues | None
    """The table's highest key when its copy began; None for the first chunk, whose reading finds it."""
    limit: int
    parts: int = 1
    phase: Phase = Phase.ROWS
    way: Way = Way.NEW
    whole: bool = False
    """All rows at once, of a table without a key."""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "table": [self.table.schema, self.table.name],
            "number": self.number,
            "after": self.after,
            "upto": self.upto,
            "limit": self.limit,
            "parts": self.parts,
            "phase": self.phase.value,
            "way": self.way.value,
            "whole": self.whole,
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
            data["parts"],
            Phase(data["phase"]),
            Way(data["way"]),
            data["whole"],
        )


@dataclass(frozen=True, slots=True)
class StagedChunk:
    """A request that was carried out and waits to be settled.

    `stale` says that the source refused to read these columns: the table has changed, and the log will say how.
    """

    request: ChunkRequest
    high: Lsn
    rows: int
    """All that were read, loaded or waiting."""
    last_key: KeyValues | None
    upto: KeyValues | None
    is_last: bool
    stale: bool = False
    low: Lsn | None = None
    waiting: int = 0
    """Rows that the settling batch has to write; the others are on the target already."""
    bytes: int = 0
    """Of the largest of its chunks, in memory; with its rows and seconds it tells how large the next should be."""
    largest: int = 0
    """Rows of that chunk."""
    seconds: float = 0.0
    """For which that chunk was read and loaded."""


@dataclass(frozen=True, slots=True)
class CopyState:
    """One table's progress: everything up to and including the key `after` is on the target."""

    after: KeyValues | None = None
    upto: KeyValues | None = None
    reads: int = 0
    """Requests that were made, also those that were dropped."""
    rows: int = 0
    done: bool = False
    reading: ChunkRequest | None = None
    """What the batch which led to this state has read."""
    way: Way = Way.NEW
    phase: Phase = Phase.ROWS
    limit: int = 0
    """Rows of a chunk, as the last ones have shown to be right; 0: nobody has tried yet."""
    estimate: int = 0
    """Rows in all, as the source guessed when the copy began; 0 where it could not."""
    since: Lsn | None = None
    """The log up to here does not concern the table: it joined the task there, or was copied whole as of there."""
    keyless: bool = False
    """It has no key: it is copied whole, and until that is settled none of its changes is carried."""
    settled: int = 0
    """The requests before this number are settled, or what they may have loaded is written over by one that is."""
    ahead: bool = False
    """Rows may show more than the log that the batch which led here has carried, while it is written or behind it."""
    parts: int = 0
    """The most chunks that a request may have, so that waiting rows fit into memory; 0: any number."""
    row_bytes: int = 0
    """Of one row, as the source guessed when the copy began; 0 where it could not."""

    @property
    def is_carried(self) -> bool:
        """Whether the table's changes are written, once the log concerns it."""
        return self.done or not self.keyless or self.phase is not Phase.ROWS

    def to_json(self) -> dict[str, Any]:
        """Plain values, without those that a table begins with: there may be thousands that have not begun."""
        data: dict[str, Any] = {
            "after": self.after,
            "upto": self.upto,
            "reads": self.reads,
            "rows": self.rows,
            "done": self.done,
            "reading": None if self.reading is None else self.reading.to_json(),
            "way": self.way.value,
            "phase": self.phase.value,
            "limit": self.limit,
            "estimate": self.estimate,
            "since": None if self.since is None else str(self.since),
            "keyless": self.keyless,
            "settled": self.settled,
            "ahead": self.ahead,
            "parts": self.parts,
            "row_bytes": self.row_bytes,
        }
        begins = {"way": Way.NEW.value, "phase": Phase.ROWS.value}
        return {name: value for name, value in data.items() if value and value != begins.get(name)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> CopyState:
        """The inverse of `to_json`."""
        return cls(
            after=key_values(data.get("after")),
            upto=key_values(data.get("upto")),
            reads=data.get("reads", 0),
            rows=data.get("rows", 0),
            done=data.get("done", False),
            reading=ChunkRequest.from_json(data["reading"]) if data.get("reading") else None,
            way=Way(data.get("way", Way.NEW)),
            phase=Phase(data.get("phase", Phase.ROWS)),
            limit=data.get("limit", 0),
            estimate=data.get("estimate", 0),
            since=Lsn.parse(data["since"]) if data.get("since") else None,
            keyless=data.get("keyless", False),
            settled=data.get("settled", 0),
            ahead=data.get("ahead", False),
            parts=data.get("parts", 0),
            row_bytes=data.get("row_bytes", 0),
        )


def key_values(data: Sequence[Any] | None) -> KeyValues | None:
    """A key as JSON holds it."""
    return None if data is None else tuple(data)
