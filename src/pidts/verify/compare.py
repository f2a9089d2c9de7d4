"""All tables of a task, one after the other, while both sides are written to.

What holds when it breaks off: the memory was saved at a place where nothing was open, see `pidts.verify.memory`. A
comparison that goes on from there looks at each row behind that place, and at none twice.
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
from pidts.verify.keyless import compare_multisets
from pidts.verify.match import Matcher
from pidts.verify.memory import Memory, Place
from pidts.verify.normal import EXACT, Normals
from pidts.verify.owners import NOBODY
from pidts.verify.report import Difference, Finding, Report, TableReport
from pidts.verify.settle import Settled, settle
from pidts.verify.side import Flight, SourceSide, TargetSide
from pidts.verify.walk import Hooks, Walk

_SAVE_SECONDS = 5.0
_MOVED = frozenset({"structure-changed", "target-shape"})
"""Halts of a table whose structure is on its way."""
_TRIES = 5
_TRY_SECONDS = 1.0


class Stopped(Exception):
    """The user asked to stop; what is done is in the memory."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a comparison is."""

    table: TableName
    number: int
    tables: int
    rows: int
    estimate: int
    """Of the table, as the source guesses."""
    doubtful: int
    differences: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """What a comparison does besides comparing."""

    tell: Callable[[Progress], None] = lambda _: None
    save: Callable[[Memory], None] = lambda _: None
    differ: Callable[[Table, Settled], bool] = lambda *_: False
    """Called with each group of rows that are not equal; true where they are to be looked at again."""
    stop: threading.Event = field(default_factory=threading.Event)


def compare(
    source: SourceSide,
    target: TargetSide,
    flight: Flight,
    *,
    normals: Normals = EXACT,
    examples: int = 100,
    memory: Memory | None = None,
    outside: Outside | None = None,
) -> Report:
    """Go on from the memory; `examples` caps the differences that are named, all are counted."""
    with ThreadPoolExecutor(1) as pool:
        work = _Comparison(source, target, flight, normals, examples, outside or Outside(), pool, memory or Memory())
        return work.run()


@dataclass(slots=True)
class _Comparison:
    source: SourceSide
    target: TargetSide
    flight: Flight
    normals: Normals
    most: int
    outside: Outside
    pool: Executor
    memory: Memory
    _examples: list[Difference] = field(default_factory=list)
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
                self.outside.save(self.memory)
        return Report(self.memory.done, tuple(self._examples))

    def _table(self, table: Table, number: int, tables: int) -> TableReport | None:
        """None where the table has gone meanwhile."""
        for _ in range(_TRIES):
            known = len(self._examples)
            try:
                return self._compared(table, number, tables)
            except Halted as error:
                if error.code not in _MOVED:
                    raise
            del self._examples[known:]
            self.memory = replace(self.memory, place=None)
            self._pause(_TRY_SECONDS)
            now = self.source.structure(table.name)
            if now is None:
                return None
            table = now
        return TableReport(table.name, problem="its structure kept changing while it was compared")

    def _compared(self, table: Table, number: int, tables: int) -> TableReport:
        if (unfit := self._unfit(table)) is not None:
            return unfit
        matcher = Matcher(table, self.normals)
        if not table.identity:
            return compare_multisets(self.source, self.target, self.flight, matcher, self._pause)
        size = self.source.size(table)
        place = self.memory.place
        signature = self.source.signature(table)
        if place is None or place.report.table != table.name or place.structure != signature:
            place = Place(TableReport(table.name), signature)
            self._examples = [one for one in self._examples if one.table != table.name]
        walk: Walk

        def tell(_: int, doubtful: int) -> None:
            report = walk.place.report
            self.outside.tell(
                Progress(table.name, number, tables, report.rows, size.rows, doubtful, report.differences)
            )

        def save(place: Place) -> None:
            self.memory = self.memory.at(place, self._examples)
            self.outside.save(self.memory)
            self._saved = time.monotonic()

        hooks = Hooks(lambda keys, page: self._settle(matcher, keys, page), tell, save, self._is_due)
        walk = Walk(self.source, self.target, matcher, hooks, self.pool, place, size.row_bytes)
        return walk.run()

    def _unfit(self, table: Table) -> TableReport | None:
        """What is to be told where no row can be compared; what is on its way to the target is waited for."""
        misfits = self.target.misfits(table)
        if misfits == []:
            return None
        behind = self.flight.behind(table.name, self.flight.place(table.name)).values()
        misfits = self.target.misfits(table)
        if misfits == []:
            return None
        what = "there is no such table on the target" if misfits is None else "; ".join(misfits)
        waits = tuple(dict.fromkeys(f"{one.waits}; till then its rows are not compared: {what}" for one in behind))
        if any(one.waits for one in behind):
            return TableReport(table.name, waits=waits)
        return TableReport(table.name, missing=0 if misfits else self.source.count(table), problem=what)

    def _settle(self, matcher: Matcher, keys: pa.Table, page: int) -> TableReport:
        settled = settle(self.source, self.target, self.flight, matcher, keys, page, self._pause)
        if any(kind is Finding.EXTRA for kind, _ in settled.found):
            self.source.confirm(matcher.table)
        if len(settled.keys) and self.outside.differ(matcher.table, settled):
            settled = settle(self.source, self.target, self.flight, matcher, settled.keys, page, self._pause)
        counts = Counter(kind for kind, _ in settled.found)
        labels = self.source.members(matcher.table)
        for place, (kind, columns) in enumerate(settled.found[: max(self.most - len(self._examples), 0)]):
            key = matcher.readable(settled.keys, place)
            members = tuple(labels[member] for member in settled.members[place]) if len(labels) > 1 else ()
            shard = _shard(settled.owners[place], labels) if kind is Finding.EXTRA else ""
            self._examples.append(Difference(matcher.table.name, kind, key, columns, members, shard))
        return TableReport(
            matcher.table.name,
            missing=counts[Finding.MISSING],
            extra=counts[Finding.EXTRA],
            different=counts[Finding.DIFFERENT],
            unsettled=counts[Finding.UNSETTLED],
            waiting=counts[Finding.WAITING],
            waits=settled.waits,
            of_no_shard=settled.extras().count(NOBODY),
        )

    def _is_due(self) -> bool:
        if self.outside.stop.is_set():
            raise Stopped
        return time.monotonic() - self._saved > _SAVE_SECONDS

    def _pause(self, seconds: float) -> bool:
        if self.outside.stop.wait(seconds):
            raise Stopped
        return False


def _shard(owner: int, labels: Sequence[str]) -> str | None:
    """As a difference has it; where there is one table only, nobody asks whose a row is that may be its own."""
    if owner == NOBODY:
        return None
    return labels[owner] if owner >= 0 and len(labels) > 1 else ""
