"""Rows of tables that become one, each with the columns that its own table has.

Of the others the target knows what they are to be: a row that comes gets its defaults, a row that is there keeps them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from pidts.model import Table
from pidts.reduce.net_change import Counts, NetChange


def by_width(change: NetChange, owners: pa.Int32Array, own: Sequence[Collection[str] | None]) -> list[NetChange]:
    """The same, in several; the first removes. `owners` are the rows' places in `own`, where None has all columns."""
    widths = [_names(change.table, names) for names in own]
    found: list[NetChange] = []
    for width in dict.fromkeys(widths):
        mine = pa.array([place for place, other in enumerate(widths) if other == width], owners.type)
        rows = change.upserts.filter(pc.is_in(owners, value_set=mine)).select(list(width))
        if rows.num_rows:
            found.append(replace(change, table=_narrow(change.table, width), upserts=rows))
    if not found:
        return [change]
    none = change.deletes.slice(0, 0)
    return [found[0], *(replace(one, deletes=none, counts=Counts()) for one in found[1:])]


def _names(table: Table, own: Collection[str] | None) -> tuple[str, ...]:
    return tuple(name for name in table.arrow.names if own is None or name.lower() in own)


def _narrow(table: Table, names: tuple[str, ...]) -> Table:
    columns = tuple(column for column in table.columns if column.name in names)
    there = {name.lower() for name in names}
    keys = tuple(key for key in table.keys if there >= {name.lower() for name in key.columns})
    return replace(table, columns=columns, keys=keys)
