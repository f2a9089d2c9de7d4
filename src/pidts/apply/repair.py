"""Makes rows of a running task's target equal to the rows that the source has now.

The repair is correct because of the order of its steps:

1. All workers' checkpoints are locked. No checkpoint moves before this transaction ends, so the task writes nothing.
2. The rows are read from the source. These rows are at least as new as any checkpoint, since the source was read after
   the checkpoints were locked.
3. The rows are written, and rows that the source does not have are removed. COMMIT.

Later, the log between a checkpoint and the reading is applied to rows that already contain its changes. The result is
the same, because each change has the whole values of a row, not differences. But a change in this part of the log may
collide with a unique value of a repaired row: the row gets this value only later in the log. Safe mode handles such
collisions. But a task reads the place up to which it needs safe mode only when it starts. So a table with secondary
unique keys is repaired at a moment when the log between checkpoint and reading has no change of the table. If there is
no such moment, the place of the reading is recorded. Then the task may stop once at a collision, and after its next
start it uses safe mode up to this place.

A merged table is repaired for all members at once: the checkpoints of all their sources are locked, and a row is
removed if no member has it. If two members have a key, its row is not changed: nothing shows which of the two rows the
target should have.

Crash points: before COMMIT, nothing has happened. After COMMIT, the rows are equal. A second repair does no harm.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from pidts.apply.port import TargetSession
from pidts.model import Checkpoint, Lsn, Table
from pidts.reduce import Counts, NetChange
from pidts.reduce.key_numbers import chunkless, key_numbers, merged

Read = Callable[[pa.Table], tuple[pa.Table, Lsn]]
"""Reads the source's rows with these keys, and a place in its log at or after the last change in them."""
CaughtUp = Callable[[Sequence[Checkpoint], Lsn], bool]
"""Whether it is certain that the log between the checkpoints and a place has no change of the table."""


@dataclass(frozen=True, slots=True)
class RepairSource:
    """A source table that maps to the table that is repaired."""

    source: str
    table: Table
    """The table under the target's names."""
    read: Read
    caught_up: CaughtUp


@dataclass(frozen=True, slots=True)
class RepairResult:
    """The result of a repair of some keys."""

    written: int
    removed: int
    shared: int
    """The number of keys that several source tables have. The rows with these keys are not changed."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """The changes that make the target's rows equal to the sources' rows."""

    changes: tuple[NetChange, ...]
    shared: int


class PendingChanges(Exception):
    """Raised if changes of the table have not reached the target yet. Nothing was written."""

    def __init__(self, checkpoints: Sequence[Checkpoint]) -> None:
        super().__init__()
        self.places = tuple((row.lsn, row.copy) for row in checkpoints)


def repair(
    session: TargetSession,
    task: str,
    table: Table,
    origins: Sequence[RepairSource],
    keys: pa.Table,
    *,
    insist: bool = False,
    compares: bool = False,
    removes: bool = True,
) -> RepairResult:
    """Repairs a few hundred keys in a transaction of its own, while the task waits. The task need not have run yet.

    `table` has the columns that all `origins` have. Raises `PendingChanges`, unless `insist` is true. `compares`: the
    task compares the target's rows before it changes them. So the transaction records up to which place of the source's
    log these rows may already have the changes. Without `removes`, a row stays even if no origin has its key.
    """
    known = [
        source
        for source in sorted({origin.source for origin in origins})
        if session.meta.checkpoints.read(task, source)
    ]
    session.begin()
    try:
        held: Mapping[str, list[Checkpoint]] = {
            source: session.meta.checkpoints.lock_shared(task, source) for source in known
        }
        rows = []
        for origin in origins:
            found, high = origin.read(keys)
            rows.append((origin.table, found))
            standing = held.get(origin.source)
            collides = bool(origin.table.secondary_unique)
            if standing and (compares or collides) and not origin.caught_up(standing, high):
                _remember(session, standing, high, insist=insist or not collides)
        remedy = as_changes(table, rows, keys, removes=removes)
        for change in remedy.changes:
            session.write(_with_room(change))
        session.commit()
    except BaseException:
        session.rollback()
        raise
    written = sum(len(change.upserts) for change in remedy.changes)
    return RepairResult(written, sum(len(change.deletes) for change in remedy.changes), remedy.shared)


def as_changes(table: Table, found: Sequence[tuple[Table, pa.Table]], keys: pa.Table, *, removes: bool) -> Remedy:
    """Returns changes that write all rows in `found`, and delete the rows of those `keys` that no row in `found` has.

    Without `removes`, there are no deletes. Keys are compared byte by byte. Under a collation that ignores case, the
    key `A` finds the row `a`: then `A` is removed, and `a` is written. One of several origins may have columns that the
    target does not have yet. The target needs these columns only if rows of this origin are written. So a change
    without rows is left out.
    """
    names = list(table.identity)
    kinds = keys.select(names).schema
    parts = [chunkless(rows.select(names).cast(kinds), names) for _, rows in found]
    numbers = np.split(
        key_numbers(merged([chunkless(keys, names), *parts])), np.cumsum([len(keys), *map(len, (r for _, r in found))])
    )
    wanted, of_origin = numbers[0], numbers[1:-1]
    origin_counts = Counter(number for each in of_origin for number in np.unique(each).tolist())
    shared = [number for number, count in origin_counts.items() if count > 1]
    order = [(name, "ascending") for name in names]
    gone = keys.select(names).take(pa.array(np.flatnonzero(~np.isin(wanted, list(origin_counts)))))
    gone = gone if removes else gone.slice(0, 0)
    changes = []
    for (target_table, rows), each in zip(found, of_origin, strict=True):
        _, first = np.unique(each, return_index=True)
        own = np.sort(first[~np.isin(each[first], shared)])
        changes.append(
            NetChange(target_table, gone.slice(0, 0), rows.take(pa.array(own)).sort_by(order), Counts(), safe=True)
        )
    if len(found) == 1:
        return Remedy((replace(changes[0], deletes=gone.sort_by(order)),), 0)
    removal = NetChange(table, gone.sort_by(order), table.arrow.empty_table(), Counts(), safe=True)
    changes = [change for change in (removal, *changes) if len(change.deletes) or len(change.upserts)]
    return Remedy(tuple(changes), len(shared))


def _with_room(change: NetChange) -> NetChange:
    """Adds deletes by the keys of all written rows.

    These deletes also remove rows whose keys the target treats as equal to a written key. Without them, the target's
    row `A` could make the target refuse the source's row `a`.
    """
    names = list(change.table.identity)
    if not any(change.table.column(name).type.is_text for name in names):
        return change
    deletes = pa.concat_tables([change.deletes, change.upserts.select(names)])
    return replace(change, deletes=deletes.sort_by([(name, "ascending") for name in names]))


def _remember(session: TargetSession, held: list[Checkpoint], high: Lsn, *, insist: bool) -> None:
    """Records the place up to which the next start needs safe mode. Without `insist`, only raises `PendingChanges`."""
    if not insist:
        raise PendingChanges(held)
    task, source = held[0].task, held[0].source
    until = session.meta.safe_range.read(task, source)
    if until is None or until < high:
        session.meta.safe_range.save(task, source, high)
