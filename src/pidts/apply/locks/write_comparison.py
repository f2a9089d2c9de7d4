"""Decides for which tables the target compares the next batch's rows while it writes them.

If the target refuses a batch, the rows are read and the batch is prepared again. So comparing while writing saves time
only if few batches are refused. After each refusal, a larger number of the table's next batches read the rows in their
first attempt.
"""

from __future__ import annotations

from collections.abc import Iterable

_LONGEST = 64


class WriteComparison:
    """The decisions for one committer's batches. The names of tables are those on the target."""

    def __init__(self) -> None:
        self._pauses: dict[str, int] = {}
        self._left: dict[str, int] = {}

    def next_batch(self) -> frozenset[str]:
        """Returns the tables whose rows are read before the next batch writes them; an empty name means all tables."""
        paused = frozenset(self._left)
        self._left = {table: left - 1 for table, left in self._left.items() if left > 1}
        return paused

    def refused(self, table: str) -> None:
        """Notes that the target has refused a batch because rows of this table differ; an empty name: unknown table."""
        self._left[table] = self._pauses[table] = min(2 * self._pauses.get(table, 0), _LONGEST) or 1

    def accepted(self, tables: Iterable[str]) -> None:
        """Notes that the target has compared rows of these tables, and has written the changes."""
        for table in {"", *tables} & self._pauses.keys():
            self._pauses[table] //= 2
