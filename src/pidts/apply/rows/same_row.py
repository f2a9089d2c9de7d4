"""Compares an image of the log with the target's row.

Only columns that every target returns as they were written are compared. JSON is returned with other spaces and another
order of keys, and the target computes generated columns itself. If such values were compared, a difference of spelling
would count as another row. Columns that the log leaves out are not compared either.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pidts.apply.rows.version_column import only_real
from pidts.model import Column, Kind, Table, image_column
from pidts.reduce.key_numbers import Mask, chunkless, to_mask

_SPELT = frozenset({Kind.JSON, Kind.GEOMETRY, Kind.VECTOR, Kind.FLOAT})


def same_rows(table: Table, images: pa.StructArray, rows: pa.Table, known: Mask | None) -> Mask:
    """Returns whether each image equals the row of the same index, in the columns of `known`; NULL equals NULL."""
    same = np.ones(len(images), np.bool_)
    for place, column in enumerate(table.columns):
        if values_differ(column):
            continue
        image = plain_values(column, image_column(images, place))
        found = plain_values(column, chunkless(rows, [column.name])[0])
        both_null = pc.and_(image.is_null(), found.is_null())
        equal = to_mask(pc.or_(both_null, pc.fill_null(pc.equal(image, found), fill_value=False)))
        same &= equal if known is None else equal | ~known[:, place]
    return same


def values_differ(column: Column) -> bool:
    """Whether a target may return another value than the log has, although the row is equal."""
    return column.generated or column.type.kind in _SPELT


def plain_values(column: Column, values: pa.Array) -> pa.Array:
    """Returns the values in a form that is the same for the log and for every target."""
    return pc.ascii_rtrim(values, characters=" ") if column.type.kind is Kind.CHAR else only_real(values)
