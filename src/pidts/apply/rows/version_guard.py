"""Keeps older events from overwriting newer rows: compares the version of the event with that of the target's row.

The version is a column of the row (`update_time timestamp(6)`, a sequence number) that never goes back. An event's
version `v` is the version of the row that it writes or deletes. Whether the event is applied depends on `v`, and on the
target's row or tombstone with the same key:

    the target has            INSERT, UPDATE                        DELETE
    nothing                   applied                               applied: leaves a tombstone
    a row, older than v       applied                               applied
    a row, newer than v       ignored                               ignored
    a row of version v        UPDATE: applied if its before image   applied if its before image is the target's row
                              is the target's row; INSERT, copied
                              row: ignored, as the row is there
    a tombstone, older        applied                               applied
    a tombstone, not older    applied if this source logged the     the same
                              tombstone before the event, or if
                              the row is copied; else ignored

NULL is older than everything. An update that gives its row another key is a DELETE of one key and an INSERT of another,
judged separately. If the target has a row with the new key and version `v`, this INSERT follows the rule for an UPDATE:
it is applied only if the update's before image is the target's row. Another rule for equal versions would either lose
the second of two updates in one microsecond, or make a replay of old changes visible:

    first run    row r1;  r1→r2 (v5), r2→r3 (v5)     both applied: each finds its before image
    replay       row r3;  r1→r2 (v5)                 r1 is not r3: ignored. r2→r3: ignored, too. The row stays.

Without tombstones, a late upsert would make a deleted row appear again. For tombstones, the order of the log takes
precedence over the version, since a deleted row may be inserted again with a low version.

**In a batch**, the reduction keeps the last change of each row, so the guard must decide before the reduction. Once a
change of a row is applied, the row's next change in the log finds exactly the row that it expects. So the next change
is applied, too, as long as versions do not go back. Then one comparison of whole columns decides for all rows. The few
rows whose versions go back inside the batch are replayed one by one. So the outcome is the same wherever batches are
cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pidts.apply.rows.same_row import same_rows
from pidts.apply.rows.tombstone_keys import key_texts, lsn_texts, version_texts, versions_of
from pidts.apply.rows.version_column import ranks
from pidts.model import ChangeBatch, Op, Tombstone, Tombstones
from pidts.reduce.identity import image_columns
from pidts.reduce.key_numbers import Mask, Numbers, key_numbers, merged, to_mask
from pidts.reduce.split_update import halves

NOTHING, ROW, TOMBSTONE = range(3)
"""The states that a key may have on the target."""


@dataclass(frozen=True, slots=True)
class GuardedBatch:
    """The changes of a batch that are applied, with the rows and tombstones that they need."""

    batch: ChangeBatch
    stale: int
    """How many changes were ignored, as a whole or in part (the DELETE or the INSERT of an UPDATE)."""
    tombstones: Tombstones
    irregular: bool
    """Whether, for some key, the target's row differs from the before image of the first applied change."""
    shown: pa.Table | None = None
    """Rows that are written before they are removed, so that the target's log has them; None: there are none."""
    answered: pa.Table | None = None
    """Rows that a tombstone keeps out, which are written and removed at once: the target's log then has the removal."""
    present: pa.Table | None = None
    """The keys with a row on the target."""


@dataclass(slots=True)
class _TargetVersions:
    kind: Numbers
    rank: Numbers
    lsn: list[bytes | None]
    """For each key, the Lsn of its tombstone, if this source has written it; otherwise None."""
    removed: pa.Array | None
    """For each key, the version of its tombstone; NULL if it has none."""


class VersionGuard:
    """Decides by versions which changes of one table are ignored. The changes are in log order and have full images.

    The caller reads the versions of the target's rows with `keys` and passes them to `look`. Then it reads the whole
    rows of `tied`, and passes these to `decide`. Most keys of `tied` are in `likely_tied`: one query can read their
    versions and whole rows.
    """

    def __init__(self, batch: ChangeBatch, version: str, source: str, known: Mask | None = None) -> None:
        """`known` says which columns of each before image the log has; None: all."""
        self._known = known
        self._batch, self._table, self._source = batch, batch.table, source
        self._version = batch.table.column(version)
        names = self._table.identity
        op = batch.rows.column("op").to_numpy()
        before = image_columns(batch, "before", names)
        after = image_columns(batch, "after", names)
        updated = op == Op.UPDATE
        self._moved: Mask = updated & np.any(
            [to_mask(pc.not_equal(a, b)) for a, b in zip(before, after, strict=True)], axis=0
        )
        leaves, arrives = np.nonzero((op == Op.DELETE) | self._moved)[0], np.nonzero(op != Op.DELETE)[0]
        self._change = np.concatenate([leaves, arrives])
        self._deletes = np.arange(len(self._change)) < len(leaves)
        copied = op == Op.COPY
        moment = 2 * (self._change + np.where(copied[self._change], 0, len(batch))) + ~self._deletes
        columns = merged([taken_rows(before, leaves), taken_rows(after, arrives)])
        number = key_numbers(columns)
        order = np.lexsort((moment, number))
        self._change, self._deletes = self._change[order], self._deletes[order]
        number = number[order]
        self._first = np.concatenate([[True], number[1:] != number[:-1]]) if len(number) else np.zeros(0, np.bool_)
        self._key = np.cumsum(self._first) - 1
        self._copied, self._op = copied[self._change], op[self._change]
        schema = pa.schema([self._table.arrow.field(name) for name in names])
        self.keys = pa.Table.from_arrays(taken_rows(columns, order[self._first]), schema=schema)
        """Each key that the changes concern, once."""

    @property
    def likely_tied(self) -> Numbers:
        """Returns the keys that are in `tied` if the target has the row that the source had before the batch.

        The first change of such a key is a DELETE, or an UPDATE that leaves the version as it is.
        """
        old, new = self._version_of("before"), self._version_of("after")
        both_null = pc.and_(old.is_null(), new.is_null())
        stays = to_mask(pc.or_(both_null, pc.fill_null(pc.equal(old, new), fill_value=False)))
        is_tied = self._deletes | ((self._op == Op.UPDATE) & (stays & ~self._moved)[self._change])
        found: Numbers = self._key[self._first & is_tied]
        return found

    def _version_of(self, side: str) -> pa.Array:
        return image_columns(self._batch, side, [self._version.name])[0]

    def texts(self, keys: Numbers) -> pa.StringArray:
        """Returns the texts by which tombstones name these keys, given as indexes of `self.keys`."""
        return key_texts(self.keys.take(pa.array(keys)))

    def look(self, versions: pa.Array, at: Numbers, tombstones: Sequence[tuple[int, Tombstone]]) -> None:
        """Stores the versions of the target's rows: `at` has, for each key, the index of its row in `versions`, or -1.

        `tombstones` has the tombstones of keys without a row, each with the key's index.
        """
        old, new = self._version_of("before"), self._version_of("after")
        removed = versions_of(self._version, [tombstone for _, tombstone in tombstones])
        size = len(self._batch)
        rank = ranks(pa.concat_arrays([old, new, versions, removed]))
        old_rank, new_rank, rest = rank[:size], rank[size : 2 * size], rank[2 * size :]
        self._rank = np.where(self._deletes, old_rank[self._change], new_rank[self._change])
        self._made_from = old_rank[self._change]
        kind = np.where(at >= 0, ROW, NOTHING)
        held = np.where(at >= 0, rest[np.maximum(at, 0)] if len(rest) else 0, -1)
        lsn: list[bytes | None] = [None] * len(kind)
        for place, (key, tombstone) in enumerate(tombstones):
            kind[key], held[key] = TOMBSTONE, rest[len(versions) + place]
            lsn[key] = tombstone.lsn.to_bytes() if tombstone.source == self._source else None
        buried = np.full(len(kind), -1)
        buried[[key for key, _ in tombstones]] = np.arange(len(tombstones))
        of_key = removed.take(pa.array(buried, mask=buried < 0))
        self._found = _TargetVersions(kind, held, lsn, of_key)
        self._tie = (kind[self._key] == ROW) & (self._rank == held[self._key]) & self._looks_at_ties()

    def _looks_at_ties(self) -> Mask:
        """Whether the whole row decides about a change that has the same version as the target's row."""
        return np.asarray((self._op == Op.UPDATE) | (self._op == Op.DELETE), np.bool_)

    @property
    def tied(self) -> Numbers:
        """Returns the keys whose versions are equal, so that the whole row decides."""
        return np.unique(self._key[self._tie])

    def decide(self, rows: pa.Table, at: Numbers) -> GuardedBatch:
        """Decides which changes are applied. `rows`: the full rows of `tied`; `at`: each key's index in them, or -1."""
        equal = np.zeros(len(self._key), np.bool_)
        ties = np.nonzero(self._tie & (at[self._key] >= 0))[0]
        if len(ties):
            before = self._batch.rows.column("before").take(pa.array(self._change[ties]))
            there = rows.take(pa.array(at[self._key[ties]]))
            equal[ties] = same_rows(self._table, before, there, self._known_columns(self._change[ties]))
        applied = self._applied(equal)
        return self._verdict(applied)

    def _applied(self, equal: Mask) -> Mask:
        kind, held = self._found.kind[self._key], self._found.rank[self._key]
        starts = (kind == NOTHING) | (self._rank > held) | ((kind == ROW) & equal)
        for event in np.nonzero((kind == TOMBSTONE) & ~starts)[0]:
            starts[event] = self._is_after_tombstone(int(event))
        applied = _counted(starts, self._first, self._key) > 0
        # A version that goes back after a DELETE is no reason to decide one by one: the result would be the same.
        back = np.zeros(len(self._key), np.bool_)
        back[1:] = ~self._first[1:] & (self._rank[1:] < self._rank[:-1]) & ~self._deletes[:-1]
        for key in np.unique(self._key[back & applied]):
            mine = np.arange(*np.searchsorted(self._key, [key, key + 1]))
            applied[mine] = self._one_by_one(mine, equal)
        return applied

    def _is_after_tombstone(self, event: int) -> bool:
        removed_at = self._found.lsn[self._key[event]]
        if removed_at is None:
            return False
        return bool(self._copied[event]) or self._lsn(int(self._change[event])) > removed_at

    def _one_by_one(self, events: Numbers, equal: Mask) -> list[bool]:
        """Returns which of these events of a key whose versions go back are applied."""
        kind, rank = int(self._found.kind[self._key[events[0]]]), int(self._found.rank[self._key[events[0]]])
        last, fresh = -1, False
        applied = []
        for event in map(int, events):
            mine = int(self._rank[event])
            if kind == NOTHING:
                goes = True
            elif kind == TOMBSTONE:
                goes = last >= 0 or mine > rank or self._is_after_tombstone(event)
            elif mine != rank:
                goes = mine > rank
            else:
                goes = fresh or self._continues(event, last, equal)
            if goes:
                kind, rank, last = TOMBSTONE if self._deletes[event] else ROW, mine, event
            fresh = goes
            applied.append(goes)
        return applied

    def _continues(self, event: int, last: int, equal: Mask) -> bool:
        """Whether a change's before image is the current row: the row that `last` has written, or the target's row."""
        if last < 0:
            return bool(equal[event])
        if self._op[event] not in (Op.UPDATE, Op.DELETE):
            return False
        rows = self._batch.rows
        written = rows.column("after").slice(int(self._change[last]), 1)
        there = pa.Table.from_arrays(written.flatten(), schema=self._table.arrow)
        change = self._change[event : event + 1]
        before = rows.column("before").take(pa.array(change))
        return bool(same_rows(self._table, before, there, self._known_columns(change))[0])

    def _known_columns(self, changes: Numbers) -> Mask | None:
        return None if self._known is None else self._known[changes]

    def _lsn(self, change: int) -> bytes:
        data: bytes = self._batch.rows.column("lsn")[change].as_py()
        return data

    def _verdict(self, applied: Mask) -> GuardedBatch:
        size, op = len(self._batch), self._batch.rows.column("op").to_numpy()
        leaves, arrives = np.zeros(size, np.bool_), np.zeros(size, np.bool_)
        leaves[self._change[self._deletes & applied]] = True
        arrives[self._change[~self._deletes & applied]] = True
        keep = leaves | arrives
        halved = self._moved & keep & ~(leaves & arrives)
        stale = int((~keep).sum() + halved.sum())
        batch = self._batch
        if halved.any():
            batch = halves(batch, np.where(halved, np.where(leaves, Op.DELETE, Op.INSERT), op), ~arrives, halved)
        if not keep.all():
            batch = ChangeBatch(batch.table, batch.rows.filter(pa.array(keep)), batch.upstream)
        begins = applied & (_counted(applied, self._first, self._key) == 1)
        kind, held = self._found.kind[self._key], self._found.rank[self._key]
        made_from_it = (self._made_from == held) & ((self._op == Op.UPDATE) | (self._op == Op.DELETE))
        irregular = bool(stale or (begins & (kind == ROW) & ~made_from_it).any())
        return GuardedBatch(batch, stale, self._tombstones(applied), irregular)

    def _last_deletes(self, applied: Mask) -> Numbers:
        """Returns the DELETEs that are the last applied change of their key."""
        events = np.nonzero(applied)[0]
        last = np.ones(len(events), np.bool_)
        last[:-1] = self._key[events[1:]] != self._key[events[:-1]]
        events = events[last]
        return events[self._deletes[events]]

    def _tombstones(self, applied: Mask) -> Tombstones:
        """Returns tombstones for keys whose last applied change is a DELETE."""
        events = self._last_deletes(applied)
        changes = self._change[events]
        versions = self._version_of("before").take(pa.array(changes))
        lsns = self._batch.rows.column("lsn").take(pa.array(changes))
        return Tombstones(self.texts(self._key[events]), version_texts(versions), self._source, lsn_texts(lsns))


def taken_rows(columns: Sequence[pa.Array], rows: Numbers) -> list[pa.Array]:
    """Returns each column with only these rows."""
    return [values.take(pa.array(rows)) for values in columns]


def _counted(mask: Mask, first: Mask, key: Numbers) -> Numbers:
    """Returns, for each entry of `mask`, how many entries of its key are true up to and including this one."""
    total = np.cumsum(mask)
    starts = np.nonzero(first)[0]
    before: Numbers = total[starts] - mask[starts]
    return np.asarray(total - before[key] if len(key) else total, dtype=np.int64)
