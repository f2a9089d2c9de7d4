"""Finds the keys at which the target's row differs from the row that the source had before the batch.

Only the first event of each key in a batch is compared, since a later event finds the row that the event before it has
made. A later event is compared only in columns that no earlier image of the row has. Such columns exist if sessions of
the source differ in their `binlog_row_image`: the first image of a row may then have fewer columns than the second. So
the outcome is the same as if the events were applied one by one, wherever batches are cut (`key_events` explains the
words):

    the event            the target has                     result
    stays, leaves        the row before the event           goes on
    stays, arrives       the row after the event            goes on: it was applied before
    arrives, leaves      no row                             goes on
    anything else                                           the row has diverged

A table may have unique keys besides its identity. The unique values that a row has on the target are known only for the
first event of its key. So if a row of such a table differs only at a later event, all events of its key are held.

Keys that the target treats as equal are one key (`pidts.apply.locks.key_rows`).

The rows are read under the lock of the worker's checkpoint, and are locked themselves. So the rows that were compared
are the rows that are overwritten. Another writer may insert a row after the comparison. Most targets overwrite such a
row. A target that compares rows while it writes them refuses the change; then the row is read, and found to differ.

Rows are not compared where the task itself may be the reason for a difference:

1. The table's full copy was not complete before the batch, or is not complete after it: rows may be ahead of the log.
2. The change is in the range that may have been applied before, or is written in safe mode.
3. A filter leaves out changes of the table, so that the target lacks some changes of a row.
4. Other tables have rows in the target table, too. A row may move from one table to another, and the target may get the
   two halves of the move in either order.
5. The table has no key. If a row is missing there, the table halts in any case.

A repair writes rows as the source has them *now*, which is ahead of the log. In the transaction of these rows, the
repair records the place in the log to which the rows belong (`pidts.apply.repair`). This record is read only when rows
differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pidts.apply.locks.key_events import KeyEvents
from pidts.apply.locks.key_rows import KeyRows
from pidts.apply.locks.presence import KnownColumns, Presence, known_columns
from pidts.apply.locks.same_as_stored import RowStorage, equal_columns
from pidts.apply.port import TargetSession
from pidts.apply.rows.shown_values import SHOWN_COLUMNS, shown_row
from pidts.model import ChangeBatch, Lsn, Op, Table
from pidts.reduce.key_numbers import Mask, Numbers, to_mask

_NO_ROW = "the target does not have the row"
_OTHER_ROW = "the target already has a row of this key, with other values"


@dataclass(frozen=True, slots=True)
class Divergence:
    """The keys of one table's changes at which the target's row differs."""

    key_rows: KeyRows
    keys: Numbers
    """The indexes of these keys. The keys are in the order of the log."""
    begins: Numbers
    """For each of `keys`, its first event that found a row that differs from the source's row."""
    differs: Mask
    """For each of `keys`, the columns that differ; all columns if the source or the target has no row."""
    foreign: Mapping[int, str]
    """Keys that are set aside whatever row the target has, each with the reason: a zone has written a row that it does
    not own, or another row has a unique value that the key's row needs.
    """

    @property
    def events(self) -> KeyEvents:
        """Returns the events of all keys."""
        return self.key_rows.events

    def only(self, keys: Mask) -> Divergence:
        """Returns the divergence of only the selected keys."""
        return replace(self, keys=self.keys[keys], begins=self.begins[keys], differs=self.differs[keys])

    def lsn(self, number: int) -> Lsn:
        """Returns the place in the log of the key's event in `begins`."""
        change = self.events.change[self.begins[number]]
        return Lsn.from_bytes(self.events.batch.rows.column("lsn")[int(change)].as_py())

    def why(self, number: int) -> str:
        """Returns a text that says what differs at a key."""
        chosen = np.arange(len(self.keys)) == number
        return self.only(chosen).reasons()[0]

    def reasons(self) -> list[str]:
        """Returns, for each key, a text that says what differs."""
        names = self.events.batch.table.arrow.names
        has_row, arrives = self.key_rows.at[self.keys] >= 0, self.events.arrives[self.begins]
        patterns, which = np.unique(np.packbits(self.differs, axis=1), axis=0, return_inverse=True)
        others = [
            ", ".join(names[place] for place in np.nonzero(np.unpackbits(bits, count=len(names)))[0])
            for bits in patterns
        ]
        return [
            self.foreign[key]
            if key in self.foreign
            else _NO_ROW
            if not is_there
            else _OTHER_ROW
            if comes
            else f"the target's row has other values in {others[pattern]}"
            for key, is_there, comes, pattern in zip(
                self.keys.tolist(), has_row.tolist(), arrives.tolist(), which.reshape(-1).tolist(), strict=True
            )
        ]

    def values(self, number: int, known: KnownColumns | None) -> tuple[str, ...]:
        """Returns two lines: a key's row on source and target, in the columns that differ and that the log has."""
        key = int(self.keys[number])
        if key in self.foreign:
            return ()
        event, at = int(self.begins[number]), int(self.key_rows.at[key])
        change = self.events.change[event : event + 1]
        side = "after" if self.events.arrives[event] else "before"
        batch = self.events.batch
        image = batch.rows.column(side).take(pa.array(change))
        row = pa.Table.from_arrays(image.flatten(), schema=batch.table.arrow)
        if known is not None:
            row = row.select(np.nonzero(known.of(change, side)[0])[0].tolist())
        there = self.key_rows.rows.slice(at, 1).select(row.column_names) if at >= 0 else None
        if there is not None:
            others = np.nonzero(self.differs[number])[0].tolist()
            named = {batch.table.arrow.names[place] for place in others}
            unlike = [name for name in row.column_names if name in named and not row[name].equals(there[name])]
            row, there = (one.select(unlike or row.column_names) for one in (row, there))
        before = "the change inserts" if side == "after" else "before the change, the source had"
        has = "the target has no such row" if there is None else f"the target has: {_first_columns(there)}"
        return f"{before}: {_first_columns(row)}", has


def _first_columns(row: pa.Table) -> str:
    more = row.num_columns - SHOWN_COLUMNS
    return shown_row(row) + (f" and {more} more columns" if more > 0 else "")


def is_comparable(batch: ChangeBatch) -> bool:
    """Whether all of these changes come from the log, and their table has a key."""
    ops = batch.rows.column("op").to_numpy()
    return bool(batch.table.identity) and not ((ops == Op.COPY) | (ops == Op.ABSENT)).any()


@dataclass(frozen=True, slots=True)
class ComparedKeys:
    """The keys of one table's changes, with the result of the comparison with the target's rows."""

    key_rows: KeyRows
    goes_on: Mask
    """For each key, whether its events may be applied."""
    begins: Numbers
    """For each key, the first event that did not find the row that it expects; if there is none, its first event."""
    differs: Mask
    """For each key, the columns that differ; all columns if the source or the target has no row."""
    made: Mask
    """For each key, whether its first event found the row as the event would leave it."""

    def divergence(self, foreign: Mapping[int, str] | None = None) -> Divergence | None:
        """Returns the keys that differ, and the keys with a `foreign` event; None if there are neither.

        If `foreign` names an event of a key, the key differs, whatever row the target has. The reason is then the one
        in `foreign`.
        """
        events = self.key_rows.events
        goes_on, begins = self.goes_on.copy(), self.begins.copy()
        reasons: dict[int, str] = {}
        for event, reason in (foreign or {}).items():
            key = int(events.key[event])
            if goes_on[key] or event < begins[key]:
                goes_on[key], begins[key], reasons[key] = False, event, reason
        keys = np.nonzero(~goes_on)[0]
        if not len(keys):
            return None
        keys = keys[np.argsort(events.change[begins[keys]], kind="stable")]
        return Divergence(self.key_rows, keys, begins[keys], self.differs[keys], reasons)


def compared(
    session: TargetSession,
    key_rows: KeyRows,
    presence: Sequence[Presence],
    seen_until: Lsn | None,
    *,
    compares: bool = True,
) -> ComparedKeys:
    """Compares one table's changes with the target's rows, and returns the result.

    `seen_until` is the place up to which the target may already have the changes. Without `compares`, only keys with
    foreign events count as different (`ComparedKeys.divergence`).
    """
    events, rows, at = key_rows.events, key_rows.rows, key_rows.at
    batch = events.batch
    change, leaves, arrives = events.change[events.first], events.leaves[events.first], events.arrives[events.first]
    found = at >= 0
    goes_on = np.where(found, False, arrives | leaves)  # noqa: FBT003
    counts = is_newer(batch, change, seen_until) & compares
    made = ~found & leaves & counts
    goes_on |= ~counts
    known = known_columns(batch, presence)
    differs = np.ones((len(at), len(batch.table.columns)), np.bool_)
    stored = stored_by(session, batch.table)
    for side, mask in (("before", ~arrives), ("after", ~leaves)):
        asked = np.nonzero(mask & found & ~goes_on)[0]
        if len(asked):
            images = batch.rows.column(side).take(pa.array(change[asked]))
            columns = known.of(change[asked], side) if known is not None else None
            equal = equal_columns(batch.table, images, rows.take(pa.array(at[asked])), columns, stored)
            goes_on[asked] = equal.all(axis=1)
            if side == "before":
                differs[asked] = ~equal
            else:
                made[asked] = goes_on[asked]
    begins = events.first.copy()
    later = _first_known_later(events, known, found & goes_on) if known is not None and compares else None
    if later is not None:
        number, columns = later
        newer = is_newer(batch, events.change[number], seen_until)
        number, columns = number[newer], columns[newer]
        there = rows.take(pa.array(at[events.key[number]]))
        equal = _finds(events, number, columns, there, stored)
        for place in np.nonzero(~equal.all(axis=1))[0]:
            key = events.key[number[place]]
            if goes_on[key]:  # only the key's first such event counts
                goes_on[key], begins[key], differs[key] = False, number[place], ~equal[place]
    return ComparedKeys(key_rows, goes_on, begins, differs, made)


def stored_by(session: TargetSession, table: Table) -> Callable[[], RowStorage]:
    """Returns a function that says how the target stores a table's rows. The function asks the target only once."""

    @cache
    def stored() -> RowStorage:
        return RowStorage(session.schema.structure(table.name), session.schema.holds_unreal_dates)

    return stored


def _first_known_later(events: KeyEvents, known: KnownColumns, compared: Mask) -> tuple[Numbers, Mask] | None:
    """Returns later events whose before images have columns that no earlier image of their key's row has.

    The second result has, for each of these events, a mask of these columns. Events after the row has left its key do
    not count. None: there are no such events.
    """
    before, after = known.before, known.after
    first = events.first[events.key]
    known_first = np.where(events.arrives[first][:, None], False, before[events.change[first]])  # noqa: FBT003
    known_first |= np.where(events.leaves[first][:, None], False, after[events.change[first]])  # noqa: FBT003
    gone: Numbers = np.cumsum(events.leaves) - events.leaves
    mine = compared[events.key] & (gone == gone[first]) & ~events.arrives & (np.arange(len(first)) != first)
    mine[mine] = (before[events.change[mine]] & ~known_first[mine]).any(axis=1)
    if not mine.any():
        return None
    several = np.nonzero(np.isin(events.key, events.key[mine]) & (gone == gone[first]))[0]
    key, change = events.key[several], events.change[several]
    starts = np.nonzero(np.concatenate([[True], key[1:] != key[:-1]]))[0]
    before_it = before[change] & ~events.arrives[several][:, None]
    in_log = before_it | (after[change] & ~events.leaves[several][:, None])
    place = np.arange(len(several))[:, None]
    earliest = np.minimum.reduceat(np.where(in_log, place, len(several)), starts, axis=0)
    row = np.cumsum(np.isin(np.arange(len(several)), starts)) - 1
    new = before_it & (earliest[row] == place)
    new[starts] = False
    asked = new.any(axis=1)
    return several[asked], new[asked]


def _finds(
    events: KeyEvents, number: Numbers, columns: Mask, there: pa.Table, stored: Callable[[], RowStorage]
) -> Mask:
    """Returns the columns in which the row equals the event's before image: all, if it equals the after image."""
    table, change = events.batch.table, pa.array(events.change[number])
    before, after = (events.batch.rows.column(side).take(change) for side in ("before", "after"))
    equal = equal_columns(table, before, there, columns, stored)
    rest = np.nonzero(~equal.all(axis=1) & ~events.leaves[number])[0]
    if len(rest):
        again = pa.array(rest)
        earlier = pa.Table.from_arrays(before.take(again).flatten(), schema=table.arrow)
        made = equal_columns(table, after.take(again), there.take(again), columns[rest], stored)
        made &= equal_columns(table, after.take(again), earlier, ~columns[rest], stored)
        equal[rest[made.all(axis=1)]] = True
    return equal


def is_newer(batch: ChangeBatch, changes: Numbers, until: Lsn | None) -> Mask:
    """Returns which of these changes are after `until`, so that the target cannot have them yet."""
    if until is None:
        return np.ones(len(changes), np.bool_)
    return changes_after(batch, until)[changes]


def changes_after(batch: ChangeBatch, until: Lsn) -> Mask:
    """Returns which changes are after a place in the log."""
    lsns = batch.rows.column("lsn").cast(pa.binary())
    return to_mask(pc.greater(lsns, pa.scalar(until.to_bytes(), pa.binary())))


def joined(batches: Sequence[ChangeBatch]) -> ChangeBatch:
    """Returns one table's changes as one batch."""
    if len(batches) == 1:
        return batches[0]
    return replace(batches[0], rows=pa.concat_batches([batch.rows for batch in batches]))
