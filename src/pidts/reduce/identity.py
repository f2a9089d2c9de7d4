"""The row that each change is about: the identity columns of its images, ready for comparing and grouping.

Identities are compared by their values' bytes, never by the collation of the column. A case-insensitive key therefore
seems to hold two identities where the server sees one, and that is harmless because a target removes before it writes:

    row 'A' exists;  UPDATE 'A' -> 'a', UPDATE 'a' -> 'A'      deletes {'a'}, upserts {'A'}
    row 'a' exists;  DELETE 'a', INSERT 'A'                    deletes {'a'}, upserts {'A'}

A target that folds case loses its row by the delete and gets it back whole by the upsert; one that does not finds
nothing to delete. Two upserts can never be equal to the server: the source would have had to hold both rows at once.

The one equality that Arrow's grouping draws finer than every server is -0.0 and 0.0, so float keys lose their sign of
zero here: else INSERT -0.0, UPDATE to 0.0 would give one statement the same key twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from pidts.model import ChangeBatch, Halted, Op, Where


@dataclass(frozen=True, slots=True)
class Identities:
    """The keys of a batch's changes; each list has one array per identity column, each mask one value per change."""

    before: list[pa.Array]
    after: list[pa.Array]
    current: list[pa.Array]
    """The key a change ends on: of the row written, or of the row deleted."""
    deleted: pa.BooleanArray
    """The row is gone behind the change, or a repair has not found it."""
    moved: pa.BooleanArray
    """Updates that give their row another key."""


def identities(batch: ChangeBatch) -> Identities:
    """Reads the keys of all changes; halts where a key has a NULL, which would match no row on the target.

    An update that is logged in part (MINIMAL row images) has its whole key in the before image, and in the after image
    what changed of it.
    """
    names = batch.table.identity
    before = [plain_zero(values) for values in image_columns(batch, "before", names)]
    after = [plain_zero(values) for values in image_columns(batch, "after", names)]
    if batch.is_partial:
        in_part = batch.rows.column("partial").is_valid()
        after = [pc.if_else(in_part, pc.coalesce(new, old), new) for old, new in zip(before, after, strict=True)]
    op = batch.rows.column("op")
    deleted = pc.or_(pc.equal(op, int(Op.DELETE)), pc.equal(op, int(Op.ABSENT)))
    updated = pc.equal(op, int(Op.UPDATE))
    current = [pc.if_else(deleted, old, new) for old, new in zip(before, after, strict=True)]
    incomplete = [pc.is_null(values) for values in current]
    incomplete += [pc.and_(updated, pc.is_null(values)) for values in before]
    if pc.any(any_of(incomplete)).as_py():
        raise Halted(
            "null-in-key",
            f"A change has no value for its key ({', '.join(names)})",
            where=Where(table=str(batch.table.name)),
            todo="Check that the key's columns are NOT NULL, and set binlog_row_image=FULL on the source",
        )
    differs = any_of([pc.not_equal(old, new) for old, new in zip(before, after, strict=True)])
    differs = pc.fill_null(differs, fill_value=False)
    return Identities(before, after, current, deleted, pc.and_(updated, differs))


def brought(batch: ChangeBatch, keys: Identities) -> pa.BooleanArray:
    """Changes that bring a row to a key at which its table did not have it."""
    op = batch.rows.column("op")
    return any_of([pc.equal(op, int(Op.INSERT)), pc.equal(op, int(Op.COPY)), keys.moved])


def image_columns(batch: ChangeBatch, side: str, names: Iterable[str]) -> list[pa.Array]:
    """Returns some columns of the `before` or `after` images; NULL where a change has no such image."""
    images = batch.rows.column(side)
    return [pc.struct_field(images, [images.type.get_field_index(name)]) for name in names]


def any_of(masks: list[pa.BooleanArray]) -> pa.BooleanArray:
    """True if any mask is."""
    return reduce(pc.or_, masks)


def plain_zero(values: pa.Array) -> pa.Array:
    """Returns the values without the sign of zero, where they have one."""
    return pc.add(values, pa.scalar(0.0, values.type)) if pa.types.is_floating(values.type) else values
