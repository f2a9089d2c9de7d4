"""Compares one table with a key from its first row to its last, in bounded memory.

The source's rows are divided into spans by the source's order. Both servers compute a checksum of the rows of a span.
If the sums are equal, the rows are equal. If the sums differ, or if a server cannot compute a sum, the span is divided
into smaller spans. The rows of spans that still differ are read and looked up on the target, while the next rows are
read from the source. Rows that differ at first are *doubtful*: `settle` decides about many of them at a time.

Rows that only the target has are found in one of three ways:

- The target orders keys as the source does: if the sums of a span differ, the target's keys of this span are looked up
  on the source. The target's keys above the source's highest key are looked up at the end.
- The target probably orders keys as the source does: as long as all sums are equal, the target has no other rows. Once
  a sum has differed, all of the target's keys are looked up at the end.
- The target orders keys in another way: all of the target's keys are looked up at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, wait
from dataclasses import dataclass, field, replace

import pyarrow as pa

from pidts.verify.keys import rank, upto
from pidts.verify.match import Matcher
from pidts.verify.memory import ComparisonPlace
from pidts.verify.report import TableReport
from pidts.verify.side import KeySpan, Order, SourceSide, Sum, TargetSide

_SPAN_ROWS = 20_000
_LEAF_ROWS = 1_000
"""The number of rows of a span that is not divided any further, although its sums differ."""
_PAGE_BYTES = 16 << 20
_KEY_ROWS = 10_000
_PARTS = 16
"""The number of reads in a span, if no sums are computed. The place may be saved between two spans."""
_MANY_DOUBTFUL = 5_000
_VAIN = 4
"""After this number of spans with different sums but equal rows, sums of this table are not computed any more."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """The callbacks of the walk."""

    settle: Callable[[pa.Table, int], TableReport]
    """A function that settles doubtful keys, a given number at a time. It returns the numbers to add to the report."""
    show: Callable[[int, int], None]
    """A function that reports the numbers of rows compared since the last call, and of doubtful keys."""
    save: Callable[[ComparisonPlace], None]
    due: Callable[[], bool]
    """A function that returns whether it is time to save. It raises if the work has to end."""


@dataclass(frozen=True, slots=True)
class _Compared:
    """The first comparison of a span."""

    rows: int
    doubtful: pa.Table
    """The keys of the source's rows that are missing or different on the target."""
    alone: Sequence[pa.Table]
    """The target's keys that the source's rows lack."""


@dataclass(slots=True)
class Walk:
    """The state of one table's comparison."""

    source: SourceSide
    target: TargetSide
    matcher: Matcher
    hooks: Hooks
    pool: Executor
    place: ComparisonPlace
    row_bytes: int = 0
    _doubtful: list[pa.Table] = field(default_factory=list)
    _order: Order = Order.OTHER
    _sums: bool = True
    _vain: int = 0

    def run(self) -> TableReport:
        """Compares the table to its end."""
        table = self.matcher.table
        self._order = self.target.order(table)
        self._sums = self.target.has_sums and self._order is not Order.OTHER
        if not self.place.walking:
            highest = self.source.highest(table)
            if highest is not None and list(self.place.after or ()) != list(highest):
                whole = KeySpan(self.place.after, highest)
                for span in self.source.spans(table, whole, self._span_rows, read=False):
                    self._compare(span)
                    self._pass(replace(self.place, after=span.upto))
            self._flush()
            start = None if self._walks_all or highest is None else highest
            self._pass(replace(self.place, walking=True, after=start))
        self._walk_target()
        self._flush()
        return self.place.report

    @property
    def _page(self) -> int:
        """The number of rows that are in memory at a time.

        If the target has no sums, all rows are read, and few large reads are faster than many small ones.
        """
        most = _LEAF_ROWS if self.target.has_sums else _KEY_ROWS
        return max(10, min(most, _PAGE_BYTES // max(self.row_bytes, 1)))

    @property
    def _span_rows(self) -> int:
        return _SPAN_ROWS if self._sums else self._page * _PARTS

    @property
    def _walks_all(self) -> bool:
        return self._order is Order.OTHER or self.place.walk_all

    def _compare(self, span: KeySpan) -> None:
        table = self.matcher.table
        if self._sums:
            there, here = self._both(span)
            if there is not None and there == here:
                self._count(there.rows)
                return
            self._sums = there is not None and here is not None
        before = len(self._doubtful)
        self._compare_parts(self.source.spans(table, span, self._page, read=True))
        if self._sums and len(self._doubtful) == before:
            self._vain += 1
            self._sums = self._vain < _VAIN

    def _compare_parts(self, parts: Iterable[KeySpan]) -> None:
        """Reads and compares the rows of adjacent spans, unless their sums are equal."""
        table = self.matcher.table
        if self._order is Order.LIKELY:
            self.place = replace(self.place, walk_all=True)
        comparing: Future[_Compared] | None = None
        try:
            for part in parts:
                if self._sums:
                    there, here = self._both(part)
                    if there is not None and there == here:
                        self._count(there.rows)
                        continue
                rows = self.matcher.conform(self.source.rows(table, part))
                last, comparing = comparing, self.pool.submit(self._compare_rows, part, rows)
                if last is not None:
                    self._take(last.result())
        finally:
            if comparing is not None:  # all steps that follow need the target's connection
                wait([comparing])
        if comparing is not None:
            self._take(comparing.result())

    def _both(self, span: KeySpan) -> tuple[Sum | None, Sum | None]:
        here = self.pool.submit(self.target.sum, self.matcher.table, span)
        try:
            return self.source.sum(self.matcher.table, span), here.result()
        finally:
            here.exception()

    def _compare_rows(self, span: KeySpan, rows: pa.Table) -> _Compared:
        """Looks up the source's rows of a span on the target. Meanwhile another thread reads the source."""
        matcher = self.matcher
        found = matcher.conform(self.target.find(matcher.table, matcher.keys(rows)))
        alone = list(self._alone(span, rows)) if self._order is Order.SAME else []
        return _Compared(len(rows), matcher.doubtful(rows, found), alone)

    def _alone(self, span: KeySpan, rows: pa.Table) -> Iterator[pa.Table]:
        """Yields the target's keys of a span that these rows of the source lack."""
        table, after = self.matcher.table, span.after
        end = None if span.upto is None else rank(table, span.upto)
        while True:
            keys, after = self.target.keys(table, after, self._page)
            if not len(keys):
                return
            is_last = after is None or (end is not None and rank(table, after) >= end)
            # Keys after this span belong to the next one: a key that is looked up twice might be counted twice.
            keys = keys.cast(self._key_types)
            keys = upto(table, keys, span.upto) if is_last and span.upto is not None else keys
            yield self.matcher.lacking(keys, rows)
            if is_last:
                return

    def _take(self, compared: _Compared) -> None:
        self._count(compared.rows)
        self._doubt(compared.doubtful)
        for keys in compared.alone:
            self._doubt_lacking(keys)

    def _walk_target(self) -> None:
        table = self.matcher.table
        while True:
            keys, after = self.target.keys(table, self.place.after, _KEY_ROWS)
            if not len(keys):
                return
            self._doubt_lacking(keys)
            self.hooks.show(0, self._open)
            self._pass(replace(self.place, after=after))

    @property
    def _key_types(self) -> pa.Schema:
        table = self.matcher.table
        return pa.schema([table.arrow.field(name) for name in table.identity])

    def _doubt_lacking(self, keys: pa.Table) -> None:
        table = self.matcher.table
        keys = keys.cast(self._key_types)
        for member in range(len(self.source.members(table))):
            if len(keys):
                keys = self.matcher.lacking(keys, self.source.find(table, keys, member))
        self._doubt(keys)

    def _count(self, rows: int) -> None:
        report = self.place.report
        self.place = replace(self.place, report=replace(report, rows=report.rows + rows))
        self.hooks.show(rows, self._open)

    def _doubt(self, keys: pa.Table) -> None:
        if len(keys):
            self._doubtful.append(keys)

    @property
    def _open(self) -> int:
        return sum(map(len, self._doubtful))

    def _pass(self, place: ComparisonPlace) -> None:
        """Moves on to `place`. If it is time to save, settles the doubtful keys first, then saves the place."""
        self.place = place
        due = self.hooks.due()
        if due or self._open > _MANY_DOUBTFUL:
            self._flush()
        if due:
            self.hooks.save(self.place)

    def _flush(self) -> None:
        """Settles each doubtful key once. A key may be found twice: by a span's rows, and by the target's keys."""
        if self._doubtful:
            names = list(self.matcher.table.identity)
            keys = pa.concat_tables(self._doubtful).group_by(names, use_threads=False).aggregate([]).select(names)
            self._doubtful = []
            self.place = replace(self.place, report=_added(self.place.report, self.hooks.settle(keys, self._page)))


def _added(report: TableReport, more: TableReport) -> TableReport:
    return replace(
        report,
        missing=report.missing + more.missing,
        extra=report.extra + more.extra,
        of_no_shard=report.of_no_shard + more.of_no_shard,
        different=report.different + more.different,
        unsettled=report.unsettled + more.unsettled,
        waiting=report.waiting + more.waiting,
        waits=tuple(dict.fromkeys((*report.waits, *more.waits))),
        locked=report.locked + more.locked,
    )
