"""Compares tables without a key as multisets, in which only whole rows can be distinguished.

First, each server computes a checksum of its rows. If a server cannot, both sides are read part by part, and PiDTS
computes the checksums. If the checksums differ, both sides are read once more, and the copies of each distinct row are
counted.

If a change of a row is still pending, the row differs now and is equal later. So a row counts as different only if all
of several readings find the same two unequal numbers of copies. In each reading, the source is read first, then the
target catches up, and then the target is read. A row that was equal in the first reading and is unequal later was
written meanwhile, and does not count. If the log had no change of the table during a reading, all differences of this
reading count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

import pyarrow as pa

from pidts.verify.compared_servers import CatchUp, KeySpan, SourceSide, Sum, TargetSide
from pidts.verify.match import Matcher
from pidts.verify.report import TableReport

_READINGS = 8
_PAUSE = 0.5
_WHOLE = KeySpan()

Copies = dict[bytes, tuple[int, int]]


def compare_multisets(
    source: SourceSide,
    target: TargetSide,
    catch_up: CatchUp,
    matcher: Matcher,
    pause: Callable[[float], bool],
) -> TableReport:
    """Compares one table without a key. Counts missing and extra copies of rows; no row counts as different.

    `pause` waits for some seconds, and returns true if the work has to end.
    """
    table = matcher.table
    report = TableReport(table.name, has_key=False)
    there, here = _servers_sums(source, target, catch_up, matcher) or _sums(source, target, catch_up, matcher)
    if there == here:
        return replace(report, rows=there.rows)
    wrong: Copies | None = None
    moving: set[bytes] = set()
    for _ in range(_READINGS):
        low = catch_up.settled(table.name)
        rows = _counted(matcher, source.all(table))
        not_caught_up = catch_up.await_target(table.name, catch_up.place(table.name))
        copies = _counted(matcher, target.all(table))
        report = replace(report, rows=rows.total())
        now = {row: (rows[row], copies[row]) for row in rows.keys() | copies.keys() if rows[row] != copies[row]}
        if not now or (not not_caught_up and catch_up.untouched(table.name, low, catch_up.place(table.name))):
            return _with_copies(report, now)
        again = now if wrong is None else {row: now[row] for row in wrong.keys() & now.keys()}
        moving |= {row for row, numbers in again.items() if wrong is not None and wrong[row] != numbers}
        wrong = again
        if not wrong:
            return report
        if not_caught_up:
            waits = tuple(dict.fromkeys(one.waits for one in not_caught_up.values()))
            if all(waits):
                return replace(report, waiting=_distance(wrong), waits=waits)
            return replace(report, unsettled=_distance(wrong))
        if pause(_PAUSE):
            break
    lasting = {row: numbers for row, numbers in (wrong or {}).items() if row not in moving}
    restless = {row: numbers for row, numbers in (wrong or {}).items() if row in moving}
    return replace(_with_copies(report, lasting), unsettled=_distance(restless))


def _servers_sums(
    source: SourceSide, target: TargetSide, catch_up: CatchUp, matcher: Matcher
) -> tuple[Sum, Sum | None] | None:
    """Returns both checksums, or None if a server has none. A target that lacks changes has the checksum None."""
    table = matcher.table
    there = source.sum(table, _WHOLE) if target.has_sums else None
    if there is None:
        return None
    if catch_up.await_target(table.name, catch_up.place(table.name)):
        return there, None
    here = target.sum(table, _WHOLE)
    return None if here is None else (there, here)


def _sums(source: SourceSide, target: TargetSide, catch_up: CatchUp, matcher: Matcher) -> tuple[Sum, Sum | None]:
    """Reads both sides. Returns the checksums of source and target; None for a target that lacks changes."""
    table = matcher.table
    there = _summed(matcher, source.all(table))
    if catch_up.await_target(table.name, catch_up.place(table.name)):
        return there, None
    return there, _summed(matcher, target.all(table))


def _summed(matcher: Matcher, parts: Iterator[pa.Table]) -> Sum:
    rows = digest = 0
    for part in parts:
        rows += len(part)
        digest += sum(int.from_bytes(stamp) for stamp in matcher.stamps(matcher.conform(part), normal=True))
    return Sum(rows, digest)


def _with_copies(report: TableReport, copies: Copies) -> TableReport:
    missing = sum(max(there - here, 0) for there, here in copies.values())
    return replace(report, missing=missing, extra=sum(max(here - there, 0) for there, here in copies.values()))


def _counted(matcher: Matcher, parts: Iterator[pa.Table]) -> Counter[bytes]:
    copies: Counter[bytes] = Counter()
    for part in parts:
        copies.update(matcher.stamps(matcher.conform(part), normal=True))
    return copies


def _distance(copies: Copies) -> int:
    return sum(abs(there - here) for there, here in copies.values())
