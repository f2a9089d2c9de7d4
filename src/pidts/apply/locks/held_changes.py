"""Converts held changes to texts for the target's record and back, and splits batches into held and free changes.

After an old dump is restored, one batch may hold changes of a hundred thousand keys. So the texts do not repeat the
schema: it follows from the table's structure, which the lock has. Early versions of PiDTS stored Arrow streams with
their schema. Such streams are still read.
"""

from __future__ import annotations

import json
import shlex
from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Mapping, Sequence
from hashlib import sha256
from typing import TypeAlias
from zlib import DEFLATED, compressobj, decompress

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pidts.apply.locks.key_events import KeyEvents
from pidts.apply.locks.presence import KnownColumns, bitmaps
from pidts.apply.rows.tombstone_keys import key_texts
from pidts.apply.uncopied_keys import unpacked
from pidts.model import (
    ChangeBatch,
    Halted,
    HeldChanges,
    Lsn,
    Op,
    RowLock,
    SourceTransaction,
    Table,
    Where,
    change_schema,
)
from pidts.model.records.altered_record import reading_record
from pidts.reduce.key_numbers import Mask, Numbers
from pidts.reduce.split_update import halves

_STRUCTURE, _TRANSACTIONS = b"table", b"moments"
"""The names of further entries, besides the rows, in texts of early versions."""

FindTransactions: TypeAlias = Callable[[Sequence[Lsn]], Sequence[SourceTransaction]]
"""Returns the transactions of changes, given the places of the changes in the log."""


def unknown_transactions(lsns: Sequence[Lsn]) -> Sequence[SourceTransaction]:
    """Says of each change that its transaction is not known."""
    return [SourceTransaction()] * len(lsns)


def lock_ids(keys: pa.Table) -> list[str]:
    """Returns the lock's id for each key; every process computes the same id."""
    return [sha256(text.encode()).hexdigest() for text in key_texts(keys).to_pylist()]


def split(events: KeyEvents, held: Mask) -> ChangeBatch:
    """Returns the batch without held events. Of an UPDATE that changes the key, only one event may be held."""
    batch, size = events.batch, len(events.batch)
    free = ~held
    leaves, arrives = np.zeros(size, np.bool_), np.zeros(size, np.bool_)
    leaves[events.change[events.leaves & free]] = True
    arrives[events.change[~events.leaves & free]] = True
    kept = leaves | arrives
    halved = kept & (_counted(events) == 2) & ~(leaves & arrives)
    if halved.any():
        op = batch.rows.column("op").to_numpy()
        batch = halves(batch, np.where(halved, np.where(leaves, Op.DELETE, Op.INSERT), op), ~arrives, halved)
    return batch if kept.all() else ChangeBatch(batch.table, batch.rows.filter(pa.array(kept)), events.batch.upstream)


def held_changes(
    events: KeyEvents,
    held: Mask,
    ids: Mapping[int, str],
    known: KnownColumns | None,
    altered: Collection[str],
    find_transactions: FindTransactions,
) -> list[HeldChanges]:
    """Returns the held events as texts, one for each key; `ids` has the keys' locks.

    `known` says which columns of the batch's changes the log has; None: all. `altered` are locks that were made under
    another structure of the table: each of their changes names its own structure.
    """
    chosen = np.nonzero(held)[0]
    change, leaves, arrives = events.change[chosen], events.leaves[chosen], events.arrives[chosen]
    rows = events.batch.rows.take(pa.array(change))
    op = np.where(leaves, Op.DELETE, np.where(arrives, Op.INSERT, Op.UPDATE))
    fields = list(events.batch.table.arrow)
    sides = []
    for side, without in (("before", arrives), ("after", leaves)):
        image = rows.column(side)
        mask = pc.or_(image.is_null(), pa.array(without))
        sides.append(pa.StructArray.from_arrays(image.flatten(), fields=fields, mask=mask))
    whole = pa.nulls(len(rows), pa.binary())
    partial = whole if known is None else bitmaps(events.batch, known, change, leaves, arrives)
    arrays = [rows.column("lsn"), pa.array(op, pa.int8()), *sides, partial]
    images = pa.RecordBatch.from_arrays(arrays, schema=change_schema(events.batch.table))
    key = events.key[chosen]
    lsns = list(map(Lsn.from_bytes, images.column("lsn").to_pylist()))
    times = [[one.gtid, one.time] if one.time else None for one in find_transactions(lsns)]
    own = f', "table": {json.dumps(events.batch.table.to_json())}' if altered else ""
    types, _ = _types(events.batch.table)
    found = []
    for begin, end in _key_ranges(key):
        id_ = ids[int(key[begin])]
        about = own if id_ in altered else ""
        if any(times[begin:end]):
            about += f', "moments": {json.dumps([one or ["", 0] for one in times[begin:end]])}'
        packed = _compressed(images.slice(begin, end - begin).serialize())
        found.append(HeldChanges(id_, lsns[begin], f'{{"types": "{types}", "rows": "{packed}"{about}}}'))
    return found


def _compressed(data: pa.Buffer) -> str:
    """Returns the data compressed, as text. The library's usual settings would allocate much memory for each key."""
    packer = compressobj(1, DEFLATED, 10, 2)
    return b64encode(packer.compress(data) + packer.flush()).decode()


def held_batch(lock: RowLock, held: HeldChanges) -> tuple[ChangeBatch, list[SourceTransaction]]:
    """Returns held changes with the structure under which they were held, and the transaction of each."""
    with reading_record("held_change", column="changes", row_key=held.id, lsn=str(held.lsn)):
        return _held_batch(lock, held)


def _held_batch(lock: RowLock, held: HeldChanges) -> tuple[ChangeBatch, list[SourceTransaction]]:
    if not held.changes.startswith("{"):
        return _first_form(lock, held)
    about = json.loads(held.changes)
    table = Table.from_json(about["table"]) if "table" in about else lock.table
    types, schema = _types(table)
    if about["types"] != types:
        raise Halted(
            "target-refused",
            f"the stored changes of locked row {lock.shown} do not have the types that this version of PiDTS "
            "gives the table's columns",
            where=Where(table=str(table.name), key=lock.shown),
            todo="Resolve the row with the version of PiDTS that has locked it, or copy the table again: pidts run "
            f"TASK --resync {shlex.quote(str(lock.origin))}",
        )
    batch = pa.ipc.read_record_batch(pa.py_buffer(decompress(b64decode(about["rows"]))), schema)
    transactions = (
        [SourceTransaction(*one) for one in about["moments"]]
        if "moments" in about
        else [SourceTransaction()] * len(batch)
    )
    return ChangeBatch(table, batch), transactions


_last: tuple[Table, str, pa.Schema] | None = None
"""The last table with its digest and schema, or None. Nearly all locks of a table have one structure."""


def _types(table: Table) -> tuple[str, pa.Schema]:
    """Returns a digest of the columns' types, which is stored with held changes, and the schema of these changes."""
    global _last  # noqa: PLW0603 - replaced as a whole, so any thread may read it
    last = _last
    if last is None or last[0] is not table:
        digest = sha256(repr([(one.name, str(one.type)) for one in table.arrow]).encode()).hexdigest()[:8]
        _last = last = table, digest, change_schema(table)
    return last[1:]


def _first_form(lock: RowLock, held: HeldChanges) -> tuple[ChangeBatch, list[SourceTransaction]]:
    """Does the same as `_held_batch` for held changes that an early version of PiDTS has stored."""
    rows = unpacked(held.changes, "held_change")
    about = rows.schema.metadata or {}
    own, times = about.get(_STRUCTURE), about.get(_TRANSACTIONS)
    (batch,) = rows.replace_schema_metadata().combine_chunks().to_batches()
    transactions = (
        [SourceTransaction()] * len(batch) if times is None else [SourceTransaction(*one) for one in json.loads(times)]
    )
    return ChangeBatch(lock.table if own is None else Table.from_json(json.loads(own)), batch), transactions


def _key_ranges(key: Numbers) -> list[tuple[int, int]]:
    starts = np.nonzero(np.concatenate([[True], key[1:] != key[:-1]]))[0] if len(key) else np.zeros(0, np.int64)
    return list(zip(starts.tolist(), [*starts[1:].tolist(), len(key)], strict=True))


def _counted(events: KeyEvents) -> Numbers:
    return np.bincount(events.change, minlength=len(events.batch))
