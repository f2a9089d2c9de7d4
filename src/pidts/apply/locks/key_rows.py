"""Reads the target's row for each key that a batch changes. Keys that the target treats as equal are one key here.

An UPDATE, or a program that writes to the target, may spell a key in another way. Where the column's collation ignores
case, 'Ada' and 'ADA' are one key of one row. Removing the row of one spelling removes the row of the other:

    the target has ADA, v = 9       UPDATE Ada -> ADA, v = 1         row ADA differs: nothing may remove Ada
    row Ada is locked               INSERT ADA                       is held together with the changes of Ada

The server decides which keys are equal. Keys with the same row are equal. About other keys, the server is asked only if
the table has locked rows or gets some (`joined_keys`, `pidts.apply.locks.known_locks`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pidts.apply.locks.key_events import KeyEvents, key_events
from pidts.apply.port import TargetSession
from pidts.apply.rows.target_rows import target_rows
from pidts.model import ChangeBatch
from pidts.reduce.key_numbers import Mask, Numbers


@dataclass(frozen=True, slots=True)
class KeyRows:
    """The events of one table's changes, key by key, and the target's row of each key."""

    events: KeyEvents
    rows: pa.Table
    """Rows of the target, which the open transaction has locked."""
    at: Numbers
    """For each key of `events`, the index of its row in `rows`, or -1."""


def read_key_rows(session: TargetSession, batch: ChangeBatch) -> KeyRows:
    """Returns the target's rows for the keys of one table's changes. The rows are locked."""
    events = key_events(batch)
    return _one_a_row(KeyRows(events, *target_rows(session, batch.table, events.keys)))


def read_known_key_rows(session: TargetSession, batch: ChangeBatch) -> KeyRows:
    """Does the same as `read_key_rows`, but assumes that the target has no rows of new keys (`KeyEvents.is_new`)."""
    events = key_events(batch)
    read = np.nonzero(~events.is_new)[0]
    rows, found = target_rows(session, batch.table, events.keys.take(pa.array(read)))
    at = np.full(len(events.first), -1)
    at[read] = found
    return _one_a_row(KeyRows(events, rows, at))


def joined_keys(
    found: KeyRows, classes: Sequence[str], locked: Mask, wanted: Mask, others: Mapping[str, pa.Table]
) -> KeyRows:
    """Joins the keys that the target treats as equal, which have the same class; returns the rows and events.

    - `locked` selects the batch's keys that equal the key of a lock byte by byte.
    - `wanted` selects these keys and the keys that will be locked.
    - `others` has the keys of other locks by class. A key of such a class gets the spelling of the lock's key.

    If no keys have to be joined, the function returns `found` itself.
    """
    events = found.events
    members: dict[str, list[int]] = {}
    for key, one in enumerate(classes):
        members.setdefault(one, []).append(key)
    same = np.arange(len(classes))
    names: dict[int, pa.Table] = {}
    for one, keys in members.items():
        own = [key for key in keys if locked[key]]
        if own:
            equal: Sequence[int] = [own[0], *(key for key in keys if not locked[key])]
        else:
            equal = keys if one in others else _equal_without_lock(found, wanted, keys)
        if len(equal) > 1:
            same[equal] = equal[0]
        if own and len(equal) > 1:
            names[equal[0]] = events.keys.slice(equal[0], 1)
        elif not own and one in others:
            names[equal[0]] = others[one]
    return _in_one(found, same, names) if names or len(np.unique(same)) < len(same) else found


def _equal_without_lock(found: KeyRows, wanted: Mask, keys: Sequence[int]) -> Sequence[int]:
    """Returns which of these equal keys, of which none is the key of a lock, have to be joined.

    If one of them has a row, all are joined. Otherwise keys are joined only if one of them has to be locked. The source
    has one row for all spellings of a key ('Ada', 'ADA'). So the first event of each later spelling is the one that
    gives the row this spelling: an INSERT, or an UPDATE of the key.
    """
    if len(keys) == 1 or any(found.at[key] >= 0 for key in keys):
        return keys
    if not wanted[list(keys)].any():
        return []
    events = found.events
    arrive = events.arrives[events.first]
    stay = sorted((key for key in keys if not arrive[key]), key=lambda key: (not wanted[key], events.first[key]))
    return [*(key for key in keys if arrive[key]), *stay[:1]]


def _one_a_row(found: KeyRows) -> KeyRows:
    """Joins the keys that have the same row; returns the events and rows with the new keys."""
    at, has_row = found.at, found.at >= 0
    if has_row.sum() < 2 or np.bincount(at[has_row]).max() == 1:
        return found
    return _in_one(found, np.where(has_row, at, found.rows.num_rows + np.arange(len(at))), {})


def _in_one(found: KeyRows, label: Numbers, names: Mapping[int, pa.Table]) -> KeyRows:
    """Joins the keys with the same label; returns the events and rows with the new keys.

    A joined key gets the spelling that `names` has for its label, or else the spelling of its first event.
    """
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
    at = np.full(len(first), -1)
    np.maximum.at(at, same, found.at)
    return KeyRows(events.in_one(same, keys), found.rows, at)
