"""Compare two quiet sides, table by table, in bounded memory.

Every chunk of the source is looked up on the target by key: that finds rows that are missing or different. Rows that
only the target has show in its count; the target is walked only where the count says that there are some. The two
servers may order keys differently, so nothing here relies on an order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pidts.model import Column, Halted, Table, Transient, Where, calendar
from pidts.verify.normal import EXACT, Normals
from pidts.verify.report import Difference, Finding, Report, TableReport
from pidts.verify.side import Side

_MICROSECONDS = 1_000_000


def compare(
    tables: Iterable[Table], source: Side, target: Side, *, normals: Normals = EXACT, examples: int = 100
) -> Report:
    """Read both sides whole; `examples` caps the differences that are named, all are counted."""
    found: list[Difference] = []
    reports = []
    for table in tables:
        one = _Comparison(table, normals, examples - len(found))
        reports.append(one.run(source, target))
        found += one.examples
    return Report(tuple(reports), tuple(found))


@dataclass(slots=True)
class _Comparison:
    """The running numbers of one table."""

    table: Table
    normals: Normals
    room: int
    rows: int = 0
    matched: int = 0
    counts: dict[Finding, int] = field(default_factory=lambda: dict.fromkeys(Finding, 0))
    examples: list[Difference] = field(default_factory=list)

    def run(self, source: Side, target: Side) -> TableReport:
        if not self.table.identity:
            raise Halted(
                "no-key",
                "Rows without a key cannot be told apart",
                where=Where(table=str(self.table.name)),
                todo="Add a primary key, or leave the table out of the comparison",
            )
        for chunk in self._chunks(source):
            self._from_source(chunk, self._found(target, chunk))
        only_target = target.count(self.table) - self.matched
        if only_target:
            extra = sum(self._from_target(chunk, self._found(source, chunk)) for chunk in self._chunks(target))
            if extra != only_target:
                raise Transient(
                    "rows-moved",
                    f"The target counts {only_target} rows more than were matched, but {extra} were found",
                    where=Where(table=str(self.table.name)),
                    todo="Compare again while nobody writes to either side",
                )
        return TableReport(
            self.table.name,
            self.rows,
            missing=self.counts[Finding.MISSING],
            extra=self.counts[Finding.EXTRA],
            different=self.counts[Finding.DIFFERENT],
        )

    def _chunks(self, side: Side) -> Iterator[pa.Table]:
        return (self._conform(chunk) for chunk in side.rows(self.table) if len(chunk))

    def _found(self, side: Side, chunk: pa.Table) -> pa.Table:
        return self._conform(side.find(self.table, chunk.select(list(self.table.identity))))

    def _conform(self, rows: pa.Table) -> pa.Table:
        return rows.select(self.table.arrow.names).cast(self.table.arrow)

    def _from_source(self, chunk: pa.Table, found: pa.Table) -> None:
        left, right = self._pairs(chunk, found)
        self.rows += len(chunk)
        self.matched += len(left)
        self._note(Finding.MISSING, chunk, _others(len(chunk), left))
        # A target without the key's constraint may hold a row twice.
        again = pc.equal(left.slice(1), left.slice(0, max(len(left) - 1, 0)))
        self._note(Finding.EXTRA, chunk, left.slice(1).filter(again))
        names = [name for name in self.table.arrow.names if name not in self.table.identity]
        masks = {
            name: self._differs(self.table.column(name), chunk.column(name).take(left), found.column(name).take(right))
            for name in names
        }
        masks = {name: mask for name, mask in masks.items() if pc.any(mask).as_py()}
        if masks:
            self._note_different(chunk, left, masks)

    def _from_target(self, chunk: pa.Table, found: pa.Table) -> int:
        left, _ = self._pairs(chunk, found)
        extra = _others(len(chunk), left)
        self._note(Finding.EXTRA, chunk, extra)
        return len(extra)

    def _pairs(self, one: pa.Table, other: pa.Table) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
        """Row numbers of equal keys, sorted by the first."""
        names = [f"key{number}" for number in range(len(self.table.identity))]
        sides = [
            pa.Table.from_arrays([*self._keys(rows), pa.arange(0, len(rows), 1)], names=[*names, side])
            for rows, side in ((one, "one"), (other, "other"))
        ]
        pairs = (
            sides[0].join(sides[1], names, join_type="inner").sort_by([("one", "ascending"), ("other", "ascending")])
        )
        return pairs.column("one").combine_chunks(), pairs.column("other").combine_chunks()

    def _keys(self, rows: pa.Table) -> Iterator[pa.ChunkedArray]:
        for name in self.table.identity:
            values = rows.column(name)
            if normal := self.normals.get(self.table.column(name).type.kind):
                values = normal(values)
            # -0.0 is 0.0 to every server, but not to a hash join.
            yield pc.add(values, pa.scalar(0.0, values.type)) if pa.types.is_floating(values.type) else values

    def _differs(self, column: Column, left: pa.ChunkedArray, right: pa.ChunkedArray) -> pa.ChunkedArray:
        """A mask of unequal values; only those that are unequal as they are get their normal form taken."""
        mask = _distinct(left, right)
        normal = self.normals.get(column.type.kind)
        if normal is None or not pc.any(mask).as_py():
            return mask
        where = pc.indices_nonzero(mask)
        still = where.filter(_distinct(normal(left.take(where)), normal(right.take(where))).combine_chunks())
        return pc.is_in(pa.arange(0, len(mask), 1), value_set=still.cast(pa.int64()))

    def _note(self, kind: Finding, rows: pa.Table, numbers: pa.Array) -> None:
        self.counts[kind] += len(numbers)
        for number in numbers.slice(0, self._left()).to_pylist():
            self.examples.append(Difference(self.table.name, kind, self._key(rows, number)))

    def _note_different(self, rows: pa.Table, left: pa.Array, masks: dict[str, pa.ChunkedArray]) -> None:
        differing = sorted({place for mask in masks.values() for place in pc.indices_nonzero(mask).to_pylist()})
        self.counts[Finding.DIFFERENT] += len(differing)
        for place in differing[: self._left()]:
            columns = tuple(name for name, mask in masks.items() if mask[place].as_py())
            key = self._key(rows, left[place].as_py())
            self.examples.append(Difference(self.table.name, Finding.DIFFERENT, key, columns))

    def _left(self) -> int:
        return max(self.room - len(self.examples), 0)

    def _key(self, rows: pa.Table, number: int) -> dict[str, Any]:
        return {name: _readable(rows.column(name)[number]) for name in self.table.identity}


def _others(size: int, numbers: pa.Array) -> pa.Array:
    """The row numbers below `size` that are not among `numbers`."""
    every = pa.arange(0, size, 1)
    return every.filter(pc.invert(pc.is_in(every, value_set=numbers)))


def _distinct(left: pa.ChunkedArray, right: pa.ChunkedArray) -> pa.ChunkedArray:
    """Unequal, with NULL equal to NULL."""
    one_null = pc.xor(pc.is_null(left), pc.is_null(right))
    return pc.or_(one_null, pc.fill_null(pc.not_equal(left, right), fill_value=False))


def _readable(value: pa.Scalar) -> Any:
    """A Python value; text for a date that Python cannot hold."""
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
