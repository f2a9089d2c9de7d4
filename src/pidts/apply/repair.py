"""Rows of a running task's target, made what the source has now.

The order is what makes it right:

1. All workers' checkpoints are held. Nobody moves one before this transaction ends: the target stands where it is.
2. The rows are read from the source. What was read is at least as new as any checkpoint, since those lie before.
3. The rows are written, and those that the source does not have are removed. COMMIT.

The log between a checkpoint and the reading then goes over rows that show it already. It ends in the same rows, for
each change says what a row is, not what is added to it. On its way it may meet a unique value that a repaired row has
from the future. That is what safe mode is for; but a running task knows only at its next start up to where it has to be
careful. So a table with secondary unique keys is repaired when the log between the two places has nothing about it, and
only if that moment does not come, the place is remembered and the task may stop once.

Where several tables are merged into one, that holds for all of them at once: the checkpoints of all their sources are
held, and a row is removed if it is in none of them. A key that two of them have is left alone: nobody can say whose row
the target's is to be.

Crash points: before COMMIT nothing has happened; behind it the rows are right, and repairing them again is harmless.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from pidts.apply.keys import chunkless, key_numbers, merged
from pidts.apply.port import TargetSession
from pidts.model import Checkpoint, Lsn, Table
from pidts.reduce import Counts, NetChange

Read = Callable[[pa.Table], tuple[pa.Table, Lsn]]
"""The source's rows with these identities, all that its log holds at the call, and a place in the log behind them."""
CaughtUp = Callable[[Sequence[Checkpoint], Lsn], bool]
"""Whether it is known that the log between checkpoints and a place has nothing about the table."""


@dataclass(frozen=True, slots=True)
class Origin:
    """A table whose rows land in the one that is repaired."""

    source: str
    table: Table
    """As its rows land."""
    read: Read
    caught_up: CaughtUp


@dataclass(frozen=True, slots=True)
class Repaired:
    """What became of some keys."""

    written: int
    removed: int
    shared: int
    """Keys that several tables have."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """What makes the target's rows those of the sources."""

    changes: tuple[NetChange, ...]
    shared: int


class Crowded(Exception):
    """Changes of the table are on their way to the target; nothing was written."""


def repair(
    session: TargetSession, task: str, table: Table, origins: Sequence[Origin], keys: pa.Table, *, insist: bool = False
) -> Repaired:
    """In one transaction of its own; a few hundred keys at a time, since the task waits. A task may never have run.

    `table` is what the origins have in common. Raises `Crowded` unless it is to `insist`.
    """
    known = [source for source in sorted({origin.source for origin in origins}) if session.checkpoints(task, source)]
    session.begin()
    try:
        held: Mapping[str, list[Checkpoint]] = {source: session.hold(task, source) for source in known}
        rows = []
        for origin in origins:
            found, high = origin.read(keys)
            rows.append((origin.table, found))
            standing = held.get(origin.source)
            if standing and origin.table.secondary_unique and not origin.caught_up(standing, high):
                _remember(session, standing, high, insist=insist)
        remedy = as_changes(table, rows, keys)
        for change in remedy.changes:
            session.write(_with_room(change))
        session.commit()
    except BaseException:
        session.rollback()
        raise
    written = sum(len(change.upserts) for change in remedy.changes)
    return Repaired(written, sum(len(change.deletes) for change in remedy.changes), remedy.shared)


def as_changes(table: Table, found: Sequence[tuple[Table, pa.Table]], keys: pa.Table) -> Remedy:
    """Write all of these rows, remove the keys that none of them has, by the bytes of both.

    Under a collation without case the key `A` finds the row `a`: then `A` goes, and `a` is written. One of several
    origins may have columns that the target has not yet; nothing is said of those of which no row is written.
    """
    names = list(table.identity)
    kinds = keys.select(names).schema
    parts = [chunkless(rows.select(names).cast(kinds), names) for _, rows in found]
    numbers = np.split(
        key_numbers(merged([chunkless(keys, names), *parts])), np.cumsum([len(keys), *map(len, (r for _, r in found))])
    )
    wanted, of_origin = numbers[0], numbers[1:-1]
    owners = Counter(number for each in of_origin for number in np.unique(each).tolist())
    shared = [number for number, count in owners.items() if count > 1]
    order = [(name, "ascending") for name in names]
    gone = keys.select(names).take(pa.array(np.flatnonzero(~np.isin(wanted, list(owners)))))
    changes = []
    for (landed, rows), each in zip(found, of_origin, strict=True):
        _, first = np.unique(each, return_index=True)
        own = np.sort(first[~np.isin(each[first], shared)])
        changes.append(
            NetChange(landed, gone.slice(0, 0), rows.take(pa.array(own)).sort_by(order), Counts(), safe=True)
        )
    if len(found) == 1:
        return Remedy((replace(changes[0], deletes=gone.sort_by(order)),), 0)
    removal = NetChange(table, gone.sort_by(order), table.arrow.empty_table(), Counts(), safe=True)
    changes = [change for change in (removal, *changes) if len(change.deletes) or len(change.upserts)]
    return Remedy(tuple(changes), len(shared))


def _with_room(change: NetChange) -> NetChange:
    """What a collation may hold equal to a row goes first: the target's `A` would refuse the source's `a`."""
    names = list(change.table.identity)
    if not any(change.table.column(name).type.is_text for name in names):
        return change
    deletes = pa.concat_tables([change.deletes, change.upserts.select(names)])
    return replace(change, deletes=deletes.sort_by([(name, "ascending") for name in names]))


def _remember(session: TargetSession, held: list[Checkpoint], high: Lsn, *, insist: bool) -> None:
    """In the open transaction."""
    if not insist:
        raise Crowded
    task, source = held[0].task, held[0].source
    until = session.safe_until(task, source)
    if until is None or until < high:
        session.save_safe_until(task, source, high)
