"""Removes updates of rows that a filter has left out. The target lacks these rows, so the updates have no effect.

    insert-value-expr: "state = 'test'"         INSERT (1, 'test') is left out; no UPDATE of row 1 finds a row

A net change writes whole rows, so an update would insert a row that the filter has left out. Only the target shows
which rows it has. So all keys are queried, except those whose row an earlier change of the batch has made.
Updates of a row that the target does not have are removed, up to the next INSERT of the row. The query runs under the
lock of the worker's checkpoint, which also keeps copied rows from being loaded. So a row that is missing now is still
missing when the batch commits, wherever batches are cut.

Three kinds of updates are always written:

1. Updates in safe mode, which are written as a REPLACE.
2. Updates that give a row another key while the table is being copied: the copy may already have read the new key.
3. Updates that reach two workers as a DELETE and an INSERT.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pidts.apply.port import TargetSession
from pidts.apply.rows.target_rows import narrowed, target_rows
from pidts.model import ChangeBatch, Lsn, Op
from pidts.reduce.identity import identities
from pidts.reduce.key_numbers import Mask, Numbers, key_numbers, merged, to_mask


def without_kept_away(
    session: TargetSession, batch: ChangeBatch, *, copying: bool = False, seen_until: Lsn | None = None
) -> ChangeBatch:
    """Returns the changes without updates of rows that a filter has left out.

    The changes in `batch` must be in log order and have full images. Changes of tables without a key are all returned.
    `copying`: the full copy of the table is not complete. `seen_until`: the place in the log up to which the target may
    already have changes.
    """
    op = batch.rows.column("op").to_numpy()
    updates = op == Op.UPDATE
    if not updates.any() or not batch.table.identity:
        return batch
    keys = identities(batch)
    size = len(batch)
    numbers = key_numbers(merged([keys.before, keys.current]))
    old, new = numbers[:size], numbers[size:]
    moved = to_mask(keys.moved)
    certain = updates & _seen(batch, seen_until)
    if copying:
        certain |= updates & moved
    order = np.argsort(np.where(op == Op.COPY, -1, 0), kind="stable")  # copied rows come before the log's changes
    asked = _first_of_each(old, np.nonzero(updates & ~certain & ~_made(op, old, new, order))[0])
    there: dict[int, bool] = {}
    if len(asked):
        columns = [values.take(pa.array(asked)) for values in keys.before]
        wanted = pa.Table.from_arrays(columns, names=list(batch.table.identity))
        _, at = target_rows(session, narrowed(batch.table, ()), wanted)
        there = dict(zip(old[asked].tolist(), (at >= 0).tolist(), strict=True))
    stays = _followed(there, op[order], old[order], new[order], certain[order])
    kept = np.ones(size, np.bool_)
    kept[order] = stays
    return batch if kept.all() else ChangeBatch(batch.table, batch.rows.filter(pa.array(kept)), batch.upstream)


def _followed(there: dict[int, bool], op: Numbers, old: Numbers, new: Numbers, certain: Mask) -> list[bool]:
    """Returns whether each change finds its row; `there` says which keys have a row on the target.

    Changes are judged one by one, since an update may give its row another key.
    """
    stays = []
    for kind, left, reached, sure in zip(op.tolist(), old.tolist(), new.tolist(), certain.tolist(), strict=True):
        finds = kind != Op.UPDATE or sure or there[left]
        if finds:
            if kind == Op.UPDATE:
                there[left] = False
            there[reached] = kind != Op.DELETE
        stays.append(finds)
    return stays


def _made(op: Numbers, old: Numbers, new: Numbers, order: Numbers) -> Mask:
    """Selects the changes for which an earlier INSERT or DELETE in the batch shows whether their key has a row."""
    place = np.empty(len(op), np.int64)
    place[order] = np.arange(len(op))
    first = np.full(int(max(old.max(), new.max())) + 1, len(op))
    known = op != Op.UPDATE
    np.minimum.at(first, new[known], place[known])
    return first[old] < place


def _first_of_each(numbers: Numbers, places: Numbers) -> Numbers:
    _, first = np.unique(numbers[places], return_index=True)
    return places[first]


def _seen(batch: ChangeBatch, until: Lsn | None) -> Mask:
    if until is None:
        return np.zeros(len(batch), np.bool_)
    lsns = batch.rows.column("lsn").cast(pa.binary())
    return to_mask(pc.less_equal(lsns, pa.scalar(until.to_bytes(), pa.binary())))
