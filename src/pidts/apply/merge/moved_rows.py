"""Handles rows that move between members of a merged table while one of the members lags.

A shard that waits stays at an earlier place of the log, while the other shards of its source go on. So one transaction
of the source may reach the target in two commits, its later half first:

    the transaction    BEGIN; INSERT INTO t_2 SELECT * FROM t_1 WHERE id = 5; DELETE FROM t_1 WHERE id = 5; COMMIT
    t_1 waits          only the INSERT is applied: the target has row 5, which belongs to t_2
    t_1 catches up     the DELETE must not be applied: it would remove the row of t_2

So the target records which member has got which key. The entry (m, K, x) says that member m got key K at Lsn x, and
still has K at the place that m has reached. (A member is a source table that maps to this target table.) Entries are
needed between parts of a batch, and between batches. Within one part, `pidts.reduce.net_changes` sees both halves of a
move.

A target table is *lagging* while one of its members lags on any worker, before or after the commit. Each commit with
changes of a lagging table has two steps:

1. It *looks*: it reads the entries, and drops changes that would take a row from another member. This step is needed
   only if changes may be applied after later changes of other members. There are two such cases: a member catches up;
   or a member begins to lag within the batch, since its changes are then applied before those of the other members.
2. It *notes* each key that a member has got in this part (by an INSERT, or by an UPDATE to this key) and still has at
   the part's end. For this key it adds an entry with the Lsn of that change. If a member does not have a key any more,
   it removes the member's own entry of the key.

In the first step, all changes of key K in member n in one part have the same fate:

    n does not have K at the part's end    dropped if there is an entry of another member for K. The Lsns do not matter:
                                           in the log, the INSERT of the other member may be before n's DELETE
    n has K then, last changed at x        dropped if there is an entry of another member for K with a later Lsn than x

The two halves of an UPDATE from K to K2 are judged separately. If one half is dropped, the INSERT of K2 or the DELETE
of K is left. An entry of member m does not count in a part in which m loses K, since `net_changes` sees this. A copied
row is never dropped here. Two examples, in which the entry is (m, K, 20), and n lags at place 5:

    one part has UPDATE K of n at 10, and DELETE K of m at 30    n's row is written
    one part has UPDATE K of n at 10, and m keeps K              the UPDATE is dropped: the row is m's

**Why the result is right wherever batches are cut.** A row belongs to one shard: two members never have the same key at
once, except inside a transaction.

- *In the end, no member has K.* Of all changes that remove K from a member, take the change that is applied last. Could
  an entry of another member prevent it? No: this member would then lose K even later. So the change is applied. Each
  change that brings K back is followed by a change that removes it.
- *In the end, m has K, since x.* If x is before the places of all lagging members, no other member has had K since.
  Otherwise the change at x was written while the table was lagging, so there is an entry, and it stays. All changes of
  K by other members are before x, so they neither remove nor overwrite the row.

Two kinds of keys get no entry: keys of copied rows, since nothing shows when their table got them, and keys that a
repair has not found. Keys are compared by their bytes. If a move changes the case of a key, and the key's collation
ignores case, the row counts as two.

When no member of a merged table lags any more on any worker, all entries of the table are removed
(`pidts.batch.lagging_merge`). Entries belong to keys, not to workers, so a key may move to another worker meanwhile.
Entries name the members. When a member is renamed, the commit that records the RENAME changes the name in the entries.
Rows of a member that was dropped stay on the target, and so do its entries.

Crash points: entries are in the transaction that moves the worker's checkpoint. A crash before the COMMIT leaves
neither rows nor entries nor the new checkpoint. A crash after it leaves all of them, and the next attempt drops exactly
the changes that the entries forbid.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import structlog

from pidts.apply.port import TargetSession
from pidts.apply.rows.tombstone_keys import key_texts
from pidts.model import ChangeBatch, Lsn, MovedKey, Op, TableName
from pidts.reduce.identity import identities
from pidts.reduce.key_numbers import Mask, Numbers, chunkless, key_numbers, merged, to_mask
from pidts.reduce.split_update import IncompleteInsert, halved_bitmaps, halves

_log = structlog.get_logger(__name__)

_LONGEST = 80
_MOVED_ON = IncompleteInsert("the row with the old key belongs to another shard now", "SET GLOBAL")


@dataclass(frozen=True, slots=True)
class LaggingTables:
    """The target tables with members that lag before or after one commit."""

    task: str
    source: str
    noted: frozenset[TableName]
    """All of these tables. For each of them, the commit notes keys."""
    looked: frozenset[TableName]
    """The tables of `noted` in which changes may be applied after later changes of other members."""


def without_moved(
    session: TargetSession, batches: Sequence[ChangeBatch], lagging: LaggingTables, shared: Collection[TableName]
) -> list[ChangeBatch]:
    """Drops the changes of rows that other members have got, updates the entries, and returns the other changes.

    `shared` are target tables with several known members. Other target tables are considered only if they have entries.
    """
    left = list(batches)
    by_name: dict[TableName, list[int]] = {}
    for place, batch in enumerate(batches):
        if len(batch) and batch.table.name in lagging.noted and batch.table.identity:
            by_name.setdefault(batch.table.name, []).append(place)
    for name, places in by_name.items():
        if name in shared or session.meta.moves.any(lagging.task, lagging.source, name):
            parts = _of_one(session, name, [batches[place] for place in places], lagging)
            for place, part in zip(places, parts, strict=True):
                left[place] = part
    return left


def key_names(keys: pa.Table) -> list[str]:
    """Returns one text per key; a number has the same text whatever the width of its type."""
    columns = [_plain(values) for values in chunkless(keys, keys.column_names)]
    texts = key_texts(pa.Table.from_arrays(columns, names=keys.column_names)).to_pylist()
    return [
        text if text.isascii() and len(text) <= _LONGEST else f"sha256:{sha256(text.encode()).hexdigest()}"
        for text in texts
    ]


def _plain(values: pa.Array) -> pa.Array:
    if pa.types.is_decimal(values.type):
        texts = (f"{value:f}" for value in values.to_pylist())
        return pa.array([text.rstrip("0").rstrip(".") if "." in text else text for text in texts], pa.string())
    return values.cast(pa.float64()) if pa.types.is_floating(values.type) else values


def _of_one(
    session: TargetSession, name: TableName, parts: Sequence[ChangeBatch], lagging: LaggingTables
) -> Sequence[ChangeBatch]:
    if len({part.table.identity for part in parts}) > 1:
        return parts  # the identities differ, and the caller halts
    outcomes = _Outcomes(parts)
    record, place = session.meta.moves, (lagging.task, lagging.source, name)
    if name in lagging.looked:
        dropped = outcomes.dropped(record.find(*place, outcomes.texts))
        if dropped.any():
            parts = outcomes.without(dropped)
            _log.info(
                "changes of rows that have moved to another shard are left out",
                table=str(name),
                rows=int(dropped.sum()),
            )
    for member, keys in outcomes.given().items():
        record.remove(*place, member, keys)
    if got := outcomes.got():
        record.add(*place, got)
    return parts


class _Outcomes:
    """Finds, for each member and each key that it changes, whether the member has the key after the changes.

    The result for one member and one key is called an *outcome*. Each item of `parts` has the changes of one member.
    """

    def __init__(self, parts: Sequence[ChangeBatch]) -> None:
        self._parts = parts
        self._members = list(dict.fromkeys(part.origin for part in parts))
        self._names = parts[0].table.identity
        self._fields = [parts[0].table.arrow.field(name) for name in self._names]
        self._sizes = np.cumsum([0, *map(len, parts)])
        keys = [identities(part) for part in parts]
        op = np.concatenate([part.rows.column("op").to_numpy() for part in parts])
        moved = np.concatenate([to_mask(one.moved) for one in keys])
        deleted = np.concatenate([to_mask(one.deleted) for one in keys])
        lsns = pa.concat_arrays([part.rows.column("lsn").cast(pa.binary()) for part in parts])
        member = np.repeat([self._members.index(part.origin) for part in parts], [len(part) for part in parts])
        left = np.nonzero(moved)[0]
        # Each change is an event of one key, and a change that gives its row another key is an event of two.
        self._change = np.concatenate([np.arange(len(op)), left])
        self._leaves = np.arange(len(self._change)) >= len(op)
        current, before = merged([one.current for one in keys]), merged([one.before for one in keys])
        self._keys = merged([current, [values.take(pa.array(left)) for values in before]])
        number = key_numbers(self._keys)
        rank = np.empty(len(op), np.int64)
        rank[pc.sort_indices(lsns).to_numpy()] = np.arange(len(op))
        moment = 2 * rank[self._change] + ~self._leaves
        outcome = number * len(self._members) + member[self._change]
        order = np.lexsort((moment, outcome))
        begins = np.nonzero(np.concatenate([[True], outcome[order][1:] != outcome[order][:-1]]))[0]
        last = order[np.append(begins[1:], len(order)) - 1]
        self._fate_of = np.empty(len(order), np.int64)
        self._fate_of[order] = np.cumsum(np.isin(np.arange(len(order)), begins)) - 1
        gets = ~self._leaves & ((op == Op.INSERT) | moved)[self._change]
        newest = np.maximum.reduceat(np.where(gets[order], np.arange(len(order)), -1), begins)
        self._key = number[last]
        """The key of each outcome. The outcomes are sorted by key."""
        self._member = member[self._change[last]]
        self._last = last
        self._has = ~self._leaves[last] & ~deleted[self._change[last]]
        """Whether the member has the key in the end."""
        self._got = np.where(self._has & (newest >= 0), order[np.maximum(newest, 0)], -1)
        """The event by which the member has got the key, if it has the key in the end; else -1."""
        self._copied = op[self._change[last]] == Op.COPY
        self._op, self._moved, self._lsns = op, moved, lsns

    @property
    def texts(self) -> list[str]:
        """Returns the texts of all keys with an event, each once."""
        return self._texts(self._last[np.unique(self._key, return_index=True)[1]])

    def dropped(self, entries: Iterable[MovedKey]) -> Mask:
        """Returns the outcomes whose changes must be dropped because of other members' entries."""
        dropped = np.zeros(len(self._key), np.bool_)
        first = np.unique(self._key, return_index=True)[1]
        ends = np.append(first[1:], len(self._key))
        at = {text: place for place, text in enumerate(self.texts)}
        numbers = {member: number for number, member in enumerate(self._members)}
        for entry in entries:
            place = at.get(entry.key)
            if place is None:
                continue
            mine = range(first[place], ends[place])
            member = numbers.get(entry.member, -1)
            if any(self._member[outcome] == member and not self._has[outcome] for outcome in mine):
                continue
            for outcome in mine:
                if self._member[outcome] != member and not self._copied[outcome]:
                    dropped[outcome] |= not self._has[outcome] or self._lsn(self._last[outcome]) < entry.lsn
        return dropped

    def without(self, dropped: Mask) -> list[ChangeBatch]:
        """Returns the changes without those of the `dropped` outcomes."""
        gone = dropped[self._fate_of]
        arrives, leaves = gone[~self._leaves], np.zeros(len(self._op), np.bool_)
        leaves[self._change[self._leaves]] = gone[self._leaves]
        inserts, deletes = self._moved & leaves & ~arrives, self._moved & arrives & ~leaves
        keep = ~(arrives & (leaves | ~self._moved))
        left = []
        for part, first, end in zip(self._parts, self._sizes[:-1], self._sizes[1:], strict=True):
            mine = slice(first, end)
            left.append(_rest(part, keep[mine], inserts[mine], deletes[mine]))
        return left

    def given(self) -> dict[TableName, list[str]]:
        """Returns, for each member, the changed keys that it does not have after the changes."""
        outcomes = np.nonzero(~self._has)[0]
        given: dict[TableName, list[str]] = {}
        for outcome, text in zip(outcomes, self._texts(self._last[outcomes]), strict=True):
            given.setdefault(self._members[self._member[outcome]], []).append(text)
        return given

    def got(self) -> list[MovedKey]:
        """Returns entries for the keys that members have got and still have after the changes."""
        outcomes = np.nonzero(self._got >= 0)[0]
        return [
            MovedKey(self._members[self._member[outcome]], text, self._lsn(self._got[outcome]))
            for outcome, text in zip(outcomes, self._texts(self._last[outcomes]), strict=True)
        ]

    def _texts(self, events: Numbers) -> list[str]:
        columns = [values.take(pa.array(events)) for values in self._keys]
        return key_names(pa.Table.from_arrays(columns, schema=pa.schema(self._fields)))

    def _lsn(self, event: int) -> Lsn:
        return Lsn.from_bytes(self._lsns[int(self._change[event])].as_py())


def _rest(part: ChangeBatch, keep: Mask, inserts: Mask, deletes: Mask) -> ChangeBatch:
    """Returns the changes in `keep`. Updates in `inserts` become INSERTs, and updates in `deletes` become DELETEs."""
    halved = inserts | deletes
    if halved.any():
        row = pa.array(np.arange(len(part)))
        bitmaps = halved_bitmaps(part, row, pa.array(deletes), pa.array(inserts), _MOVED_ON)
        place = part.rows.schema.get_field_index("partial")
        part = replace(part, rows=part.rows.set_column(place, part.rows.schema.field(place), bitmaps))
        op = part.rows.column("op").to_numpy()
        part = halves(part, np.where(inserts, Op.INSERT, np.where(deletes, Op.DELETE, op)), deletes, halved)
    return part if keep.all() else replace(part, rows=part.rows.filter(pa.array(keep)))
