"""Finds rows that arrive in a zone after another zone has deleted them.

In a mesh the changes of one row reach a zone by several tasks:

    a    INSERT 5                      task ac is slow
    b    has row 5 of a: DELETE 5      task bc is fast
    c    DELETE 5 finds no row and changes nothing; then INSERT 5 would make a row that no other zone has

A DELETE that finds no row does not show which case this is: perhaps two zones have deleted the row, and no INSERT
follows. So nothing is locked yet. The DELETE is recorded in the zone's meta schema, and a later INSERT of the key by
another task is set aside. The lock says which task has deleted a row of the key. Two alternatives were rejected:

- Causal delivery without locks: task bc waits until c has everything from a that b had. But bc would wait as long as ac
  waits. And for each transaction of b, bc would have to know how far every other task had applied its log, in numbers
  that can be compared.
- Ignoring an INSERT that equals the deleted row. But a zone may insert an equal row once more. This row would be lost
  without a message.

A DELETE may also follow other changes of its key in one batch. Such a DELETE, too, is recorded if it finds another row
than the key's previous change has left. Then another zone has changed the row in between, and that change has not
arrived yet. An UPDATE that gives its row another key counts as a DELETE of the old key. Two examples, each in one batch
of task bc:

    b    DELETE 5 (its own);  a's INSERT 5 arrives;  DELETE 5      the batch lacks the INSERT of a
    b    UPDATE 5 to v = 2;  a makes it v = 3;  DELETE 5 (v = 3)   the batch lacks the UPDATE of a

**The argument.** The claim: if c makes a row that is gone elsewhere, the record prevents it. Suppose that no two
changes leave equal rows; `pidts.apply.locks.already_applied` covers rows that get former values again.

1. Each change names the row that it has found. If an UPDATE or a DELETE finds another row at c, or an INSERT finds a
   row, the row is locked.
2. So the changes of a key that c applies without a lock are a chain: each change finds the row that the previous change
   has left. There are two exceptions: a DELETE that finds no row, and an INSERT after a DELETE that the INSERT's zone
   did not know.
3. Only the second exception can make a row that is gone elsewhere, and only if c has had the DELETE of this row.
4. If c had the row that the DELETE names, c has had the INSERT of this row. So the exception's INSERT made another row.
5. If c did not have that row, the DELETE is on record, and the INSERT is set aside.

**Two transactions at once.** Task bc may find no row 5 while task ac is inserting it. Each transaction of a task locks
the task's checkpoint from beginning to end. So if a task finds no row, it locks the checkpoints of the other tasks, and
then looks for the row once more. Either the INSERT was committed before that, or the INSERT will find the record.

    error                                   result
    before COMMIT                           neither the record nor the checkpoint: the next attempt looks again
    after COMMIT                            both
    deadlock or time-out at a checkpoint    the target ends one of the two transactions, which is repeated

The record of a DELETE concerns INSERTs up to an hour later, by the clocks of the servers and of the task's machine.
After this hour, the key may be used for a new row. A record is kept for seven days, the longest permitted lag.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from pidts.apply.locks.held_changes import FindTransactions, lock_ids
from pidts.apply.locks.key_rows import KeyRows
from pidts.apply.locks.presence import KnownColumns
from pidts.apply.port import TargetSession
from pidts.apply.rows.target_rows import has_text
from pidts.model import EarlyRemoval, Lsn, SourceTablesKey, Table
from pidts.model.zone import ZONE_NOTE
from pidts.reduce.key_numbers import Mask, Numbers, key_numbers, merged

LATER_SECONDS = 3600
"""An INSERT that was made more than this number of seconds after a DELETE inserts a new row. The number is large, since
the clocks of zones may differ.
"""


def early_removals(key_rows: KeyRows, known: KnownColumns | None) -> Numbers:
    """Returns the DELETEs that do not find their row. Of several DELETEs of one key, returns only the last one."""
    events = key_rows.events
    first, size = events.first, len(events.key)
    starts_without = (key_rows.at < 0) & events.leaves[first]
    within = np.repeat(starts_without, np.diff([*first.tolist(), size]))
    within |= _after_breaks(key_rows, known)
    found: Numbers = np.nonzero(within & events.leaves)[0]
    if not len(found):
        return found
    last = np.append(events.key[found][1:] != events.key[found][:-1], True)
    last_of_each: Numbers = found[last]
    return last_of_each


def lock_out_other_tasks(session: TargetSession, task: str, source: str) -> bool:
    """Waits for the open transactions of all other tasks between zones, and keeps these tasks from beginning new ones.

    Returns whether there are other tasks between zones.
    """
    there = False
    for other, key in session.meta.notes.places(ZONE_NOTE):
        if isinstance(key, SourceTablesKey) and (other, key.source) != (task, source):
            there |= bool(session.meta.checkpoints.lock_shared(other, key.source))
    return there


def note_removals(
    session: TargetSession,
    task: str,
    source: str,
    key_rows: KeyRows,
    removals: Numbers,
    find_transactions: FindTransactions,
) -> None:
    """Records, in the open transaction, that the target did not have the rows which these events delete."""
    keys = key_rows.events.keys.take(pa.array(key_rows.events.key[removals]))
    note_keys(
        session,
        task,
        source,
        key_rows.events.batch.table,
        keys,
        [one.time for one in find_transactions(lsns_of(key_rows, removals))],
    )


def note_keys(
    session: TargetSession, task: str, source: str, table: Table, keys: pa.Table, times: Sequence[int]
) -> None:
    """Records, in the open transaction, that a task has removed rows with these keys at these times."""
    names = key_names(session, table, keys)
    session.meta.early_removals.add(task, source, table.name, dict(zip(names, times, strict=True)))


def removed_before(
    session: TargetSession, task: str, source: str, key_rows: KeyRows, find_transactions: FindTransactions
) -> Mapping[int, str]:
    """Returns, with the reason, the events that give a row to a key whose row another task has already deleted."""
    events = key_rows.events
    arriving = np.nonzero(events.arrives & (key_rows.at[events.key] < 0))[0]
    if not len(arriving):
        return {}
    # If a key has several such events, only the first one is checked: only before it does the target have no row.
    coming = arriving[np.append(True, events.key[arriving][1:] != events.key[arriving][:-1])]
    table = events.batch.table
    names = key_names(session, table, events.keys.take(pa.array(events.key[coming])))
    known: dict[str, list[EarlyRemoval]] = {}
    for one in session.meta.early_removals.of_other_tasks(task, source, table.name, names):
        known.setdefault(one.key, []).append(one)
    asked = [(event, known[name]) for event, name in zip(coming.tolist(), names, strict=True) if name in known]
    made = find_transactions(lsns_of(key_rows, np.array([event for event, _ in asked], np.int64)))
    found = {}
    for (event, removals), transaction in zip(asked, made, strict=True):
        counting = [one for one in removals if not is_later(transaction.time, one.time)]
        if counting:
            tasks = ", ".join(sorted({one.task for one in counting}))
            found[event] = (
                f"task {tasks} deleted a row with this key before this row arrived: perhaps it deleted this row"
            )
    return found


def is_later(made: int, removed: int) -> bool:
    """Whether a change was made so long after a recorded DELETE that it cannot concern the deleted row."""
    return bool(made and removed and made > removed + LATER_SECONDS)


def _after_breaks(key_rows: KeyRows, known: KnownColumns | None) -> Mask:
    """Returns the events that find another row than their key's previous event has left, and all later ones."""
    events = key_rows.events
    breaks = np.zeros(len(events.key), np.bool_)
    leaving = np.zeros(len(key_rows.at), np.bool_)
    leaving[events.key[events.leaves]] = True
    follows = np.append(False, events.key[1:] == events.key[:-1])[: len(events.key)]
    later = np.nonzero(follows & leaving[events.key])[0]
    if not len(later):
        return breaks
    breaks[later] = events.leaves[later - 1] != events.arrives[later]
    asked = later[~events.leaves[later - 1] & ~events.arrives[later]]
    if len(asked):
        breaks[asked] = _differs(key_rows, events.change[asked - 1], events.change[asked], known)
    count = np.cumsum(breaks)
    return count > np.repeat((count - breaks)[events.first], np.diff([*events.first.tolist(), len(events.key)]))


def _differs(key_rows: KeyRows, earlier: Numbers, later: Numbers, known: KnownColumns | None) -> Mask:
    """Returns, for each pair, whether the row before the later change differs from the row after the earlier change.

    True also if the log lacks a part of the row before the later change.
    """
    rows, size = key_rows.events.batch.rows, len(later)
    left = rows.column("after").take(pa.array(earlier)).flatten()
    found = rows.column("before").take(pa.array(later)).flatten()
    differs = np.zeros(size, np.bool_)
    for values in merged([left, found]):
        numbers = key_numbers([values])
        differs |= numbers[:size] != numbers[size:]
    if known is not None:
        plain = [place for place, column in enumerate(key_rows.events.batch.table.columns) if not column.generated]
        differs |= ~known.of(later, "before")[:, plain].all(axis=1)
    return differs


def key_names(session: TargetSession, table: Table, keys: pa.Table) -> list[str]:
    """Returns a digest for each key, the same for keys that the target treats as equal."""
    return lock_ids(session.compared(table, keys) if has_text(table) else keys)


def lsns_of(key_rows: KeyRows, events: Numbers) -> Sequence[Lsn]:
    """Returns each event's place in the log."""
    changes = pa.array(key_rows.events.change[events])
    return [Lsn.from_bytes(one) for one in key_rows.events.batch.rows.column("lsn").take(changes).to_pylist()]
