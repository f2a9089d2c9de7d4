"""Joins the changes of a merged table's members to the log of one table, for the version guard.

If a row moves between two of the tables, the log has an INSERT in one and a DELETE in the other. Both have the same
version, and may be in either order:

    the target has (1, v5) of a        INSERT INTO b (1, v5)   ->  UPDATE (1, v5) of a to (1, v5) of b
                                       DELETE FROM a (1, v5)   ->  nothing: b has the row

Without this module, the version guard would ignore the INSERT into `b`, since the target has a row with the same
version. The DELETE from `a` would then remove that row. So two rules hold for a key that changes in several of the
tables, as long as another table has a row with the key: an INSERT replaces that row, and a DELETE removes nothing. Keys
that change in one table only, which are nearly all keys, keep their changes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pidts.model import ChangeBatch, Halted, Lsn, Op, Where
from pidts.reduce.identity import identities, image_columns
from pidts.reduce.key_numbers import Mask, Numbers, key_numbers, merged, to_mask

Known = tuple[Mask, Mask]
"""The columns that the log has of each before image, and of each after image."""


def one_log(parts: Sequence[ChangeBatch], known: Sequence[Known | None]) -> tuple[ChangeBatch, Mask | None]:
    """Returns the changes of all tables (`parts`) in log order, and which columns of before images are known."""
    table = parts[0].table
    rows = pa.concat_batches([part.rows for part in parts])
    part_of = np.concatenate([np.full(len(part), number) for number, part in enumerate(parts)])
    order = pc.sort_indices(rows.column("lsn").cast(pa.binary()))
    rows, part_of = rows.take(order), part_of[order.to_numpy()]
    masks = _masks(parts, known, order.to_numpy(), len(table.columns))
    batch = ChangeBatch(table, rows)
    shared = _shared(batch, part_of)
    if not shared:
        return batch, None if masks is None else masks[: len(rows)]
    places = _Places(rows.column("op").to_numpy(), part_of)
    for events in shared:
        places.follow(events)
    before, after = (rows.column(side) for side in ("before", "after"))
    images = pa.concat_arrays([before, after])
    made = ChangeBatch.of(
        table,
        rows.column("lsn"),
        pa.array(places.op, pa.int8()),
        images.take(pa.array(places.before, mask=places.before < 0)),
        after,
    )
    shown = None if masks is None else masks[np.maximum(places.before, 0)][places.kept]
    return ChangeBatch(table, made.rows.filter(pa.array(places.kept))), shown


def by_table(batch: ChangeBatch, parts: Sequence[ChangeBatch]) -> list[ChangeBatch]:
    """Divides the changes that the version guard has left into parts.

    There is a part for each source table, since each table has its own columns. A further part has the changes of keys
    that change in several tables, as changes of the merged table.
    """
    mine, theirs = identities(batch), [identities(part) for part in parts]
    leaving = [[values.filter(one.moved) for values in one.before] for one in theirs]
    numbers = key_numbers(merged([mine.current, *(one.current for one in theirs), *leaving]))
    sizes = [*map(len, parts), *(len(columns[0]) for columns in leaving)]
    keys, part_of = numbers[len(batch) :], np.repeat([*range(len(parts))] * 2, sizes)
    first, last = np.full(len(numbers), len(parts)), np.full(len(numbers), -1)
    np.minimum.at(first, keys, part_of)
    np.maximum.at(last, keys, part_of)
    whose = np.where(first == last, first, len(parts))[numbers[: len(batch)]]
    upstream = [*(part.upstream for part in parts), batch.upstream]
    found = (ChangeBatch(batch.table, batch.rows.filter(pa.array(whose == at)), one) for at, one in enumerate(upstream))
    return [one for one in found if len(one)]


def _masks(parts: Sequence[ChangeBatch], known: Sequence[Known | None], order: Numbers, width: int) -> Mask | None:
    """Returns which columns of each image are known, before images first; None if all columns are known."""
    if all(one is None for one in known):
        return None
    sides = [
        np.concatenate(
            [
                np.ones((len(part), width), np.bool_) if one is None else one[side]
                for part, one in zip(parts, known, strict=True)
            ]
        )[order]
        for side in (0, 1)
    ]
    return np.concatenate(sides)


def _shared(batch: ChangeBatch, part_of: Numbers) -> list[Numbers]:
    """Returns, for each key that changes in several tables, its changes in the log's order."""
    names, op = batch.table.identity, batch.rows.column("op").to_numpy()
    before, after = (image_columns(batch, side, names) for side in ("before", "after"))
    leaves = np.nonzero((op == Op.DELETE) | (op == Op.UPDATE))[0]
    arrives = np.nonzero(op != Op.DELETE)[0]
    columns = [
        [values.take(pa.array(places)) for values in image] for image, places in ((before, leaves), (after, arrives))
    ]
    number, change = key_numbers(merged(columns)), np.concatenate([leaves, arrives])
    pairs = np.unique(np.stack([number, part_of[change]]), axis=1)
    keys, counts = np.unique(pairs[0], return_counts=True)
    found = [np.unique(change[number == key]) for key in keys[counts > 1]]
    moved = (op == Op.UPDATE) & np.any(
        [to_mask(pc.not_equal(old, new)) for old, new in zip(before, after, strict=True)], axis=0
    )
    for events in found:
        if moved[events].any():
            raise _unclear_versions(batch, int(events[moved[events]][0]))
    return found


class _Places:
    """For each change, its operation, and the index of its before image among all images, or -1."""

    def __init__(self, op: Numbers, part_of: Numbers) -> None:
        self._part_of, self._size = part_of, len(op)
        self.op = op.copy()
        has = (op == Op.UPDATE) | (op == Op.DELETE)
        self.before = np.where(has, np.arange(len(op)), -1)
        self.kept = np.ones(len(op), np.bool_)

    def follow(self, events: Numbers) -> None:
        """Changes one key's operations and before images by the two rules of this module."""
        holders, here = self._at_start(events)
        for event in map(int, events):
            if self.op[event] == Op.DELETE:
                holders.discard(int(self._part_of[event]))
                if holders:
                    self.kept[event] = False
                else:
                    self.before[event] = here if here >= 0 else self.before[event]
                    here = -1
                continue
            if here >= 0 and self.op[event] != Op.COPY:
                self.op[event], self.before[event] = Op.UPDATE, here
            holders.add(int(self._part_of[event]))
            here = self._size + event

    def _at_start(self, events: Numbers) -> tuple[set[int], int]:
        """Returns the table that has the row before these changes, and the index of the row's image.

        The first of the `events` with a before image shows both. If there is none, returns an empty set and -1.
        """
        seen: set[int] = set()
        for event in map(int, events):
            part = int(self._part_of[event])
            if part not in seen and self.before[event] >= 0:
                return {part}, int(self.before[event])
            seen.add(part)
        return set(), -1


def _unclear_versions(batch: ChangeBatch, change: int) -> Halted:
    lsn = Lsn.from_bytes(batch.rows.column("lsn")[change].as_py())
    return Halted(
        "version-of-merged",
        "an update gives a row the key of another table's row, and the versions of the two rows do not show which of "
        "them stays",
        where=Where(table=str(batch.table.name), position=str(lsn)),
        todo="Have the route extract a column and put it into the target's key, or remove pidts.version-column from "
        "the task file",
    )
