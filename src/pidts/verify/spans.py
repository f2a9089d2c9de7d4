"""Compares spans of keys for the first time: counts rows, and finds *doubtful* rows. `settle` decides about them later.

Both servers compute a checksum of the rows of a span. If the checksums are equal, so are the rows. If they differ, or a
server cannot compute one, the span is divided into smaller spans. If these still differ, their rows are read and looked
up on the target, while the next rows are read from the source.

The comparison of a span depends on no other span. So other processes may compare spans, on connections of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, wait
from dataclasses import dataclass, field

import pyarrow as pa

from pidts.model import Table
from pidts.verify.compared_servers import Key, KeySpan, Order, SourceSide, Sum, TargetSide
from pidts.verify.keys import rank, upto
from pidts.verify.match import Matcher

_SPAN_ROWS = 20_000
_LEAF_ROWS = 1_000
"""A span of this many rows is not divided any further, even if its checksums differ."""
KEY_ROWS = 10_000
"""The most keys that are read at a time."""
_PAGE_BYTES = 16 << 20
_PARTS = 16
"""The number of reads that a span needs if no checksums are computed. The place may be saved between two spans."""
_VAIN = 4
"""After this many spans with different checksums but equal rows, no more checksums of this table are computed."""


@dataclass(frozen=True, slots=True)
class SpanResult:
    """The result of the first comparison of a span, or of a part of a span."""

    rows: int
    """How many rows the source has."""
    doubtful: tuple[pa.Table, ...] = ()
    """The keys of rows that are missing, different or extra on the target, by this first comparison."""
    was_read: bool = True
    """False if the checksums of the whole span are equal: then no row had to be read."""
    end: Key | None = None
    """The span's end, if this is its last result: all rows of this and earlier spans have been compared. Else None."""


CompareSpans = Callable[[Iterable[KeySpan]], Generator[SpanResult, None, None]]
"""Compares adjacent spans; yields results in their order.

The iterator of spans uses the caller's connection to the source. When a result with an `end` is yielded, nobody else
uses the caller's connections, so the caller may use them.
"""


@dataclass(slots=True)
class SpanComparison:
    """The first comparison of one table's spans in this process; it implements `CompareSpans`."""

    source: SourceSide
    target: TargetSide
    matcher: Matcher
    pool: Executor
    """One thread, which reads the target."""
    row_bytes: int
    _order: Order = field(init=False)
    _sums: bool = field(init=False)
    _vain: int = 0

    def __post_init__(self) -> None:
        self._order = self.target.order(self.matcher.table)
        self._sums = has_sums(self.target, self._order)

    def __call__(self, spans: Iterable[KeySpan]) -> Generator[SpanResult, None, None]:
        """Compares spans one after the other."""
        for span in spans:
            yield from self._compare(span)

    def _compare(self, span: KeySpan) -> Generator[SpanResult, None, None]:
        if self._sums:
            there, here = self._both(span)
            if there is not None and there == here:
                yield SpanResult(there.rows, was_read=False, end=span.upto)
                return
            self._sums = there is not None and here is not None
        is_vain = True
        comparing: Future[SpanResult] | None = None
        try:
            for part in self.source.spans(self.matcher.table, span, self._page, read=True):
                if self._sums:
                    there, here = self._both(part)
                    if there is not None and there == here:
                        yield SpanResult(there.rows)
                        continue
                rows = self.matcher.conform(self.source.rows(self.matcher.table, part))
                last, comparing = comparing, self.pool.submit(self._compare_rows, part, rows)
                if last is not None:
                    result = self._without_known(last.result())
                    is_vain = is_vain and not result.doubtful
                    yield result
        finally:
            if comparing is not None:  # all later steps need the target's connection
                wait([comparing])
        if comparing is not None:
            result = self._without_known(comparing.result())
            is_vain = is_vain and not result.doubtful
            yield result
        if self._sums and is_vain:
            self._vain += 1
            self._sums = self._vain < _VAIN
        yield SpanResult(0, end=span.upto)

    @property
    def _page(self) -> int:
        return page_rows(self.target, self.row_bytes)

    def _both(self, span: KeySpan) -> tuple[Sum | None, Sum | None]:
        here = self.pool.submit(self.target.sum, self.matcher.table, span)
        try:
            return self.source.sum(self.matcher.table, span), here.result()
        finally:
            here.exception()

    def _compare_rows(self, span: KeySpan, rows: pa.Table) -> SpanResult:
        """Looks up the source's rows of a span on the target. Meanwhile another thread reads the source.

        The first keys of the result are the source's. All others are keys that only the target has in this span.
        """
        matcher = self.matcher
        found = matcher.conform(self.target.find(matcher.table, matcher.keys(rows)))
        alone = self._alone(span, rows) if self._order is Order.SAME else ()
        return SpanResult(len(rows), (matcher.doubtful(rows, found), *alone))

    def _without_known(self, compared: SpanResult) -> SpanResult:
        """Returns the result without keys of the target that the source has after all, although they were not read."""
        own, *alone = compared.doubtful
        keys = [own, *(lacking(self.source, self.matcher, each) for each in alone)]
        return SpanResult(compared.rows, tuple(each for each in keys if len(each)))

    def _alone(self, span: KeySpan, rows: pa.Table) -> Iterator[pa.Table]:
        """Yields the target's keys of a span that these rows of the source lack."""
        table, after = self.matcher.table, span.after
        end = None if span.upto is None else rank(table, span.upto)
        while True:
            keys, after = self.target.keys(table, after, self._page)
            if not len(keys):
                return
            is_last = after is None or (end is not None and rank(table, after) >= end)
            # Keys after this span are looked up with the next span. If they were looked up here, too, they might be
            # counted twice.
            keys = keys.cast(key_types(table))
            keys = upto(table, keys, span.upto) if is_last and span.upto is not None else keys
            yield self.matcher.lacking(keys, rows)
            if is_last:
                return


def has_sums(target: TargetSide, order: Order) -> bool:
    """Returns whether checksums of a span of the source's keys can be compared."""
    return target.has_sums and order is not Order.OTHER


def page_rows(target: TargetSide, row_bytes: int) -> int:
    """Returns how many rows are read at a time. Without checksums all are read, so few large reads are faster."""
    most = _LEAF_ROWS if target.has_sums else KEY_ROWS
    return max(10, min(most, _PAGE_BYTES // max(row_bytes, 1)))


def span_rows(target: TargetSide, order: Order, row_bytes: int) -> int:
    """Returns how many rows a span has."""
    return _SPAN_ROWS if has_sums(target, order) else page_rows(target, row_bytes) * _PARTS


def lacking(source: SourceSide, matcher: Matcher, keys: pa.Table) -> pa.Table:
    """Returns the target's keys that the source does not have."""
    keys = keys.cast(key_types(matcher.table))
    for member in range(len(source.members(matcher.table))):
        if len(keys):
            keys = matcher.lacking(keys, source.find(matcher.table, keys, member))
    return keys


def key_types(table: Table) -> pa.Schema:
    """Returns names and types of the key's columns."""
    return pa.schema([table.arrow.field(name) for name in table.identity])


def joined(results: Sequence[SpanResult]) -> SpanResult:
    """Returns all results of one span as one result."""
    return SpanResult(
        sum(one.rows for one in results),
        tuple(keys for one in results for keys in one.doubtful),
        was_read=any(one.was_read for one in results),
        end=results[-1].end,
    )
