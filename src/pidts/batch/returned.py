"""Selects the removed rows from changes that return to their own zone (`pidts.apply.rows.convergence`).

If a task removes a row and writes it again in one transaction, the row does not count as removed. So the last change of
a key decides.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pyarrow as pa

from pidts.model import ChangeBatch, Op
from pidts.reduce.identity import identities
from pidts.reduce.key_numbers import key_numbers


def only_removed(batches: Iterable[ChangeBatch]) -> list[ChangeBatch]:
    """Returns the DELETEs after which the row is not written again.

    Each DELETE has its row also as its after image. This image is not written, but distinguishes these DELETEs from
    DELETEs of the source's own zone.
    """
    return [found for batch in batches if len(found := _removed(batch))]


def _removed(batch: ChangeBatch) -> ChangeBatch:
    rows = batch.rows
    if not batch.table.identity or not len(batch):
        return replace(batch, rows=rows.slice(0, 0))
    numbers = key_numbers(identities(batch).current)
    op = rows.column("op").to_numpy()
    last = np.zeros(len(batch), np.bool_)
    _, from_end = np.unique(numbers[::-1], return_index=True)
    last[len(batch) - 1 - from_end] = True
    kept = rows.filter(pa.array(last & (op == Op.DELETE)))
    place = kept.schema.get_field_index("after")
    return replace(batch, rows=kept.set_column(place, kept.schema.field(place), kept.column("before")))
