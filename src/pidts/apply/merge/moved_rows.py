"""Handles rows that move between members of a merged table while one of the members lags.

A shard that waits stays at an earlier place of the log, while the other shards of its source go on. So one transaction
of the source may reach the target in two commits, its later half first:

    the transaction    BEGIN; INSERT INTO t_2 SELECT * FROM t_1 WHERE id = 5; DELETE FROM t_1 WHERE id = 5; COMMIT
    t_1 waits          only the INSERT is applied: the target has row 5, which belongs to t_2
    t_1 catches up     the DELETE must not be applied: it would remove the row of t_2

So the target records which member has got which key. (A member is a source table that maps to this target table.) The
entry (m, K, x) says: member m got key K at Lsn x, and still has it at the place that m has reached. Entries are needed
between parts of a batch, and between batches. Within one part, `pidts.reduce.net_changes` sees both halves of a move.

A target table is *lagging* while one of its members lags on any worker, before or after the commit. Each commit with
changes of a lagging table has two steps:

1. The commit *looks*: it reads the entries, and drops changes that would take a row from another member. This step is
   needed only if changes may be applied after later changes of other members. There are two such cases: a member
   catches up, or a member begins to lag within the batch. The changes of a member that begins to lag are applied before
   the changes of the other members.
2. The commit *notes* keys. A member may have got a key in this part, by an INSERT or by an UPDATE to this key. If the
   member still has the key at the part's end, the step adds an entry with the Lsn of that change. If a member does not
   have a key any more, the step removes the member's own entry of the key.

In the first step, all changes of key K in member n in one part have the same fate:

    n does not have K at the part's end    dropped if another member has an entry for K, even an earlier one: in the
                                           log, the INSERT of the other member may be before n's DELETE. But if n has a
                                           later entry, the target's row is n's, and n's DELETE is applied. (If the
                                           other member was copied again since, the row is that member's)
    n has K then, last changed at x        dropped if another member has an entry for K with a later Lsn than x

The two halves of an UPDATE from K to K2 are judged separately. If only the half for K is dropped, the INSERT of K2
remains. If only the half for K2 is dropped, the DELETE of K remains. If member m loses K in a part, m's entry for K
does not count in this part, since `net_changes` sees both members' changes of K. A copied row is never dropped here.
Two examples with the entry (m, K, 20), in which member n lags and is at place 5:

    one part has UPDATE K of n at 10, and DELETE K of m at 30    n's row is written
    one part has UPDATE K of n at 10, and m keeps K              the UPDATE is dropped: the row is m's

**Inside a transaction, several members may have one key.** If a transaction is cut into parts, a commit or a part may
end at this moment. In two examples, n has K since before the transaction, and an INSERT gives K to m, which replaces
n's row on the target:

    m: INSERT K, DELETE K               in the end, the target has to have n's row
    m: INSERT K  n: UPDATE K, DELETE K  in the end, the target has to have m's row

If both changes of m are in one part, as in a small transaction, `net_changes` reduces them to nothing. It does not
matter whether another member has K before, gets it later, or both. In a cut transaction, the target has the row of the
member that has got K last. Changes of the other members that have K are *hidden*: they are dropped. The table halts in
two cases: this last member loses K while another member still has it, since the target no longer has the other row; or
a later change could only be completed from a hidden row.

Therefore the part also adds an entry for the member that has K since before the transaction, unless the member has one.
Such an entry (`EARLIER`) names no member: the part only sees that a member gets a key with which the target has a row
already. The entry is removed when a member without an entry loses K. Such an entry counts only in its own transaction,
since at the end of the transaction only one member has K.

These rules may halt a table although no row would be lost:

- The change by which a lagging member loses K may be in the log that the target lacks. Until then, the member counts as
  having K.
- The row on the target does not show whose row it is. In safe mode and during a copy, the target may have a row that
  the same member gets later.
- A copied row has no entry. So even if a member without an entry loses K, this does not prove that `EARLIER` was about
  this member.

With `split-transactions`, tables that halt inside a transaction stay at the last committed part, also after a restart.
If a table was set to a place before such a transaction, entries may be about later changes than the changes of a part.
Such an entry says that the target has a row which an earlier attempt has written, so the entry stays. If the entry's
member gets and loses the key in one part, the DELETE is written.

Two alternatives were rejected. Entries could have the other rows: then each row that moves would be read and written
once more. The log of a transaction could be read twice, so that its first part knows which member has a key in the end:
then all keys of the transaction would have to be in memory.

**Why the result is right wherever batches are cut.** A row belongs to one shard: two members never have the same key at
once, except inside a transaction.

- *In the end, no member has K.* Of all changes that remove K from a member, take the change that is applied last. Could
  an entry of another member prevent it? No: this member would then lose K even later. So the change is applied. Each
  change that brings K back is followed by a change that removes it.
- *In the end, m has K, since x.* If x is before the places of all lagging members, no other member has had K since.
  Otherwise the change at x was written while the table was lagging, so there is an entry, and it stays. All changes of
  K by other members are before x in the log. If one of them is applied after the change at x, it is dropped because of
  this entry. So none of them removes or overwrites the row.

Two kinds of keys get no entry: keys of copied rows, since nothing shows when their table got them, and keys that a
repair has not found. Keys are compared by their bytes. If a move only changes the case of a key, and the key's
collation ignores case, the row counts as two rows.

When no member of a merged table lags any more on any worker, all entries of the table are removed
(`pidts.batch.lagging_merge`). Entries belong to keys and not to workers, so a key may move to another worker meanwhile.
When a member is renamed, the commit that records the RENAME changes its name in the entries. Rows of a member that was
dropped stay on the target, and so do its entries.

Crash points: entries are in the transaction that moves the worker's checkpoint. A crash before the COMMIT leaves
neither rows nor entries nor the new checkpoint. A crash after it leaves all of them, and the next attempt drops exactly
the changes that the entries forbid.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from itertools import pairwise
from typing import SupportsIndex, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import structlog

from pidts.apply.port import TargetSession
from pidts.apply.rows.shown_values import shown_row
from pidts.apply.rows.target_rows import narrowed, target_rows
from pidts.apply.rows.tombstone_keys import key_texts
from pidts.model import ChangeBatch, Halted, Lsn, MovedKey, Op, TableName, Where
from pidts.model.advice import RESYNC
from pidts.reduce.identity import identities
from pidts.reduce.key_numbers import Mask, Numbers, chunkless, key_numbers, merged, to_mask
from pidts.reduce.split_update import IncompleteInsert, halved_bitmaps, halves

_log = structlog.get_logger(__name__)

EARLIER = TableName("", "")
"""In entries, stands for an unknown member that has had a key since before a large transaction."""
_BEFORE = Lsn(0, 0, 0)
_Recorded: TypeAlias = dict[str, dict[TableName, Lsn]]
"""For each key's text, the Lsn of each member's entry."""
_LONGEST = 80
_MOVED_ON = IncompleteInsert("the row with the old key belongs to another shard now", "SET GLOBAL")


@dataclass(frozen=True, slots=True)
class LaggingTables:
    """The target tables with members that lag before or after a commit."""

    task: str
    source: str
    noted: frozenset[TableName]
    """All of these tables. The commit notes their keys."""
    looked: frozenset[TableName]
    """The tables of `noted` in which changes may be applied after later changes of other members."""
    since: Lsn | None = None
    """If the changes of the part are a piece of one transaction, the place at which this transaction begins."""
    replaces_spelling: bool = False
    """Whether a written row replaces a row whose key has another spelling, as in safe mode and during a copy."""


def without_moved(
    session: TargetSession, batches: Sequence[ChangeBatch], lagging: LaggingTables, shared: Collection[TableName]
) -> list[ChangeBatch]:
    """Drops the changes of rows that other members have got, updates the entries, and returns the other changes.

    `shared` are target tables with several known members. Another target table matters only if it has entries.
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
    """Returns one text per key. A number has the same text in a type of any width."""
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
    recorded: _Recorded = {}
    covered: list[MovedKey] = []
    if name in lagging.looked:
        recorded = _by_key(record.find(*place, outcomes.texts), lagging.since)
        if lagging.since is not None:
            covered = outcomes.covered(session, recorded, any_spelling=lagging.replaces_spelling)
            recorded |= {entry.key: {EARLIER: entry.lsn} for entry in covered}
            if uncovered := outcomes.uncovered(recorded):
                record.remove(*place, EARLIER, uncovered)
                for key in uncovered:
                    del recorded[key][EARLIER]
        if any(part.is_partial for part in parts):
            outcomes.demand_whole_rows(recorded)
        dropped, written = outcomes.dropped(recorded), outcomes.none
        if lagging.since is not None:
            hidden, written = outcomes.hidden(recorded, lagging.since)
            dropped |= hidden
        if dropped.any() or written.any():
            parts = outcomes.without(dropped, written)
            _log.info(
                "changes of rows that have moved to another shard are left out",
                table=str(name),
                rows=int(dropped.sum()),
            )
    for member, keys in outcomes.given(recorded).items():
        record.remove(*place, member, keys)
    got = [one for one in outcomes.got() if recorded.get(one.key, {}).get(one.member, _BEFORE) < one.lsn]
    if got or covered:
        record.add(*place, [*got, *covered])
    return parts


def _by_key(entries: Iterable[MovedKey], since: Lsn | None) -> _Recorded:
    """Returns the entries by key and member.

    Of the entries of `EARLIER`, only those at or after `since` are kept (where the present transaction begins); without
    `since`, none.
    """
    found: _Recorded = {}
    for entry in entries:
        if entry.member != EARLIER or (since is not None and entry.lsn >= since):
            found.setdefault(entry.key, {})[entry.member] = entry.lsn
    return found


class _Outcomes:
    """For each member and each key that it changes, the *outcome*: whether the member has the key after the changes.

    Each item of `parts` has the changes of one member.
    """

    def __init__(self, parts: Sequence[ChangeBatch]) -> None:
        self._parts = parts
        self._members = list(dict.fromkeys(part.origin for part in parts))
        self._table = parts[0].table
        self._fields = [self._table.arrow.field(name) for name in self._table.identity]
        self._sizes = np.cumsum([0, *map(len, parts)])
        keys = [identities(part) for part in parts]
        op = np.concatenate([part.rows.column("op").to_numpy() for part in parts])
        moved = np.concatenate([to_mask(one.moved) for one in keys])
        deleted = np.concatenate([to_mask(one.deleted) for one in keys])
        lsns = pa.concat_arrays([part.rows.column("lsn").cast(pa.binary()) for part in parts])
        member = np.repeat([self._members.index(part.origin) for part in parts], [len(part) for part in parts])
        left = np.nonzero(moved)[0]
        # A change is an event of its key. A change that gives its row another key is an event of both keys.
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
        self._first = first = order[begins]
        updates = (op == Op.UPDATE) & ~moved
        self._had = self._leaves[first] | (updates | (op == Op.DELETE))[self._change[first]]
        """Whether the member has the key before the changes."""
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

    @cached_property
    def texts(self) -> list[str]:
        """The texts of all keys with an event, in the order of the keys' numbers."""
        return key_names(self._key_table(self._last[self._first_of_key]))

    @cached_property
    def _of_key(self) -> dict[str, range]:
        """The outcomes of each key, by the key's text."""
        first = self._first_of_key.tolist()
        return dict(zip(self.texts, map(range, first, [*first[1:], len(self._key)]), strict=True))

    @cached_property
    def _first_of_key(self) -> Numbers:
        return np.unique(self._key, return_index=True)[1]

    def dropped(self, recorded: _Recorded) -> Mask:
        """Returns the outcomes whose changes must be dropped because of other members' entries."""
        dropped = self.none
        for text, entries in recorded.items():
            mine = self._of_key.get(text, range(0))
            lost = {self._member_of(outcome) for outcome in mine if not self._has[outcome]}
            for member, lsn in entries.items():
                if member in lost:
                    continue
                for outcome in mine:
                    if self._member_of(outcome) != member and not self._copied[outcome]:
                        last = self._lsn(self._last[outcome])
                        is_own = lsn < entries.get(self._member_of(outcome), _BEFORE) < last
                        dropped[outcome] |= last < lsn if self._has[outcome] else not is_own
        return dropped

    def demand_whole_rows(self, recorded: _Recorded) -> None:
        """Raises if an UPDATE of which the log has only a part gives another key to a row that is no longer there.

        Another member's row has replaced the row, and the missing columns would be taken from that row.
        """
        replaced = self.none
        updates = np.nonzero(self._op[self._change[self._first]] == Op.UPDATE)[0]
        for outcome, text in zip(updates, self._texts(updates), strict=True):
            entries = recorded.get(text, {})
            latest = max((lsn for member, lsn in entries.items() if member != EARLIER), default=_BEFORE)
            replaced[outcome] = self._had[outcome] and entries.get(self._member_of(outcome), _BEFORE) < latest
        moves = np.zeros(len(self._op), np.bool_)
        moves[self._change[self._leaves & replaced[self._fate_of]]] = True
        for part, (first, end) in zip(self._parts, pairwise(self._sizes), strict=True):
            inserts = moves[first:end]
            halved_bitmaps(part, pa.array(np.arange(len(part))), pa.array(~inserts), pa.array(inserts), _MOVED_ON)

    def covered(self, session: TargetSession, recorded: _Recorded, *, any_spelling: bool) -> list[MovedKey]:
        """Returns entries of `EARLIER` for keys that a member has got, and that a member without an entry also has.

        If a key has no entry, the target has a row of the key only if a member had the key before. The row's key may
        have another spelling. With `any_spelling` such a row counts, since the new row replaces it. Without
        `any_spelling` it does not count, for two reasons. The row may belong to the member that got the key, which has
        then only changed the key's spelling. If the row belongs to another member, the target refuses the new row.
        """
        got, gone, left = (np.zeros(self._key.max(initial=-1) + 1, np.bool_) for _ in range(3))
        got[self._key[self._got >= 0]] = True
        gone[self._key[self._had & (~self._has | (self._got >= 0))]] = True
        left[self._key[self._had & self._has & (self._got < 0)]] = True
        outcomes = np.nonzero((self._got >= 0) & (got & ~gone)[self._key])[0]
        new = outcomes[[text not in recorded for text in self._texts(outcomes)]]
        if not len(new):
            return []
        keys, wanted = self._key_table(self._last[new]), self._texts(new)
        rows, found = target_rows(session, narrowed(self._table, ()), keys, lock=False)
        there = found >= 0
        if not any_spelling and any(self._table.column(name).type.is_text for name in self._table.identity):
            spelled = key_names(rows.select(list(self._table.identity)))
            there &= np.array(
                [spelled[at] == text if at >= 0 else False for at, text in zip(found, wanted, strict=True)]
            )
        there |= left[self._key[new]]
        return [
            MovedKey(EARLIER, text, self._lsn(self._got[at]))
            for at, text, is_there in zip(new, wanted, there, strict=True)
            if is_there
        ]

    def uncovered(self, recorded: _Recorded) -> list[str]:
        """Returns the keys with an entry of `EARLIER` that some member without an entry has lost."""
        lost = np.nonzero(self._had & (~self._has | (self._got >= 0)))[0]
        uncovered = {
            text
            for outcome, text in zip(lost, self._texts(lost), strict=True)
            if self._member_of(outcome) not in (entries := recorded.get(text, {}))
            and (lsn := entries.get(EARLIER)) is not None
            and lsn < self._lsn(self._last[outcome])
        }
        return sorted(uncovered)

    @property
    def none(self) -> Mask:
        """Returns a mask that selects no outcome."""
        return np.zeros(len(self._key), np.bool_)

    def hidden(self, recorded: _Recorded, since: Lsn) -> tuple[Mask, Mask]:
        """Returns the outcomes of members whose key another member has got later in the transaction.

        The second result has the outcomes of members that get and lose a key, and whose row an earlier attempt has
        written. Raises `Halted` if the member that has got the key last loses it while another member still has it.
        """
        hidden, written = self.none, self.none
        for text, mine in self._of_key.items():
            if text in recorded or len(mine) > 1:
                self._hide(mine, recorded.get(text, {}), since, hidden, written)
        return hidden, written

    def _hide(
        self, outcomes: Sequence[int], entries: Mapping[TableName, Lsn], since: Lsn, hidden: Mask, written: Mask
    ) -> None:
        """Does what `hidden` says, for one key. `entries` has the Lsn of each member's entry."""
        since_of = {member: _BEFORE if member == EARLIER else lsn for member, lsn in entries.items()}
        lost: dict[int, Lsn] = {}
        for outcome in outcomes:
            member = self._member_of(outcome)
            if not self._has[outcome]:
                lsn = since_of.pop(member, None)
                if lsn is not None and lsn >= since:
                    lost[outcome] = lsn
            elif self._got[outcome] >= 0:
                since_of[member] = self._lsn(self._got[outcome])
            else:
                since_of.setdefault(member, _BEFORE)
        written[[outcome for outcome in lost if not self._had[outcome]]] = True
        if not since_of:
            return
        latest = max(since_of.values())
        for outcome, lsn in lost.items():
            if latest < lsn:
                raise self._lost_row(outcome, max(since_of, key=lambda member: since_of[member]))
        for outcome in outcomes:
            own = since_of.get(self._member_of(outcome), latest)
            hidden[outcome] = own < latest >= since and not self._copied[outcome]

    def _lost_row(self, outcome: int, other: TableName) -> Halted:
        event = self._last[outcome]
        key = shown_row(self._key_table(np.array([event])))
        replaced = "the target's row" if other == EARLIER else f"the row of {other}"
        return Halted(
            "key-in-two-shards",
            f"a large transaction has given a row of {self._member_of(outcome)} this key, and now removes the row. The "
            f"earlier change has overwritten {replaced} that had this key, too. If another shard still "
            "has the overwritten row, the target would lose it",
            where=Where(table=str(self._table.name), key=key, position=str(self._lsn(event))),
            todo=f"Copy the shards of this table again: {RESYNC}. When they are copied, remove the rows "
            "that no shard has: pidts repair TASK --remove-extra, then once more with --apply",
        )

    def without(self, dropped: Mask, written: Mask) -> list[ChangeBatch]:
        """Returns the changes without those of `dropped` outcomes, and without the first one of each `written` one."""
        gone = dropped[self._fate_of]
        gone[self._first[written]] = True
        arrives, leaves = gone[~self._leaves], np.zeros(len(self._op), np.bool_)
        leaves[self._change[self._leaves]] = gone[self._leaves]
        inserts, deletes = self._moved & leaves & ~arrives, self._moved & arrives & ~leaves
        keep = ~(arrives & (leaves | ~self._moved))
        left = []
        for part, first, end in zip(self._parts, self._sizes[:-1], self._sizes[1:], strict=True):
            mine = slice(first, end)
            left.append(_rest(part, keep[mine], inserts[mine], deletes[mine]))
        return left

    def given(self, recorded: _Recorded) -> dict[TableName, list[str]]:
        """Returns, for each member, the changed keys that it does not have after the changes.

        A key is left out if an earlier attempt has written a later change of the key, as the member's entry shows.
        """
        outcomes = np.nonzero(~self._has)[0]
        given: dict[TableName, list[str]] = {}
        for outcome, text in zip(outcomes, self._texts(outcomes), strict=True):
            member = self._member_of(outcome)
            if recorded.get(text, {}).get(member, _BEFORE) <= self._lsn(self._last[outcome]):
                given.setdefault(member, []).append(text)
        return given

    def got(self) -> list[MovedKey]:
        """Returns entries for the keys that members have got and still have after the changes."""
        outcomes = np.nonzero(self._got >= 0)[0]
        return [
            MovedKey(self._member_of(outcome), text, self._lsn(self._got[outcome]))
            for outcome, text in zip(outcomes, self._texts(outcomes), strict=True)
        ]

    def _texts(self, outcomes: Numbers) -> list[str]:
        return [self.texts[number] for number in self._key[outcomes]]

    def _key_table(self, events: Numbers) -> pa.Table:
        columns = [values.take(pa.array(events)) for values in self._keys]
        return pa.Table.from_arrays(columns, schema=pa.schema(self._fields))

    def _member_of(self, outcome: SupportsIndex) -> TableName:
        member: TableName = self._members[self._member[outcome]]
        return member

    def _lsn(self, event: int) -> Lsn:
        return Lsn.from_bytes(self._lsns[int(self._change[event])].as_py())


def _rest(part: ChangeBatch, keep: Mask, inserts: Mask, deletes: Mask) -> ChangeBatch:
    """Returns the changes in `keep`, with updates in `inserts` as INSERTs, and updates in `deletes` as DELETEs."""
    halved = inserts | deletes
    if halved.any():
        row = pa.array(np.arange(len(part)))
        bitmaps = halved_bitmaps(part, row, pa.array(deletes), pa.array(inserts), _MOVED_ON)
        place = part.rows.schema.get_field_index("partial")
        part = replace(part, rows=part.rows.set_column(place, part.rows.schema.field(place), bitmaps))
        op = part.rows.column("op").to_numpy()
        part = halves(part, np.where(inserts, Op.INSERT, np.where(deletes, Op.DELETE, op)), deletes, halved)
    return part if keep.all() else replace(part, rows=part.rows.filter(pa.array(keep)))
