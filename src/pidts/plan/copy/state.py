"""The progress of a table's full copy, and the requests by which it continues.

A request is read in one batch, after that batch's changes of the log are in the target, and settled by the next. It
reads one or several neighbouring *chunks* at the same time. Between the two batches is its *window*. The rows were read
after everything in the first batch had happened on the source (`low`). They were read before the position `high` that
the source had when the reading was over. The batch that settles the request starts before the window and is made to end
after it, so all changes that it writes from the log are newer than the rows read. A request that cannot be settled is
read again. That happens where a schema change is in the window, or where the window is too long to be reduced in
memory.

Rows that are not on the target yet are loaded as soon as they are read, in a transaction of their own, while no worker
has passed `low`; see `pidts.apply.load`. A chunk is set aside (`waiting`) if the target holds one of its rows, or one
of its unique values, already. The batch that settles it reduces it together with the log of its window: there every
change of the log wins over the copied row. Either way, a row that was deleted between its reading and its writing is
gone when that batch is done. A row that was not touched in the window is what it was when it was read.

So between its loading and its settling a row may be *ahead*: it shows a change that the log brings only later. For a
reader of the target that is how a copy under way looks. For writes during that time it means that a unique value may be
taken by a row that will give it away later:

    the target, at 100, has (1, u=a)        the source: row 1 gets u=b at 110 and u=c at 120, row 2 gets u=b at 130
    read at 140 and loaded: (2, u=b)        the batch to 110 writes (1, u=b), and b is taken

A batch that settles loaded rows first removes all rows that it changes. The rows that are left have not changed since
the batch began, and they are right already. A batch that ends earlier, or is written in several parts, also removes
rows with the same unique value (`CopyState.ahead`). The following log writes them again, or they are read again.

A table without a key is read whole, from one snapshot. None of its changes is carried before that is settled, and the
request only counts if the log has none between its `low` and its `high`. Then the table is at `high`, and continues
from there by itself until it has caught up with the others.

A table that is repaired (`CopyMode.REPAIR`) has rows on the target. After its rows were written, the target's rows are
searched for those that the source does not have (`Phase.EXTRAS`). Where other sources have rows there, too
(`CopyMode.OWN`), their rows are not examined, and are never removed.

A batch may record keys whose rows the log does not tell, see `pidts.apply.rows.partial_images`. Before a table is
finished, the target is asked for such records. If there are any, their keys are read (`Phase.REREAD`) as a chunk is,
from the first record to the last one that all workers have written: that is at or before the place of the asking state.
A request names the places between which it reads. A worker that was ahead in an earlier run may have written later
records already, and another one may still write records before those. Then the target is asked again.

Where a batch carries changes of one zone alone (`Limits.one_origin`), it may end inside a window, before a change of
another zone. While two zones write, no batch that follows a reading has all of its window. From the first such batch
on, the table's requests *wait* (`CopyState.waits`): none of their rows is loaded ahead of the log, and a request is
*kept* while batches pass, until one reaches its `high`. That batch settles it in one of two cases:

- The batch begins at or before `low`. So the whole window is in it, as always.
- The log has no change of the table from `low` to `high`. So the rows are as they were at each place between the two,
  and as if they had been read where the batch begins.

Each batch looks at its own part of the window, since the log before it may be gone. A change of the table in the part
that a batch carries, without reaching `high`, ends the request: it is read again, in a smaller piece, so that its
window is shorter. Without that, a row that is read, deleted by an earlier batch, and written by a later one would come
back. Requests before the first one that waits may have loaded rows; these are ahead until all rows are read. What
batches do to rows before the request is settled is what they do where a request is given up: its rows are not on the
target, and will be read. So they may have images in part, and a task may die between any two of its workers.

The first request also finds the highest key. A row may move behind that key before the reading. So a batch that keeps
the request has to know the key (`upto`): it does not leave that row to the copy.

A table without a key is loaded at once also then: no batch changes it until it is settled.

Every table ends with `Phase.FINISH`. The state after the batch that ended a table's copy names the table once more as
done; later states do not name it. So a task with thousands of tables pays only for those that it is copying.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pidts.model import Lsn, TableName

KeyValues = tuple[Any, ...]

MOST_REREADS = 1000
"""The keys of one record, and of one request that reads recorded keys again."""


class CopyMode(StrEnum):
    """What a copy does with rows that the target has, by what is known of them when the copy begins."""

    NEW = "new"
    """The table has no rows."""
    REPAIR = "repair"
    """The table has rows, and it is not known whether they are right."""
    ADD = "add"
    """The table has rows, some of which the source lacks or has under other keys: rows are added, none is removed."""
    OWN = "own"
    """The table has rows of others, too; only those are examined that are this table's by the target's key."""


class Phase(StrEnum):
    """The phases of a copy."""

    ROWS = "rows"
    EXTRAS = "extras"
    """Rows of the target that the source does not have are searched for, by the target's keys in its order."""
    REREAD = "reread"
    """Keys are read again that were recorded since the log did not tell their rows, in the order of their records."""
    FINISH = "finish"
    """Nothing is read: keys and counters are made, which are better made when all rows are there."""


@dataclass(frozen=True, slots=True)
class ChunkRequest:
    """A request to read up to `parts` chunks of `limit` rows with keys after `after` and up to `upto`."""

    table: TableName
    number: int
    """The request's number, which no other request of this run for this table has, even for the same rows."""
    after: KeyValues | None
    upto: KeyValues | None
    """The table's highest key when its copy began; None for the first chunk, whose reading finds it."""
    limit: int
    parts: int = 1
    phase: Phase = Phase.ROWS
    mode: CopyMode = CopyMode.NEW
    whole: bool = False
    """Whether all rows are read at once, since the table has no key."""
    waits: bool = False
    """Whether its rows are not loaded ahead of the log."""

    @property
    def may_be_kept(self) -> bool:
        """Whether it makes no difference how many batches pass before it is settled."""
        return self.waits or self.whole or self.mode is not CopyMode.NEW or self.phase is not Phase.ROWS

    def to_json(self) -> dict[str, Any]:
        """Returns the request as plain values."""
        return {
            "table": [self.table.schema, self.table.name],
            "number": self.number,
            "after": self.after,
            "upto": self.upto,
            "limit": self.limit,
            "parts": self.parts,
            "phase": self.phase.value,
            "way": self.mode.value,
            "whole": self.whole,
            "waits": self.waits,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ChunkRequest:
        """Returns the request of such values; the inverse of `to_json`."""
        return cls(
            TableName(*data["table"]),
            data["number"],
            key_values(data["after"]),
            key_values(data["upto"]),
            data["limit"],
            data["parts"],
            Phase(data["phase"]),
            CopyMode(data["way"]),
            data["whole"],
            data.get("waits", False),
        )


@dataclass(frozen=True, slots=True)
class StagedChunk:
    """A request that was carried out and waits to be settled.

    `stale` says that the source refused to read these columns: the table has changed, and the log will say how.
    """

    request: ChunkRequest
    high: Lsn
    rows: int
    """All rows that were read, loaded or waiting."""
    last_key: KeyValues | None
    upto: KeyValues | None
    is_last: bool
    stale: bool = False
    low: Lsn | None = None
    waiting: int = 0
    """Rows that the settling batch has to write; the others are on the target already."""
    bytes: int = 0
    """Memory of the largest chunk; with its rows and seconds it determines the next chunk's size."""
    largest: int = 0
    """Rows of that chunk."""
    seconds: float = 0.0
    """Time that reading and loading that chunk took."""


@dataclass(frozen=True, slots=True)
class CopyState:
    """One table's progress: all rows up to and including the key `after` are on the target."""

    after: KeyValues | None = None
    upto: KeyValues | None = None
    reads: int = 0
    """Requests that were made, including those that were dropped."""
    rows: int = 0
    done: bool = False
    reading: ChunkRequest | None = None
    """The request that the batch which led to this state has read."""
    kept: ChunkRequest | None = None
    """A request that was read earlier, and of whose window the batch that led here has not reached the end."""
    mode: CopyMode = CopyMode.NEW
    phase: Phase = Phase.ROWS
    limit: int = 0
    """Rows of a chunk, as the last chunks have shown to be right; 0: no chunk was read yet."""
    estimate: int = 0
    """Rows in all, as the source guessed when the copy began; 0 if it could not."""
    since: Lsn | None = None
    """The place up to which the log does not concern the table: it joined there, or was copied whole as of there."""
    keyless: bool = False
    """Whether the table has no key: it is copied whole, and until that is settled none of its changes is carried."""
    settled: int = 0
    """The number before which all requests are settled, or a settled request overwrites what they may have loaded."""
    ahead: bool = False
    """Whether rows may show more of the log than the batch has carried, while it is written or after it."""
    parts: int = 0
    """The most chunks that a request may have, so that waiting rows fit into memory; 0: any number."""
    row_bytes: int = 0
    """Bytes of one row, as the source guessed when the copy began; 0 if it could not."""
    waits: bool = False
    """Whether no rows are loaded ahead of the log, since changes of another zone stood in a window."""

    @property
    def is_read(self) -> bool:
        """Whether all rows were read before the batch that led here, but for recorded keys.

        Where a phase after `ROWS` has no key yet, the batch may have settled the last rows.
        """
        return self.phase is Phase.REREAD or (self.phase is not Phase.ROWS and self.after is not None)

    @property
    def is_carried(self) -> bool:
        """Whether the table's changes are written, once the log concerns it."""
        return self.done or not self.keyless or self.phase is not Phase.ROWS

    def to_json(self) -> dict[str, Any]:
        """Returns plain values, without those that a table begins with: thousands of tables may not have begun."""
        data: dict[str, Any] = {
            "after": self.after,
            "upto": self.upto,
            "reads": self.reads,
            "rows": self.rows,
            "done": self.done,
            "reading": None if self.reading is None else self.reading.to_json(),
            "kept": None if self.kept is None else self.kept.to_json(),
            "way": self.mode.value,
            "phase": self.phase.value,
            "limit": self.limit,
            "estimate": self.estimate,
            "since": None if self.since is None else str(self.since),
            "keyless": self.keyless,
            "settled": self.settled,
            "ahead": self.ahead,
            "parts": self.parts,
            "row_bytes": self.row_bytes,
            "waits": self.waits,
        }
        begins = {"way": CopyMode.NEW.value, "phase": Phase.ROWS.value}
        return {name: value for name, value in data.items() if value and value != begins.get(name)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> CopyState:
        """Returns the state of such values; the inverse of `to_json`."""
        return cls(
            after=key_values(data.get("after")),
            upto=key_values(data.get("upto")),
            reads=data.get("reads", 0),
            rows=data.get("rows", 0),
            done=data.get("done", False),
            reading=ChunkRequest.from_json(data["reading"]) if data.get("reading") else None,
            kept=ChunkRequest.from_json(data["kept"]) if data.get("kept") else None,
            mode=CopyMode(data.get("way", CopyMode.NEW)),
            phase=Phase(data.get("phase", Phase.ROWS)),
            limit=data.get("limit", 0),
            estimate=data.get("estimate", 0),
            since=Lsn.parse(data["since"]) if data.get("since") else None,
            keyless=data.get("keyless", False),
            settled=data.get("settled", 0),
            ahead=data.get("ahead", False),
            parts=data.get("parts", 0),
            row_bytes=data.get("row_bytes", 0),
            waits=data.get("waits", False),
        )


def key_values(data: Sequence[Any] | None) -> KeyValues | None:
    """Returns a key from its JSON form."""
    return None if data is None else tuple(data)
