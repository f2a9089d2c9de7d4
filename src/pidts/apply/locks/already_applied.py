"""Finds changes that another zone has already made, and later changes of these rows that must not be applied.

A change *was already made* if the target's row is already as the change would leave it: another zone has made the same
change. The change then has no effect. But the row's next change may come from a program that did not know the other
zone's change. Such a next change is set aside, which locks its row. The lock is necessary, because zones compare rows
by their values. If a row gets former values again, the values do not show that two zones have changed the row at the
same time:

    zone a    UPDATE 1 -> 2, UPDATE 2 -> 1. Then b's 1 -> 2 arrives: a's row becomes 2
    zone b    UPDATE 1 -> 2. Then a's changes arrive: b already has 1 -> 2, and 2 -> 1 makes b's row 1

The same happens if both zones delete a row, and zone a then inserts it again with the same values.

**The argument.** Each change of a row is a step from one state to another; "no row" is a state, too. Suppose that a
zone makes each step of all zones once, and that each step begins at the row's present state. Then the steps are one
walk from the first state, and the steps alone determine where a walk ends. An example: from state 1, the steps 1 -> 2,
1 -> 2 and 2 -> 1 end at 2 in any possible order. So all zones end with the same row, however often a state comes back.

A zone does not make every step. If a change finds neither the state before it nor the state after it, its row is
locked. If a change was already made, it finds the state after it, and the zone omits this step. The zones then end with
the same row only if all zones omit the same steps.

**Two zones.** Let c = x -> y be zone a's last change of the row, which was already made at b when it arrived there.

1. Changes of b have led b's row from x to y. Zone a had not seen them when it made c.
2. These changes reach a after c, when a's row is y. Take each state as a unit vector, and a step u -> v as the
   difference v - u. The changes of b add up to y - x. From y, all of them would lead to 2y - x, which is no unit vector
   and so no state.
3. So one of these changes locks the row at a, or was already made at a. Let u -> v be the change that was already made.
   If it is the last of these changes, a's row ends at 2y - x - (v - u). This is a state only if u = x and v = y. So
   both zones have omitted the same step.

These steps assume that no change follows c at b, and that no change follows u -> v at a. So each change of another zone
that *follows* a change that was already made is set aside. A zone cannot find out whether the program that made the
following change knew the changes of both zones. So some changes are set aside although their program knew both.

**Deletes.** After a DELETE that was already made, both zones agree that the row is gone, and its key may be used again.
So only a change that makes the deleted row again is set aside. Equal rows may have different texts (`_rows`). Then the
next change of the key is set aside, whatever row it makes. There is no short proof for this rule.
`tests/pipeline/zones/test_zones_as_steps.py` tries all histories of two zones up to a fixed number of steps.

Three alternatives were rejected:

- Lock each change that was already made. No record would be needed, for any number of zones. But jobs that run in every
  zone, and delete or update the same rows, would lock all of these rows.
- Compare places in the logs: had the change's zone seen this zone's write? The answer would be exact. But only rows of
  the meta tables show what a zone had seen, and tasks do not decode these rows.
- Lock only the changes that make the earlier row again. A counterexample: a does 2 -> 0 -> 1, and b does 2 -> 1 -> 0.

**Three zones and more.** A third zone gets the same change from both zones. Then a program there may make the earlier
row again. This change may reach the two zones before each has the other's change, so they cannot notice the conflict.
So a note is written to the third zone's log. Then the next change by a program of the third zone is set aside in the
other zones. `pidts.apply.locks.zone_notes` proves that this is enough. The proof does not hold for tasks that pass on
changes of other zones: a zone's log lacks the changes that were already made there (docs/operate/zones.md).

**A task's own changes.** A task applies each change once, since the checkpoint is in the transaction of its rows. A
task meets its own changes again only while a table is copied, and up to the end of a safe range. In both cases, nothing
is compared.

    crash                                   the target then has
    before COMMIT                           neither the record nor the checkpoint: the next attempt compares again
    after COMMIT                            both
    another task has the key's next change  as in `early_removals`: other tasks are locked out first

The records of changes that were already made are in the same table as the records of `early_removals`, with other
digests. These records, too, are used for one hour, by the clocks of the servers and of the task's machine. If a task
lags by more than an hour, it may apply a change that should be set aside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256

import numpy as np
import pyarrow as pa

from pidts.apply.locks.divergence import ComparedKeys, is_newer
from pidts.apply.locks.early_removals import LATER_SECONDS, is_later, key_names, lsns_of
from pidts.apply.locks.held_changes import FindTransactions
from pidts.apply.locks.key_events import KeyEvents
from pidts.apply.locks.key_rows import KeyRows
from pidts.apply.locks.presence import KnownColumns
from pidts.apply.locks.same_as_stored import RowStorage, equal_columns
from pidts.apply.locks.zone_notes import own_name, row_digest, show_left_out
from pidts.apply.port import TargetSession
from pidts.apply.rows.tombstone_keys import row_texts
from pidts.model import Kind, Lsn, Table
from pidts.model.errors import named
from pidts.reduce.key_numbers import Mask, Numbers

_BREAK = "the row's previous change left other values: a change that another zone made in between has not arrived"

_SPELLED = frozenset({Kind.JSON, Kind.FLOAT, Kind.DOUBLE, Kind.YEAR})
"""Types in which equal values may have different texts or bytes."""


@dataclass(frozen=True, slots=True)
class MadeAlready:
    """The events of a batch that were already made, and the events that are set aside after them."""

    events: Numbers
    """Events that find the row as they would leave it."""
    set_aside: Mapping[int, str]
    """Events that are set aside, with the reasons. Each follows an event that was already made, or finds another row
    than the event before it has left.
    """


def made_already(
    compared: ComparedKeys, until: Lsn | None, known: KnownColumns | None, stored: Callable[[], RowStorage], task: str
) -> MadeAlready:
    """Returns the events of a batch that were already made; `compared` has compared each key's first event.

    `until` is the place up to which the target may already have the changes. `known` says which columns of each change
    the log has; None: all.
    """
    events = compared.key_rows.events
    made = np.zeros(len(events.key), np.bool_)
    made[events.first] = compared.made
    follows = _follows(events)
    breaks, repeats = _breaks(events, follows, until, known, stored)
    made |= repeats
    set_aside: dict[int, str] = dict.fromkeys(np.nonzero(breaks & ~repeats)[0].tolist(), _BREAK)
    set_aside |= dict.fromkeys(_first_following(events, made, known), _reason([task]))
    return MadeAlready(np.nonzero(made)[0], set_aside)


def note_made(
    session: TargetSession,
    task: str,
    source: str,
    key_rows: KeyRows,
    made: Numbers,
    known: KnownColumns | None,
    find_transactions: FindTransactions,
    *,
    has_others: bool,
) -> None:
    """Records, in the open transaction, that these events were already made.

    `has_others`: whether other tasks between zones write to the target. Then other zones may need the record.
    """
    events, table = key_rows.events, key_rows.events.batch.table
    keys = key_names(session, table, events.keys.take(pa.array(events.key[made])))
    times = [one.time for one in find_transactions(lsns_of(key_rows, made))]
    rows = _rows(events, made, "before", known, events.leaves[made])
    names = [next_name(key) if row is None else row_name(key, row) for key, row in zip(keys, rows, strict=True)]
    session.meta.early_removals.add(task, source, table.name, dict(zip(names, times, strict=True)))
    if has_others:
        show_left_out(session, task, source, table, events.keys.take(pa.array(events.key[made])), rows, times)


def events_after_made(
    session: TargetSession,
    task: str,
    key_rows: KeyRows,
    known: KnownColumns | None,
    find_transactions: FindTransactions,
) -> Mapping[int, str]:
    """Returns, with the reasons, the events that may not follow a change that was already made.

    A task into this zone has recorded that change, or a note of the source's zone has reported it
    (`pidts.apply.locks.zone_notes`).
    """
    events, table = key_rows.events, key_rows.events.batch.table
    ends = np.array([np.argmin(events.change), np.argmax(events.change)])
    since = min(one.time for one in find_transactions(lsns_of(key_rows, ends))) - LATER_SECONDS
    if not session.meta.early_removals.any_since(table.name, since):
        return {}
    keys = key_names(session, table, events.keys)
    asked: dict[str, list[int]] = {}
    for event, key in zip(events.first.tolist(), keys, strict=True):
        for name in (next_name(key), own_name(task, key)):
            asked.setdefault(name, []).append(event)
    every = np.arange(len(events.key))
    for event, row in enumerate(_rows(events, every, "after", known, ~events.leaves)):
        if row is not None:
            key = keys[events.key[event]]
            for name in (row_name(key, row), own_name(task, key, row_digest(row))):
                asked.setdefault(name, []).append(event)
    noted = session.meta.early_removals.of_all_tasks(table.name, list(asked))
    found = sorted({event for one in noted for event in asked[one.key]})
    made = (
        dict(zip(found, find_transactions(lsns_of(key_rows, np.array(found, np.int64))), strict=True)) if found else {}
    )
    tasks: dict[int, list[str]] = {}
    for one in noted:
        for event in asked[one.key]:
            if not is_later(made[event].time, one.time):
                tasks.setdefault(event, []).append(one.task)
    return {event: _reason(names) for event, names in sorted(tasks.items())}


def forget_made(session: TargetSession, task: str, table: Table, keys: pa.Table) -> None:
    """Removes, in the open transaction, the records about these keys, since an operator has decided about them."""
    names = [name(one) for one in key_names(session, table, keys) for name in (next_name, partial(own_name, task))]
    session.meta.early_removals.forget(table.name, names)


def next_name(key: str) -> str:
    """Returns the name of the record by which the next change of a key is set aside."""
    return sha256(f"next {key}".encode()).hexdigest()


def row_name(key: str, row: str) -> str:
    """Returns the name of the record of a deleted row: a later change that makes an equal row is set aside."""
    return sha256(f"row {key} {row}".encode()).hexdigest()


def _reason(tasks: Sequence[str]) -> str:
    return (
        f"the row's previous change, which {named('task', sorted(set(tasks)), 'has', 'have')} applied, was made in two "
        "zones: the program that made this change may not have known the other zone's change"
    )


def _follows(events: KeyEvents) -> Mask:
    return np.append(False, events.key[1:] == events.key[:-1])[: len(events.key)]


def _breaks(
    events: KeyEvents, follows: Mask, until: Lsn | None, known: KnownColumns | None, stored: Callable[[], RowStorage]
) -> tuple[Mask, Mask]:
    """Returns a mask of the events before which the row is not as their key's previous event has left it.

    A second mask has those of these events after which the row is as the previous event has left it.
    """
    breaks, repeats = np.zeros(len(events.key), np.bool_), np.zeros(len(events.key), np.bool_)
    later = np.nonzero(follows)[0]
    if not len(later):
        return breaks, repeats
    later = later[is_newer(events.batch, events.change[later - 1], until)]
    gone, arrives = events.leaves[later - 1], events.arrives[later]
    breaks[later] = gone != arrives
    both = later[~gone & ~arrives]
    breaks[both] = ~_is_left(events, both, "before", known, stored)
    found = np.nonzero(breaks)[0]
    gone, leaves = events.leaves[found - 1], events.leaves[found]
    repeats[found[gone & leaves]] = True
    rows = found[~gone & ~leaves]
    repeats[rows] = _is_left(events, rows, "after", known, stored)
    return breaks, repeats


def _is_left(
    events: KeyEvents, asked: Numbers, side: str, known: KnownColumns | None, stored: Callable[[], RowStorage]
) -> Mask:
    """Returns which events have a `side` image equal to the row that their key's previous event has left."""
    if not len(asked):
        return np.zeros(0, np.bool_)
    table, rows = events.batch.table, events.batch.rows
    left = rows.column("after").take(pa.array(events.change[asked - 1]))
    there = pa.Table.from_arrays(left.flatten(), schema=table.arrow)
    both_known = None
    if known is not None:
        both_known = known.of(events.change[asked], side) & known.of(events.change[asked - 1], "after")
    images = rows.column(side).take(pa.array(events.change[asked]))
    return np.asarray(equal_columns(table, images, there, both_known, stored).all(axis=1))


def _first_following(events: KeyEvents, made: Mask, known: KnownColumns | None) -> list[int]:
    """Returns, for each event that was already made, the first later event that may not follow it."""
    found = []
    ends = np.append(events.first[1:], len(events.key))
    for event in np.nonzero(made)[0].tolist():
        later = np.arange(event + 1, ends[events.key[event]])
        if not len(later):
            continue
        if not events.leaves[event]:
            found.append(event + 1)
            continue
        (removed,) = _rows(events, np.array([event]), "before", known, np.ones(1, np.bool_))
        rows = _rows(events, later, "after", known, ~events.leaves[later])
        again = (
            place
            for place, row in zip(later.tolist(), rows, strict=True)
            if not events.leaves[place] and (removed is None or row is None or row == removed)
        )
        found += [place for place in [next(again, None)] if place is not None]
    return found


def _rows(events: KeyEvents, asked: Numbers, side: str, known: KnownColumns | None, wanted: Mask) -> list[str | None]:
    """Returns a text for each event in `asked`: the row in its `side` image.

    The text is None in these cases: the event is not `wanted`; it has no row on this side; the log lacks a part of the
    row; or equal rows may have different texts, such as {"a":1} and {"a": 1}.
    """
    table = events.batch.table
    if any(column.type.kind in _SPELLED for column in table.columns):
        return [None] * len(asked)
    plain = [place for place, column in enumerate(table.columns) if not column.generated]
    has_row = wanted & ~(events.arrives if side == "before" else events.leaves)[asked]
    if known is not None:
        has_row &= (known.before if side == "before" else known.after)[events.change[asked]][:, plain].all(axis=1)
    images = events.batch.rows.column(side).take(pa.array(events.change[asked[has_row]]))
    texts = iter(row_texts(pa.Table.from_arrays(images.flatten(), schema=table.arrow).select(plain)))
    return [next(texts) if is_there else None for is_there in has_row.tolist()]
