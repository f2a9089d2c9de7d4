"""Writes changes of a table without a key as row events: updates, deletes and inserts of whole rows.

A change of this table is a number of copies to remove and a number of copies to add. It does not matter which removed
copy belongs to which new copy. So if a removed and a new copy have the same values in all indexed columns, they become
one update (`paired`). This takes the server about half as long as a DELETE and an INSERT, since no index changes. If
the account lacks the privilege UPDATE, there are no updates.

An event that updates or removes a row contains all columns of the row. The server finds a row by an index, or reads the
table, and compares the bytes of all columns. Each event changes one copy, and a missing copy is an error. If the
target's table has a unique key, the server would compare only this key: then SQL removes the rows.

If no index is selective, the server reads much of the table for each row. Then SQL is faster, since one statement
searches for many rows. No statistics show this for certain. So the first events have few rows, and the server then says
how many rows it has read for them. If it has read too many, or if an event takes long, SQL removes the other rows.
After that, the new rows that no update has written are inserted.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pidts.binlog.events import EventType
from pidts.model import TableName
from pidts.prefetch import ahead
from pidts.reduce.key_numbers import Numbers, chunkless, key_numbers, merged
from pidts.target.mysql.row_events.statements import RowLayout, encoded, portions
from pidts.target.mysql.statement_pipeline import StatementPipeline
from pidts.target.text import combined

_PAUSE = 100
"""The number of a table's changes whose rows SQL removes, after the server has read many rows to find one."""
_FIRST_COPIES, _GROWTH = 1, 8
"""The number of copies in the first event of a change, and the factor by which the number grows with each event."""
_MOST_COPIES, _MANY_COPIES = 1_000, 100
"""The largest number of copies that one event updates or removes, and the largest number of copies of one row that
events remove.

To find the next copy of a row, the server reads all copies that it has already removed. So SQL removes the rows with
more copies: one statement removes all these copies.
"""
_READS, _FIRST_READS = 64, 1000
"""SQL is faster if, for n rows, the server reads more than `_FIRST_READS` + n * `_READS` rows."""
_SLOW_SECONDS, _SLOW_START = 0.0003, 0.5
"""SQL is faster if an event with n rows takes more than `_SLOW_START` + n * `_SLOW_SECONDS` seconds.

Time is also measured because the server does not count all rows that it reads: for each row, it reads again the rows
that the transaction has removed.
"""
_READ_SO_FAR = b"SHOW SESSION STATUS LIKE 'Handler_read%next'"
"""Shows how many rows the session has read by an index, and how many without one."""

Executed = Callable[[TableName, Iterable[bytes]], bool]
"""Executes statements with row events. Returns False if one is refused; then none of them has an effect."""
_Images = Callable[[int, int], pa.Array | None]
"""Returns the images of the rows from the first index to the second; None if a value cannot be encoded."""


@dataclass(frozen=True, slots=True)
class CopiesLeft:
    """The rows of a change that no event has written."""

    deletes: pa.Table
    times: pa.Int64Array
    """For each of `deletes`, the number of copies to remove."""
    upserts: pa.Table


class CopyEvents:
    """Writes one change of a table without a key."""

    def __init__(
        self,
        pipeline: StatementPipeline,
        execute: Executed,
        size: int,
        layout: RowLayout,
        indexed: Sequence[str],
        slow: Counter[TableName],
    ) -> None:
        """`size` is the largest size of one statement in bytes.

        `indexed` are the target's indexed columns; none if nothing may be updated. `slow` are the tables in which the
        server reads many rows to find one row. For each of them, it has the number of next changes whose rows SQL
        removes.
        """
        self._pipeline, self._execute, self._size = pipeline, execute, size
        self._layout, self._indexed, self._slow = layout, tuple(indexed), slow
        self._copies = _FIRST_COPIES
        """The number of copies in the next event."""

    def remove(self, deletes: pa.Table, times: pa.Int64Array, upserts: pa.Table) -> CopiesLeft:
        """Removes copies of rows, or overwrites them with new rows. Returns the rows that SQL has to remove or insert.

        `times` contains, for each row, the number of copies to remove. Updates come first, then deletes. If the server
        refuses an event of one kind, all events of this kind have no effect, and SQL has to write their rows.
        """
        name = self._layout.table
        if not deletes.num_rows:
            return CopiesLeft(deletes, times, upserts)
        if self._slow[name] > 0:
            self._slow[name] -= 1
            return CopiesLeft(deletes, times, upserts)
        is_many = pc.greater(times, _MANY_COPIES)
        many, is_few = CopiesLeft(deletes.filter(is_many), times.filter(is_many), upserts), pc.invert(is_many)
        left = self._remove_few(deletes.filter(is_few), times.filter(is_few), upserts)
        return CopiesLeft(
            pa.concat_tables([left.deletes, many.deletes]), pa.concat_arrays([left.times, many.times]), left.upserts
        )

    def _remove_few(self, deletes: pa.Table, times: pa.Int64Array, upserts: pa.Table) -> CopiesLeft:
        """Does the same as `remove`, for rows with few copies to remove."""
        layout = self._layout
        old, new = paired(self._indexed, deletes, times, upserts)

        def updates(first: int, last: int) -> pa.Array | None:
            before, after = old[first:last], new[first:last]
            return layout.updates(deletes.take(pa.array(before)), upserts.take(pa.array(after)))

        done = self._found(EventType.UPDATE_ROWS_V1, np.ones(len(old), np.int64), updates)
        if done:
            copies = times.to_numpy() - np.bincount(old[:done], minlength=len(times))
            is_left, is_new = pa.array(copies > 0), np.ones(upserts.num_rows, np.bool_)
            is_new[new[:done]] = False
            deletes, times = deletes.filter(is_left), pa.array(copies).filter(is_left)
            upserts = upserts.filter(pa.array(is_new))
        if done < len(old) or self._slow[layout.table] > 0:
            return CopiesLeft(deletes, times, upserts)
        deletes, times = _in_order(self._indexed, deletes, times)

        def removals(first: int, last: int) -> pa.Array | None:
            part = _repeated(deletes.slice(first, last - first), times.slice(first, last - first))
            return layout.rows(part, updates=False)

        done = self._found(EventType.DELETE_ROWS_V1, times.to_numpy(), removals)
        return CopiesLeft(deletes.slice(done), times.slice(done), upserts)

    def add(self, rows: pa.Table) -> bool:
        """Inserts rows; returns False if they have to be written as SQL."""
        kind, layout = EventType.WRITE_ROWS_V1, self._layout
        if not rows.num_rows:
            return True
        images = (layout.rows(part, updates=False) for part in portions(rows))
        made = (sql for each in images for sql in encoded(layout, kind, each, self._size))
        return self._execute(layout.table, ahead(made))

    def _found(self, kind: EventType, times: Numbers, images: _Images) -> int:
        """Executes events whose rows the server has to find; `times` contains the number of copies of each row.

        Returns how many rows the events contain: fewer if the server reads many rows to find one, or takes long.
        """
        done = 0
        if not len(times):
            return 0

        def made() -> Iterator[bytes]:
            nonlocal done
            before = self._read_so_far()
            for last, copies, statements in ahead(self._made(kind, times, images)):
                began = time.monotonic()
                yield from statements
                took = time.monotonic() - began
                done, read = last, self._read_so_far()
                is_slow = took > _SLOW_START + copies * _SLOW_SECONDS
                if is_slow or read - before > _FIRST_READS + copies * _READS:
                    self._slow[self._layout.table] = _PAUSE
                    return
                before = read

        return done if self._execute(self._layout.table, made()) else 0

    def _made(self, kind: EventType, times: Numbers, images: _Images) -> Iterator[tuple[int, int, list[bytes]]]:
        """Yields, for each event, the index after its last row, the number of its copies, and its statements."""
        first, copies, ends = 0, 0, np.cumsum(times)
        while first < len(times):
            last = max(int(np.searchsorted(ends, copies + self._copies, side="right")), first + 1)
            count = int(ends[last - 1]) - copies
            yield last, count, list(encoded(self._layout, kind, images(first, last), self._size))
            first, copies, self._copies = last, copies + count, min(self._copies * _GROWTH, _MOST_COPIES)

    def _read_so_far(self) -> int:
        """Returns how many rows the session has read by an index or without one."""
        return sum(int(count) for _, count in self._pipeline.now(_READ_SO_FAR).rows)


def paired(by: Sequence[str], deletes: pa.Table, times: pa.Int64Array, upserts: pa.Table) -> tuple[Numbers, Numbers]:
    """Pairs removed copies with new rows that have the same values in some columns.

    Returns two arrays: the index of each pair in `deletes`, and its index in `upserts`. The pairs are sorted by those
    values. A row of `deletes` is in at most as many pairs as `times` says, and a row of `upserts` in at most one pair.
    """
    none: Numbers = np.zeros(0, np.int64)
    if not by or not deletes.num_rows or not upserts.num_rows:
        return none, none
    number = key_numbers(merged([chunkless(deletes, by), chunkless(upserts, by)]))
    copies = np.repeat(np.arange(deletes.num_rows), times.to_numpy())
    old, new = number[: deletes.num_rows][copies], number[deletes.num_rows :]
    # The first copy with a number belongs to the first new row with this number, the second to the second.
    most = max(len(old), len(new))
    _, place, after = np.intersect1d(
        old * most + _occurrence(old), new * most + _occurrence(new), assume_unique=True, return_indices=True
    )
    before = copies[place]
    order = _order(by, deletes.select(list(by)).take(pa.array(before)))
    return before[order], after[order]


def _occurrence(numbers: Numbers) -> Numbers:
    """Returns, for each number, how many equal numbers precede it."""
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    is_first = np.ones(len(ordered), np.bool_)
    is_first[1:] = ordered[1:] != ordered[:-1]
    place = np.arange(len(ordered))
    found = np.empty(len(ordered), np.int64)
    found[order] = place - np.maximum.accumulate(np.where(is_first, place, 0))
    return found


def _in_order(by: Sequence[str], rows: pa.Table, times: pa.Int64Array) -> tuple[pa.Table, pa.Int64Array]:
    """Sorts rows by indexed columns: the server then uses the index in one direction."""
    if not by or not rows.num_rows:
        return rows, times
    order = pa.array(_order(by, rows))
    return rows.take(order), times.take(order)


def _order(by: Sequence[str], rows: pa.Table) -> Numbers:
    first = combined(rows[by[0]])
    if len(by) == 1 and pa.types.is_integer(first.type) and not first.null_count:
        found: Numbers = np.argsort(first.to_numpy())
        return found
    order: Numbers = pc.sort_indices(rows, [(name, "ascending") for name in by]).to_numpy().astype(np.int64)
    return order


def _repeated(rows: pa.Table, times: pa.Int64Array) -> pa.Table:
    """Returns each row as often as `times` says."""
    places: npt.NDArray[np.int64] = np.repeat(np.arange(rows.num_rows), times.to_numpy())
    return rows if len(places) == rows.num_rows else rows.take(pa.array(places))
