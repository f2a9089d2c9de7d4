"""Reduces a batch on a table without a key to the number of copies of each row that are added or removed.

A table without a key is a multiset. Each image of a change adds or removes one copy of a row, and the order does not
matter: the sum for each distinct row is the whole effect. A row that the log removes existed before the batch, or the
batch added it. So the target has at least as many copies as the sum removes.

Rows are distinguished by the bits of the source's images. For removed rows, 0.0 and -0.0 count as one value: a target
treats them as equal, so removing either value would find the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pidts.model import ChangeBatch
from pidts.reduce.identity import image_columns, plain_zero
from pidts.reduce.key_numbers import Numbers, key_numbers, to_mask

_FEW = 64
"""Up to this many images, all rows are compared as a whole."""


def multiset_change(batch: ChangeBatch) -> tuple[pa.Table, pa.Int64Array, pa.Table]:
    """Returns the distinct removed rows, the number of copies of each, and the added rows, one row per copy."""
    schema = batch.table.arrow
    images = _Images.of(batch)
    place, total = _sums(images)

    lost = images.take(place[total < 0])
    times = pa.array(-total[total < 0])
    if any(pa.types.is_floating(kind) for kind in schema.types):
        joined = summed([plain_zero(values) for values in lost], times)
        first = joined.column("place").combine_chunks()
        lost, times = [values.take(first) for values in lost], joined.column("copies").combine_chunks()

    added = images.take(np.repeat(place, np.maximum(total, 0)))
    return pa.Table.from_arrays(lost, schema=schema), times, pa.Table.from_arrays(added, schema=schema)


@dataclass(frozen=True, slots=True)
class _Images:
    """The images of a batch's changes: first the removed rows, then the new ones.

    A place is an index into the two lists together.
    """

    before: list[pa.Array]
    after: list[pa.Array]
    """`before`, `after`: the columns of the images. A change without the image has NULL in all columns."""
    gone: Numbers
    new: Numbers
    """`gone`, `new`: the changes that remove a row, and the changes that add a row."""

    @classmethod
    def of(cls, batch: ChangeBatch) -> _Images:
        """Returns the images of a batch."""
        before, after = (image_columns(batch, side, batch.table.arrow.names) for side in ("before", "after"))
        gone, new = (np.flatnonzero(to_mask(batch.rows.column(side).is_valid())) for side in ("before", "after"))
        return cls(before, after, gone, new)

    @property
    def copies(self) -> Numbers:
        """Returns -1 for each removed row, and then 1 for each new one."""
        return np.repeat(np.array([-1, 1]), [len(self.gone), len(self.new)])

    def take(self, places: Numbers) -> list[pa.Array]:
        """Returns the columns of the images at these places, which are in ascending order."""
        edge = int(np.searchsorted(places, len(self.gone)))
        old, new = self.gone[places[:edge]], self.new[places[edge:] - len(self.gone)]
        return [
            _joined(before.take(pa.array(old)), after.take(pa.array(new)))
            for before, after in zip(self.before, self.after, strict=True)
        ]

    def narrow(self) -> list[pa.Array]:
        """Returns columns of numbers by which images are compared quickly: equal images have equal numbers."""
        found = []
        for before, after in zip(self.before, self.after, strict=True):
            if not pa.types.is_floating(before.type):
                old, new = _narrow(before), _narrow(after)
                found.append(_joined(old.take(pa.array(self.gone)), new.take(pa.array(self.new))))
        return found


def _narrow(values: pa.Array) -> pa.Array:
    is_long = pa.types.is_string(values.type) or pa.types.is_binary(values.type)
    return pc.binary_length(values) if is_long else values


def _joined(first: pa.Array, second: pa.Array) -> pa.Array:
    if not len(first) or not len(second):
        return first if len(first) else second
    return pa.concat_arrays([first, second])


def _sums(images: _Images) -> tuple[Numbers, Numbers]:
    """Returns, for each distinct row, the place of its last image and the sum of its copies, in ascending order.

    Comparing whole rows takes longer than all other steps together. Most rows differ from all others in a number, or in
    the length of a text, so only the rest is compared as a whole.
    """
    copies = images.copies
    alike = np.ones(len(copies), np.bool_)
    narrow = images.narrow() if len(copies) > _FEW else []
    if narrow:
        number = key_numbers(narrow)
        alike = np.bincount(number, minlength=1)[number] > 1
    alone, rest = np.flatnonzero(~alike), np.flatnonzero(alike)
    sums = summed(images.take(rest), pa.array(copies[rest]))
    place = np.concatenate([alone, rest[sums["place"].to_numpy()]])
    total = np.concatenate([copies[alone], sums["copies"].to_numpy()])
    order = np.argsort(place, kind="stable")
    return place[order], total[order]


def summed(columns: list[pa.Array], copies: pa.Int64Array) -> pa.Table:
    """Returns, for each distinct row, the index of its last occurrence and the sum of its copies, sorted by index."""
    by = [f"column{number}" for number in range(len(columns))]
    rows = pa.Table.from_arrays([*columns, copies, pa.arange(0, len(copies))], names=[*by, "copies", "place"])
    sums = rows.group_by(by, use_threads=False).aggregate([("copies", "sum"), ("place", "max")])
    sums = sums.select(["copies_sum", "place_max"]).rename_columns(["copies", "place"])
    return sums.sort_by("place")
