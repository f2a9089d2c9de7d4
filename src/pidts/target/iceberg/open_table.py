"""A table in the transaction that writes to it: the committed rows that were not removed, and the written rows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile, ManifestEntry

from pidts.model import Column, Halted, Table, Transient, Where
from pidts.model.advice import RESYNC
from pidts.reduce import NetChange
from pidts.schema.column_defaults import default_value
from pidts.target.iceberg.columns import decode, encode, scalar
from pidts.target.iceberg.files import ROW_GROUP, ascending, exists, key_columns, matches, rows_at, tuples
from pidts.target.iceberg.metadata_file import MetadataFile, Positions, in_order

OnUnreal = Callable[[Table, str, int], None]
"""A function that is called with a table, a column and the number of its dates that become NULL."""

_NONE = np.arange(0)

Side = tuple[Callable[[list[str], np.ndarray], pa.Table], pa.Table, np.ndarray]
"""Some rows of a file or of a written part: a function that reads columns of rows by the rows' numbers; the columns
that were already read; the rows' numbers.
"""


class WrittenRows:
    """Rows that the transaction has written, with the types of data files; `alive` marks the rows not removed since."""

    def __init__(self, rows: pa.Table) -> None:
        self.rows = rows
        self.alive = np.ones(rows.num_rows, bool)

    @property
    def left(self) -> pa.Table:
        """Returns the rows that were not removed."""
        return self.rows if self.alive.all() else self.rows.filter(pa.array(self.alive))


class OpenTable:
    """Reads and changes one table in memory; this class writes no files."""

    def __init__(self, base: MetadataFile, on_unreal: OnUnreal) -> None:
        self.base, self._on_unreal = base, on_unreal
        self.written: list[WrittenRows] = []
        self.removed: dict[str, list[np.ndarray]] = {}
        """The numbers of the rows that the transaction has removed, keyed by the path of their committed file."""
        self.dropped: set[str] = set()
        """The committed files whose rows were all removed or moved to `written`."""
        self._dead: Positions = {}
        self.prepared: list[DataFile] = []
        """Data files that this transaction has already written, and whose rows it does not read."""
        self.loaded: list[WrittenRows] = []
        """The rows of `prepared`, if the table has a key: they are compared with rows that other sessions load
        meanwhile.
        """
        self._is_cleared = False
        """Whether all rows of `base` are removed, including rows that other sessions add meanwhile."""

    @property
    def is_changed(self) -> bool:
        """Whether there is any change to commit."""
        return bool(self.dropped or self.removed or self.prepared) or any(each.alive.any() for each in self.written)

    @property
    def committed(self) -> dict[str, ManifestEntry]:
        """Returns the committed files whose rows are still read."""
        return {path: entry for path, entry in self.base.data.items() if path not in self.dropped}

    @property
    def rows(self) -> int:
        """Returns the number of rows."""
        kept = sum(e.data_file.record_count - len(self.all_dead(path)) for path, e in self.committed.items())
        return kept + sum(int(each.alive.sum()) for each in self.written)

    def write(self, change: NetChange) -> None:
        """Removes `deletes`, then writes `upserts`."""
        if not change.table.identity:
            self._remove_copies(change)
            self._add(self._whole(change.table, change.upserts, None))
            return
        keys = list(change.table.identity)
        self._remove(self._encoded(change.table, change.deletes.select(keys)))
        if change.upserts.num_rows:
            wanted = self._encoded(change.table, change.upserts.select(keys))
            lacking = [column.name for column in self.base.table.columns if column.name not in change.table.arrow.names]
            old = self.read_stored([*keys, *lacking], wanted) if lacking else None
            self._remove(wanted)
            self._add(self._whole(change.table, change.upserts, old))

    def load(self, table: Table, rows: pa.Table) -> bool:
        """Adds rows. Returns False and adds none if the table already has one of these keys, or a key occurs twice."""
        if not rows.num_rows:
            return True
        if table.identity:
            keys = self._encoded(table, rows.select(list(table.identity)))
            if keys.group_by(keys.column_names, use_threads=False).aggregate([]).num_rows < keys.num_rows:
                return False
            if any(len(places) for _, places in self._found(keys)):
                return False
        self._add(self._whole(table, rows, None))
        return True

    def add_stored(self, rows: pa.Table) -> None:
        """Adds rows whose columns have the types that data files have."""
        self._add(rows)

    def clear(self) -> None:
        """Removes all rows."""
        self._is_cleared = True
        self.dropped = set(self.base.data)
        self.removed, self.written, self._dead = {}, [], {}
        self.prepared, self.loaded = [], []

    def rebased(self, base: MetadataFile) -> OpenTable:
        """Returns the table with the committed rows of another snapshot and the rows that this transaction has loaded.

        Raises if the other snapshot has gained a row with the key of one of these rows. If the transaction has removed
        all rows, it also removes the rows of the other snapshot.
        """
        table = OpenTable(base, self._on_unreal)
        if self._is_cleared:
            table.clear()
        table.written, table.loaded, table.prepared = self.written, self.loaded, self.prepared
        came = {path: entry for path, entry in table.committed.items() if path not in self.base.data}
        identity = list(base.table.identity)
        for each in (*self.written, *self.loaded) if identity else ():
            if any(len(places) for _, places in table._found(each.rows.select(identity), came)):
                raise Transient(
                    "target-busy",
                    "another session has loaded rows with the same keys meanwhile",
                    where=Where(table=str(base.name)),
                )
        return table

    def demand_files(self) -> None:
        """Raises if a file that the transaction wrote before it locked the database is gone."""
        if any(not exists(each.file_path) for each in self.prepared):
            what = "a file with loaded rows was removed before the transaction ended"
            raise Transient("target-busy", what, where=Where(table=str(self.base.name)))

    def rewrite(self, path: str) -> None:
        """Takes the rows out of a committed file, and adds them to the rows that the transaction writes."""
        places = self._alive(path, 0, self.base.data[path].data_file.record_count)
        names = [column.name for column in self.base.table.columns]
        self._add(self._reader(path)(names, places))
        self.dropped.add(path)
        self.removed.pop(path, None)

    def read(
        self,
        table: Table,
        *,
        keys: pa.Table | None = None,
        after: Sequence[object] | None = None,
        limit: int | None = None,
        only: Mapping[str, str] | None = None,
    ) -> pa.Table:
        """Returns rows in the source's types, sorted by identity.

        These are the rows with the identities `keys`, or up to `limit` rows after the identity `after`. `only` contains
        the values that some columns of the rows must have.
        """
        identity = list(table.identity)
        names = [*identity, *(only or {})]
        last = () if after is None else zip(identity, after, strict=True)
        bound = [scalar(table.column(name).type, value) for name, value in last]
        if bound and limit is not None and keys is None and not only:
            sides = list(self._sides_after(names, bound, limit))
        else:
            sides = list(self._sides(names, None if keys is None else self._encoded(table, keys)))
        if bound:
            sides = [_marked(side, _after(side[1], identity, bound)) for side in sides]
        for name, text in (only or {}).items():
            kind = table.column(name).type
            sides = [_marked(side, pc.equal(side[1][name], scalar(kind, text))) for side in sides]
        if limit is not None and identity:
            sides = _first(sides, identity, limit)
        names = [column.name for column in table.columns]
        parts = [read(names, places) for read, _, places in sides if len(places)]
        if not parts:
            return table.arrow.empty_table()
        rows = pa.concat_tables(parts)
        if identity:
            rows = rows.take(pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in identity]))
        if limit is not None:
            rows = rows.slice(0, limit)
        return _decoded(table, rows)

    def portions(self, table: Table) -> Iterator[pa.Table]:
        """Yields all rows in the source's types, at most `ROW_GROUP` rows at a time, in any order."""
        names = [column.name for column in table.columns]
        for read, _, places in self._sides(names[:1], None):
            for start in range(0, len(places), ROW_GROUP):
                yield _decoded(table, read(names, places[start : start + ROW_GROUP]))

    def read_stored(self, names: list[str], keys: pa.Table | None = None) -> pa.Table:
        """Returns columns of all rows, or of the rows with these keys, with the types that data files have."""
        parts = [read(names, places) for read, _, places in self._sides(names[:1], keys) if len(places)]
        empty = pa.schema([self.base.fields[name][1] for name in names]).empty_table()
        return pa.concat_tables([empty, *parts])

    def all_dead(self, path: str) -> np.ndarray:
        """Returns the numbers of a file's removed rows, including rows that the transaction has removed."""
        if path not in self._dead:
            parts = [self.base.dead.get(path, _NONE), *self.removed.get(path, ())]
            self._dead[path] = in_order([np.sort(part) for part in parts]).astype(np.int64)
        return self._dead[path]

    def _sides(self, names: list[str], keys: pa.Table | None) -> Iterator[Side]:
        """Yields the rows as `Side`s.

        There is one `Side` for each committed file, and one for each part that the open transaction has written. With
        `keys`, the sides have only rows with these keys. `names` are the columns that are already read.
        """
        names = list(dict.fromkeys(names)) or [self.base.table.columns[0].name]
        if keys is not None:
            for where, places in self._found(keys):
                if isinstance(where, WrittenRows):
                    yield self._reader(where), where.rows.select(names).take(pa.array(places)), places
                elif len(places):
                    kept = key_columns(where, self.base.some(names)).take(pa.array(places))
                    yield self._reader(where), kept, places
            return
        for path, entry in self.committed.items():
            places = self._alive(path, 0, entry.data_file.record_count)
            rows = key_columns(path, self.base.some(names))
            yield self._reader(path), rows if len(places) == len(rows) else rows.take(pa.array(places)), places
        for each in self.written:
            places = np.flatnonzero(each.alive)
            yield self._reader(each), each.rows.select(names).take(pa.array(places)), places

    def _sides_after(self, names: list[str], bound: list[pa.Scalar], limit: int) -> Iterator[Side]:
        """Yields, as `Side`s, all rows of the next `limit` keys above a bound, and perhaps other rows."""
        fields = self.base.some(names)
        for path, entry in self.committed.items():
            if not self.base.may_hold(entry, names[0], bound[0].as_py(), math.inf):
                continue
            rows = key_columns(path, fields)
            first = ascending(path, next(iter(fields)), rows.column(0))
            if first is None:
                places = self._alive(path, 0, rows.num_rows)
            else:
                places = self._alive_after(path, first, rows, bound, limit)
            yield self._reader(path), rows.take(pa.array(places)), places
        for each in self.written:
            places = np.flatnonzero(each.alive)
            yield self._reader(each), each.rows.select(names).take(pa.array(places)), places

    def _alive_after(
        self, path: str, first: np.ndarray, rows: pa.Table, bound: list[pa.Scalar], limit: int
    ) -> np.ndarray:
        """Returns the numbers of the rows of a sorted file that may be among the next `limit` rows above a bound.

        Only the first column is certainly sorted, so all rows with the same value in it are returned together.
        """
        start, size = int(np.searchsorted(first, first.dtype.type(bound[0].as_py()))), limit
        while True:
            stop = start + size
            stop = int(np.searchsorted(first, first[stop], side="right")) if stop < len(first) else len(first)
            places = self._alive(path, start, stop)
            if stop == len(first):
                return places
            found = _after(rows.take(pa.array(places)), rows.column_names[: len(bound)], bound)
            if (pc.sum(found).as_py() or 0) >= limit:
                return places
            size *= 2

    def _alive(self, path: str, start: int, stop: int) -> np.ndarray:
        """Returns the numbers from `start` to below `stop` whose rows are not removed."""
        dead = self.all_dead(path)
        low, high = np.searchsorted(dead, (start, stop))
        return np.setdiff1d(np.arange(start, stop), dead[low:high], assume_unique=True)

    def _reader(self, where: WrittenRows | str) -> Callable[[list[str], np.ndarray], pa.Table]:
        def read(names: list[str], places: np.ndarray) -> pa.Table:
            if isinstance(where, WrittenRows):
                return where.rows.select(names).take(pa.array(places))
            return rows_at(where, self.base.some(names), places)

        return read

    def _found(
        self, keys: pa.Table, files: Mapping[str, ManifestEntry] | None = None
    ) -> Iterator[tuple[WrittenRows | str, np.ndarray]]:
        """Yields files and written parts, each with the numbers of its rows that have one of these keys.

        If `files` are given, only these committed files are searched.
        """
        if not keys.num_rows:
            return
        first = keys.column_names[0]
        # The bounds of a file do not show whether it contains NULLs.
        least, most = (None, None) if keys[first].null_count else _range(keys[first])
        fields = self.base.some(keys.column_names)
        for path, entry in (self.committed if files is None else files).items():
            if least is not None and not self.base.may_hold(entry, first, least, most):
                continue
            rows = key_columns(path, fields)
            start, stop = 0, rows.num_rows
            if least is not None and (values := ascending(path, next(iter(fields)), rows.column(0))) is not None:
                start = int(np.searchsorted(values, values.dtype.type(least)))
                stop = int(np.searchsorted(values, values.dtype.type(most), side="right"))
            places = start + matches(rows.slice(start, stop - start), keys)
            dead = self.all_dead(path)
            low, high = np.searchsorted(dead, (start, stop))
            yield path, np.setdiff1d(places, dead[low:high], assume_unique=True)
        for each in self.written if files is None else ():
            places = matches(each.rows.select(keys.column_names), keys)
            yield each, places[each.alive[places]]

    def _remove(self, keys: pa.Table) -> None:
        for where, places in list(self._found(keys)):
            self._drop(where, places)

    def _drop(self, where: WrittenRows | str, places: np.ndarray) -> None:
        if isinstance(where, WrittenRows):
            where.alive[places] = False
        elif len(places):
            self.removed.setdefault(where, []).append(places)
            self._dead.pop(where, None)

    def _remove_copies(self, change: NetChange) -> None:
        """Removes rows of a table without a key: as many copies of each row as the source has removed."""
        if not change.deletes.num_rows or change.times is None:
            return
        wanted = self._encoded(change.table, change.deletes)
        left: Counter[tuple[Any, ...]] = Counter()
        for row, times in zip(tuples(wanted), change.times.to_pylist(), strict=True):
            left[row] += times  # rows that differ on the source may be equal in the files, since some dates become NULL
        for where, places in list(self._found(wanted)):
            rows = self._reader(where)(wanted.column_names, places)
            taken = []
            for place, row in zip(places, tuples(rows), strict=True):
                if left[row] > 0:
                    left[row] -= 1
                    taken.append(place)
            self._drop(where, np.array(taken, np.int64))
        if missing := next((row for row, times in left.items() if times > 0), None):
            raise Halted(
                "row-missing",
                f"the target lacks {left[missing]} copies of a row that the source removed",
                where=Where(table=str(change.table.name), key=", ".join(f"{each!r:.60}" for each in missing[:8])),
                todo=f"The target's rows differ from the source's: copy the table again: {RESYNC}",
            )

    def _add(self, rows: pa.Table) -> None:
        if rows.num_rows:
            self.written.append(WrittenRows(rows))

    def _encoded(self, table: Table, rows: pa.Table) -> pa.Table:
        """Converts columns of the source to the types that data files have."""
        columns, fields = [], []
        for name in rows.column_names:
            kind = table.column(name).type
            field = self.base.fields[name][1]
            values = encode(kind, rows[name], partial(self._unreal, table, name))
            columns.append(values.cast(field.type))
            fields.append(field)
        return pa.table(columns, schema=pa.schema(fields))

    def _unreal(self, table: Table, column: str, count: int) -> None:
        if column in table.identity:
            raise Halted(
                "zero-date-in-key",
                f"column {column} has {count} zero or partial dates in the table's key, where NULL is not allowed",
                where=Where(table=str(table.name)),
                todo=f"Correct the values on the source, then copy the table again: {RESYNC}; or leave the table out",
            )
        self._on_unreal(table, column, count)

    def _whole(self, table: Table, rows: pa.Table, old: pa.Table | None) -> pa.Table:
        """Returns rows with all columns. A column that the change lacks keeps its value or gets its default."""
        given = self._encoded(table, rows)
        columns, fields = [], []
        places = None
        for column in self.base.table.columns:
            field = self.base.fields[column.name][1]
            fields.append(field)
            if column.name in given.column_names:
                columns.append(given[column.name])
                continue
            fill = pa.repeat(filling(column, field.type)[0], rows.num_rows)
            if old is None or not old.num_rows:
                columns.append(fill)
                continue
            if places is None:
                identity = list(table.identity)
                at = {key: place for place, key in enumerate(tuples(old.select(identity)))}
                places = pa.array([at.get(key) for key in tuples(given.select(identity))], pa.int64())
            columns.append(pc.if_else(places.is_valid(), old[column.name].combine_chunks().take(places), fill))
        return pa.table(columns, schema=pa.schema(fields))


def _decoded(table: Table, rows: pa.Table) -> pa.Table:
    """Converts rows with the types of data files to the source's types."""
    return pa.table([decode(column.type, rows[column.name]) for column in table.columns], schema=table.arrow)


def filling(column: Column, goal: pa.DataType) -> pa.Array:
    """Returns the default of a column that a change lacks, as an array with one value."""
    value = default_value(replace(column, auto_increment=False, generated=False))
    return pa.nulls(1, goal) if value is None else encode(column.type, value, lambda _: None).cast(goal)


def _after(rows: pa.Table, names: Sequence[str], bound: Sequence[pa.Scalar]) -> pa.Array:
    """Returns a mask of the rows whose key is greater than the bound."""
    mask = None
    for name, value in reversed(list(zip(names, bound, strict=True))):
        greater = pc.greater(rows[name], value)
        mask = greater if mask is None else pc.or_(greater, pc.and_(pc.equal(rows[name], value), mask))
    return mask


def _marked(side: Side, mask: pa.ChunkedArray) -> Side:
    read, rows, places = side
    true = pc.fill_null(mask, fill_value=False)
    return read, rows.filter(true), places[true.to_numpy()]


def _first(sides: list[Side], identity: list[str], limit: int) -> list[Side]:
    """Keeps only the `limit` rows that have the lowest keys over all sides."""
    keys = pa.concat_tables([rows.select(identity) for _, rows, _ in sides]) if sides else None
    if keys is None or keys.num_rows <= limit:
        return sides
    chosen = pc.select_k_unstable(keys, k=limit, sort_keys=[(name, "ascending") for name in identity])
    kept = np.zeros(keys.num_rows, bool)
    kept[chosen.to_numpy()] = True
    found, at = [], 0
    for read, rows, places in sides:
        mine = kept[at : at + len(places)]
        found.append((read, rows.filter(pa.array(mine)), places[mine]))
        at += len(places)
    return found


def _range(column: pa.ChunkedArray) -> tuple[object, object]:
    """Returns the lowest and the highest value; dates and times are numbers, as in a file's bounds."""
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.int32() if pa.types.is_date32(column.type) else pa.int64())
    found = pc.min_max(column).as_py()
    return found["min"], found["max"]
