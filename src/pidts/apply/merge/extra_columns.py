"""Handles columns of a merged table that the source table of a row does not have.

Two source tables share a target table. One of them has a column c, the other does not have it yet, or has dropped it. A
row moves from the first to the second:

    the target has (7, c=5) of t_1    t_1 waits for something else    INSERT (7) into t_2    ALTER t_2 ADD COLUMN c

On the source, row 7 then has c = NULL. An INSERT that overwrites the target's row would leave c = 5 there for ever. An
UPDATE would also leave it, and a batch reduces a DELETE in t_1 and then this INSERT to an UPDATE. Therefore the
existing row is removed before the new one is written (see `pidts.reduce.net_changes`). The new row then gets the
defaults that every inserted row of t_2 gets.

The existing row is also removed if it remains from another table: the table was dropped or created again, or its column
was dropped in a part of the log that was not read. Even a target table with only one source table, or with a key that
distinguishes the tables' rows, may have such rows.

    the target has (7, c=5) of t_1    DROP TABLE t_1    CREATE TABLE t_1 without c    INSERT (7)    ADD COLUMN c

**A row is new to its table** by an INSERT, by an UPDATE from another key, and when it is copied. Such a row counts as
new in the whole part of the batch that inserts it, whatever else the part does to it. An UPDATE of an existing row
finds a row of its own table. The extra columns of this row were set when it was new.

**Existing rows are removed only where tables share the target table**; the structures recorded on the target say which
tables do. If only one table maps to a target table, all rows are its own. Then columns that somebody has added on the
target keep their values when the rows are read again.

Each commit reads the target's structure again, because a table of another source may have added a column since. A
column that is added between this query and the write has no values yet, so no old value can stay.

Crash points: nothing is remembered, and the existing row is removed in the transaction that writes the new one. A part
that is written again, after a crash or in safe mode, removes the row once more, with the same result.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pyarrow.compute as pc

from pidts.apply.merge.align import OwnColumns
from pidts.apply.port import TargetSession
from pidts.model import ChangeBatch, MergedTablesKey, TableName
from pidts.reduce.identity import brought, identities
from pidts.shards.structures import names_of


def wider_tables(
    session: TargetSession, batches: Sequence[ChangeBatch], task: str, merged: Collection[TableName], own: OwnColumns
) -> set[TableName]:
    """Returns the target tables that have columns which some new rows in `batches` lack.

    `merged` has the tables to which several tables of this source map. For other target tables, the target's record
    says whether they are shared.
    """
    coming: dict[TableName, set[frozenset[str]]] = {}
    for batch in batches:
        if len(batch) and batch.table.identity and pc.any(brought(batch, identities(batch))).as_py():
            names = own.get(batch.table.name, {}).get(batch.origin)
            coming.setdefault(batch.table.name, set()).add(names or names_of(batch.table))
    shared = coming.keys() & merged
    if len(shared) < len(coming):  # Reading the record is ten times faster than reading the catalog.
        shared |= coming.keys() & session.meta.structures.load(task, MergedTablesKey()).keys()
    return {name for name in shared if has_more_columns(session, name, coming[name])}


def has_more_columns(session: TargetSession, name: TableName, widths: Collection[frozenset[str]]) -> bool:
    """Whether the target's table has columns that some of these sets of names lack."""
    there = session.schema.structure(name)
    if there is None:
        return False
    names = {column.name.lower() for column in there.columns if not column.generated}
    return any(not names <= width for width in widths)
