"""The progress of a table's full copy, and the requests that continue it.

**The usual course.** A *request* reads one *chunk*, the rows of one range of keys, or several neighbouring chunks at
the same time. The chunk is read after a batch is on the target. The *window* of the request is the log from `low` to
`high`: the rows show every change up to `low`, and none after `high`. `low` is not before that batch's end. The next
batch *settles* the request: then its rows count as copied. This batch starts before the window, and is made to end
after it, so it has all changes of the window. A request is read again if its window has a schema change, or is too long
to be reduced in memory.

**Rows ahead.** Rows that the target lacks are loaded as soon as they are read, in a transaction of their own
(`pidts.apply.load`). No row can be loaded after a worker has passed `low`. If the target already has a row of a chunk,
or one of its unique values, the chunk waits (`waiting`). The settling batch reduces its rows together with the log of
the window, where each change replaces the copied row. In both cases, the settling batch leaves no row that was deleted
after it was read. A row that was not changed in the window has the values that were read.

Before its request is settled, a loaded row may be *ahead*: it contains a change that no batch has reached yet. Readers
of the target see rows ahead while a copy is under way. Meanwhile, a batch may write a unique value that a row ahead
already has:

    the target, at 100, has (1, u=a)        the source: row 1 gets u=b at 110 and u=c at 120, row 2 gets u=b at 130
    read at 140 and loaded: (2, u=b)        the batch to 110 writes (1, u=b), and b is taken

So the settling batch first removes all rows that it changes. The other rows already have their values of the batch's
end. If a batch ends earlier, or is written in several parts, it also removes other rows that have a unique value of a
written row (`CopyState.ahead`). Later changes in the log write the removed rows again, or the copy reads them again.

**A table without a key** is read as a whole, from one snapshot. None of its changes is applied before this request is
settled, so its rows are loaded at once even while requests wait (below). The request counts only if the log has no
change of the table from `low` to `high`. Then the table is at `high`, and continues from there separately until it has
caught up with the other tables.

**A table under repair** (`CopyMode.REPAIR`) has rows on the target. After its rows are written, the target is searched
for rows that the source does not have (`Phase.EXTRAS`). If the target table also has rows of other sources
(`CopyMode.OWN`), these rows are not examined, and are never removed.

**Recorded keys.** A batch may record keys whose rows the log does not have completely
(`pidts.apply.rows.partial_images`). Before a table is finished, the target is asked for these records. If there are
any, their keys are read like a chunk (`Phase.REREAD`). A request reads the records between two places in the log; the
first request begins with the first record. Each request ends at the Lsn that all workers have reached: up to this Lsn,
all records are written. After this Lsn, a worker that was ahead in an earlier run may have written records already, and
other workers may still write records before these. When the request is settled, the target is asked for records again.

**Requests that wait.** If a batch carries the changes of only one zone (`Limits.one_origin`), it may end inside a
window, before a change of another zone. While two zones write, every batch may end inside a window, and then no batch
covers a whole window. From the first such batch on, the table's requests *wait* (`CopyState.waits`): their rows are not
loaded ahead of the log. A request is *kept* until a batch reaches its `high`. That batch settles the request in one of
two cases:

- The batch begins at or before `low`. So it covers the whole window, as usual.
- The log has no change of the table from `low` to `high`. So the rows were the same at each place between the two, also
  at the place where the batch begins.

Each batch examines its own part of the window, since the earlier log may be purged. If a batch does not reach `high`,
and has a change of the table in its part, the request is dropped. Otherwise this could happen: a row is read, an
earlier batch deletes it, and a later batch writes it again. The table is read again by a request with fewer rows, which
has a shorter window.

Requests before the first waiting request may have loaded rows. These rows are ahead until all rows are read. Until a
kept request is settled, batches treat its rows like the rows of a dropped request: the target lacks them, and they will
be read. So partial images do no harm, and a run that dies when only some of its workers have committed does no harm.

The first request also finds the highest key (`upto`). If a row moves above this key before the reading, the copy does
not read the row. So a batch that keeps the request needs `upto`: without it, the batch would leave the moved row to the
copy.

**The end.** Every table's copy ends with `Phase.FINISH`. The state after the batch that ended a table's copy still has
the table, as done. Later states do not have it. So a task with thousands of tables pays only for tables that it copies.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from pidts.model import Lsn, TableName

KeyValues = tuple[Any, ...]

MOST_REREADS = 1000
"""The most keys of one record, and the most recorded keys that one request reads again."""


class CopyMode(StrEnum):
    """How a copy treats existing rows of the target, depending on what is known about them when the copy begins."""

    NEW = "new"
    """The target table has no rows."""
    REPAIR = "repair"
    """The target table has rows, and it is not known whether they equal the source's rows."""
    ADD = "add"
    """The target table has rows that the source lacks or has under other keys. Rows are added, and none is removed."""
    OWN = "own"
    """The target table also has rows of other source tables. Only rows whose key shows that they belong to this source
    table are examined.
    """


class Phase(StrEnum):
    """The phases of a copy."""

    ROWS = "rows"
    EXTRAS = "extras"
    """The target's keys, in the target's order, are searched for rows that the source does not have."""
    REREAD = "reread"
    """Recorded keys, whose rows the log did not have completely, are read again in the order of their records."""
    FINISH = "finish"
    """No rows are read: all rows are copied, and now the remaining keys and the counters are created."""


@dataclass(frozen=True, slots=True)
class ChunkRequest:
    """A request to read up to `parts` chunks of `limit` rows with keys after `after` and up to `upto`."""

    table: TableName
    number: int
    """Unique among this run's requests for the table, even if two requests read the same rows."""
    after: KeyValues | None
    upto: KeyValues | None
    """The table's highest key when its copy began; None for the first chunk, whose reading finds it."""
    limit: int
    parts: int = 1
    phase: Phase = Phase.ROWS
    mode: CopyMode = CopyMode.NEW
    whole: bool = False
    """Whether all rows are read at once, because the table has no key."""
    waits: bool = False
    """Whether the rows of the request must not be loaded ahead of the log."""

    @property
    def may_be_kept(self) -> bool:
        """Whether any number of batches may be applied before the request is settled."""
        return self.waits or self.whole or self.mode is not CopyMode.NEW or self.phase is not Phase.ROWS

    def to_json(self) -> dict[str, Any]:
        """Returns plain values."""
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
        """The inverse of `to_json`."""
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

    `altered`: the source has refused to read columns, since the table has changed; the log has this change.
    """

    request: ChunkRequest
    high: Lsn
    rows: int
    """How many rows were read. Some of these rows may already be loaded; `waiting` counts the others."""
    last_key: KeyValues | None
    upto: KeyValues | None
    is_last: bool
    altered: bool = False
    low: Lsn | None = None
    waiting: int = 0
    """How many rows the settling batch has to write; the target already has the other rows."""
    bytes: int = 0
    """The memory of the largest chunk. Together with its rows and seconds, it determines the next chunk's size."""
    largest: int = 0
    """How many rows the largest chunk has."""
    seconds: float = 0.0
    """The seconds that reading and loading the largest chunk took."""


@dataclass(frozen=True, slots=True)
class CopyState:
    """One table's progress: all rows up to and including the key `after` are on the target."""

    after: KeyValues | None = None
    upto: KeyValues | None = None
    reads: int = 0
    """How many requests were made, including dropped ones."""
    rows: int = 0
    done: bool = False
    reading: ChunkRequest | None = None
    """The request that was carried out with the batch that led to this state; None if there was none."""
    kept: ChunkRequest | None = None
    """An earlier request, whose window ends after the batch that led to this state; None if there is none."""
    mode: CopyMode = CopyMode.NEW
    phase: Phase = Phase.ROWS
    limit: int = 0
    """How many rows the next chunk has, computed from the last chunks; 0: no chunk was read yet."""
    estimate: int = 0
    """How many rows the table had when the copy began, by the source's estimate; 0 without an estimate."""
    since: Lsn | None = None
    """The place up to which the log does not concern the table: where the table joined the task, or, if it was copied
    as a whole, where its snapshot was taken.
    """
    keyless: bool = False
    """Whether the table has no key. Then it is copied as a whole, and its changes are applied only after that copy."""
    settled: int = 0
    """Each request with a lower number is settled, or was dropped. A dropped request may have loaded rows; a settled
    request overwrites them.
    """
    ahead: bool = False
    """Whether target rows may contain changes from after the batch's end, while the batch is written or later."""
    parts: int = 0
    """How many chunks a request may have, so that the staged rows fit into memory; 0: any number."""
    row_bytes: int = 0
    """The bytes of one row when the copy began, by the source's estimate; 0 without an estimate."""
    waits: bool = False
    """Whether no rows are loaded ahead of the log, because a window had changes of another zone."""
    sends_again: bool = False
    """Whether the copy reads the recorded keys of a past part of the log (`pidts.task.run.rewind`). The target's rows
    with these keys may be wrong.
    """
    _text: tuple[TableName, str] | None = field(default=None, init=False, compare=False, repr=False)

    def text(self, name: TableName) -> str:
        """Returns the progress of the table of this name as JSON, as a checkpoint has it.

        The text is kept: each batch writes the progress of all tables, and most of it has not changed.
        """
        if self._text is None or self._text[0] != name:
            text = json.dumps([name.schema, name.name, self.to_json()])
            object.__setattr__(self, "_text", (name, text))
            return text
        return self._text[1]

    @property
    def is_read(self) -> bool:
        """Whether all rows were read before the batch that led to this state. Rows of recorded keys do not count.

        False directly after `ROWS` (`after` is None): the batch itself may have settled the last rows. Also False if
        `sends_again`, since the target's rows with the recorded keys may be wrong:

            the target has (1, u=5) and (2, u=3), the source (1, u=3) and (2, u=5), and both keys are recorded
            row 1 is read and written       UPDATE 2 SET a = 1, logged without u: (2, u=3) would remove row 1
        """
        if self.sends_again:
            return False
        return self.phase is Phase.REREAD or (self.phase is not Phase.ROWS and self.after is not None)

    @property
    def is_carried(self) -> bool:
        """Whether batches write the table's changes: without a key, only after the copy of its rows."""
        return self.done or not self.keyless or self.phase is not Phase.ROWS

    @property
    def unread(self) -> CopyState:
        """Returns the state without requests that were read and are not settled."""
        # Of thousands of tables, few are being read. The others need no new object in each batch.
        return self if self.reading is None and self.kept is None else replace(self, reading=None, kept=None)

    def to_json(self) -> dict[str, Any]:
        """Returns plain values. Leaves out initial values: the copy of thousands of tables may not have begun."""
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
            "sends_again": self.sends_again,
        }
        begins = {"way": CopyMode.NEW.value, "phase": Phase.ROWS.value}
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
            sends_again=data.get("sends_again", False),
        )


def key_values(data: Sequence[Any] | None) -> KeyValues | None:
    """Returns a key from its JSON form; None: no key."""
    return None if data is None else tuple(data)
