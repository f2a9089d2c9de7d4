"""Finds out which doubtful rows are really different, while programs write to both sides.

A difference counts if it remains when all pending changes have arrived.

One round, for many keys at once:

1. `low`: a place in the source's log. Everything that is read from now on contains all changes before it.
2. The source's rows are read. `high` is the end of the log directly afterwards: the rows contain only changes before
   it.
3. Wait until the target has all of the table's log up to `high`. In a merged table, some members may wait for a schema
   change, so that their log does not arrive for now. In this round, nothing can be decided about a row that only such a
   member has, or that no member has. The rows of all other members can be decided.
4. The target's rows are read, and then the source's rows once more.
5. If the target's row equals the row that the source has at the second reading, it counts as equal. Otherwise, if
   the source's row has changed between its two readings, programs are writing to it, and the next round compares it
   again.
6. If the source's row has stayed the same and the target's row is different, there are two cases. If the log from `low`
   to its end after the second reading has no change of the table, the difference is real: the target has all log from
   which the source's row results. If programs write to the table all the time, the log always has a change: between two
   readings, the row could have been changed and changed back. Then the same two rows must be found in several rounds.

Rows that change in each round are *unsettled*, and so are rows whose log cannot be waited for. They are listed and
counted, and not treated as equal. Rows whose log waits for a known cause are *waiting*. Rows that are set aside for an
operator are *locked*, in any of these cases. If a change is made during the comparison and lost, the next comparison
finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from pidts.verify.compared_servers import CatchUp, KeyedSource, KeyedTarget, NotCaughtUp
from pidts.verify.match import Matcher
from pidts.verify.report import DifferenceKind
from pidts.verify.row_members import ANYBODY

_ROUNDS = 12
_SAME_ROUNDS = 4
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 0.2

Found = tuple[DifferenceKind, tuple[str, ...]]
_Stamp = bytes | None


@dataclass(frozen=True, slots=True)
class UnequalKeys:
    """Keys of unequal rows, with the finding on each."""

    keys: pa.Table
    found: tuple[Found, ...]
    members: tuple[tuple[int, ...], ...]
    """For each key, the numbers of the members that have it."""
    belongs_to: tuple[int, ...]
    """For each key that no member has, the number of the member to which it belongs (`RowMembers`); otherwise
    `ANYBODY`.
    """
    waits: tuple[str, ...] = ()
    """The causes for which rows wait."""

    def extras(self) -> list[int]:
        """Returns the entry of `belongs_to` for each extra row."""
        return [
            member
            for member, (kind, _) in zip(self.belongs_to, self.found, strict=True)
            if kind is DifferenceKind.EXTRA
        ]

    def only(self, places: Sequence[int]) -> UnequalKeys:
        """Returns the result for some of the keys."""
        return UnequalKeys(
            self.keys.take(pa.array(places, pa.int64())),
            tuple(self.found[place] for place in places),
            tuple(self.members[place] for place in places),
            tuple(self.belongs_to[place] for place in places),
            self.waits,
        )


@dataclass(slots=True)
class _Watch:
    """The last round's rows of a key, and the number of rounds in which they were the same."""

    seen: tuple[_Stamp, _Stamp] | None = None
    rounds: int = 0

    def note(self, seen: tuple[_Stamp, _Stamp]) -> int:
        self.rounds = self.rounds + 1 if seen == self.seen else 1
        self.seen = seen
        return self.rounds


def settle(
    source: KeyedSource,
    target: KeyedTarget,
    catch_up: CatchUp,
    matcher: Matcher,
    keys: pa.Table,
    page: int,
    pause: Callable[[float], bool],
) -> UnequalKeys:
    """Compares the rows of these keys in rounds, `page` keys at a time, until none is doubtful or the rounds are over.

    `pause` waits for some seconds between two rounds, and returns true if the work has to end.
    """
    table = matcher.table
    watches = [_Watch() for _ in range(len(keys))]
    final: dict[int, Found] = {}
    last: dict[int, Found] = {}
    having: dict[int, tuple[int, ...]] = {}
    belongs_to: dict[int, int] = {}
    whose = source.row_members(table)
    waits: dict[str, None] = {}
    open_keys = list(range(len(keys)))
    aside: set[int] = set()
    seconds = _FIRST_PAUSE
    for _ in range(_ROUNDS):
        low = catch_up.settled(table.name)
        before = {
            number: stamp
            for numbers, part in _pages(keys, open_keys, page)
            for number, stamp in zip(numbers, _read(source, matcher, part).stamps, strict=True)
        }
        not_caught_up = catch_up.await_target(table.name, catch_up.place(table.name))
        last, definite = {}, {}
        for numbers, part in _pages(keys, open_keys, page):
            # A lock may be resolved just after its row was read, so the locked rows are queried before and after the
            # reading.
            aside |= {numbers[place] for place in target.locked(table, part)}
            here = matcher.conform(target.find(table, part))
            there = _read(source, matcher, part)
            stamps, member_of = matcher.stamps(here), whose.find(here)
            for place, (kind, columns, row) in matcher.verdicts(part, there.rows, here).items():
                number = numbers[place]
                having[number] = there.members[place]
                belongs_to[number] = member_of[row] if row >= 0 and not there.members[place] else ANYBODY
                sure = belongs_to[number] if whose.decides_by_key(table) else ANYBODY
                if (pending := _pending_kind(there, place, not_caught_up, sure)) is not None:
                    final[number] = pending, columns
                    continue
                last[number] = kind, columns
                if before[number] == there.stamps[place]:
                    seen = there.stamps[place], stamps[row] if row >= 0 else None
                    definite[number] = watches[number].note(seen)
        waits |= {one.waits: None for one in not_caught_up.values() if one.waits}
        if definite and catch_up.untouched(table.name, low, catch_up.place(table.name)):
            final |= {number: last[number] for number in definite}
        else:
            final |= {number: last[number] for number, rounds in definite.items() if rounds >= _SAME_ROUNDS}
        open_keys = sorted(last.keys() - final.keys())
        last = {number: last[number] for number in open_keys}
        if not open_keys or pause(seconds):
            break
        seconds = min(seconds * 2, _LONGEST_PAUSE)
    final |= {number: (DifferenceKind.UNSETTLED, columns) for number, (_, columns) in last.items()}
    wrong = sorted(final)
    aside |= (
        {wrong[place] for place in target.locked(table, keys.take(pa.array(wrong, pa.int64())))} if wrong else set()
    )
    final |= {number: (DifferenceKind.LOCKED, final[number][1]) for number in aside.intersection(final)}
    said = tuple(waits) if any(kind is DifferenceKind.WAITING for kind, _ in final.values()) else ()
    return UnequalKeys(
        keys.take(pa.array(wrong, pa.int64())),
        tuple(final[number] for number in wrong),
        tuple(having[number] for number in wrong),
        tuple(belongs_to[number] for number in wrong),
        said,
    )


def _pending_kind(
    there: _SourceRows, place: int, not_caught_up: Mapping[int, NotCaughtUp], member: int
) -> DifferenceKind | None:
    """Returns the finding on a row if the comparison has stopped waiting for its pending changes; None if all arrived.

    A row that no member has may belong to any member, unless its key shows to which member it belongs.
    """
    concerned = there.members[place] or ([member] if member >= 0 else range(there.count))
    states = [not_caught_up[member] for member in concerned if member in not_caught_up]
    if not states:
        return None
    return DifferenceKind.WAITING if all(one.waits for one in states) else DifferenceKind.UNSETTLED


@dataclass(frozen=True, slots=True)
class _SourceRows:
    """The source's rows of some keys."""

    rows: pa.Table
    stamps: list[_Stamp]
    """A digest of each key's row; None if there is no row."""
    members: list[tuple[int, ...]]
    """For each key, the numbers of the members that have it."""
    count: int
    """The number of members."""


def _read(source: KeyedSource, matcher: Matcher, keys: pa.Table) -> _SourceRows:
    parts: list[pa.Table] = []
    stamps: list[list[bytes]] = [[] for _ in range(len(keys))]
    members: list[list[int]] = [[] for _ in range(len(keys))]
    count = len(source.members(matcher.table))
    for member in range(count):
        rows = matcher.conform(source.find(matcher.table, keys, member))
        found = matcher.stamps(rows)
        for key, row in zip(*matcher.pairs(keys, rows), strict=True):
            stamps[key].append(found[row])
            members[key].append(member)
        parts.append(rows)
    return _SourceRows(
        pa.concat_tables(parts),
        [b"".join(one) if one else None for one in stamps],
        [tuple(dict.fromkeys(one)) for one in members],
        count,
    )


def _pages(keys: pa.Table, numbers: list[int], page: int) -> Iterator[tuple[list[int], pa.Table]]:
    for begin in range(0, len(numbers), page):
        part = numbers[begin : begin + page]
        yield part, keys.take(pa.array(part, pa.int64()))
