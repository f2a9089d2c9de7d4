"""The columns that the log has of changes with partial images (`binlog_row_image` MINIMAL and NOBLOB).

Partial images were completed from the target's row (`pidts.apply.rows.partial_images`). That row may differ from the
source's. So the completed values are neither compared nor held.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pidts.model import ChangeBatch, Op
from pidts.reduce.column_presence import ColumnPresence
from pidts.reduce.key_numbers import Mask, Numbers, to_mask
from pidts.schema.column_defaults import default_value


@dataclass(frozen=True, slots=True)
class Presence:
    """The columns that the log has of some changes, and the place of each of these changes in the log."""

    lsns: pa.Array
    columns: ColumnPresence


@dataclass(frozen=True, slots=True)
class KnownColumns:
    """For each change of a batch, the columns whose values the log has, or whose values follow from it."""

    before: Mask
    after: Mask
    """The columns of the after images. A column is missing if it did not change and only the before image has it."""
    halved: Mask
    """INSERTs that are one half of an UPDATE. The other half belongs to another worker."""
    partial: Mask
    """Changes that are set aside, since the log has only a part of them (`pidts.apply.locks.partial_changes`)."""

    def of(self, changes: Numbers, side: str) -> Mask:
        """Returns which columns are known in the images of some changes; `side` is "before" or "after"."""
        return self.before[changes] if side == "before" else self.after[changes] | self.before[changes]


def known_columns(batch: ChangeBatch, presence: Sequence[Presence]) -> KnownColumns | None:
    """Returns which columns of one table's changes are known; None if all are. `presence` may include other tables.

    An inserted row has the defaults of columns that the log lacks.
    """
    if not presence:
        return None
    lsns = batch.rows.column("lsn").cast(pa.binary())
    before = np.ones((len(batch), len(batch.table.columns)), np.bool_)
    after, halved = before.copy(), np.zeros(len(batch), np.bool_)
    for one in presence:
        at = pc.index_in(lsns, value_set=one.lsns.cast(pa.binary()))
        mine = np.nonzero(to_mask(at.is_valid()))[0]
        if len(mine):
            places = at.drop_null().to_numpy()
            before[mine], after[mine] = one.columns.before[places], one.columns.after[places]
            halved[mine] = one.columns.halved[places]
    # If an update does not change its key, at least its before image has the key.
    key = [batch.table.arrow.get_field_index(name) for name in batch.table.identity]
    before[:, key] = after[:, key] = True
    inserted = batch.rows.column("op").to_numpy() == Op.INSERT
    after[inserted & ~halved] |= np.array([default_value(column) is not None for column in batch.table.columns])
    return KnownColumns(before, after, halved, np.zeros(len(batch), np.bool_))


def bitmaps(batch: ChangeBatch, known: KnownColumns, change: Numbers, leaves: Mask, arrives: Mask) -> pa.Array:
    """Returns the column `partial` of events; NULL where all columns are known.

    An event is a change, or one half of an UPDATE that gives its row another key. The columns that were known at the
    old key are also known at the new key.
    """
    moved = arrives & (batch.rows.column("op").to_numpy()[change] != Op.INSERT)
    before, after = known.before[change], known.after[change].copy()
    after[moved] |= before[moved] | ~known.partial[change[moved]][:, None]
    whole = (arrives | before.all(axis=1)) & (leaves | after.all(axis=1))
    packed = [np.packbits(side, axis=1, bitorder="little") for side in (before, after)]
    texts = []
    for place, all_known in enumerate(whole.tolist()):
        sides = [
            bits[place].tobytes()
            for bits, left_out in zip(packed, (arrives, leaves), strict=True)
            if not left_out[place]
        ]
        texts.append(None if all_known else b"".join(sides))
    return pa.array(texts, pa.binary())
