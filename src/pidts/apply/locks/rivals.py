"""Finds changes that need a unique value which another row of the target has.

Programs of two zones may give one unique value to two rows before the zones have met. Each zone would refuse the row of
the other one, and with it everything that comes behind it:

    zone a    INSERT (7, u = 5)                zone b    INSERT (3, u = 5), then INSERT (4, u = 6)
    zone a has row 7, so it sets row 3 aside, names both, and takes row 4; zone b does so with row 7

The target is asked only after it has refused a row: until then there is nothing to find. It says itself which values
are equal. A row of a key that the batch changes, too, is no rival: the source has given its value up, or the key is
locked, and what needs its value with it (`pidts.apply.locks.unique_values`).

A rival that comes between the question and the write is refused once more, and then the changes are made anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa

from pidts.apply.locks.key_rows import KeyRows
from pidts.apply.port import TargetSession
from pidts.apply.rows.key_numbers import chunkless, key_numbers, merged, to_mask
from pidts.apply.rows.shown_values import shown_row
from pidts.model import Key, Table


def rival_events(session: TargetSession, met: KeyRows) -> Mapping[int, str]:
    """Returns the events that give a row a unique value of another row, with a reason that names that row."""
    events, table = met.events, met.events.batch.table
    there = session.schema.structure(table.name)
    keys = [key.columns for one in (table, there) if one is not None for key in one.keys if key.unique]
    arriving = np.nonzero(~events.leaves)[0]
    after = events.batch.rows.column("after").take(pa.array(events.change[arriving]))
    images = pa.Table.from_arrays(after.flatten(), schema=table.arrow)
    found: dict[int, str] = {}
    for names in dict.fromkeys(keys):
        if names == table.identity or not set(names) <= set(table.arrow.names):
            continue
        columns = chunkless(images, names)
        whole = np.logical_and.reduce([to_mask(values.is_valid()) for values in columns])
        places = np.nonzero(whole)[0]
        if not len(places):
            continue
        numbers = key_numbers([values.take(pa.array(places)) for values in columns])
        _, first, value_of = np.unique(numbers, return_index=True, return_inverse=True)
        values = images.select(list(names)).take(pa.array(places[first]))
        for value, rival in _rivals(session, table, names, values, met.rows):
            shown = shown_row(rival.select(list(table.identity)))
            reason = (
                f"it needs the unique value {shown_row(values.slice(value, 1))}, which row {shown} of the target has"
            )
            for place in places[value_of == value].tolist():
                found.setdefault(int(arriving[place]), reason)
    return found


def _rivals(
    session: TargetSession, table: Table, names: tuple[str, ...], values: pa.Table, own: pa.Table
) -> Iterator[tuple[int, pa.Table]]:
    """Yields the place of each value that a row has which is not among `own`, with that row."""
    by_value = replace(table, keys=(Key("value", names, unique=True, primary=True),))

    def rivals(begin: int, end: int) -> Iterator[tuple[int, pa.Table]]:
        rows = _without(session.read_rows(by_value, keys=values.slice(begin, end - begin)), own, table)
        if not rows.num_rows:
            return
        if end - begin == 1:
            yield begin, rows.slice(0, 1)
            return
        middle = (begin + end) // 2
        yield from rivals(begin, middle)
        yield from rivals(middle, end)

    yield from rivals(0, values.num_rows)


def _without(rows: pa.Table, others: pa.Table, table: Table) -> pa.Table:
    if not rows.num_rows or not others.num_rows:
        return rows
    numbers = key_numbers(merged([chunkless(rows, table.identity), chunkless(others, table.identity)]))
    return rows.filter(pa.array(~np.isin(numbers[: rows.num_rows], numbers[rows.num_rows :])))
