"""Columns by which two rows of the target can collide although their identities differ.

A row whose value changes in one of them is removed before anything is written. The *target's* keys decide
which columns these are: it may have other keys than the source, or keys that treat more values as equal. A
key over prefixes
is watched by its whole columns: where the prefix differs they differ too. A key over an expression, or over some of the
rows, is watched by all columns of the table.

A key over whole columns that contains the identity needs no watching: rows that are equal in it are one row.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pidts.model import Table

ANYTHING = ""
"""The column of a `UniqueKey` that stands for an expression, or a condition."""


@dataclass(frozen=True, slots=True)
class UniqueKey:
    """A key whose values a server refuses a second time."""

    columns: tuple[str, ...]
    whole: bool = True
    """Whether the key has no prefixes of the columns' values."""


def watched_columns(table: Table, keys: Iterable[UniqueKey] | None = None) -> tuple[str, ...]:
    """The columns that `keys` have watched, in the table's order; without `keys`, those of the table's own unique keys.

    The value of a generated column may be missing in the log, and a column that only the target has may be generated
    there: a key over one is watched by all columns.
    """
    if not table.identity:
        return ()
    identity = set(table.identity)
    if keys is None:
        keys = (UniqueKey(key.columns) for key in table.keys if key.unique)
    names = {name for key in keys if not (key.whole and identity <= set(key.columns)) for name in key.columns}
    everything = bool(names - {column.name for column in table.columns if not column.generated})
    return tuple(column.name for column in table.columns if everything or column.name in names)
