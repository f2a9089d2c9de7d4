"""Finds changes from another zone for which the log has only a part of the row. These changes are set aside.

Zones compare rows by their values. A session of the source may set `binlog_row_image` at any time. So even if the
server has FULL, images of some changes may have only the key and the changed columns. If such a change were not set
aside, it would be applied to whatever row has the key:

    a    UPDATE 1: v = 5, logged as (id 1) -> (v 5)        b applies it: v = 5
    b    UPDATE 1: v = 6, logged as (id 1) -> (v 6)        a applies it: v = 6, and no zone has a lock

It would not be enough to set a partial change aside only if the target shows that another zone has changed the row
meanwhile. In the next example, zone b logs whole rows and zone a logs parts. When b's change arrives at a, the row has
its earlier value again:

    a    UPDATE 1: v = 5, UPDATE 1: v = 4                  b applies both after its own: v = 4
    b    UPDATE 1: v = 4 -> 7                              a finds v = 4, and has v = 7

So each partial change is set aside, with all later changes of its key. A change is not partial if the log has these
rows:

    INSERT             the row, with the defaults of columns that no value was given for
    UPDATE             the row before
    UPDATE 5 -> 6      at key 5 the row before; at key 6 the row after, with missing values from the row before
    DELETE             the row before

Each key is judged by its own changes, as everywhere in this folder. So it does not matter to which worker a key
belongs, with one exception: a log may have whole before images and partial after images (MariaDB's FULL_NODUP). With
several workers, the half of an UPDATE at the new key then lacks the values that the other half has, and is held.

Outside of zones, missing values of a row at its new key are taken from the target's row at the old key. Between zones,
the target may have a different row at the old key. So both keys are held, with the values that the log has
(`KnownColumns.partial`).

If versions decide (`pidts.conflict: version`), a partial change halts its table (`pidts.apply.prepare`). If owners
decide, a partial change is compared and applied with the columns that the log has, since only one zone writes a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from pidts.apply.locks.key_events import KeyEvents
from pidts.apply.locks.presence import KnownColumns
from pidts.model import ChangeBatch, Op, Table
from pidts.reduce.key_numbers import Mask

_WHY = (
    "the log has only a part of the row (a session of its zone did not have binlog_row_image=FULL): changes that "
    "another zone has made to the row cannot be recognized"
)


def with_partial(batch: ChangeBatch, known: KnownColumns) -> KnownColumns:
    """Returns `known` with the mask `partial`: the changes of which the log has only a part."""
    plain = _plain(batch.table)
    inserted = batch.rows.column("op").to_numpy() == Op.INSERT
    whole = np.where(inserted, known.after[:, plain].all(axis=1), known.before[:, plain].all(axis=1))
    return replace(known, partial=~whole)


def partial_events(events: KeyEvents, known: KnownColumns) -> Mapping[int, str]:
    """Returns the events that are set aside, with the reason; `known.partial` selects the partial changes."""
    asked = np.nonzero(known.partial[events.change])[0]
    change, arrives, plain = events.change[asked], events.arrives[asked], _plain(events.batch.table)
    before = known.before[change][:, plain].all(axis=1)
    after = known.of(change, "after")[:, plain].all(axis=1)
    return dict.fromkeys(asked[np.where(arrives, ~after, ~before)].tolist(), _WHY)


def _plain(table: Table) -> Mask:
    return np.array([not column.generated for column in table.columns])
