"""The target's row of each key of a batch's changes. Keys that the target holds equal are one key here.

An UPDATE may give a key other words, and so may somebody who writes to the target: where its collation overlooks case,
'Ada' and 'ADA' are one key. The row is one, and whatever removes the one removes the other:

    the target has ADA, v = 9       UPDATE Ada -> ADA, v = 1         row ADA differs: nothing may remove Ada
    row Ada is locked               INSERT ADA                       is held with what is held of Ada

The server decides which keys are equal. Keys with the same row are; it is asked about keys that have no row only where
that makes a difference, see `with_locks`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pidts.apply.locks.key_events import KeyEvents, key_events
from pidts.apply.port import TargetSession
from pidts.apply.rows.key_numbers import Mask, Numbers, chunkless, key_numbers, merged
from pidts.apply.rows.target_rows import asked_again, equal_to, may_fold, target_rows
from pidts.model import ChangeBatch


@dataclass(frozen=True, slots=True)
class KeyRows:
    """The events of one table's changes, key by key, and the target's row of each key."""

    events: KeyEvents
    rows: pa.Table
    """Rows of the target, locked."""
    at: Numbers
    """For each key of `events` the place of its row, or -1."""


def key_rows(session: TargetSession, batch: ChangeBatch) -> KeyRows:
    """Reads the target's rows for the keys of one table's changes, which locks them."""
    events = key_events(batch)
    return _one_a_row(KeyRows(events, *target_rows(session, batch.table, events.keys)))


def once_more(session: TargetSession, found: KeyRows) -> KeyRows:
    """Returns the same with rows that the target's own collations find for keys of which the source's tell nothing."""
    table = found.events.batch.table
    if may_fold(table):
        return found  # has been asked
    rows, at = asked_again(session, table, found.events.keys, found.rows, found.at)
    return found if at is found.at else _one_a_row(KeyRows(found.events, rows, at))


def with_locks(session: TargetSession, found: KeyRows, others: pa.Table, locked: Mask, wanted: Mask) -> KeyRows:
    """Returns the same with the keys of locks in place of those that the target holds equal to them.

    `others` are the keys of locks that are not among the batch's keys by their bytes, `locked` are the batch's keys
    that are, and `wanted` those and the ones that will be locked. Where the target has no row, each key of the batch
    may be that of a lock, whatever happens to it first: what gave the row these words may be held since long.
    """
    events, table, size = found.events, found.events.batch.table, len(found.at)
    nothing = table.arrow.empty_table(), np.zeros(0, np.int64)
    theirs, place = target_rows(session, table, others) if others.num_rows else nothing
    same, rowless, free = np.arange(size), found.at < 0, np.ones(size, np.bool_)
    names: dict[int, pa.Table] = {}
    rows_of = _places(table.identity, found.rows, theirs)
    by_row = {int(row): key for key, row in enumerate(found.at) if row >= 0} if len(rows_of) else {}
    locks = [(key, events.keys.slice(key, 1)) for key in np.nonzero(locked & rowless)[0].tolist()]
    for number in range(others.num_rows):
        own = others.slice(number, 1)
        if place[number] < 0:
            locks.append((-1, own))
        elif (key := by_row.get(rows_of.get(int(place[number]), -1), -1)) >= 0 and not locked[key]:
            names.setdefault(key, own)

    def join(wholes: Sequence[tuple[int, pa.Table]], candidates: Numbers) -> None:
        keys = events.keys.take(pa.array(candidates))
        asked = pa.concat_tables([own for _, own in wholes]) if wholes and len(candidates) else None
        for hit in session.equal_keys(table, asked, keys) if asked is not None else []:
            key, own = wholes[hit]
            equal = [
                one for one in candidates[equal_to(session, table, own, keys)].tolist() if free[one] and one != key
            ]
            if not equal or (key >= 0 and not free[key]):
                continue
            whole = key if key >= 0 else equal[0]
            same[equal], free[[*equal, whole]] = whole, False
            names.setdefault(whole, own)

    def alone(chosen: Mask) -> list[tuple[int, pa.Table]]:
        return [(key, events.keys.slice(key, 1)) for key in np.nonzero(chosen)[0].tolist()]

    join(locks, np.nonzero(rowless & ~locked)[0])
    # The source has one row: of the keys that are its key and are not locked, all but the batch's first arrive.
    arrives, open_ = events.arrives[events.first], rowless & ~locked
    join(alone(open_ & free & wanted), np.nonzero(open_ & free & arrives)[0])
    join(alone(open_ & free & wanted & arrives), np.nonzero(open_ & free & ~wanted & ~arrives)[0])
    return _in_one(found, same, names) if names else found


def _one_a_row(found: KeyRows) -> KeyRows:
    """Joins the keys that have one row."""
    at, has_row = found.at, found.at >= 0
    if has_row.sum() < 2 or np.bincount(at[has_row]).max() == 1:
        return found
    return _in_one(found, np.where(has_row, at, found.rows.num_rows + np.arange(len(at))), {})


def _places(identity: tuple[str, ...], rows: pa.Table, others: pa.Table) -> Mapping[int, int]:
    """Returns, for rows of `others` that are among `rows`, by place, the first place there."""
    if not rows.num_rows or not others.num_rows:
        return {}
    numbers = key_numbers(merged([chunkless(rows, identity), chunkless(others, identity)]))
    known: dict[int, int] = {}
    for place, number in enumerate(numbers[: rows.num_rows].tolist()):
        known.setdefault(number, place)  # as `target_rows` has it
    theirs = enumerate(numbers[rows.num_rows :].tolist())
    return {place: known[number] for place, number in theirs if number in known}


def _in_one(found: KeyRows, label: Numbers, names: Mapping[int, pa.Table]) -> KeyRows:
    """Joins keys of the same label. Each has the words of its first event, or those of `names` by its label."""
    events = found.events
    order = np.lexsort((events.change[events.first], label))
    starts = np.concatenate([[True], label[order][1:] != label[order][:-1]])
    same = np.empty(len(label), np.int64)
    same[order] = np.cumsum(starts) - 1
    first = order[starts]
    keys = events.keys.take(pa.array(first))
    if names:
        labels = label[first].tolist()
        parts = [names.get(one, keys.slice(place, 1)) for place, one in enumerate(labels)]
        keys = pa.concat_tables(part.cast(keys.schema) for part in parts)
    return KeyRows(events.in_one(same, keys), found.rows, found.at[first])
