"""Compares all tables of a task, one after the other, while programs write to both sides.

The comparison saves its progress (`pidts.verify.memory`) when all rows that were read are known to be equal or known to
differ. So a comparison that continues from the saved progress compares each later row, and no row twice.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import pyarrow as pa

from pidts.model import Halted, Table, TableName
from pidts.verify.compared_servers import CatchUp, SourceSide, TargetSide
from pidts.verify.key_walk import Hooks, Walk
from pidts.verify.keyless import compare_multisets
from pidts.verify.match import Matcher
from pidts.verify.memory import ComparisonPlace, ComparisonState
from pidts.verify.normal_forms import EXACT, Normals
from pidts.verify.report import DifferenceKind, Report, RowDifference, TableReport, divided
from pidts.verify.row_members import NOBODY
from pidts.verify.settle import UnequalKeys, settle
from pidts.verify.spans import CompareSpans, SpanComparison

_SAVE_SECONDS = 5.0
_MOVED = frozenset({"structure-changed", "target-shape"})
"""The codes of a table's halts while its structure is changing."""
_UNREADABLE = "target-refused"
"""The code for values of the target that the source's column cannot store.

The column may have got another type on the source, and the target may not have this schema change yet.
"""
_KEY_NOT_STORED = "zero-date-in-key"
"""The code for a key of the source that the target cannot store."""
_MANY_ROWS = 500_000
"""A table with fewer rows than this is compared in this process: other processes would need seconds to start."""
_TRIES = 5
_TRY_SECONDS = 1.0


class ComparisonInterrupted(Exception):
    """The user has stopped the comparison. `report` has the results up to the last save."""

    def __init__(self, report: Report | None = None) -> None:
        super().__init__()
        self.report = report or Report((), (), stopped=True)


@dataclass(frozen=True, slots=True)
class ComparisonProgress:
    """The progress of a comparison."""

    table: TableName
    number: int
    tables: int
    rows: int
    estimate: int
    """The source's estimate of the table's rows."""
    doubtful: int
    differences: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Callbacks:
    """The functions that a comparison calls: to show and save its progress, to stop, and to handle differences."""

    show: Callable[[ComparisonProgress], None] = lambda _: None
    save: Callable[[ComparisonState], None] = lambda _: None
    differ: Callable[[Table, UnequalKeys], bool] = lambda *_: False
    """Gets each group of unequal rows, and returns whether these rows have to be compared again."""
    stop: threading.Event = field(default_factory=threading.Event)

    def demand_not_stopped(self) -> None:
        """Raises if the comparison has to end."""
        if self.stop.is_set():
            raise ComparisonInterrupted

    def pause(self, seconds: float) -> bool:
        """Waits, and raises if the comparison has to end; returns False."""
        if self.stop.wait(seconds):
            raise ComparisonInterrupted
        return False


Elsewhere = Callable[[TableName, str, Callable[[], None]], CompareSpans | None]
"""Returns the function by which other processes compare the spans of a table, or None if they cannot.

The arguments are the table's name and signature (`SourceSide.signature`), and a function that raises if the comparison
has to end.
"""


def compare(
    source: SourceSide,
    target: TargetSide,
    catch_up: CatchUp,
    *,
    normals: Normals = EXACT,
    examples: int = 100,
    memory: ComparisonState | None = None,
    callbacks: Callbacks | None = None,
    elsewhere: Elsewhere | None = None,
) -> Report:
    """Compares the tables, from the place in `memory` on if there is one.

    `examples` is how many differences are listed, divided among the tables. All differences are counted. Other
    processes (`elsewhere`) compare a large table if its rows have to be read, since the target has no checksums.
    """
    with ThreadPoolExecutor(1) as pool:
        work = _Comparison(
            source,
            target,
            catch_up,
            normals,
            examples,
            callbacks or Callbacks(),
            pool,
            memory or ComparisonState(),
            elsewhere,
        )
        try:
            return work.run()
        except ComparisonInterrupted as stopped:
            stopped.report = work.memory.so_far
            raise


@dataclass(slots=True)
class _Comparison:
    source: SourceSide
    target: TargetSide
    catch_up: CatchUp
    normals: Normals
    most: int
    callbacks: Callbacks
    pool: Executor
    memory: ComparisonState
    elsewhere: Elsewhere | None = None
    _examples: list[RowDifference] = field(default_factory=list)
    _saved: float = field(default_factory=time.monotonic)

    def run(self) -> Report:
        self._examples = list(self.memory.examples)
        done = {report.table for report in self.memory.done}
        tables = self.source.tables()
        for number, table in enumerate(tables, 1):
            if table.name in done:
                continue
            report = self._table(table, number, len(tables))
            if report is not None:
                self.memory = self.memory.finished(report, self._examples)
                self.callbacks.save(self.memory)
        return Report(self.memory.done, tuple(self._examples))

    def _table(self, table: Table, number: int, tables: int) -> TableReport | None:
        """Compares one table. Returns None if the table was dropped meanwhile."""
        for _ in range(_TRIES):
            known = list(self._examples)
            try:
                return self._compared(table, number, tables)
            except Halted as error:
                if error.code in {_UNREADABLE, _KEY_NOT_STORED} and (waits := self._waits(table)):
                    return _not_compared(table, waits, error.what)
                if error.code == _KEY_NOT_STORED:
                    return TableReport(table.name, problem=error.what)
                if error.code not in _MOVED:
                    raise
            self._examples = known
            self.memory = replace(self.memory, place=None)
            self.callbacks.pause(_TRY_SECONDS)
            now = self.source.structure(table.name)
            if now is None:
                return None
            table = now
        return TableReport(table.name, problem="its structure kept changing while it was compared")

    def _compared(self, table: Table, number: int, tables: int) -> TableReport:
        if (unfit := self._unfit(table)) is not None:
            return unfit
        matcher = Matcher(table, self.normals, self.target.documents(table))
        if not table.identity:
            return compare_multisets(self.source, self.target, self.catch_up, matcher, self.callbacks.pause)
        size = self.source.size(table)
        place = self.memory.place
        signature = self.source.signature(table)
        if place is None or place.report.table != table.name or place.structure != signature:
            place = ComparisonPlace(TableReport(table.name), signature)
            self._examples = [one for one in self._examples if one.table != table.name]
        walk: Walk

        def show(_: int, doubtful: int) -> None:
            report = walk.place.report
            self.callbacks.show(
                ComparisonProgress(table.name, number, tables, report.rows, size.rows, doubtful, report.differences)
            )

        def save(place: ComparisonPlace) -> None:
            self.memory = self.memory.at(place, self._examples)
            self.callbacks.save(self.memory)
            self._saved = time.monotonic()

        hooks = Hooks(lambda keys, page: self._settle(matcher, keys, page), show, save, self._is_due)
        first = None
        if self.elsewhere is not None and size.rows >= _MANY_ROWS and not self.target.has_sums:
            first = self.elsewhere(table.name, signature, self.callbacks.demand_not_stopped)
        first = first or SpanComparison(self.source, self.target, matcher, self.pool, size.row_bytes)
        walk = Walk(self.source, self.target, matcher, hooks, first, place, size.row_bytes)
        return walk.run()

    def _unfit(self, table: Table) -> TableReport | None:
        """Returns a report if the table cannot be compared, even after its pending changes have arrived; else None."""
        misfits = self.target.misfits(table)
        if misfits == []:
            return None
        waits = self._waits(table)
        misfits = self.target.misfits(table)
        if misfits == []:
            return None
        what = "there is no such table on the target" if misfits is None else "; ".join(misfits)
        if waits:
            return _not_compared(table, waits, what)
        return TableReport(table.name, missing=0 if misfits else self.source.count(table), problem=what)

    def _waits(self, table: Table) -> tuple[str, ...]:
        """Waits until the target has all changes of a table. Returns the reasons why it does not get them now."""
        not_caught_up = self.catch_up.await_target(table.name, self.catch_up.place(table.name)).values()
        return tuple(dict.fromkeys(one.waits for one in not_caught_up if one.waits))

    def _settle(self, matcher: Matcher, keys: pa.Table, page: int) -> TableReport:
        settled = settle(self.source, self.target, self.catch_up, matcher, keys, page, self.callbacks.pause)
        if any(kind is DifferenceKind.EXTRA for kind, _ in settled.found):
            self.source.confirm(matcher.table)
        if len(settled.keys) and self.callbacks.differ(matcher.table, settled):
            settled = settle(self.source, self.target, self.catch_up, matcher, settled.keys, page, self.callbacks.pause)
        counts = Counter(kind for kind, _ in settled.found)
        labels = self.source.members(matcher.table)
        for place, (kind, columns) in enumerate(settled.found[: self.most]):
            key = matcher.readable(settled.keys, place)
            members = tuple(labels[member] for member in settled.members[place]) if len(labels) > 1 else ()
            shard = _shard(settled.belongs_to[place], labels) if kind is DifferenceKind.EXTRA else ""
            self._examples.append(RowDifference(matcher.table.name, kind, key, columns, members, shard))
        self._examples = divided(self._examples, self.most)
        return TableReport(
            matcher.table.name,
            missing=counts[DifferenceKind.MISSING],
            extra=counts[DifferenceKind.EXTRA],
            different=counts[DifferenceKind.DIFFERENT],
            unsettled=counts[DifferenceKind.UNSETTLED],
            waiting=counts[DifferenceKind.WAITING],
            waits=settled.waits,
            locked=counts[DifferenceKind.LOCKED],
            of_no_shard=settled.extras().count(NOBODY),
        )

    def _is_due(self) -> bool:
        self.callbacks.demand_not_stopped()
        return time.monotonic() - self._saved > _SAVE_SECONDS


def _not_compared(table: Table, waits: Sequence[str], what: str) -> TableReport:
    """Returns the report of a table that waits, and whose rows cannot be compared meanwhile; `what` says why."""
    return TableReport(table.name, waits=tuple(f"{one}; until then its rows are not compared: {what}" for one in waits))


def _shard(member: int, labels: Sequence[str]) -> str | None:
    """Returns a shard's label; empty if the shard is unknown or the only one; None if the row has no shard."""
    if member == NOBODY:
        return None
    return labels[member] if member >= 0 and len(labels) > 1 else ""
