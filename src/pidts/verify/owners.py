"""Whose a row of the target is that none of the merged tables has: the extracted columns in it say so.

    shop_1.t_1, shop_1.t_3 -> shop.t (id, ..., part)      part = '1': a DELETE of t_1 did not come here
                                                          part = '2': t_2 was dropped, and has left its rows

Tables that extract the same, or not the same columns, are not told apart by them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from pidts.model import Table

ANYBODY = -1
"""In the place of a member's number: nothing tells."""
NOBODY = -2
"""None of the members there are."""


@dataclass(frozen=True, slots=True)
class Owners:
    """Of one table of the target."""

    columns: tuple[str, ...]
    """Empty where nothing tells."""
    members: Mapping[tuple[str, ...], int]

    @classmethod
    def of(cls, extracted: Sequence[Mapping[str, str]]) -> Owners:
        """From what stands in the columns that the route of each member adds."""
        columns = tuple(sorted(extracted[0])) if extracted else ()
        if any(tuple(sorted(one)) != columns for one in extracted):
            return cls((), {})
        members: dict[tuple[str, ...], int] = {}
        for number, one in enumerate(extracted):
            values = tuple(one[name] for name in columns)
            members[values] = ANYBODY if values in members else number
        return cls(columns, members)

    def tells_by_key(self, table: Table) -> bool:
        """Whether a row under this key can be no other member's."""
        return bool(self.columns) and set(self.columns) <= set(table.identity)

    def find(self, rows: pa.Table) -> list[int]:
        """The number of each row's member, or one of the two above."""
        if not self.columns or not set(self.columns) <= set(rows.column_names):
            return [ANYBODY] * len(rows)
        told = zip(*(rows.column(name).to_pylist() for name in self.columns), strict=True)
        return [self.members.get(values, NOBODY) for values in told]
