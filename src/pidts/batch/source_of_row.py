"""Finds the source table of a row of a merged table, if the target has refused to write or to remove the row.

In one batch, several source tables may have changed the row with this key. For example, the row has moved from one
table to another. Or the row was inserted and deleted in one table, while a held table, whose position in the log is
earlier, still has a row with this key.

If the target has refused to write the row, the result is a table whose last change of the row did not delete it. If
there are several such tables, the result is the table with the latest change of the row. If the target has refused to
remove the row, the result is the table with the latest change of the row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pidts.apply import RefusedRow
from pidts.model import ChangeBatch, TableName
from pidts.reduce.identity import any_of, identities, plain_zero


def source_table(row: RefusedRow, batches: Iterable[ChangeBatch]) -> TableName | None:
    """Returns the source table of the row; None if no change names the row."""
    mine = [batch for batch in batches if batch.table.name == row.table.name and len(batch)]
    names = {batch.origin for batch in mine}
    if len(names) == 1:
        return names.pop()
    last = {
        name: max(one for batch in mine if batch.origin == name for one in _last_changes(row, batch)) for name in names
    }
    found = [(change, name) for name, change in last.items() if change.place and (change.leaves or not row.written)]
    return max(found, key=lambda one: one[0])[1] if found else None


class _LastChange(NamedTuple):
    """The last change that one source table makes to a row in a batch."""

    place: bytes
    leaves: bool
    """Whether the row exists after the change."""


def _last_changes(row: RefusedRow, batch: ChangeBatch) -> Iterator[_LastChange]:
    keys = identities(batch)
    places = batch.rows.column("lsn")
    is_it = _are(row, batch, keys.current)
    given_up = pc.and_(keys.moved, _are(row, batch, keys.before))
    for mask, leaves in (
        (pc.and_(is_it, pc.invert(keys.deleted)), True),
        (any_of([pc.and_(is_it, keys.deleted), given_up]), False),
    ):
        yield _LastChange(max(places.filter(mask).to_pylist(), default=b""), leaves)


def _are(row: RefusedRow, batch: ChangeBatch, keys: list[pa.Array]) -> pa.BooleanArray:
    same = pc.equal(pa.scalar(0), pa.array([0] * len(batch)))
    for name, values in zip(batch.table.identity, keys, strict=True):
        wanted = plain_zero(row.row[name].combine_chunks()).cast(values.type)[0]
        same = pc.and_(same, pc.fill_null(pc.equal(values, wanted), fill_value=False))
    return same
