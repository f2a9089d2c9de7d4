"""Writes notes to a zone's log about changes that were already made in the zone, and records such notes.

After a change that was already made, `pidts.apply.locks.already_applied` sets aside the next change of the row if it
comes from another zone. With three zones or more, a program in the zone itself may make the next change, and no task
into the zone sees it:

    a    UPDATE 1 -> 2                                 b    the same UPDATE
    c    a's change arrives first; then b's change was already made. A program of c: UPDATE 2 -> 1
    c's change reaches a and b before they have each other's change.
    Then b's 1 -> 2 finds 1 at a, and a's 1 -> 2 finds 1 at b. In the end a and b have 2, and c has 1

So after a change that was already made in zone c, the row's next change by a program of c is set aside in all other
zones. The tasks out of c do this. These tasks learn of the change from a note in c's log:

1. The task into c that brings the change inserts a note into the table `left_out` of c's meta schema, and deletes it
   again, in the transaction that also records the change. So the log of c has the note before the program's change.
2. A task out of c reads the notes in a batch without rows, and records them in its target. Each later batch of any
   worker finds the record.

**The argument** is as in `already_applied`, but for any number of zones. There, a state is a unit vector, and a step u
-> v is the difference v - u. Let S be the sum of the row's first state and all steps of all zones. Suppose that no zone
has a lock of the row, and that the change x -> y was already made in one zone.

1. That zone has no later change of the row, neither of its own programs nor of other zones. So it has made all steps
   except x -> y, and ends at y. So S = y + (y - x) = 2y - x, which is not a state.
2. A zone that has made all steps would end at S, which is not a state. So each zone has omitted a step u -> v, and by
   the same argument S = 2v - u.
3. 2y - x = 2v - u only if v = y and u = x. So all zones end at y.

With deletes the rule is weaker: only the change that makes the deleted row again is set aside.
`tests/pipeline/zones/test_zones_as_steps.py` tries all histories of three zones up to a fixed number of steps.

The note has the values of the key, since digests of texts differ between servers. If there are only two zones, no notes
are written. A task that forwards changes of other zones does not read notes: the argument does not hold for such a
task. With `pidts.conflict: version`, notes are written only for tables that do not converge. Notes are not read from
transactions that came from the target's own zone and whose DELETEs this task carries back to it
(`pidts.apply.rows.convergence`).

The transaction that writes a note into the log of zone c has locked the row. So a program of c that changes the row
waits for this transaction. If there is no row, nothing is locked: at this moment, an INSERT of the deleted row may
commit and precede the note in c's log.

    crash                                       result
    c, before COMMIT of the change's batch      neither the note nor the record nor the checkpoint
    c, after COMMIT                             all three; c's log has the note before any later change of the row
    a, before COMMIT of the batch of notes      neither the record nor the worker's checkpoint: the notes are read again
    a, one of several workers has committed     the next run begins with the batch of notes. No later batch has begun
    a, after COMMIT of all workers              every later change of the row finds the record
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from itertools import starmap
from typing import Any

import pyarrow as pa
import structlog

from pidts.apply.locks.early_removals import key_names
from pidts.apply.port import TargetSession
from pidts.apply.uncopied_keys import packed_each, unpacked
from pidts.model import ChangeBatch, LeftOut, Table, TableName
from pidts.model.zone import LEFT_OUT

_log = structlog.get_logger(__name__)


def show_left_out(
    session: TargetSession,
    task: str,
    source: str,
    table: Table,
    keys: pa.Table,
    rows: Sequence[str | None],
    times: Sequence[int],
) -> None:
    """Writes notes to the target's log, in the open transaction.

    `rows` has, for each key, the text of the row that the change deleted: only a change that makes this row again is
    set aside. None: the key's next change is set aside, whatever row it makes.
    """
    notes = starmap(LeftOut, zip(packed_each(keys), map(row_digest, rows), times, strict=True))
    session.meta.early_removals.show_left_out(task, source, table.name, list(notes))


def record_left_out(session: TargetSession, task: str, source: str, notes: Iterable[ChangeBatch]) -> None:
    """Records notes from the source's log, in the open transaction. Later changes that the task brings find them."""
    rows: dict[TableName, list[dict[str, Any]]] = {}
    for batch in notes:
        for row in batch.rows.column("after").to_pylist():
            rows.setdefault(TableName(row["table_schema"], row["table_name"]), []).append(row)
    for name, mine in sorted(rows.items()):
        table = session.schema.structure(name)
        if table is None:  # the table is gone, so no later change of its rows comes
            continue
        keys = [(_as_now(table, unpacked(row["key_values"], LEFT_OUT)), row) for row in mine]
        known = [(key, row) for key, row in keys if key is not None]
        if len(known) < len(keys):
            _log.warning(
                "another zone has noted, by the table's former key, which changes it already had. These notes are "
                "ignored, so later changes of these rows are not set aside, and the zones may differ",
                table=str(name),
                todo="Compare the zones: pidts verify TASK",
            )
        if known:
            names = key_names(session, table, pa.concat_tables([key for key, _ in known]))
            record = {
                own_name(task, one, row["removed"]): row["made_at"] for one, (_, row) in zip(names, known, strict=True)
            }
            session.meta.early_removals.add(task, source, name, record)


def _as_now(table: Table, key: pa.Table) -> pa.Table | None:
    """Returns a key with the current types of the table; None if the table can have no row with this key."""
    if {*key.column_names} != {*table.identity}:
        return None
    try:
        return key.select(list(table.identity)).cast(pa.schema([table.arrow.field(name) for name in table.identity]))
    except pa.ArrowInvalid:  # the key is not a value of the current type, so no row has it
        return None


def own_name(task: str, key: str, removed: str = "") -> str:
    """Returns the name of the record by which changes from a task's source are set aside.

    `removed` is the digest of a deleted row: changes that make this row again are set aside. If it is empty, the key's
    next change is set aside.
    """
    return sha256(f"own {task} {key} {removed}".encode()).hexdigest()


def row_digest(row: str | None) -> str:
    """Returns the digest of a row's text for `own_name`; empty for None, which means any row."""
    return "" if row is None else sha256(row.encode()).hexdigest()
