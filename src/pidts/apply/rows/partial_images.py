"""Completes the partial images of changes (`binlog_row_image` MINIMAL and NOBLOB).

A value that an image lacks can be found elsewhere. An after image lacks columns that the update did not change: they
have the values of the before image. If the before image also lacks a column, the value comes from the row's previous
change in the batch, or from the target's row. An INSERT lacks columns that the statement does not name: they have their
default. A missing value is never written as NULL:

    UPDATE t SET a = 1 WHERE id = 7     before {id: 7}, after {a: 1}; b keeps the value of the target's row 7

**Pointers instead of values.** Every image is a node with a pointer to the node that it continues. An after image
continues its before image. A before image continues the after image which made the row, or the target's row. For each
column, pointer doubling finds the first node in each chain that has the column: a row with a thousand updates takes ten
rounds. Then one `take` per column gathers the values.

Rows are read from the target only if they have a needed value that the batch lacks. A before image needs only the key
and the columns of unique keys. If it lacks other columns (on MariaDB 11.8 it lacks generated ones), the target is not
read for them.

**While the table is copied**, the target may lack the row whose values an update needs. The batch covers the log after
`s`, up to `e`. A row counts as copied as soon as a batch *settles* it. Rows that were settled earlier show the source
at `s`. Rows that this batch settles were read between `s` and `e`. All other rows are read after the batch is on the
target, so not before `e`. For a missing row this means:

1. The row kept its key in the batch. So the row existed at `s`, and its key was not settled before. Either the copy
   reads the row after `e`, with all changes of the batch. Or the copy read its key between `s` and `e`, when the row
   was already gone, so a later change of the batch removes the row. In both cases the row's updates are not applied.
2. The row got its key within the batch, by an update that gives it another key or by an INSERT. If the key is read
   after `e`, that read returns the row, and the change is not applied. If the key was read before the row got it, no
   later read returns the row:

       copied up to 5    UPDATE 9 SET id = 3, a = 1    no request reads 3 again, and 9 is gone when it is read

3. The row got a key at which a row was already read, and no earlier change of the batch has removed a row from this
   key. The key was free on the source when the row got it. So the row that was read at the key is this row, after its
   update: the change continues this row, as it would continue the row at the old key.

If a later change of the batch removes the row of a change, the earlier change writes nothing. So it does not matter
whether the row of the earlier change is missing; only the later change is examined.

**The copy may have read a different row.** At the place `s` in the log, a key may have one row. Until the copy reads
the key, it may have got another row. A row that was loaded into the target ahead of the log may be a different row,
too:

    UPDATE 4 SET id = 3    INSERT 4    the copy reads 4    row 3 must not take its other columns from this row 4

So while the table is copied, an update that gives a row another key takes no column from a row that may be a different
one. Such a row may be at a key that gets a row within the batch, or at a key at which the target may be ahead of the
batch. The update then only deletes the rows at both keys, and the row has to be read at its new key after `e`.

The target may have lost a row that was loaded ahead of the log, since a row of an earlier change had the same key or
unique value. The lost row's chunk is settled and is not read again. So if the target may be ahead, the copy gets a
missing row only if the update changes neither its key nor a unique value.

**If a key would not be read after `e`**, it is recorded (`unread`), and the target's row at this key is removed. Then
the copy reads the key again (`pidts.batch.copy.rereads`). Until a recorded key is settled, it counts as a key that is
read after `e`. A missing row does no harm to other rows: the target's rows are always a subset of the source's rows at
one place in the log. A missing row takes no unique value on the target, and another row can get that value only by a
change that is in the log. If a key cannot be recorded, the table halts with `partial-row-image`.

**If the target may already have had the change** (`seen_until`), the target's rows are those of a later place in the
log, until a batch reaches that place. A row that is missing was deleted later, and its changes are dropped. But the
table halts at two kinds of updates:

1. The update gives the row another key. The target may have the row at its new key, and another row at its old key. Or
   the row is missing at both keys, since an earlier change has deleted the former row at its new key:

       UPDATE 4 SET id = 3    INSERT 4    row 3 must not take its other columns from this row 4
       DELETE 3    UPDATE 4 SET id = 3    the target had row 3 after this update, and lost it by the DELETE

2. The update gives a missing row a unique value. Safe mode may have removed the row, since another row had this value.

The row may also be missing because of a filter. Nothing distinguishes this reason, so the table halts as well.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pidts.apply.uncopied_keys import IsAhead, IsUnread
from pidts.model import ChangeBatch, Halted, Lsn, Op, Where
from pidts.model.advice import RESYNC
from pidts.reduce.column_presence import column_presence
from pidts.reduce.identity import image_columns
from pidts.reduce.key_numbers import Mask, Numbers, chunkless, key_numbers, merged, to_mask
from pidts.schema.column_defaults import default_value

_FULL = (
    "Run SET GLOBAL binlog_row_image=FULL on the source, let its sessions reconnect, then copy the table again: "
    f"{RESYNC}"
)
KEEP_KEYS = (
    "Stop changing keys and unique values of this table, or set binlog_row_image = FULL on the source and let its "
    "sessions reconnect. Then run: pidts run TASK --resync {table}"
)
"""The advice for an operator if a row got another key while its table was copied or repaired."""


class ImageCompletion:
    """Completes the images of one table. The caller reads the rows of `keys`, calls `images`, then `written`."""

    def __init__(
        self,
        batch: ChangeBatch,
        needed_before: Collection[str] = (),
        computed: Collection[str] = (),
        *,
        read_early: bool = False,
        is_ahead: IsAhead | None = None,
        is_foreign: IsAhead | None = None,
        is_loaded: bool = False,
    ) -> None:
        """Takes the changes of one table.

        - `computed` columns need no values, since the target computes them.
        - `read_early`: all rows of the target table come from the log and from a copy under way, so a row may already
          be at its new key.
        - `is_ahead`, given if the table is being copied, says at which keys the target's row may differ from the row
          that the source had before the batch.
        - `is_foreign` says at which keys the target's row may have wrong unique values, so that it must not be written
          (`pidts.apply.uncopied_keys.foreign`).
        - `is_loaded`: the target table was empty before the copy, so all its rows were loaded from the source.
        """
        self._batch, self._table, self._size = batch, batch.table, len(batch)
        self._default, self._nowhere = 2 * self._size, 2 * self._size + 1
        self._defaults = [default_value(column) for column in self._table.columns]
        self._computed = computed
        self._presence = column_presence(batch)
        for place, column in enumerate(self._table.columns):
            if column.name in computed:
                self._presence.before[:, place] = self._presence.after[:, place] = True
            elif column.name in self._table.identity:
                given = pc.is_valid(pc.struct_field(batch.rows.column("after"), [place]))  # see `with_whole_keys`
                self._presence.after[:, place] |= to_mask(given)
        self._columns = np.vstack(
            [
                self._presence.before,
                self._presence.after,
                np.array([[value is not None for value in self._defaults], [False] * len(self._defaults)]),
            ]
        )
        self._read_early, self._is_ahead = read_early, is_ahead
        self._arrives: Mask = self._presence.has_after & ~self._presence.has_before
        """The changes that bring a row to a key: inserts, copied rows, and updates that give the row another key."""
        self._comers: Numbers = np.zeros(0, np.int64)
        """The updates that give a row its new key, and are the first in the batch to do so."""
        self._chain()
        self.missing: Numbers = np.zeros(0, np.int64)
        self.unread: Numbers = np.zeros(0, np.int64)
        """Changes that gave a row a key which has to be read again; set by `written`."""
        unique = {name for key in self._table.secondary_unique for name in key.columns}
        self._needed_before = {*self._table.identity, *unique, *needed_before}
        self._giving_way = {
            name
            for key in self._table.keys
            if key.declared_unique and set(key.columns) != set(self._table.identity)
            for name in key.columns
            if name in needed_before
        }
        """The columns by whose values safe mode may remove another row."""
        if not self._table.identity:  # a row without a key is found by all its values
            self._needed_before |= set(self._table.arrow.names)
        origin = self._follow(np.zeros(len(self._prev), np.bool_), self._prev)
        waiting = np.unique(origin[self._unresolved(self._prev, before=True)])
        self._roots: Numbers = waiting[np.isin(waiting, self._root_nodes)]
        """The before images that continue a row of the target."""
        self._is_foreign = is_foreign if self._needed_before.difference(self._table.identity) else None
        self._is_loaded = is_loaded
        if self._is_foreign is not None:
            self._roots = self._roots[~self._ahead_at(self._is_foreign, self._roots)]
        # `_roots` are read at their old keys, `_comers` at their new keys. The first change of a key is in only one of
        # these two, so no key is read twice.
        self._comers = self._comers[np.isin(origin[self._size + self._comers], self._roots)]

    @property
    def keys(self) -> pa.Table:
        """Returns the identities whose rows the images need, each once."""
        names = list(self._table.identity)
        if not len(self._roots):
            return self._table.arrow.empty_table().select(names)
        return pa.Table.from_arrays(self._asked(), schema=self._table.arrow.empty_table().select(names).schema)

    def _asked(self) -> list[pa.Array]:
        return merged([self._keys("before", self._roots), self._keys("after", self._comers)])

    def images(self, held: pa.Table) -> ChangeBatch:
        """Returns the batch with full images; `held` are the target's rows of `keys`.

        If the target lacks the row of a change (`missing`), values that cannot be found are NULL. Such a change must
        not be written, see `written`.
        """
        self._check_computed()
        prev = self._with_rows(held)
        self.missing = np.unique(self._unresolved(prev, before=not self._table.identity) % self._size)
        return self._gathered(prev, held)

    def written(
        self,
        batch: ChangeBatch,
        *,
        is_unread: IsUnread | None = None,
        can_record: bool = False,
        filtered: bool = False,
        seen_until: Lsn | None = None,
    ) -> ChangeBatch:
        """Returns the full images to write.

        Halts at a change whose row the target does not have, or for which the target may have another row
        (`seen_until`). But the changes of a missing row are dropped in these cases:

        - The copy still reads the row (`is_unread`), or a later change of the batch removes it.
        - The row did not get its key within the batch, and the target already had the log up to this change
          (`seen_until`), or a filter may have left out the row (`filtered`). Exception: up to `seen_until`, a change
          that gives the row another key or a unique value halts.
        - `can_record`: every other missing row is left to the copy, and its key is added to `unread`.
        """
        if not len(self.missing) and seen_until is None:
            return batch
        lsns, left = (each.rows.column("lsn").cast(pa.binary()) for each in (self._batch, batch))
        seen = np.zeros(self._size, np.bool_)
        if seen_until is not None:
            seen = to_mask(pc.less_equal(lsns, pa.scalar(seen_until.to_bytes(), pa.binary())))
        lacks = pc.and_(
            pc.is_in(left, value_set=lsns.take(pa.array(self.missing))),
            pc.not_equal(batch.rows.column("op"), int(Op.DELETE)),
        )
        still = self.missing[to_mask(pc.is_in(lsns, value_set=left.filter(lacks)))[self.missing]]
        brought = came = np.zeros(self._size, np.bool_)
        if is_unread is not None:
            came = self._passed(self._arrives)
            brought = self._brought(still, came, is_unread)
        if can_record:
            self.unread = still[~brought[still]]
            came[self.unread] = brought[still] = True
        if self._is_foreign is not None and self._is_loaded:
            came[still] |= self._ahead_at(self._is_foreign, self._size + still)
        doubtful = seen & (self._moves | self._takes_unique())
        for change in still[~brought[still]]:
            needless = seen[change] or (filtered and self._presence.has_before[change])
            if came[change] or self._presence.halved[change] or doubtful[change] or not needless:
                raise self._row_missing(int(change), copied=is_unread is not None)
        if is_unread is None:
            self._demand_own_rows(seen & to_mask(pc.is_in(lsns, value_set=left)))
        return self._without(batch, lacks, lsns.filter(pa.array(came))) if len(still) else batch

    def _demand_own_rows(self, seen: Mask) -> None:
        """Halts if a row with a new key takes values from the old key's row. The target may have the `seen` changes."""
        moved = self._moves & seen
        if not moved.any():
            return
        changes = self._unresolved(self._prev, before=False) - self._size
        changes = changes[self._passed(moved)[changes] & ~np.isin(self._size + changes, self._prev[: self._size])]
        for change in np.setdiff1d(changes, self.missing):
            raise Halted(
                "partial-row-image",
                f"the log has only a part of the row that got the key {self._key('after', int(change))}, and the "
                "target may already have this change. Then the target may have another row with the row's former key",
                where=self._where(int(change)),
                todo=f"Copy the table again: {RESYNC}",
            )

    def _takes_unique(self) -> Mask:
        """Returns which changes set a column by whose value safe mode may have removed the row."""
        names = self._giving_way.difference(self._table.identity, self._computed)
        places = [place for place, column in enumerate(self._table.columns) if column.name in names]
        taking: Mask = self._presence.has_before & self._presence.after[:, places].any(axis=1)
        return taking

    def unread_keys(self) -> tuple[pa.Array, pa.Table]:
        """Returns the Lsn of the change of each row in `unread`; and, in the same order, the keys of these rows."""
        names = list(self._table.identity)
        schema = self._table.arrow.empty_table().select(names).schema
        keys = pa.Table.from_arrays(self._keys("after", self.unread), schema=schema)
        return self._batch.rows.column("lsn").take(pa.array(self.unread)), keys

    def _without(self, batch: ChangeBatch, lacks: pa.BooleanArray, came: pa.Array) -> ChangeBatch:
        """Returns the changes without those that lack a column.

        If the Lsn of such a change is in `came`, the rows at its two keys are deleted. At these keys, the target may
        have a different row, or this row with other values, and a later change would use that row:

            the copy loads (3, u=3, a=0) and is interrupted   UPDATE 3 SET a = 1 is dropped, since 3 is read again
            the copy is settled up to 2                       UPDATE 3 SET id = 1 must not take a = 0 from the target
        """
        rows, table = batch.rows, batch.table
        gone = pc.and_(lacks, pc.is_in(rows.column("lsn").cast(pa.binary()), value_set=came))
        parts, places = [rows.filter(pc.invert(lacks))], [pc.indices_nonzero(pc.invert(lacks))]
        for side in ("before", "after") if table.identity else ():
            has = pc.and_(gone, rows.column(side).is_valid())
            lsns, keys = (rows.column(name).filter(has) for name in ("lsn", side))
            ops, nothing = pa.repeat(pa.scalar(int(Op.DELETE), pa.int8()), len(keys)), pa.nulls(len(keys), keys.type)
            parts.append(ChangeBatch.of(table, lsns, ops, keys, nothing).rows)
            places.append(pc.indices_nonzero(has))
        order = np.argsort(pa.concat_arrays(places).to_numpy(), kind="stable")
        return replace(batch, rows=pa.concat_batches(parts).take(pa.array(order)))

    def _chain(self) -> None:
        """Finds, for each node, the node that it continues."""
        size = self._size
        prev = np.full(self._nowhere + 1, self._nowhere)
        copied_there: Numbers = np.full(size, -1)
        self._moves: Mask = np.zeros(size, np.bool_)
        updated = np.nonzero(self._presence.has_before & self._presence.has_after)[0]
        inserted = np.nonzero(self._presence.has_after & ~self._presence.has_before & ~self._presence.halved)[0]
        prev[size + updated] = updated
        prev[size + inserted] = self._default
        self._root_nodes: Numbers = np.zeros(0, np.int64)
        if self._table.identity:
            leaves, arrives = (np.nonzero(mask)[0] for mask in (self._presence.has_before, self._presence.has_after))
            order = np.arange(size) + np.where(self._presence.copied, 0, size)
            moment = np.concatenate([2 * order[leaves], 2 * order[arrives] + 1])
            node = np.concatenate([leaves, size + arrives])
            number = key_numbers(merged([self._keys("before", leaves), self._keys("after", arrives)]))
            by_key = np.lexsort((moment, number))
            node, number = node[by_key], number[by_key]
            first = np.concatenate([[True], number[1:] != number[:-1]])
            earlier = np.concatenate([[self._nowhere], node[:-1]])
            leaving = node < size
            # If a row left its key earlier and no later change brought a row back, the key's next change continues no
            # node.
            prev[node[leaving]] = np.where(first | (earlier < size), self._nowhere, earlier)[leaving]
            self._root_nodes = node[leaving & first]
            numbers = np.full(2 * size, -1)
            numbers[node] = number
            moves = self._presence.has_before & self._presence.has_after & (numbers[:size] != numbers[size:])
            self._moves = moves
            self._arrives |= moves
            coming = ~leaving & moves[node % size]
            there = coming & ~first & (earlier >= size) & (earlier < 2 * size)
            there[there] = self._presence.copied[earlier[there] - size]
            copied_there[node[there] - size] = earlier[there]
            if self._read_early:
                self._comers = node[coming & first] - size
            prev[self._root_nodes] = self._root_nodes
            if self._is_ahead is not None:
                copied_there = self._without_uncertain(self._is_ahead, prev, copied_there, numbers, moves)
        self._copied_there = copied_there
        self._prev = prev

    def _without_uncertain(
        self, is_ahead: IsAhead, prev: Numbers, copied_there: Numbers, numbers: Numbers, moves: Mask
    ) -> Numbers:
        """Ends the chains of updates that might take columns from another row; returns the new `copied_there`.

        `numbers` are the keys of the nodes, `moves` the updates that give a row another key.
        """
        size, presence = self._size, self._presence
        comes = moves | (presence.has_after & ~presence.has_before & ~presence.copied)
        arrivals = np.bincount(numbers[size:][comes], minlength=int(numbers.max(initial=0)) + 1)
        stops = np.zeros(len(prev), np.bool_)
        stops[size : 2 * size] = presence.copied
        origin = self._follow(stops, prev)[:size]
        read = np.isin(origin, self._root_nodes)
        copies = (origin >= size) & (origin < 2 * size)
        read[copies] = presence.copied[origin[copies] - size]
        others = [place for place, column in enumerate(self._table.columns) if column.name not in self._table.identity]
        partial = np.nonzero(moves & read & ~presence.after[:, others].all(axis=1))[0]
        ahead = self._ahead_at(is_ahead, origin[partial])
        uncertain = partial[ahead | (arrivals[numbers[origin[partial]]] > 0)]
        prev[size + uncertain] = self._nowhere
        # The row that was read at a new key is certainly the moved row only if no other row moves to this key.
        coming = np.nonzero(copied_there >= 0)[0]
        alone = arrivals[np.maximum(numbers[size:], 0)] == 1
        alone[coming] &= ~self._ahead_at(is_ahead, size + coming)
        alone[self._comers] &= ~self._ahead_at(is_ahead, size + self._comers)
        self._comers = self._comers[alone[self._comers]]
        return np.where(alone, copied_there, -1)

    def _ahead_at(self, is_ahead: IsAhead, nodes: Numbers) -> Mask:
        """Whether the target may be ahead of the batch at the keys of these nodes."""
        names, found = self._table.identity, np.zeros(len(nodes), np.bool_)
        for side, mine in (("before", nodes < self._size), ("after", nodes >= self._size)):
            keys = zip(*(values.to_pylist() for values in self._keys(side, nodes[mine] % self._size)), strict=True)
            found[mine] = [is_ahead(key) for key in keys] if names else False
        return found

    def _keys(self, side: str, rows: Numbers) -> list[pa.Array]:
        return [values.take(pa.array(rows)) for values in image_columns(self._batch, side, self._table.identity)]

    def _follow(self, has: Mask, prev: Numbers) -> Numbers:
        """Returns, for each node, the first node along its chain that `has` the column."""
        step = np.where(has, np.arange(len(prev)), prev)
        while True:
            further = step[step]
            if np.array_equal(further, step):
                return step
            step = further

    def _is_always_logged(self, place: int) -> bool:
        presence = self._presence
        return bool(
            (presence.before[:, place] >= presence.has_before).all()
            and (presence.after[:, place] >= presence.has_after).all()
        )

    def _nodes_with_column(self, place: int, prev: Numbers) -> Mask:
        """Returns which nodes have a column; the target's rows have every column."""
        return np.concatenate([self._columns[:, place], np.ones(len(prev) - len(self._columns), np.bool_)])

    def _unresolved(self, prev: Numbers, *, before: bool) -> Numbers:
        """Returns the nodes whose chain lacks a needed column. Values of before images count only with `before`."""
        size = self._size
        found = np.zeros(2 * size, np.bool_)
        for place, column in enumerate(self._table.columns):
            if self._is_always_logged(place):
                continue
            has = self._nodes_with_column(place, prev)
            lacks = ~has[self._follow(has, prev)]
            found[size:] |= lacks[size : 2 * size] & self._presence.has_after
            if before and column.name in self._needed_before:
                found[:size] |= lacks[:size] & self._presence.has_before
        return np.nonzero(found)[0]

    def _with_rows(self, held: pa.Table) -> Numbers:
        """Returns the chains with the target's rows added at their ends."""
        prev = np.concatenate([self._prev, self._nowhere + 1 + np.arange(held.num_rows)])
        there = self._copied_there.copy()
        if len(self._roots) and held.num_rows:
            roots = len(self._roots)
            asked = self._asked()
            count = len(asked[0])
            numbers = key_numbers(merged([asked, chunkless(held, self._table.identity)]))
            wanted, found = numbers[:count], numbers[count:]
            order = np.argsort(found, kind="stable")
            at = np.minimum(np.searchsorted(found[order], wanted), len(found) - 1)
            row = order[at]
            hit = found[row] == wanted
            prev[self._roots[hit[:roots]]] = self._nowhere + 1 + row[:roots][hit[:roots]]
            there[self._comers[hit[roots:]]] = self._nowhere + 1 + row[roots:][hit[roots:]]
        # Rows that the target does not have at their old key may be at their new key.
        came = np.nonzero(there >= 0)[0]
        if len(came):
            begin = self._follow(np.zeros(len(prev), np.bool_), prev)[came]
            lost = came[np.isin(begin, self._root_nodes)]
            prev[self._size + lost] = there[lost]
        return prev

    def _gathered(self, prev: Numbers, held: pa.Table) -> ChangeBatch:
        size, rows = self._size, self._batch.rows
        before, after = rows.column("before"), rows.column("after")
        images: tuple[list[pa.Array], list[pa.Array]] = ([], [])
        fields = list(self._table.arrow)
        for place, field in enumerate(fields):
            parts = [pc.struct_field(image, [place]) for image in (before, after)]
            if field.name in self._computed and not self._table.identity:
                # MINIMAL logs the value only before the change. Images of one row are equal only if all of them have
                # the value, or none.
                for image in images:
                    image.append(pa.nulls(size, field.type))
                continue
            if self._is_always_logged(place):
                for image, part in zip(images, parts, strict=True):
                    image.append(part)
                continue
            has, nothing = self._nodes_with_column(place, prev), pa.nulls(1, field.type)
            default = self._defaults[place]
            ends = [nothing if default is None else default, nothing, *chunkless(held, [field.name])]
            pool = pa.concat_arrays([*parts, *ends])
            step = self._follow(has, prev)
            for number, image in enumerate(images):
                image.append(pool.take(pa.array(step[number * size : (number + 1) * size])))
        full = [
            pa.StructArray.from_arrays(columns, fields=fields, mask=pa.array(~has))
            for columns, has in zip(images, (self._presence.has_before, self._presence.has_after), strict=True)
        ]
        return replace(self._batch, rows=ChangeBatch.of(self._table, rows.column("lsn"), rows.column("op"), *full).rows)

    def _check_computed(self) -> None:
        """Halts if an UPDATE lacks only generated columns: MariaDB 11.8 logs no such columns, even if they changed.

        Under MINIMAL, an UPDATE lacks other columns, too: those that it has not changed.
        """
        generated = np.array([column.generated for column in self._table.columns])
        presence = self._presence
        updates = presence.has_before & presence.has_after & presence.after[:, ~generated].all(axis=1)
        lacks = updates[:, None] & ~presence.after & generated
        if lacks.any():
            change, place = (int(found[0]) for found in np.nonzero(lacks))
            column = self._table.columns[place].name
            raise Halted(
                "partial-row-image",
                f"the log does not have the value of the generated column {column} after an update",
                where=self._where(change),
                todo="Make the column a generated column on the target, too, or leave the table out by "
                "block-allow-list",
            )

    def _where(self, change: int) -> Where:
        lsn = Lsn.from_bytes(self._batch.rows.column("lsn")[change].as_py())
        return Where(table=str(self._table.name), position=str(lsn))

    def _passed(self, arrives: Mask) -> Mask:
        """Returns which changes concern rows that got their key within the batch, by one of these changes."""
        size, prev = self._size, self._prev
        arrived = np.zeros(len(prev), np.bool_)
        arrived[size : 2 * size] = arrives
        step = prev
        while True:
            reached = arrived | arrived[step]
            further = step[step]
            if np.array_equal(reached, arrived) and np.array_equal(further, step):
                return arrived[size : 2 * size]
            arrived, step = reached, further

    def _brought(self, changes: Numbers, came: Mask, is_unread: IsUnread) -> Mask:
        """Returns the changes whose row the copy still reads, or a later change of the batch removes."""
        size = self._size
        brought = np.zeros(size, np.bool_)
        brought[changes] = True
        judged = changes[came[changes] & ~np.isin(size + changes, self._prev[:size])]
        if not self._table.identity:
            brought[judged] = False
            return brought
        keys = zip(*(values.to_pylist() for values in self._keys("after", judged)), strict=True)
        brought[judged] = [is_unread(key) for key in keys]
        if self._is_foreign is not None:
            kept = changes[~came[changes]]
            keys = zip(*(values.to_pylist() for values in self._keys("after", kept)), strict=True)
            brought[kept] = [is_unread(key) for key in keys]
            brought[kept] |= ~self._ahead_at(self._is_foreign, size + kept)
        if self._is_ahead is not None:
            brought[judged] &= ~self._ahead_at(self._is_ahead, size + judged)
            # At this place in the log, another row still has the unique value of a row that the copy loaded ahead. When
            # that other row was written, the target may have lost the loaded row.
            unique = self._needed_before.difference(self._table.identity)
            places = [place for place, column in enumerate(self._table.columns) if column.name in unique]
            takes = changes[~came[changes] & self._presence.after[changes][:, places].any(axis=1)]
            brought[takes] = ~self._ahead_at(self._is_ahead, size + takes)
        return brought

    def _row_missing(self, change: int, *, copied: bool) -> Halted:
        where = self._where(change)
        if self._presence.halved[change]:
            return Halted(
                "partial-row-image",
                "the log has only a part of a row whose key changes, and the row's old key and its new key are written "
                "by two workers",
                where=where,
                todo=f"Set worker-count: 1 and start again. Or: {_FULL}",
            )
        if not self._presence.has_before[change]:
            return Halted(
                "partial-row-image",
                "an inserted row lacks a column whose default is not known",
                where=where,
                todo=_FULL,
            )
        key = self._key("before", change)
        if copied:
            return Halted(
                "partial-row-image",
                f"the log has only a part of the updated row with {key}. The row got another key or unique value while "
                "its table is being copied, so the values of its other columns are not certain",
                where=where,
                todo=KEEP_KEYS.format(table=shlex.quote(str(self._batch.origin))),
            )
        return Halted(
            "row-missing",
            f"the log has only a part of the updated row with {key}, and the target does not have this row",
            where=where,
            todo=f"The target differs from the source. Copy the table again: {RESYNC}",
        )

    def _key(self, side: str, change: int) -> str:
        names = self._table.identity
        values = image_columns(self._batch, side, names)
        return ", ".join(f"{name} = {value[change]}" for name, value in zip(names, values, strict=True))
