"""Finds columns by which two rows of the target can collide although their identities differ.

These columns are *watched*: a row whose value in a watched column changes is removed before anything is written. The
*target's* keys decide which columns are watched: the target may have keys that the source lacks, or keys that treat
more values as equal. If a key has prefixes of columns, the whole columns are watched: a prefix changes only if its
column changes. If a key has an expression, or a condition on its rows, all columns of the table are watched.

A key over whole columns is not watched if it has all columns of the identity: two rows with equal values in such a key
are the same row.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from pidts.model import Table

ANYTHING = ""
"""The name of the column in a `UniqueKey` that stands for an expression or a condition."""


@dataclass(frozen=True, slots=True)
class UniqueKey:
    """A unique key: the server refuses a second row with the same value."""

    columns: tuple[str, ...]
    whole: bool = True
    """Whether the key uses whole columns, without prefixes."""


def watched_columns(table: Table, keys: Iterable[UniqueKey] | None = None) -> tuple[str, ...]:
    """Returns the columns to watch for `keys`, in the table's order. Without `keys`: for the table's own unique keys.

    All columns are watched if a key has a generated column or a column that only the target has. The log may lack the
    value of a generated column, and the target may compute the value of a column of its own.
    """
    return _own_watched(table) if keys is None else _watched(table, keys)


@lru_cache(maxsize=1024)
def _own_watched(table: Table) -> tuple[str, ...]:
    return _watched(table, (UniqueKey(key.columns) for key in table.keys if key.unique))


def _watched(table: Table, keys: Iterable[UniqueKey]) -> tuple[str, ...]:
    if not table.identity:
        return ()
    identity = set(table.identity)
    names = {name for key in keys if not (key.whole and identity <= set(key.columns)) for name in key.columns}
    everything = bool(names - {column.name for column in table.columns if not column.generated})
    return tuple(column.name for column in table.columns if everything or column.name in names)
