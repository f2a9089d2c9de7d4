"""Collects the keys of rows that a past range of the log changes, until there are enough for a record on the target."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa

from pidts.model import TableName

Keys = tuple[TableName, list[pa.Table]]


class PendingKeys:
    """The keys of each table that are not recorded yet, in a limited number for each table and in all."""

    def __init__(self, of_a_table: int, in_all: int) -> None:
        """Keys become records when a table has `of_a_table` keys, or when all tables together have `in_all` keys."""
        self._of_a_table, self._in_all = of_a_table, in_all
        self._keys: dict[TableName, list[pa.Table]] = {}
        self._counts: Counter[TableName] = Counter()
        self._total = 0

    def add(self, name: TableName, keys: pa.Table) -> list[Keys]:
        """Adds keys of a table. Returns the keys to record now: none, those of this table, or those of all tables."""
        self._keys.setdefault(name, []).append(keys)
        self._counts[name] += len(keys)
        self._total += len(keys)
        if self._counts[name] >= self._of_a_table:
            self._total -= self._counts.pop(name)
            return [(name, self._keys.pop(name))]
        # Thousands of tables may each have too few keys for a record.
        return self.rest() if self._total >= self._in_all else []

    def rest(self) -> list[Keys]:
        """Returns all keys that are left, and forgets them."""
        found = list(self._keys.items())
        self._keys, self._counts, self._total = {}, Counter(), 0
        return found
