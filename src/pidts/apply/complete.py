"""Full images for changes that the log tells in part (`binlog_row_image` MINIMAL and NOBLOB).

What an image leaves out is somewhere: an after image leaves out what the update did not change, so its before image has
it; what that leaves out is what the row held before, by the change before this one in the batch or by the target's row.
An INSERT leaves out what was not named: the column's default. Never is NULL written because nothing was told:

    UPDATE t SET a = 1 WHERE id = 7     before {id: 7}, after {a: 1}; b stays what the target's row 7 has

**Pointers instead of values.** Every image is a node and knows the node that it continues: an after image its before
image, that one the after image which made the row, or the target's row. For each column a vector of node numbers is
followed until each points at a node that holds the column, by doubling: a hot row with a thousand updates takes ten
rounds. Then one `take` per column gathers the values.

The target is asked for nothing unless a value that is written can come from nowhere else. Of a before image only the
key and the columns of unique keys count: the server may leave out anything else (MariaDB 11.8 leaves out generated
columns) and nobody reads the target for it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pidts.apply.defaults import default_value
from pidts.apply.keys import Mask, Numbers, chunkless, key_numbers, merged, to_mask
from pidts.model import ChangeBatch, Halted, Lsn, Op, Where
from pidts.reduce.identity import image_columns

_FULL = "Run SET GLOBAL binlog_row_image=FULL on the source, let its sessions reconnect, and copy the table again"


@dataclass(frozen=True, slots=True)
class Told:
    """Which images a batch's changes have, and which columns each holds: one row per change, one place per column."""

    has_before: Mask
    has_after: Mask
    copied: Mask
    halved: Mask
    """Inserts that were the second half of an update: what they leave out is in a row that is gone."""
    before: Mask
    after: Mask


def told_columns(batch: ChangeBatch) -> Told:
    """Read the bitmaps of `partial`."""
    width = len(batch.table.columns)
    op = batch.rows.column("op").to_numpy()
    has_before, has_after = (op == Op.UPDATE) | (op == Op.DELETE), op != Op.DELETE
    before, after = (np.repeat(has[:, None], width, axis=1) for has in (has_before, has_after))
    halved = np.zeros(len(batch), np.bool_)
    encoded = batch.rows.column("partial").dictionary_encode()
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    step = (width + 7) // 8
    for number, data in enumerate(encoded.dictionary.to_pylist()):
        bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little").astype(np.bool_)
        mine = codes == number
        before[mine & has_before] = bits[:width]
        after[mine & has_after] = bits[(len(data) - step) * 8 :][:width]
        halved |= mine & (op == Op.INSERT) & (len(data) > step)
    return Told(has_before, has_after, op == Op.COPY, halved, before, after)


class Completion:
    """The images of one table's changes in log order: ask for the rows of `keys`, then for `images`, then `written`."""

    def __init__(self, batch: ChangeBatch, needed_before: Collection[str] = (), computed: Collection[str] = ()) -> None:
        """`computed` are columns that the target computes by itself, so that their values are not asked for."""
        self._batch, self._table, self._size = batch, batch.table, len(batch)
        self._default, self._nowhere = 2 * self._size, 2 * self._size + 1
        self._defaults = [default_value(column) for column in self._table.columns]
        self._told = told_columns(batch)
        for place, column in enumerate(self._table.columns):
            if column.name in computed:
                self._told.before[:, place] = self._told.after[:, place] = True
        self._columns = np.vstack(
            [
                self._told.before,
                self._told.after,
                np.array([[value is not None for value in self._defaults], [False] * len(self._defaults)]),
            ]
        )
        self._chain()
        self.missing: Numbers = np.zeros(0, np.int64)
        unique = (name for key in self._table.secondary_unique for name in key.columns)
        self._needed_before = {*self._table.identity, *unique, *needed_before}
        if not self._table.identity:  # a row without a key is found by all that it holds
            self._needed_before |= set(self._table.arrow.names)
        origin = self._follow(np.zeros(len(self._prev), np.bool_), self._prev)
        waiting = np.unique(origin[self._unresolved(self._prev, before=True)])
        self._roots: Numbers = waiting[np.isin(waiting, self._root_nodes)]
        """Before images that continue a row of the target."""

    @property
    def keys(self) -> pa.Table:
        """The identities whose rows the images need; each one once."""
        names = list(self._table.identity)
        if not len(self._roots):
            return self._table.arrow.empty_table().select(names)
        rows = pa.array(self._roots)
        columns = [values.take(rows) for values in image_columns(self._batch, "before", names)]
        return pa.Table.from_arrays(columns, schema=self._table.arrow.empty_table().select(names).schema)

    def images(self, held: pa.Table) -> ChangeBatch:
        """The batch with full images, `held` being the target's rows of `keys`.

        What a change of `missing` leaves out is nowhere, and NULL in here: it must not be written, see `written`.
        """
        self._check_computed()
        prev = self._with_rows(held)
        self.missing = np.unique(self._unresolved(prev, before=not self._table.identity) % self._size)
        return self._gathered(prev, held)

    def written(
        self, batch: ChangeBatch, *, copying: bool = False, filtered: bool = False, seen_until: Lsn | None = None
    ) -> ChangeBatch:
        """What is to be written of the full images; halts at a change that needs a row which the target does not have.

        Two kinds of rows may be missing. While the table is being `copying`, one that the copy has not reached: it will
        bring it as it is by then, unless the update moves it to where the copy has been. And where the target may have
        seen the log up to `seen_until` already, one that is deleted later in it. These updates are left out, and so are
        those of rows that the task's filters have kept away (`filtered`).
        """
        if not len(self.missing):
            return batch
        lsns = self._batch.rows.column("lsn").cast(pa.binary())
        told = batch.rows.column("lsn").cast(pa.binary())
        lacks = pc.and_(
            pc.is_in(told, value_set=lsns.take(pa.array(self.missing))),
            pc.not_equal(batch.rows.column("op"), int(Op.DELETE)),
        )
        still = self.missing[to_mask(pc.is_in(lsns, value_set=told.filter(lacks)))[self.missing]]
        for change in still:
            seen = seen_until is not None and lsns[int(change)].as_py() <= seen_until.to_bytes()
            if not seen and not filtered and not (copying and not self._moved(int(change))):
                raise self._row_missing(int(change))
        return replace(batch, rows=batch.rows.filter(pc.invert(lacks))) if len(still) else batch

    def _chain(self) -> None:
        """The node that each node continues; -1 only in passing."""
        size = self._size
        prev = np.full(self._nowhere + 1, self._nowhere)
        updated = np.nonzero(self._told.has_before & self._told.has_after)[0]
        inserted = np.nonzero(self._told.has_after & ~self._told.has_before & ~self._told.halved)[0]
        prev[size + updated] = updated
        prev[size + inserted] = self._default
        self._root_nodes: Numbers = np.zeros(0, np.int64)
        if self._table.identity:
            leaves, arrives = (np.nonzero(mask)[0] for mask in (self._told.has_before, self._told.has_after))
            order = np.arange(size) + np.where(self._told.copied, 0, size)
            moment = np.concatenate([2 * order[leaves], 2 * order[arrives] + 1])
            node = np.concatenate([leaves, size + arrives])
            number = key_numbers(merged([self._keys("before", leaves), self._keys("after", arrives)]))
            by_key = np.lexsort((moment, number))
            node, number = node[by_key], number[by_key]
            first = np.concatenate([[True], number[1:] != number[:-1]])
            earlier = np.concatenate([[self._nowhere], node[:-1]])
            leaving = node < size
            # What left its key before and came back by nothing in the log continues nothing.
            prev[node[leaving]] = np.where(first | (earlier < size), self._nowhere, earlier)[leaving]
            self._root_nodes = node[leaving & first]
        prev[self._root_nodes] = self._root_nodes
        self._prev = prev

    def _keys(self, side: str, rows: Numbers) -> list[pa.Array]:
        return [values.take(pa.array(rows)) for values in image_columns(self._batch, side, self._table.identity)]

    def _follow(self, told: Mask, prev: Numbers) -> Numbers:
        """For each node, the first one along its chain that is told."""
        step = np.where(told, np.arange(len(prev)), prev)
        while True:
            further = step[step]
            if np.array_equal(further, step):
                return step
            step = further

    def _all_told(self, place: int) -> bool:
        told = self._told
        return bool((told.before[:, place] >= told.has_before).all() and (told.after[:, place] >= told.has_after).all())

    def _column_told(self, place: int, prev: Numbers) -> Mask:
        """With the target's rows, which hold everything."""
        return np.concatenate([self._columns[:, place], np.ones(len(prev) - len(self._columns), np.bool_)])

    def _unresolved(self, prev: Numbers, *, before: bool) -> Numbers:
        """Nodes that need a column which their chain does not hold."""
        size = self._size
        found = np.zeros(2 * size, np.bool_)
        for place, column in enumerate(self._table.columns):
            if self._all_told(place):
                continue
            told = self._column_told(place, prev)
            lacks = ~told[self._follow(told, prev)]
            found[size:] |= lacks[size : 2 * size] & self._told.has_after
            if before and column.name in self._needed_before:
                found[:size] |= lacks[:size] & self._told.has_before
        return np.nonzero(found)[0]

    def _with_rows(self, held: pa.Table) -> Numbers:
        """The chains continued into the target's rows."""
        prev = np.concatenate([self._prev, self._nowhere + 1 + np.arange(held.num_rows)])
        if len(self._roots) and held.num_rows:
            count = len(self._roots)
            columns = chunkless(held, self._table.identity)
            numbers = key_numbers(merged([self._keys("before", self._roots), columns]))
            wanted, found = numbers[:count], numbers[count:]
            order = np.argsort(found, kind="stable")
            at = np.minimum(np.searchsorted(found[order], wanted), len(found) - 1)
            row = order[at]
            hit = found[row] == wanted
            prev[self._roots[hit]] = self._nowhere + 1 + row[hit]
        return prev

    def _gathered(self, prev: Numbers, held: pa.Table) -> ChangeBatch:
        size, rows = self._size, self._batch.rows
        before, after = rows.column("before"), rows.column("after")
        images: tuple[list[pa.Array], list[pa.Array]] = ([], [])
        fields = list(self._table.arrow)
        for place, field in enumerate(fields):
            parts = [pc.struct_field(image, [place]) for image in (before, after)]
            if self._all_told(place):
                for image, part in zip(images, parts, strict=True):
                    image.append(part)
                continue
            told, nothing = self._column_told(place, prev), pa.nulls(1, field.type)
            default = self._defaults[place]
            ends = [nothing if default is None else default, nothing, *chunkless(held, [field.name])]
            pool = pa.concat_arrays([*parts, *ends])
            step = self._follow(told, prev)
            for number, image in enumerate(images):
                image.append(pool.take(pa.array(step[number * size : (number + 1) * size])))
        full = [
            pa.StructArray.from_arrays(columns, fields=fields, mask=pa.array(~has))
            for columns, has in zip(images, (self._told.has_before, self._told.has_after), strict=True)
        ]
        return replace(self._batch, rows=ChangeBatch.of(self._table, rows.column("lsn"), rows.column("op"), *full).rows)

    def _check_computed(self) -> None:
        """MariaDB 11.8 leaves generated columns out of an UPDATE that tells all the others, also where they changed.

        Under MINIMAL, what is left out is what did not change.
        """
        generated = np.array([column.generated for column in self._table.columns])
        told = self._told
        updates = told.has_before & told.has_after & told.after[:, ~generated].all(axis=1)
        lacks = updates[:, None] & ~told.after & generated
        if lacks.any():
            change, place = (int(found[0]) for found in np.nonzero(lacks))
            column = self._table.columns[place].name
            raise Halted(
                "partial-row-image",
                f"the log does not tell what the generated column {column} holds after an update",
                where=self._where(change),
                todo="Make it a generated column on the target too, or leave the table out by block-allow-list",
            )

    def _where(self, change: int) -> Where:
        lsn = Lsn.from_bytes(self._batch.rows.column("lsn")[change].as_py())
        return Where(table=str(self._table.name), position=str(lsn))

    def _moved(self, change: int) -> bool:
        """Whether this update gives its row another key."""
        update = replace(self._batch, rows=self._batch.rows.slice(change, 1))
        return bool(_moves(update).any())

    def _row_missing(self, change: int) -> Halted:
        where = self._where(change)
        if not self._told.has_before[change]:
            return Halted(
                "partial-row-image", "an inserted row lacks a column whose default is computed", where=where, todo=_FULL
            )
        names = self._table.identity
        values = image_columns(self._batch, "before", names)
        key = ", ".join(f"{name} = {value[change]}" for name, value in zip(names, values, strict=True))
        return Halted(
            "row-missing",
            f"the log tells an update of the row with {key} in part, and the target does not have the row",
            where=where,
            todo="The target has diverged: copy the table again (a new task with task-mode: all)",
        )


def keyed(batch: ChangeBatch) -> ChangeBatch:
    """Give each after image the key that it leaves out because the update did not change it.

    Everything that deals changes by their keys needs it; values are completed later, where the target can be asked.
    """
    if not batch.is_partial or not batch.table.identity:
        return batch
    rows, table = batch.rows, batch.table
    told = told_columns(batch)
    after = rows.column("after")
    fields = list(table.arrow)
    columns = after.flatten()
    for name in table.identity:
        place = table.arrow.get_field_index(name)
        old = pc.struct_field(rows.column("before"), [place])
        columns[place] = pc.if_else(pa.array(told.after[:, place]), columns[place], old)
    filled = pa.StructArray.from_arrays(columns, fields=fields, mask=after.is_null())
    arrays = [filled if field == "after" else rows.column(field) for field in rows.schema.names]
    return replace(batch, rows=pa.RecordBatch.from_arrays(arrays, schema=rows.schema))


def _moves(batch: ChangeBatch) -> Mask:
    """Updates that give their row another key."""
    moved = np.zeros(len(batch), np.bool_)
    updated = to_mask(pc.equal(batch.rows.column("op"), int(Op.UPDATE)))
    names = batch.table.identity
    for old, new in zip(image_columns(batch, "before", names), image_columns(batch, "after", names), strict=True):
        moved |= to_mask(pc.not_equal(old, new))
    return moved & updated
