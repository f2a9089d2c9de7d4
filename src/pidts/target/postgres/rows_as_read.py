"""Rows that were read and must be the same when they are written.

To lock each row as it is read costs the server as much as to find it: it writes into the row and into its own log. So
each row is read with the number of the transaction that has made it (`xmin`). The UPDATE or DELETE names this number
again, and the server compares it with that of the row which it is about to change. Another session that has changed or
removed the row in between has left another number, or none:

    we read        others                             our statement
    row, xmin 7    UPDATE, and COMMIT before          finds xmin 9: not this row
    row, xmin 7    UPDATE, and no COMMIT yet          waits for it, then looks again: xmin 9
    row, xmin 7    DELETE                             finds no row
    row, xmin 7    lock the row, or change no row     finds it
    no row         INSERT of this key, and COMMIT     is refused by the unique key, or has nothing to remove

Statements wait to travel with COMMIT, so nobody counts rows in between. A statement that has found fewer rows than were
read divides by zero: the transaction ends without COMMIT, and its batch is tried again. For a minute from then on rows
are locked as they are read, so that another program that writes all the time, or a trigger that leaves rows alone,
keeps no batch from its end.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pidts.model import PidtsError, Transient, Where
from pidts.reduce.identity import plain_zero
from pidts.target.postgres.errors import Refused
from pidts.target.text import combined

_CAREFUL_SECONDS = 60.0
_CHANGED = frozenset({"22012", "23505"})
"""A division by zero, and a value of a unique key that is there already."""


@dataclass(slots=True)
class Caution:
    """Whether rows are locked as they are read. All sessions of a process with one target share it."""

    _until: float = 0.0

    @property
    def holds(self) -> bool:
        """Whether somebody else has changed rows between reading and writing within the last minute."""
        return time.monotonic() < self._until

    def begin(self) -> None:
        """Begins a minute of it."""
        self._until = time.monotonic() + _CAREFUL_SECONDS

    def explained(self, table: str, error: Refused) -> PidtsError | None:
        """Returns what a refusal of a statement about rows as they were read means."""
        if error.sqlstate not in _CHANGED:
            return None
        self.begin()
        what = f"rows of the target have changed between reading and writing ({error.what})"
        return Transient("target-busy", what, where=Where(table=table))


@dataclass(slots=True)
class RowsAsRead:
    """What a transaction has read of one table in order to write it."""

    asked: list[pa.Table] = field(default_factory=list)
    """Identities that were asked for."""
    found: list[pa.Table] = field(default_factory=list)
    """Identities of the rows that were there."""
    versions: list[pa.Array] = field(default_factory=list)
    """The transaction that made each of these rows."""
    is_written: bool = False
    """Whether some of them were written since: their versions are no longer those."""

    def add(self, asked: pa.Table, found: pa.Table, versions: pa.Array) -> None:
        """Adds the answer to one question; it begins anew behind a write."""
        if self.is_written:
            self.asked, self.found, self.versions, self.is_written = [], [], [], False
        self.asked.append(asked)
        self.found.append(found)
        self.versions.append(versions)

    def of(self, rows: pa.Table) -> tuple[pa.BooleanArray, pa.Array]:
        """Returns which rows were asked for, and the version of each row that was found; NULL for others."""
        names = self.found[0].column_names
        found = places(rows.select(names), pa.concat_tables(self.found))
        versions = pa.concat_arrays(self.versions).take(found)
        asked = places(rows.select(names), pa.concat_tables(self.asked))
        return asked.is_valid(), versions


def places(keys: pa.Table, among: pa.Table) -> pa.Array:
    """Returns for each key its first place among others, NULL where it is not among them. Compared are bytes."""
    wanted, others = [[plain_zero(combined(table[name])) for name in keys.column_names] for table in (keys, among)]
    if len(wanted) == 1 and pa.types.is_integer(wanted[0].type):
        return pc.index_in(wanted[0], value_set=others[0])
    numbers = np.zeros(keys.num_rows + among.num_rows, np.int64)
    for one, other in zip(wanted, others, strict=True):
        numbers = _codes(pa.array(numbers)) * len(numbers) + _codes(pa.concat_arrays([one, other]))
    return pc.index_in(pa.array(numbers[: keys.num_rows]), value_set=pa.array(numbers[keys.num_rows :]))


def _codes(values: pa.Array) -> npt.NDArray[np.int64]:
    encoded: Any = values.dictionary_encode()
    return np.asarray(encoded.indices.to_numpy(zero_copy_only=False), dtype=np.int64)
