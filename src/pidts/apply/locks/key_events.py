"""Collects the events of each key in a batch. Rows of the target are compared with the log key by key.

A change concerns one key, or two: an UPDATE that gives its row another key *leaves* the old key and *arrives* at the
new one.

    INSERT 5           5 arrives
    UPDATE 5           5 stays
    UPDATE 5 -> 6      5 leaves, 6 arrives
    DELETE 6           6 leaves

Two workers may get the two halves of an UPDATE that changes the key. So the halves are judged separately everywhere,
and a worker decides about its keys independently of the other workers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from pidts.apply.rows.version_guard import taken_rows
from pidts.model import ChangeBatch, Op
from pidts.reduce.identity import FewKeys, few_keys, identities
from pidts.reduce.key_numbers import Mask, Numbers, key_numbers, merged, to_mask


@dataclass(frozen=True, slots=True)
class KeyEvents:
    """The events of one table's changes, key by key. The events of a key are in the order of the log."""

    batch: ChangeBatch
    keys: pa.Table
    """Each key of the changes, once."""
    key: Numbers
    """For each event, the index of its key in `keys`."""
    change: Numbers
    """For each event, the index of its change in `batch`."""
    leaves: Mask
    """For each event, whether its key has no row after the event."""
    arrives: Mask
    """For each event, whether its key had no row before the event."""
    first: Numbers
    """The first event of each key."""

    @property
    def is_new(self) -> Mask:
        """Returns, for each key, whether it had no row before its first event, and has one after its last event."""
        last = np.append(self.first[1:], len(self.key)) - 1
        is_new: Mask = self.arrives[self.first] & ~self.leaves[last]
        return is_new

    @property
    def comes(self) -> Mask:
        """Returns, for each key, whether it had no row before its first event."""
        return self.arrives[self.first]

    def in_one(self, same: Numbers, keys: pa.Table) -> KeyEvents:
        """Returns the events after equal keys were joined; `same` has each key's index in the new `keys`.

        An UPDATE that only spells its key in another way then leaves the row where it is.
        """
        key = same[self.key]
        order = np.lexsort((2 * self.change + ~self.leaves, key))
        key, change, leaves, arrives = key[order], self.change[order], self.leaves[order], self.arrives[order]
        halves = (key[1:] == key[:-1]) & (change[1:] == change[:-1])
        leaves[:-1] &= ~halves
        kept = np.concatenate([[True], ~halves])
        key, change, leaves, arrives = key[kept], change[kept], leaves[kept], arrives[kept]
        starts = np.nonzero(np.concatenate([[True], key[1:] != key[:-1]]))[0]
        return KeyEvents(self.batch, keys, key, change, leaves, arrives, starts)


def key_events(batch: ChangeBatch) -> KeyEvents:
    """Returns, in log order, the events of all changes with full images; the table has a key."""
    few = few_keys(batch)
    return _of_many(batch) if few is None else _of_few(batch, few)


def _of_few(batch: ChangeBatch, keys: FewKeys) -> KeyEvents:
    """Does the same as `_of_many` without Arrow, whose calls take longer for a few changes."""
    numbers: dict[tuple[Any, ...], int] = {}
    events: list[tuple[int, int, bool, bool]] = []
    changes = list(enumerate(zip(keys.ops, keys.before, keys.after, strict=True)))
    moved = [op == Op.UPDATE and old != new for _, (op, old, new) in changes]
    for place, (op, old, _) in changes:
        if op == Op.DELETE or moved[place]:
            events.append((numbers.setdefault(old, len(numbers)), place, True, False))
    for place, (op, _, new) in changes:
        if op != Op.DELETE:
            comes = op == Op.INSERT or moved[place]
            events.append((numbers.setdefault(new, len(numbers)), place, False, comes))
    key, change, leaves, arrives = zip(*sorted(events), strict=True)
    number = np.array(key, np.int64)
    schema = pa.schema([batch.table.arrow.field(name) for name in batch.table.identity])
    return KeyEvents(
        batch,
        pa.Table.from_arrays(keys.arrays(numbers), schema=schema),
        number,
        np.array(change, np.int64),
        np.array(leaves, np.bool_),
        np.array(arrives, np.bool_),
        np.searchsorted(number, np.arange(len(numbers))),
    )


def _of_many(batch: ChangeBatch) -> KeyEvents:
    op = batch.rows.column("op").to_numpy()
    found = identities(batch)
    moved = to_mask(found.moved)
    gone, there = np.nonzero((op == Op.DELETE) | moved)[0], np.nonzero(op != Op.DELETE)[0]
    change = np.concatenate([gone, there])
    leaves = np.arange(len(change)) < len(gone)
    arrives = ~leaves & ((op[change] == Op.INSERT) | moved[change])
    columns = merged([taken_rows(found.before, gone), taken_rows(found.current, there)])
    number = key_numbers(columns)
    order = np.lexsort((2 * change + ~leaves, number))
    number = number[order]
    starts = np.concatenate([[True], number[1:] != number[:-1]]) if len(number) else np.zeros(0, np.bool_)
    schema = pa.schema([batch.table.arrow.field(name) for name in batch.table.identity])
    keys = pa.Table.from_arrays(taken_rows(columns, order[starts]), schema=schema)
    return KeyEvents(
        batch,
        keys,
        np.cumsum(starts) - 1,
        change[order],
        leaves[order],
        arrives[order],
        np.nonzero(starts)[0],
    )
