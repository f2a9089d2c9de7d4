"""Finds the shard that an extra row of the target belonged to, by the row's extracted columns.

    shop_1.t_1, shop_1.t_3 -> shop.t (id, ..., part)      part = '1': a DELETE of t_1 did not arrive
                                                          part = '2': t_2 was dropped, and its rows have stayed

The extracted columns do not show to which of two tables a row belongs if both tables have equal values in them, or have
different extracted columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from pidts.model import Table

ANYBODY = -1
"""The number for an unknown member."""
NOBODY = -2
"""The number for a row that belongs to no existing member."""


@dataclass(frozen=True, slots=True)
class RowMembers:
    """Says to which member each row of one target table belongs."""

    columns: tuple[str, ...]
    """The extracted columns; empty if they do not show to which member a row belongs."""
    members: Mapping[tuple[str, ...], int]

    @classmethod
    def of(cls, extracted: Sequence[Mapping[str, str]]) -> RowMembers:
        """Returns the rule for the values that each member's route extracts."""
        columns = tuple(sorted(extracted[0])) if extracted else ()
        if any(tuple(sorted(one)) != columns for one in extracted):
            return cls((), {})
        members: dict[tuple[str, ...], int] = {}
        for number, one in enumerate(extracted):
            values = tuple(one[name] for name in columns)
            members[values] = ANYBODY if values in members else number
        return cls(columns, members)

    def decides_by_key(self, table: Table) -> bool:
        """Whether a row's key shows its member, because it contains all extracted columns."""
        return bool(self.columns) and set(self.columns) <= set(table.identity)

    def find(self, rows: pa.Table) -> list[int]:
        """Returns the number of each row's member: ANYBODY if it is not known, NOBODY if it belongs to no member."""
        if not self.columns or not set(self.columns) <= set(rows.column_names):
            return [ANYBODY] * len(rows)
        extracted = zip(*(rows.column(name).to_pylist() for name in self.columns), strict=True)
        return [self.members.get(values, NOBODY) for values in extracted]
