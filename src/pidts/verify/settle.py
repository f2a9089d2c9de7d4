"""Which doubtful rows are really different, while both sides are written to.

A difference counts if it outlives the flight of what is on its way.

One round, for many keys at once:

1. `low`: a place in the source's log up to which everything shows in what is read from now on.
2. The source's rows are read. All that they show lies before `high`, the log's end right after.
3. Wait until the target has all of the table's log up to `high`.
4. The target's rows are read, then the source's once more.
5. The target's row is the source's second one: fine, whatever it was before. If the source's row was another one
   before, it is being written to: the next round looks again.
6. The source's row stayed the same and the target's is another one. If the log from `low` to its end after the second
   reading has nothing about the table, that is a difference and nothing else: the target has all of the log that
   made the source's row. Where the table is written to all the time, that is never known; a row could have become
   what the target has, and the same again, between two readings. Then the same two rows must be met in several rounds.

Rows that are never twice the same, and rows for whose log nobody can wait, are *unsettled*: named and counted, not
taken for equal. What is written while the comparison runs and lost in that time is for the next comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from pidts.verify.match import Matcher
from pidts.verify.report import Finding
from pidts.verify.side import Flight, SourceSide, TargetSide

_ROUNDS = 12
_SAME_ROUNDS = 4
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 0.2

Found = tuple[Finding, tuple[str, ...]]
_Stamp = bytes | None


@dataclass(frozen=True, slots=True)
class Settled:
    """Keys with what is wrong with each; keys of rows that are equal are left out."""

    keys: pa.Table
    found: tuple[Found, ...]


@dataclass(slots=True)
class _Watch:
    """What the last round saw of a key, and in how many rounds it was the same."""

    seen: tuple[_Stamp, _Stamp] | None = None
    rounds: int = 0

    def note(self, seen: tuple[_Stamp, _Stamp]) -> int:
        self.rounds = self.rounds + 1 if seen == self.seen else 1
        self.seen = seen
        return self.rounds


def settle(
    source: SourceSide,
    target: TargetSide,
    flight: Flight,
    matcher: Matcher,
    keys: pa.Table,
    page: int,
    pause: Callable[[float], bool],
) -> Settled:
    """Look at these keys, `page` at a time, until nothing is open; `pause` is true where the work is to end."""
    table = matcher.table
    watches = [_Watch() for _ in range(len(keys))]
    final: dict[int, Found] = {}
    last: dict[int, Found] = {}
    open_keys = list(range(len(keys)))
    seconds = _FIRST_PAUSE
    for _ in range(_ROUNDS):
        low = flight.settled()
        before = _stamps(source, matcher, keys, open_keys, page)
        reached = flight.reached(table.name, flight.place())
        last, moved, definite = {}, set(), {}
        for numbers, part in _pages(keys, open_keys, page):
            here = matcher.conform(target.find(table, part))
            there = matcher.conform(source.find(table, part))
            now = _by_key(matcher, part, there)
            stamps = matcher.stamps(here)
            for place, (kind, columns, row) in matcher.verdicts(part, there, here).items():
                number = numbers[place]
                last[number] = kind, columns
                if before[number] != now[place]:
                    moved.add(number)
                else:
                    definite[number] = watches[number].note((now[place], stamps[row] if row >= 0 else None))
        if not reached:
            break
        if definite and flight.untouched(table.name, low, flight.place()):
            final |= {number: last[number] for number in definite}
        else:
            final |= {number: last[number] for number, rounds in definite.items() if rounds >= _SAME_ROUNDS}
        open_keys = sorted(last.keys() - final.keys())
        last = {number: last[number] for number in open_keys}
        if not open_keys or pause(seconds):
            break
        seconds = min(seconds * 2, _LONGEST_PAUSE)
    final |= {number: (Finding.UNSETTLED, columns) for number, (_, columns) in last.items()}
    wrong = sorted(final)
    return Settled(keys.take(pa.array(wrong, pa.int64())), tuple(final[number] for number in wrong))


def _stamps(source: SourceSide, matcher: Matcher, keys: pa.Table, numbers: list[int], page: int) -> dict[int, _Stamp]:
    found: dict[int, _Stamp] = {}
    for part_numbers, part in _pages(keys, numbers, page):
        rows = matcher.conform(source.find(matcher.table, part))
        found |= dict(zip(part_numbers, _by_key(matcher, part, rows), strict=True))
    return found


def _by_key(matcher: Matcher, keys: pa.Table, rows: pa.Table) -> list[_Stamp]:
    stamps = matcher.stamps(rows)
    found: list[_Stamp] = [None] * len(keys)
    for key, row in zip(*matcher.pairs(keys, rows), strict=True):
        found[key] = stamps[row]
    return found


def _pages(keys: pa.Table, numbers: list[int], page: int) -> Iterator[tuple[list[int], pa.Table]]:
    for begin in range(0, len(numbers), page):
        part = numbers[begin : begin + page]
        yield part, keys.take(pa.array(part, pa.int64()))
