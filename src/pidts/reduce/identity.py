"""Finds the row that each change concerns: the identity columns of its images, prepared for comparing and grouping.

Identities are compared by the bytes of their values, never by the column's collation. So a server whose collation
ignores case may treat two different identities as equal. This is harmless, because a target removes rows before it
writes:

    row 'A' exists;  UPDATE 'A' -> 'a', UPDATE 'a' -> 'A'      deletes {'a'}, upserts {'A'}
    row 'a' exists;  DELETE 'a', INSERT 'A'                    deletes {'a'}, upserts {'A'}

A target that ignores case loses its row by the delete and gets the whole row back by the upsert. Another target finds
no row to delete. Two upserts never have keys that the server treats as equal: the source would have had both at once.

All servers treat -0.0 and 0.0 as equal, but Arrow's grouping does not. So float keys lose the sign of zero here.
Otherwise INSERT -0.0, UPDATE to 0.0 would put the same key into one statement twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pidts.model import ChangeBatch, Halted, Op, Where, image_column
from pidts.model.advice import RESYNC

_GONE: Final = frozenset({int(Op.DELETE), int(Op.ABSENT)})
"""The operations after which the row does not exist."""
_WITH_BEFORE: Final = _GONE | {int(Op.UPDATE)}


@dataclass(frozen=True, slots=True)
class Identities:
    """The keys of a batch's changes. Each list has one array per identity column, each mask one value per change."""

    before: list[pa.Array]
    current: list[pa.Array]
    """The key after the change: the key of the written row, or of the deleted row."""
    deleted: pa.BooleanArray
    """Whether the row is gone after the change, or a repair has not found it on the source."""
    moved: pa.BooleanArray
    """Whether the change is an update that gives its row another key."""


def identities(batch: ChangeBatch) -> Identities:
    """Reads the keys of all changes; halts if a key has a NULL, which would match no row on the target.

    An update with partial images (MINIMAL) has its whole key in the before image, and only the changed columns in the
    after image.
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
            todo="Make the key's columns NOT NULL, run SET GLOBAL binlog_row_image=FULL on the source, let its "
            f"sessions reconnect, then copy the table again: {RESYNC}",
        )
    differs = any_of([pc.not_equal(old, new) for old, new in zip(before, after, strict=True)])
    differs = pc.fill_null(differs, fill_value=False)
    return Identities(before, current, deleted, pc.and_(updated, differs))


FEW: Final = 64
"""Up to this many changes are handled one by one in Python. For so few, calls of Arrow take longer."""


@dataclass(frozen=True, slots=True)
class FewKeys:
    """The keys of a few changes as Python values. Texts are bytes, which sort in the same order as the texts."""

    ops: list[int]
    before: list[tuple[Any, ...]]
    after: list[tuple[Any, ...]]
    types: list[pa.DataType]

    def arrays(self, keys: Iterable[tuple[Any, ...]]) -> list[pa.Array]:
        """Returns these keys as arrays, one for each column of the key."""
        columns = list(zip(*keys, strict=True)) or [()] * len(self.types)
        return [
            pa.array(column, pa.binary()).view(kind) if pa.types.is_string(kind) else pa.array(column, kind)
            for column, kind in zip(columns, self.types, strict=True)
        ]


def few_keys(batch: ChangeBatch) -> FewKeys | None:
    """Returns a small batch's keys; None for large batches, partial images, NULL in keys, and types not `_is_plain`."""
    if not 0 < len(batch) <= FEW or batch.is_partial:
        return None
    names = batch.table.identity
    types = [batch.table.arrow.field(name).type for name in names]
    if not all(map(_is_plain, types)):
        return None
    olds, news = (_few_values(batch, side, names) for side in ("before", "after"))
    ops = batch.rows.column("op").to_pylist()
    for op, old, new in zip(ops, olds, news, strict=True):
        if (op in _WITH_BEFORE and None in old) or (op not in _GONE and None in new):
            return None
    return FewKeys(ops, olds, news, types)


def _few_values(batch: ChangeBatch, side: str, names: Sequence[str]) -> list[tuple[Any, ...]]:
    if batch.rows.column(side).null_count == len(batch):
        return [(None,) * len(names)] * len(batch)
    return list(zip(*(_bytes(column).to_pylist() for column in image_columns(batch, side, names)), strict=True))


def _bytes(values: pa.Array) -> pa.Array:
    return values.view(pa.binary()) if pa.types.is_string(values.type) else values


def _is_plain(kind: pa.DataType) -> bool:
    """Whether Python compares and sorts values of this type as Arrow does."""
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_binary(kind))


def brought(batch: ChangeBatch, keys: Identities) -> pa.BooleanArray:
    """Returns which changes give a row a key at which its table had no row before."""
    op = batch.rows.column("op")
    return any_of([pc.equal(op, int(Op.INSERT)), pc.equal(op, int(Op.COPY)), keys.moved])


def image_columns(batch: ChangeBatch, side: str, names: Iterable[str]) -> list[pa.Array]:
    """Returns columns of the `before` or `after` images; NULL if a change has no such image."""
    images = batch.rows.column(side)
    return [image_column(images, images.type.get_field_index(name)) for name in names]


def any_of(masks: list[pa.BooleanArray]) -> pa.BooleanArray:
    """Returns a mask that is true where some mask is."""
    return reduce(pc.or_, masks)


def distinct(left: pa.Array, right: pa.Array) -> pa.BooleanArray:
    """Returns a mask that is true where the values of both arrays differ; NULL equals NULL."""
    one_null = pc.xor(pc.is_null(left), pc.is_null(right))
    return pc.or_(one_null, pc.fill_null(pc.not_equal(left, right), fill_value=False))


def plain_zero(values: pa.Array) -> pa.Array:
    """Returns the values with 0.0 in place of -0.0: servers treat the two as equal, but a hash join does not."""
    return pc.add(values, pa.scalar(0.0, values.type)) if pa.types.is_floating(values.type) else values
