"""Tables that become one, and columns of the target that the one a row comes to has not.

One has a column c, another has not yet, or no more. A row moves from the first to the second:

    the target has (7, c=5) of t_1    t_1 waits for something else    INSERT (7) into t_2    ALTER t_2 ADD COLUMN c

On the source c is NULL then. An INSERT that overwrites what is there would leave the 5 for good, and so does an UPDATE,
which is what a DELETE in t_1 and the INSERT behind it come to in one part. So such a row is removed before it is
written, see `pidts.reduce.net_changes`: the target gives it the defaults that every inserted row of t_2 has there.

So it is with the rows that a table has left behind, which was dropped or made anew, or lost its column in a part of the
log that nobody has read: also where no other table of its source lands there, and under a key that tells tables apart.

    the target has (7, c=5) of t_1    DROP TABLE t_1    CREATE TABLE t_1 without c    INSERT (7)    ADD COLUMN c

**A row is new to its table** by an INSERT, by an UPDATE from another key, and when it is copied; in the part that
brings it, whatever else happens to it there. What an UPDATE finds is its own table's row already: where it got there,
these columns were set.

**Only where tables share the target's table**, which its record says: of a table that is alone there, whatever rows the
target has are its own, and columns that somebody has added to it keep their values when its rows are read again.

Asked anew in each commit: another source's table may have brought the target a column meanwhile. One that comes between
the question and the rows has no values yet.

What holds when it breaks off: nothing is remembered, and the removal is in the transaction of its row. A part that is
written again, behind a crash or in safe mode, removes the row once more and ends the same.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pyarrow.compute as pc

from pidts.apply.align import OwnColumns
from pidts.apply.port import TargetSession
from pidts.apply.schema_change import SHARED
from pidts.model import ChangeBatch, Table, TableName
from pidts.plan.shard_versions import names_of
from pidts.reduce.identity import brought, identities


def wider_tables(
    session: TargetSession, batches: Sequence[ChangeBatch], task: str, merged: Collection[TableName], own: OwnColumns
) -> set[TableName]:
    """Tables of the target to which rows come without a value for each column.

    Of those that are not `merged` by the tables of this source the record is asked whether they are shared.
    """
    coming: dict[TableName, set[frozenset[str]]] = {}
    for batch in batches:
        if _brings(batch):
            names = own.get(batch.table.name, {}).get(batch.origin)
            coming.setdefault(batch.table.name, set()).add(names or names_of(batch.table))
    shared = coming.keys() & merged
    if len(shared) < len(coming):  # the record answers ten times faster than the catalog, whatever it has of them
        shared |= coming.keys() & session.load_structures(task, SHARED).keys()
    return {name for name in shared if _is_wider(session.structure(name), coming[name])}


def _brings(batch: ChangeBatch) -> bool:
    return bool(len(batch) and batch.table.identity and pc.any(brought(batch, identities(batch))).as_py())


def _is_wider(there: Table | None, widths: Collection[frozenset[str]]) -> bool:
    if there is None:
        return False
    names = {column.name.lower() for column in there.columns if not column.generated}
    return any(not names <= width for width in widths)
