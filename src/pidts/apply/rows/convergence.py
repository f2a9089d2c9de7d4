"""Makes zones converge if all of them accept writes: of all writes to a row, every zone ends with the same write.

A task file asks for convergence with `pidts.conflict: version`. A zone has a *state* for each key: a row, a tombstone,
or nothing. States have a total order, which is the same in every zone, since it depends only on the states:

    nothing  <  a row of version 1  <  the tombstone of a row of version 1  <  a row of version 2  <  ...

If two rows have the same version, their values decide, as texts: the higher text is the later row. The name of the
writing zone could decide instead. But no column names the zone that wrote a row, and a record of it would cost a second
row for each written row.

A change is applied if its state is later than the zone's state. Otherwise it is ignored. So a zone's state is the
latest of all states that have arrived, in whatever order and however often they arrived. Two claims are left to prove:
the latest write reaches each zone, and a zone's state never goes back. (In the examples below, all rows have the same
key, and "row 5" is a row of version 5.)

**The latest write arrives.** No zone on the path of the latest write ignores it. So each of these zones has the write
in its log, with its version. A DELETE in the log has the version of the zone's own row. If the zone has no row, or a
row of another version, the removed row is written first, in the same transaction. Two examples of what would happen
without this write:

    ring b -> c -> a    b inserts row 5 and deletes it. Both changes reach c in one batch, and c has nothing to delete,
                        so c's log has no DELETE. Zone a keeps its row 4
    b -> x, b -> g, x -> g, g -> h    x deletes row 5 of b. Zone g, which still has row 4, passes on a DELETE of version
                        4. Zone h keeps row 5

If two zones write equal rows, the two rows are one state. A zone that has the first row ignores the second one, so its
log does not have the second row. Whether another zone then misses the row depends on the shape:

- In a mesh, each change reaches each zone by one task, so nothing is missed.
- In a ring, let r be the last zone before d that wrote the row. Suppose that a zone between r and d ignores r's row. No
  write is later, so this zone already has the row. This zone did not write the row, so the row came through r. Then r
  had the row before r's own program wrote it. But a program's write has to be later than its zone's state before it
  (see below). So no zone between r and d ignores r's row, and the row reaches d.
- In a star or a line, the paths of both rows to d meet in one zone. That zone passes on the row that arrives first.
- For other shapes, it is not proved that nothing is missed.

**A program's write** is applied in its own zone without a comparison. So the written state has to be later than the
zone's state before it. Each change of a row must raise its version, and a new row must have a higher version than every
deleted row with its key. Two counterexamples:

    a has row 7 of b, whose clock is ahead, and makes it 5        a has 5, all others 7, until a write of 8 or higher
    a deletes row 5 and inserts it again as version 1             row 1 is answered (below), so no zone keeps it

A program's write that does not raise the version looks like an old change that arrives late. So the tasks that read the
zone's log ignore such a write, and log a warning if the log shows both versions. `VersionGuard`, for zones that need
not converge, uses another rule: it applies a new row after a tombstone if the source logged the tombstone before the
row, whatever the versions. Between zones that have to converge, this rule does not work:

    a has row 5, deletes it, inserts 1      b has row 2 and makes it 3      all of a's changes reach b, then b's reach a
    b: 3, 5, none, 1                        a: 1, 3                         not equal

**A program's DELETE** leaves no tombstone in its own zone, and an older change may arrive there after it:

    a and c have row 5 of b;  a deletes it;  c's older 4 reaches a          a has 4, all others none

Two solutions are possible. In the first, the task that reads a's log writes tombstones into a. But the tasks that write
to a would have to wait until that task has seen each DELETE. Each new row would cause such a wait, since it finds
nothing under its key, and the task of the other direction may not even run. The second solution was chosen: the DELETE
*returns*. Suppose that a task removes a row in zone g because of a change of zone a. Then the task from g to a carries
this removal back to a. The proof: let row 4 reach a from a's neighbour g. When a's DELETE arrives at g, g has had row 4
already; otherwise the tombstone of this DELETE would stop row 4 at g. Then g has one of these states:

    a row up to version 5      it is removed, and its DELETE returns to a after 4, with the row's version: 4 or later
    a later row                it reaches a, too, and is later than 4
    nothing                    another DELETE has removed 4 at g. It reaches a after 4, or before 4 as a tombstone

A returned DELETE carries the state of a tombstone that a already has, or should have. So it does no harm, however late
it comes. If a task removes a row and writes it again in one transaction, the row does not count as deleted, and no
DELETE returns (`pidts.batch.returned`). `pidts.batch.transaction_classifier` finds the transactions with DELETEs that
return.

**A row that a tombstone keeps out** is *answered*: the task writes the row with the tombstone's version, and removes it
in the same transaction. This DELETE returns to the zone that the row came from, and arrives there after the row. Zones
that were empty at the beginning do not need this. But a zone that joins with rows of its own never gets the DELETEs
that were made before (`pidts.task.checks.joining.both_have_rows`):

    b has deleted row 5, so a has a tombstone;  c joins with row 4          c has 4, all others none

An answer is a state that the zones have already, so it does no harm. An answer has the tombstone's version, since only
the last DELETE of a key returns:

    c deletes row 7, and a removes it;  row 6 of c reaches a        with an answer of version 6, DELETE 7 never returns

**A row without a column** that a program has just added in the target's zone is written with the column's default
(`_with_defaults` in `pidts.apply.prepare`). The row's own zone does the same when the schema change arrives there. If
the target's row kept its value, zones would differ although they have the same version.

**Two writers of one zone.** After a task has read a state and before it writes, no program and no other task may change
the state, even if the state is "nothing". So sessions are serializable, which locks the gaps between keys. Otherwise:

    task 1 finds nothing;  task 2 finds nothing, writes a tombstone of 6;  task 1 writes row 5        a has 5

**Which tables converge.** A table converges if it has the version column, a primary key that all servers compare by its
bytes, and no other unique key. With another unique key, a row might take the unique value of another row, which is a
conflict of two rows. In all other tables, rows that differ are locked (`pidts.apply.locks`).

A tombstone is kept for seven days in the meta schema of each zone that a task writes to (`pidts.target.tombstones`). If
an earlier change of a deleted row arrives later than that, the row may appear again.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import structlog

from pidts.apply.rows.same_row import plain_values, values_differ
from pidts.apply.rows.target_rows import may_fold
from pidts.apply.rows.tombstone_keys import value_texts
from pidts.apply.rows.version_column import can_be_version
from pidts.apply.rows.version_guard import NOTHING, ROW, TOMBSTONE, GuardedBatch, VersionGuard
from pidts.model import Halted, Lsn, Op, Table, Where
from pidts.reduce.key_numbers import Mask, Numbers, chunkless

_log = structlog.get_logger(__name__)


def why_not(table: Table, version_column: str) -> str:
    """Returns why the rows of a table cannot converge by their versions; an empty text if they can."""
    if version_column not in table.arrow.names:
        return f"it has no column {version_column}"
    if not can_be_version(table.column(version_column)):
        return f"{version_column} has type {table.column(version_column).type.kind}, which servers compare differently"
    primary = next((key for key in table.keys if key.primary), None)
    if primary is None or primary.columns != table.identity:
        return "it has no primary key"
    if may_fold(table):
        return "its key has a collation by which different texts are equal"
    if any(key.declared_unique for key in table.keys if not key.primary):
        return "it has a unique key besides its primary key"
    return ""


def converges(table: Table, version_column: str) -> bool:
    """Whether the rows of a table can converge by their versions."""
    return not why_not(table, version_column)


class Convergence(VersionGuard):
    """Decides which changes of one table are later than the zone's state."""

    @property
    def likely_tied(self) -> Numbers:
        """Returns no key: programs raise the version with each change, so versions are rarely equal."""
        return np.zeros(0, np.int64)

    def _looks_at_ties(self) -> Mask:
        return ~self._deletes

    def decide(self, rows: pa.Table, at: Numbers) -> GuardedBatch:
        """Decides which changes are applied. `rows`: the full rows of `tied`; `at`: each key's index in them, or -1."""
        kind, held = self._found.kind, self._found.rank
        level = 2 * self._rank + self._deletes
        there = np.where(kind == NOTHING, -1, 2 * held + (kind == TOMBSTONE))
        before = _latest_before(level, there, self._first, self._key)
        applied = level > before
        for key in np.unique(self._key[(level == before) & ~self._deletes]):
            row = rows.slice(int(at[key]), 1) if kind[key] == ROW and at[key] >= 0 else None
            mine = np.arange(*np.searchsorted(self._key, [key, key + 1]))
            applied[mine] = self._one_by_one_from(mine, level, int(there[key]), row)
        self._demand_whole(applied, before)
        self._report(applied)
        return replace(self._verdict(applied), shown=self._shown(applied, there), answered=self._answered(applied))

    def _demand_whole(self, applied: Mask, before: Numbers) -> None:
        """Halts at an UPDATE that is applied to a row of the target, if the log lacks some of the update's columns.

        These columns were taken from the target's row. An example: both zones have version 1 of a row, with blob p. One
        zone makes version 2, with blob q. In the other zone, a session with NOBLOB makes version 3, and its image lacks
        the blob. Without the halt, the first zone would have version 3 with q, and the other zone version 3 with p.

        Even a row of the same version may be another row: two zones have changed the same row, or have inserted the
        same key. So no row of the target counts as the row that was changed.
        """
        if self._known is None:
            return
        lacks = self._lacks()
        at_old_key = self._deletes | ~self._moved[self._change]
        other = lacks & at_old_key & (before >= 0)
        found = np.nonzero(np.isin(self._change, self._change[other]) & applied & ~self._deletes)[0]
        if len(found):
            raise Halted(
                "partial-row-image",
                "the log has only a part of a row, and the rest of the row may differ in this zone",
                where=Where(
                    table=str(self._table.name),
                    key=self.texts(self._key[found[:1]])[0].as_py(),
                    position=str(Lsn.from_bytes(self._lsn(int(self._change[found[0]])))),
                ),
                todo="Run SET GLOBAL binlog_row_image=FULL in the zone that has made the change, and let its sessions "
                "reconnect. To get past this change, write the whole row to the target with a higher version than the "
                "change has",
            )

    def _lacks(self) -> Mask:
        """Returns which changes are UPDATEs of which the log has only some columns."""
        if self._known is None:
            return np.zeros(len(self._key), np.bool_)
        plain = np.array([not column.generated for column in self._table.columns])
        return np.asarray((self._op == Op.UPDATE) & ~self._known[self._change][:, plain].all(axis=1), np.bool_)

    def _shown(self, applied: Mask, there: Numbers) -> pa.Table:
        """Returns the removed rows that have to be written before they are removed.

        Returns rows of which the target has another version or none. No row is returned for a DELETE that a task
        carries back to its own zone.
        """
        gone = self._last_deletes(applied)
        returned = self._batch.rows.column("after").is_valid().to_numpy(zero_copy_only=False)
        returned &= self._batch.rows.column("op").to_numpy() == Op.DELETE
        gone = gone[(there[self._key[gone]] != 2 * self._rank[gone]) & ~returned[self._change[gone]]]
        images = self._batch.rows.column("before").take(pa.array(self._change[gone]))
        return pa.Table.from_arrays(images.flatten(), schema=self._table.arrow)

    def _answered(self, applied: Mask) -> pa.Table:
        """Returns one row for each key that a tombstone of the target keeps out, with the tombstone's version.

        An UPDATE without all columns cannot be written, and needs no answer: the row before the UPDATE has got one.
        """
        is_buried = self._found.kind == TOMBSTONE
        is_buried[self._key[applied]] = False
        kept_out = np.nonzero(is_buried[self._key] & ~self._deletes & ~self._lacks())[0]
        self._report_removed(kept_out)
        _, first = np.unique(self._key[kept_out], return_index=True)
        kept_out = kept_out[first]
        images = self._batch.rows.column("after").take(pa.array(self._change[kept_out]))
        rows = pa.Table.from_arrays(images.flatten(), schema=self._table.arrow)
        assert self._found.removed is not None  # noqa: S101 - `look` has read it
        place = rows.schema.get_field_index(self._version.name)
        return rows.set_column(place, rows.schema.field(place), self._found.removed.take(pa.array(self._key[kept_out])))

    def _report_removed(self, kept_out: Numbers) -> None:
        """Logs a warning about new rows that a tombstone keeps out: their own zone will lose them, too."""
        new = kept_out[self._op[kept_out] == Op.INSERT]
        if len(new):
            _log.warning(
                "inserted rows are removed in all zones, since rows with their keys were deleted with the same or a "
                "higher version",
                table=str(self._table.name),
                column=self._version.name,
                changes=len(new),
                keys=self.texts(np.unique(self._key[new])[:3]).to_pylist(),
            )

    def _one_by_one_from(self, events: Numbers, level: Numbers, best: int, row: pa.Table | None) -> list[bool]:
        """Returns which changes of a key are applied. Some changes have the same version as the state before them."""
        text = _texts(self._table, row)[0] if row is not None else ()
        applied = []
        for event in events:
            mine = self._text(event) if not self._deletes[event] else ()
            is_later = (int(level[event]), mine) > (best, text)
            if is_later:
                best, text = int(level[event]), mine
            applied.append(is_later)
        return applied

    def _text(self, event: int) -> tuple[str, ...]:
        image = self._batch.rows.column("after").slice(int(self._change[event]), 1)
        return _texts(self._table, pa.Table.from_arrays(image.flatten(), schema=self._table.arrow))[0]

    def _report(self, applied: Mask) -> None:
        """Logs a warning about updates that do not raise the version. Only the zone that made them keeps these rows."""
        low = ~applied & (self._op == Op.UPDATE) & ~self._deletes & (self._rank <= self._made_from)
        if low.any():
            keys = self.texts(np.unique(self._key[low])[:3]).to_pylist()
            _log.warning(
                "updates that do not raise the version are left out",
                table=str(self._table.name),
                column=self._version.name,
                changes=int(low.sum()),
                keys=keys,
            )


def _latest_before(level: Numbers, there: Numbers, first: Mask, key: Numbers) -> Numbers:
    """Returns the latest state of each change's key before the change. The changes are sorted by key."""
    span = int(max(level.max(initial=0), there.max(initial=0))) + 2
    run = np.maximum.accumulate(level + 1 + key * span) - key * span - 1
    earlier = np.concatenate([[-1], run[:-1]]) if len(run) else run
    found: Numbers = np.maximum(np.where(first, -1, earlier), there[key])
    return found


def _texts(table: Table, rows: pa.Table) -> list[tuple[str, ...]]:
    """Returns the texts that order rows of one version.

    Leaves out columns whose value a server may return in another form than the log contains (`values_differ`).
    """
    columns = sorted(
        (column for column in table.columns if not values_differ(column)), key=lambda column: column.name.lower()
    )
    texts = [value_texts(plain_values(column, chunkless(rows, [column.name])[0])).to_pylist() for column in columns]
    return [tuple("" if text is None else f"={text}" for text in row) for row in zip(*texts, strict=True)]
