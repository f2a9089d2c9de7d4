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

Crash points: before COMMIT nothing has happened; behind it the rows are right, and repairing them again is harmless.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
class Repaired:
    """What became of some keys."""

    written: int
    removed: int


class Crowded(Exception):
    """Changes of the table are on their way to the target; nothing was written."""


def repair(
    session: TargetSession,
    task: str,
    source: str,
    table: Table,
    keys: pa.Table,
    read: Read,
    caught_up: CaughtUp,
    *,
    insist: bool = False,
) -> Repaired:
    """In one transaction of its own; a few hundred keys at a time, since the task waits. A task may never have run.

    Raises `Crowded` unless it is to `insist`.
    """
    known = bool(session.checkpoints(task, source))
    session.begin()
    try:
        held = session.hold(task, source) if known else []
        rows, high = read(keys)
        if held and table.secondary_unique and not caught_up(held, high):
            _remember(session, held, high, insist=insist)
        change = as_change(table, keys, rows)
        session.write(_with_room(change))
        session.commit()
    except BaseException:
        session.rollback()
        raise
    return Repaired(len(change.upserts), len(change.deletes))


def as_change(table: Table, keys: pa.Table, rows: pa.Table) -> NetChange:
    """Write all of these rows, remove the keys that none of them has, by the bytes of both.

    Under a collation without case the key `A` finds the row `a`: then `A` goes, and `a` is written.
    """
    names = table.identity
    numbers = key_numbers(merged([chunkless(keys, names), chunkless(rows, names)]))
    wanted, found = numbers[: len(keys)], numbers[len(keys) :]
    gone = keys.select(list(names)).take(pa.array(np.flatnonzero(~np.isin(wanted, found))))
    _, first = np.unique(found, return_index=True)
    order = [(name, "ascending") for name in names]
    return NetChange(
        table, gone.sort_by(order), rows.take(pa.array(np.sort(first))).sort_by(order), Counts(), safe=True
    )


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
