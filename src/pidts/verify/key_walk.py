"""Compares one table with a key from its first row to its last, in bounded memory.

The source's rows are divided into spans by the source's order, and each span is compared (`pidts.verify.spans`). Rows
that differ at first are *doubtful*: `settle` decides about many of them at a time.

Rows that only the target has are found in one of three ways:

- The target orders keys as the source does: in each span whose checksums differ, the target's keys are looked up on the
  source. The target's keys above the source's highest key are looked up at the end.
- The target probably orders keys as the source does: as in the first case while the checksums of all spans are equal.
  Once a checksum has differed, all of the target's keys are looked up at the end.
- The target orders keys in another way: all of its keys are looked up at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace

import pyarrow as pa

from pidts.verify.compared_servers import KeySpan, Order, SourceSide, TargetSide
from pidts.verify.match import Matcher
from pidts.verify.memory import ComparisonPlace
from pidts.verify.report import TableReport
from pidts.verify.spans import KEY_ROWS, CompareSpans, lacking, page_rows, span_rows

_MANY_DOUBTFUL = 5_000


@dataclass(frozen=True, slots=True)
class Hooks:
    """The functions that a `Walk` calls."""

    settle: Callable[[pa.Table, int], TableReport]
    """Settles doubtful keys, a given number at a time. Returns a report to add to that of the table."""
    show: Callable[[int, int], None]
    """Shows how many rows were compared since the last call, and how many keys are doubtful."""
    save: Callable[[ComparisonPlace], None]
    due: Callable[[], bool]
    """Returns whether it is time to save. Raises if the work has to end."""


@dataclass(slots=True)
class Walk:
    """The state of one table's comparison."""

    source: SourceSide
    target: TargetSide
    matcher: Matcher
    hooks: Hooks
    compare_spans: CompareSpans
    place: ComparisonPlace
    row_bytes: int
    _doubtful: list[pa.Table] = field(default_factory=list)
    _order: Order = Order.OTHER

    def run(self) -> TableReport:
        """Compares the table to its end, and returns its report."""
        table = self.matcher.table
        self._order = self.target.order(table)
        if not self.place.walking:
            highest = self.source.highest(table)
            if highest is not None and list(self.place.after or ()) != list(highest):
                self._compare(KeySpan(self.place.after, highest))
            self._flush()
            start = None if self._walks_all or highest is None else highest
            self._pass(replace(self.place, walking=True, after=start))
        self._walk_target()
        self._flush()
        return self.place.report

    @property
    def _walks_all(self) -> bool:
        return self._order is Order.OTHER or self.place.walk_all

    def _compare(self, whole: KeySpan) -> None:
        rows = span_rows(self.target, self._order, self.row_bytes)
        spans = self.source.spans(self.matcher.table, whole, rows, read=False)
        with closing(self.compare_spans(spans)) as results:  # reading must end before the connections close
            for result in results:
                if result.was_read and self._order is Order.LIKELY:
                    self.place = replace(self.place, walk_all=True)
                self._count(result.rows)
                for keys in result.doubtful:
                    self._doubt(keys)
                if result.end is not None:
                    self._pass(replace(self.place, after=result.end))

    def _walk_target(self) -> None:
        table = self.matcher.table
        while True:
            keys, after = self.target.keys(table, self.place.after, KEY_ROWS)
            if not len(keys):
                return
            self._doubt(lacking(self.source, self.matcher, keys))
            self.hooks.show(0, self._open)
            self._pass(replace(self.place, after=after))

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
        """Moves on to `place`. Settles the doubtful keys if there are many, and before the place is saved."""
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
            found = self.hooks.settle(keys, page_rows(self.target, self.row_bytes))
            self.place = replace(self.place, report=_added(self.place.report, found))


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
