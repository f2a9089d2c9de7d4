"""The effect of one batch on one table: identities to remove, then rows to write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from pidts.model import LoggedChanges, Table, TableName


@dataclass(frozen=True, slots=True)
class Counts:
    """How many source changes a `NetChange` has. An update that changes the key counts as one update."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    copied: int = 0
    stale: int = 0
    """How many changes were ignored because the target has a newer row. The other counts do not include them."""
    removed: int = 0
    """How many keys a repair has found only on the target."""
    by_table: Mapping[str, int] = field(default_factory=dict, compare=False)
    """The changes of each target table, if they were counted by table."""

    @property
    def total(self) -> int:
        """Returns the number of all applied changes, including copied rows and removed keys."""
        return self.inserted + self.updated + self.deleted + self.copied + self.removed

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.inserted + other.inserted,
            self.updated + other.updated,
            self.deleted + other.deleted,
            self.copied + other.copied,
            self.stale + other.stale,
            self.removed + other.removed,
            Counter(self.by_table) + Counter(other.by_table)
            if self.by_table and other.by_table
            else self.by_table or other.by_table,
        )


@dataclass(frozen=True, slots=True)
class ExpectedRows:
    """The source's rows before a `NetChange`. The target must have the same rows before the `NetChange` is written."""

    removed: pa.Table
    """The rows whose keys are in `deletes`, with all columns."""
    changed: pa.Table
    """The rows that `upserts` changes and `deletes` does not remove, with all columns, in the order of `upserts`."""
    is_changed: pa.BooleanArray
    """For each row of `upserts`, whether `changed` has it. Other rows are new, or are removed and written again."""
    absent: pa.Table
    """The keys in `deletes` at which the source had no row. So the target must have no row there before this change."""


@dataclass(frozen=True, slots=True)
class NetChange:
    """Rows to delete and rows to upsert: all of `deletes` are executed before any of `upserts`.

    In a table with a key, the identities of `deletes` are distinct and sorted, and so are those of `upserts`.

    In a table without a key (`table.identity` is empty), two rows are equal if all their values are. Text is compared
    as bytes, NULL equals NULL, and -0.0 equals 0.0.
    """

    table: Table
    deletes: pa.Table
    """The identity columns of the rows to remove. If `upserts` has the row, too, the row is removed and written again.

    In columns that `table` lacks, a row that is written again gets the target's defaults. Other rows of `upserts` keep
    their values there.

    Without a key: all columns, each distinct row once.
    """
    upserts: pa.Table
    """The rows to write, with all columns (`table.arrow`). The target may already have rows with these keys.

    Without a key: the rows to insert, one row per copy.
    """
    counts: Counts
    times: pa.Int64Array | None = None
    """Without a key: for each row of `deletes`, the number of copies to remove. The target has at least as many."""
    safe: bool = False
    """Whether rows of the target with a unique value of `upserts`, but another identity, are removed, as by REPLACE."""
    there: pa.Table | None = None
    """Rows of the target that the transaction has locked: they do not change before this change is written. If such a
    row already has a value of `upserts`, the value need not be written.
    """
    expected: ExpectedRows | None = None
    """The rows that the target must have before this change. At all other keys of the change, the target must have no
    row. None: any row is overwritten.
    """
    is_new: pa.BooleanArray | None = None
    """For each row of `upserts`, true if the target must not have a row with its key. None: any row is overwritten."""
    likely_new: pa.BooleanArray | None = None
    """For each row of `upserts`, true if the log shows that no row has its key once `deletes` are removed. If the
    target has a row with this key nevertheless, the new row replaces it. None: not known.
    """
    origin: TableName | None = None
    """The source table of all these rows, if several tables map to this target table; otherwise None."""
    logged: tuple[LoggedChanges, ...] = ()
    """The table's changes in the log, for a target with change tables. The table itself does not get these rows."""

    def parted(self) -> tuple[pa.Table, pa.Table]:
        """Returns the rows that the target must not have yet, and separately the other rows to write."""
        rows, is_new = self.upserts, self.is_new
        if is_new is None or not is_new.true_count:
            return rows.slice(0, 0), rows
        if is_new.true_count == len(is_new):
            return rows, rows.slice(0, 0)
        return rows.filter(is_new), rows.filter(pc.invert(is_new))


def by_width(change: NetChange, members: pa.Int32Array, own: Sequence[Collection[str] | None]) -> list[NetChange]:
    """Splits the change: each part has rows whose own tables have the same columns. The first part has all deletes.

    The target fills the columns that a row's own table lacks: a new row gets defaults there, an existing row keeps its
    values. For each row, `members` has the index of its member's columns in `own`; None in `own` means all columns.
    """
    widths = [_names(change.table, names) for names in own]
    found: list[NetChange] = []
    for width in dict.fromkeys(widths):
        mine = pa.array([place for place, other in enumerate(widths) if other == width], members.type)
        rows = change.upserts.filter(pc.is_in(members, value_set=mine)).select(list(width))
        if rows.num_rows:
            found.append(replace(change, table=_narrow(change.table, width), upserts=rows, likely_new=None))
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
