"""Joins the rows of two sides by key and compares them column by column."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pidts.model import Kind, Table, calendar
from pidts.reduce.identity import distinct, plain_zero
from pidts.verify.normal_forms import Normal, Normals
from pidts.verify.report import DifferenceKind

Numbers = npt.NDArray[np.int64]
_MICROSECONDS = 1_000_000
_SIZE = 16


class Matcher:
    """Compares the rows of one table. Values of the columns `documents` are compared as JSON."""

    def __init__(self, table: Table, normals: Normals, documents: Collection[str] = ()) -> None:
        self.table, self._normals, self._documents = table, normals, documents
        self._others = [name for name in table.arrow.names if name not in table.identity]

    def conform(self, rows: pa.Table) -> pa.Table:
        """Returns the rows with their columns in the source's order and types."""
        return rows.select(self.table.arrow.names).cast(self.table.arrow)

    def keys(self, rows: pa.Table) -> pa.Table:
        """Returns the identities of these rows."""
        return rows.select(list(self.table.identity))

    def lacking(self, keys: pa.Table, rows: pa.Table) -> pa.Table:
        """Returns the `keys` that no row in `rows` has."""
        left, _ = self.pairs(keys, rows)
        return keys.take(np.setdiff1d(np.arange(len(keys)), left))

    def doubtful(self, source: pa.Table, target: pa.Table) -> pa.Table:
        """Returns the keys of source rows that are missing, different or repeated on the target."""
        left, right = self.pairs(source, target)
        wrong = [np.setdiff1d(np.arange(len(source)), left), left[1:][left[1:] == left[:-1]]]
        wrong += [left[mask] for _, mask in self.masks(source, left, target, right)]
        return self.keys(source).take(np.unique(np.concatenate(wrong)))

    def verdicts(
        self, keys: pa.Table, source: pa.Table, target: pa.Table
    ) -> dict[int, tuple[DifferenceKind, tuple[str, ...], int]]:
        """Returns a finding for each key whose rows are not equal, by the key's index in `keys`.

        A finding has the kind of difference, the columns that differ, and the index of the target's row, or -1.
        """
        of_source = self.pairs(keys, source)
        there, here = places(of_source, len(keys)), places(self.pairs(keys, target), len(keys))
        found: dict[int, tuple[DifferenceKind, tuple[str, ...], int]] = {}
        # Two members may have a row with the same key. The target's row is compared with both, and cannot equal both.
        both, rows = (side[here[of_source[0]] >= 0] for side in of_source)
        differing: dict[int, list[str]] = {}
        for name, mask in self.masks(source, rows, target, here[both]):
            for key in np.unique(both[mask]).tolist():
                differing.setdefault(key, []).append(name)
        for key, columns in differing.items():
            found[key] = (DifferenceKind.DIFFERENT, tuple(columns), int(here[key]))
        for key in np.flatnonzero((there >= 0) & (here < 0)).tolist():
            found[key] = (DifferenceKind.MISSING, (), -1)
        for key in np.flatnonzero((there < 0) & (here >= 0)).tolist():
            found[key] = (DifferenceKind.EXTRA, (), int(here[key]))
        again, _ = self.pairs(keys, target)
        for key in again[1:][again[1:] == again[:-1]].tolist():
            # Without a unique key over the key's columns, the target's table may have several rows with one key.
            found[key] = (DifferenceKind.EXTRA, (), int(here[key]))
        return found

    def pairs(self, one: pa.Table, other: pa.Table) -> tuple[Numbers, Numbers]:
        """Returns the pairs of row indexes with equal keys, sorted by the first index."""
        names = [f"key{number}" for number in range(len(self.table.identity))]
        sides = [
            pa.Table.from_arrays([*self._keys(rows), pa.array(np.arange(len(rows)))], names=[*names, side])
            for rows, side in ((one, "one"), (other, "other"))
        ]
        joined = sides[0].join(sides[1], names, join_type="inner")
        found = joined.sort_by([("one", "ascending"), ("other", "ascending")])
        return found.column("one").to_numpy(), found.column("other").to_numpy()

    def masks(
        self, one: pa.Table, left: Numbers, other: pa.Table, right: Numbers
    ) -> Iterator[tuple[str, npt.NDArray[np.bool_]]]:
        """Yields each column in which some pairs of rows differ, with a mask of these pairs.

        A pair is a row of `one` and a row of `other`. `left` and `right` have their indexes.
        """
        for name in self._others:
            mask = self._differs(name, one.column(name).take(left), other.column(name).take(right))
            if pc.any(mask).as_py():
                yield name, np.asarray(mask)

    def readable(self, keys: pa.Table, number: int) -> dict[str, Any]:
        """Returns a key as readable values."""
        return {name: _readable(keys.column(name)[number]) for name in self.table.identity}

    def stamps(self, rows: pa.Table, *, normal: bool = False) -> list[bytes]:
        """Returns a digest of each row; with `normal`, equal rows of both sides have the same digest."""
        columns = []
        for column in self.table.columns:
            values = rows.column(column.name)
            if normal:
                change = self._normal(column.name)
                values = plain_zero(values if change is None else change(values))
            columns.append(_bare(values))
        return [
            blake2b(repr(values).encode("utf-8", "surrogatepass"), digest_size=_SIZE).digest()
            for values in zip(*columns, strict=True)
        ]

    def _keys(self, rows: pa.Table) -> Iterator[pa.ChunkedArray]:
        for name in self.table.identity:
            values = rows.column(name)
            if normal := self._normal(name):
                values = normal(values)
            yield plain_zero(values)

    def _normal(self, name: str) -> Normal | None:
        """Returns the normal form of a column's values; None if they are compared unchanged."""
        return self._normals.get(Kind.JSON if name in self._documents else self.table.column(name).type.kind)

    def _differs(self, name: str, left: pa.ChunkedArray, right: pa.ChunkedArray) -> pa.ChunkedArray:
        """Returns a mask of unequal values. Computes normal forms only of values that are unequal without them."""
        mask = distinct(left, right)
        normal = self._normal(name)
        if normal is None or not pc.any(mask).as_py():
            return mask
        where = pc.indices_nonzero(mask)
        still = where.filter(distinct(normal(left.take(where)), normal(right.take(where))).combine_chunks())
        return pc.is_in(pa.array(np.arange(len(mask))), value_set=still.cast(pa.int64()))


def places(pairs: tuple[Numbers, Numbers], size: int) -> Numbers:
    """Returns, for each of `size` rows, the index of the first row that is paired with it, or -1."""
    found = np.full(size, -1)
    found[pairs[0][::-1]] = pairs[1][::-1]
    return found


def _bare(values: pa.ChunkedArray) -> Sequence[Any]:
    """Returns the values for comparing. Dates become numbers, because Python cannot represent some of them."""
    if pa.types.is_temporal(values.type):
        kind = pa.int32() if pa.types.is_date32(values.type) else pa.int64()
        return [item for chunk in values.chunks for item in chunk.view(kind).to_pylist()]
    return values.to_pylist()  # type: ignore[no-any-return]


def _readable(value: pa.Scalar) -> Any:
    """Returns a Python value; text for a date that Python cannot hold."""
    if pa.types.is_date32(value.type) and value.is_valid and value.value < calendar.FIRST_REAL_DAY:
        return _date(value.value)
    if pa.types.is_timestamp(value.type) and value.is_valid and value.value < calendar.FIRST_REAL_MICROSECOND:
        day, time_us = calendar.split(value.value)
        seconds, fraction = divmod(time_us, _MICROSECONDS)
        return f"{_date(day)} {seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction:06}"
    return value.as_py()


def _date(days: int) -> str:
    year, month, day = calendar.fields(days)
    return f"{year:04}-{month:02}-{day:02}"
