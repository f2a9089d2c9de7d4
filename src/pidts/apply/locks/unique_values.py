"""Finds keys that need a unique value which a locked row has on the target.

    row 1 is locked, and has u = 5 on the target       UPDATE 2 SET u = 5 would be refused: row 2 is locked, too
    row 2 keeps u = 3 by that                          INSERT (3, u = 3) would be refused: row 3 is locked, too

A table with such keys belongs to one worker as a whole, so all of these rows are its own. Texts are compared without
case, accents and trailing spaces, since some collation holds them equal: rather one row too many waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from unicodedata import combining, normalize

import numpy as np
import pyarrow as pa

from pidts.apply.locks.key_events import KeyEvents
from pidts.apply.rows.key_numbers import Mask, Numbers

Columns = tuple[str, ...]


class TakenValues:
    """The unique values of locked rows on the target, each with the lock that has it."""

    def __init__(self, keys: Iterable[Columns]) -> None:
        self._keys = tuple(dict.fromkeys(keys))
        self._taken: dict[tuple[Columns, tuple[Any, ...]], str] = {}

    def add(self, rows: pa.Table, ids: Sequence[str]) -> None:
        """Adds the values of these rows of the target."""
        for place, value in self._values(rows):
            self._taken.setdefault(value, ids[place])

    def needed(self, rows: pa.Table) -> Mapping[int, str]:
        """Returns which of these rows need such a value, each with the lock that has it."""
        found: dict[int, str] = {}
        for place, value in self._values(rows):
            if value in self._taken:
                found.setdefault(place, self._taken[value])
        return found

    def _values(self, rows: pa.Table) -> Iterable[tuple[int, tuple[Columns, tuple[Any, ...]]]]:
        for names in self._keys:
            columns = [list(map(_folded, _plain(rows[name]).to_pylist())) for name in names]
            for place, values in enumerate(zip(*columns, strict=True)):
                if None not in values:
                    yield place, (names, values)


def locked_for_values(
    events: KeyEvents, locked: Mask, taken: TakenValues, rows: pa.Table, at: Numbers, ids: Sequence[str]
) -> dict[int, str]:
    """Returns the free keys that need a taken value, or one of a row that waits for such a one, and the lock of each.

    `rows` are those of the target, `at` says which of them is each key's, and `ids` are the locks' names by key.
    """
    locked = locked.copy()
    waiting: dict[int, str] = {}
    arriving = np.nonzero(~events.leaves)[0]
    after = events.batch.rows.column("after").take(pa.array(events.change[arriving]))
    images = pa.Table.from_arrays(after.flatten(), schema=events.batch.table.arrow)
    while True:
        open_ = np.nonzero(~locked[events.key[arriving]])[0]
        needed = taken.needed(images.take(pa.array(open_)))
        if not needed:
            return waiting
        new: dict[int, str] = {}
        for place, lock in needed.items():
            new.setdefault(int(events.key[arriving[open_[place]]]), lock)
        waiting |= new
        locked[list(new)] = True
        there = [key for key in new if at[key] >= 0]
        taken.add(rows.take(pa.array([at[key] for key in there], pa.int64())), [ids[key] for key in there])


def _plain(values: pa.ChunkedArray) -> pa.Array:
    whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    kind = whole.type
    if pa.types.is_date32(kind):
        return whole.view(pa.int32())
    return whole.view(pa.int64()) if pa.types.is_temporal(kind) else whole


def _folded(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    plain = "".join(letter for letter in normalize("NFKD", value.casefold()) if not combining(letter))
    return plain.casefold().rstrip(" ")
