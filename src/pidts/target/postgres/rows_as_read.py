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
    no row         INSERT of this key, and COMMIT     is refused by the unique key, or finds a row to remove

A row that we match with no key, because the server writes it with other bytes, is such a row that comes in between.

Statements wait to travel with COMMIT, so nobody counts rows in between. A statement that has found other rows than were
read divides by zero: the transaction ends without COMMIT, and its batch is tried again. For a minute from then on rows
are locked as they are read, so that another program that writes all the time, or a trigger that leaves rows alone,
keeps no batch from its end.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from pidts.target.as_expected import places


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
