"""Which of the source's tables a row comes from that is written to one of the target's.

Where several become one, the last of them that has said something about the row's key: by then it has the row, or has
given it away. A key may move between them inside a batch, so it is not told by any other.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from pidts.apply import RefusedRow
from pidts.model import ChangeBatch, TableName
from pidts.reduce.identity import any_of, identities, plain_zero


def owner(row: RefusedRow, batches: Iterable[ChangeBatch]) -> TableName | None:
    """None where no change speaks of it."""
    mine = [batch for batch in batches if batch.table.name == row.table.name and len(batch)]
    names = {batch.origin for batch in mine}
    if len(names) == 1:
        return names.pop()
    found = [(place, batch.origin) for batch in mine if (place := _last(row, batch)) is not None]
    return max(found, key=lambda one: one[0])[1] if found else None


def _last(row: RefusedRow, batch: ChangeBatch) -> bytes | None:
    """Where the last change of this row is: one that leaves it there, or one that takes it away."""
    keys = identities(batch)
    says = pc.and_(_are(row, batch, keys.current), pc.equal(keys.deleted, not row.written))
    if not row.written:
        # A row that is to be written may have to be removed first.
        says = any_of([_are(row, batch, keys.current), pc.and_(keys.moved, _are(row, batch, keys.before))])
    places = batch.rows.column("lsn").filter(says)
    return max(places.to_pylist(), default=None)


def _are(row: RefusedRow, batch: ChangeBatch, keys: list[pa.Array]) -> pa.BooleanArray:
    same = pc.equal(pa.scalar(0), pa.array([0] * len(batch)))
    for name, values in zip(batch.table.identity, keys, strict=True):
        wanted = plain_zero(row.row[name].combine_chunks()).cast(values.type)[0]
        same = pc.and_(same, pc.fill_null(pc.equal(values, wanted), fill_value=False))
    return same
