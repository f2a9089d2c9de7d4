"""Finds changes that come behind one which was made already: a zone may have made them without knowing of another's.

Zones compare rows by their values. A row that gets former values again can hide that two zones have crossed:

    a    UPDATE 1 -> 2, UPDATE 2 -> 1
    b    UPDATE 1 -> 2
    b gets 1 -> 2, which was made already, and 2 -> 1. a gets 1 -> 2. In the end a has 2, and b has 1

A row that is deleted in two zones, and made again as it was in one of them, is the same with "no row" in place of 2.

**The argument.** Take each change of a row as a step from one state to another; "no row" is a state, too. Where a zone
makes each change of all zones once, and each from the very state that it names, the steps are one walk from the first
state. Where a walk ends follows from its steps alone, whatever their order: it has left each state as often as it has
come there, apart from its ends. So all zones end with one row, however often a state comes back. A change that finds
neither its state before nor the one behind it is locked. What is left is a change that was *made already*: it finds the
state behind it. It is left out, and the zones end with one row only if all zones leave out the same steps.

Two zones. Say that b leaves out c = x -> y of zone a, and that no change of a comes behind it. At b the row has come
to y by changes of b that a had not seen when it made c. Together they lead from x to y. Zone a makes them behind c,
from y. From the very states that they name they cannot all go on: they would lead to y + (y - x), which is no state.
So a locks one of them or leaves one out. If the one that it leaves out is its last, it is x -> y, too: nothing else
leads to a state. Then both have left out one step, the same. So it is enough to lock each change of another zone that
comes *behind* one that was made already. A zone cannot tell whether the maker knew of both, so some are locked that
did.

Behind a DELETE that was made already, it is enough to lock what makes the deleted row again, by whatever change of
the key, as far as equal rows have one text: two zones that have deleted a row are one, and a key may be used again.
The argument has no short form for this; `tests/pipeline/test_zones_as_steps.py` tries all histories of two zones up to
a length. What had to be weighed:

- To lock what was made already would need no record, for any number of zones. But jobs that run in every zone, and
  delete or mark the same rows, would lock them all.
- To compare places of logs (had the change's zone seen this zone's write?) is exact. But what a zone had seen at a
  change stands only in the meta tables' rows of its log, which tasks do not decode.
- To lock only what makes the row of before again is not enough: a does 2 -> 0 -> 1, and b does 2 -> 1 -> 0.

**Three zones and more.** A zone that knows both changes may make the former row again by a program of its own. If that
comes to the two zones before each has the other's change, nobody there can tell: no lock (docs/operate/zones.md). Where
tasks carry on, what was made already leaves no change in the zone's log, and the argument does not hold.

**What is no repeat.** A task applies each change once: the checkpoint is in the transaction of its rows. It may meet
its own changes again only where a table is copied, and up to the end of a safe range. There nothing is compared.

    break                                   then
    before COMMIT                           neither the record nor the checkpoint: the next attempt compares again
    behind COMMIT                           both
    another task has the key's next change  as in `early_removals`: other tasks are locked out first

Records are those of `early_removals`, under other digests, and count as long: an hour, by the clocks. Where a task
is behind by more, a change may come that was made without knowing, and is not locked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
import pyarrow as pa

from pidts.apply.locks.divergence import Compared, is_newer
from pidts.apply.locks.early_removals import LATER_SECONDS, is_later, key_names, lsns_of
from pidts.apply.locks.held import Moments
from pidts.apply.locks.key_events import KeyEvents
from pidts.apply.locks.key_rows import KeyRows
from pidts.apply.locks.presence import KnownColumns
from pidts.apply.locks.same_as_stored import Stored, equal_columns
from pidts.apply.port import TargetSession
from pidts.apply.rows.key_numbers import Mask, Numbers
from pidts.apply.rows.tombstone_keys import row_texts
from pidts.model import Kind, Lsn, Table

_BREAK = "the change of this row before it has left another row: what another zone did between them has not come"

_SPELLED = frozenset({Kind.JSON, Kind.FLOAT, Kind.DOUBLE, Kind.YEAR})
"""Types with values that are equal and not the same."""


@dataclass(frozen=True, slots=True)
class MadeAlready:
    """The events of a batch that were made already, and those that may not follow them."""

    events: Numbers
    """Events that find the row as they leave it."""
    behind: Mapping[int, str]
    """Events that are set aside, with the reasons: those behind one that was made already, and those that find another
    row than the event before them has left."""


def made_already(
    compared: Compared, until: Lsn | None, known: KnownColumns | None, stored: Callable[[], Stored], task: str
) -> MadeAlready:
    """Returns what a batch finds made already; its first events were compared with the target's rows.

    `until` is the place up to which changes may have been applied before, and `known` has the columns of each change
    that the log holds, where it does not hold all.
    """
    events = compared.met.events
    made = np.zeros(len(events.key), np.bool_)
    made[events.first] = compared.made
    follows = _follows(events)
    breaks, repeats = _breaks(events, follows, until, known, stored)
    made |= repeats
    behind: dict[int, str] = dict.fromkeys(np.nonzero(breaks & ~repeats)[0].tolist(), _BREAK)
    behind |= dict.fromkeys(_behind(events, made, known), _reason([task]))
    return MadeAlready(np.nonzero(made)[0], behind)


def note_made(
    session: TargetSession,
    task: str,
    source: str,
    met: KeyRows,
    made: Numbers,
    known: KnownColumns | None,
    moments: Moments,
) -> None:
    """Puts on record, in the open transaction, that these events were made already."""
    events, table = met.events, met.events.batch.table
    keys = key_names(session, table, events.keys.take(pa.array(events.key[made])))
    times = [one.time for one in moments(lsns_of(met, made))]
    rows = _rows(events, made, "before", known, events.leaves[made])
    names = [next_name(key) if row is None else row_name(key, row) for key, row in zip(keys, rows, strict=True)]
    session.meta.row_locks.note_removed(task, source, table.name, dict(zip(names, times, strict=True)))


def behind_made(
    session: TargetSession, met: KeyRows, known: KnownColumns | None, moments: Moments
) -> Mapping[int, str]:
    """Returns the events that may not follow what tasks have found made already, with the reasons."""
    events, table = met.events, met.events.batch.table
    ends = np.array([np.argmin(events.change), np.argmax(events.change)])
    since = min(one.time for one in moments(lsns_of(met, ends))) - LATER_SECONDS
    if not session.meta.row_locks.has_noted(table.name, since):
        return {}
    keys = key_names(session, table, events.keys)
    asked: dict[str, list[int]] = {}
    for event, key in zip(events.first.tolist(), keys, strict=True):
        asked.setdefault(next_name(key), []).append(event)
    every = np.arange(len(events.key))
    for event, row in enumerate(_rows(events, every, "after", known, ~events.leaves)):
        if row is not None:
            asked.setdefault(row_name(keys[events.key[event]], row), []).append(event)
    noted = session.meta.row_locks.noted(table.name, list(asked))
    found = sorted({event for one in noted for event in asked[one.key]})
    made = dict(zip(found, moments(lsns_of(met, np.array(found, np.int64))), strict=True)) if found else {}
    tasks: dict[int, list[str]] = {}
    for one in noted:
        for event in asked[one.key]:
            if not is_later(made[event].time, one.time):
                tasks.setdefault(event, []).append(one.task)
    return {event: _reason(names) for event, names in sorted(tasks.items())}


def forget_made(session: TargetSession, table: Table, keys: pa.Table) -> None:
    """Removes, in the open transaction, what is on record of changes of these keys: a person has decided about them."""
    names = [next_name(one) for one in key_names(session, table, keys)]
    session.meta.row_locks.forget_noted(table.name, names)


def next_name(key: str) -> str:
    """Returns under which digest it is on record that the next change of a key is set aside."""
    return sha256(f"next {key}".encode()).hexdigest()


def row_name(key: str, row: str) -> str:
    """Returns under which digest it is on record that a row like the one that was removed is set aside."""
    return sha256(f"row {key} {row}".encode()).hexdigest()


def _reason(tasks: Sequence[str]) -> str:
    return (
        f"the change before it, which task {', '.join(sorted(set(tasks)))} has brought, was made in two zones: it may "
        "have been made without knowing of that"
    )


def _follows(events: KeyEvents) -> Mask:
    """Returns which events have one of their key before them."""
    return np.append(False, events.key[1:] == events.key[:-1])[: len(events.key)]


def _breaks(
    events: KeyEvents, follows: Mask, until: Lsn | None, known: KnownColumns | None, stored: Callable[[], Stored]
) -> tuple[Mask, Mask]:
    """Returns which events find another row than the event before them has left, and which of them leave that row."""
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
    events: KeyEvents, asked: Numbers, side: str, known: KnownColumns | None, stored: Callable[[], Stored]
) -> Mask:
    """Returns which events have on one side the row that the event before them has left, as far as the log tells."""
    if not len(asked):
        return np.zeros(0, np.bool_)
    table, rows = events.batch.table, events.batch.rows
    left = rows.column("after").take(pa.array(events.change[asked - 1]))
    there = pa.Table.from_arrays(left.flatten(), schema=table.arrow)
    told = None
    if known is not None:
        told = known.of(events.change[asked], side) & known.of(events.change[asked - 1], "after")
    images = rows.column(side).take(pa.array(events.change[asked]))
    return np.asarray(equal_columns(table, images, there, told, stored).all(axis=1))


def _behind(events: KeyEvents, made: Mask, known: KnownColumns | None) -> list[int]:
    """Returns the first event behind each one that was made already that may not follow it."""
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
    """Returns a text for each row on one side of wanted events.

    None where the log does not hold all of the row, and where other texts may be equal rows: {"a":1} and {"a": 1}.
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
