"""Finds the recorded keys of a copied table that are read again next.

If neither the log nor the target has the whole row that got a key, a batch records the key in the transaction of its
rows (see `pidts.apply.rows.partial_images`). The key is then read like a chunk, after the batch. A later batch, which
has the whole log up to the reading, settles the key. So a record is a request to read a key. Reading a key once too
often is harmless. If the row has got another key since then, that key is recorded, too. The crash points:

1. Before the COMMIT of the batch that records: nothing happened, and the repeated batch records again.
2. Between that COMMIT and the COMMIT of the batch that settles the key: the record exists, and the key is read again.
3. After only some workers have settled the key: the next run begins with the copy state that all workers have reached.
   In this state the record still has to be read.
4. A record is removed only by a request for later records. The request's `after` is the place of this record or a later
   place. A request is carried out only when all workers have reached the state that contains it. So by then, all
   workers have settled the records up to that place. The removal checks the epoch in its transaction. So a run that was
   replaced does not remove records that the new run has written for a past range (`pidts.task.run.rewind`): these
   records have earlier places than all others.

A worker writes records in the order of its log, but one worker may be ahead of another. So a request reads only the
records up to the place that all workers have reached. At or before this place, no worker adds another record.

A schema change that concerns the key makes the copy begin again. A record from before the schema change may have other
columns or types than the key has now: such a record is skipped. The new copy reads the keys of all other earlier
records in any case, so these keys are read twice.
"""

from __future__ import annotations

import pyarrow as pa

from pidts.apply import TargetSession
from pidts.apply.checkpoint import demand_epoch
from pidts.apply.uncopied_keys import unpacked
from pidts.model import Lsn, Table
from pidts.plan import ChunkRequest
from pidts.plan.copy.state import KeyValues

_RECORDS = 100


def recorded_keys(
    session: TargetSession, task: str, source: str, table: Table, request: ChunkRequest
) -> tuple[pa.Table, str, bool]:
    """Returns keys to read, the place of the last record with such keys, and whether there may be more records."""
    names, upto = list(table.identity), _place(request.upto)
    keys, last = table.arrow.empty_table().select(names), _place(request.after)
    records = _next(session, task, source, request, _RECORDS)
    for lsn, text in records:
        if lsn > upto:
            return keys, str(last), False
        some = unpacked(text, "reread")
        if keys.num_rows and keys.num_rows + some.num_rows > request.limit:
            return keys, str(last), True
        last = lsn
        if _types(keys) <= _types(some):
            keys = pa.concat_tables([keys, some.select(names).cast(keys.schema)])
    return keys, str(last), len(records) == _RECORDS


def has_recorded_keys(session: TargetSession, task: str, source: str, request: ChunkRequest) -> bool:
    """Whether there are records after the last settled record, including records of a worker that is ahead."""
    return bool(_next(session, task, source, request, 1))


def forget_settled(session: TargetSession, task: str, source: str, epoch: int, request: ChunkRequest) -> None:
    """Removes the records that earlier requests have settled, in a transaction of its own; raises if fenced."""
    if request.after is None:
        return
    session.begin()
    demand_epoch(session.meta.checkpoints.lock_places(task, source), task, source, epoch)
    session.meta.rereads.forget(task, source, request.table, _place(request.after))
    session.commit()


def _next(session: TargetSession, task: str, source: str, request: ChunkRequest, most: int) -> list[tuple[Lsn, str]]:
    return session.meta.rereads.read(task, source, request.table, _place(request.after), most)


def _types(keys: pa.Table) -> set[tuple[str, pa.DataType]]:
    return {(field.name, field.type) for field in keys.schema}


def _place(key: KeyValues | None) -> Lsn:
    return Lsn(0, 0, 0) if key is None else Lsn.parse(key[0])
