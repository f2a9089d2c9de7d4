"""Finds out which doubtful rows are really different, while programs write to both sides.

A difference counts if it remains when all pending changes have arrived.

One round, for many keys at once:

1. `low`: a place in the source's log. Everything that is read from now on contains all changes before it.
2. The source's rows are read. `high` is the end of the log directly afterwards: the rows contain only earlier changes.
3. Wait until the target has all of the table's log up to `high`. In a merged table, some members may wait for a schema
   change, so that their log does not arrive for now. Then this round decides nothing about rows that only such a member
   has, or that no member has. The round decides about the rows of all other members.
4. The target's rows are read, and then the source's rows once more.
5. If the target's row equals the row that the source has at the second reading, it counts as equal. Otherwise, if the
   source's row has changed between its two readings, programs are writing to it, and the next round compares it again.
6. If the source's row has stayed the same and the target's row is different, there are two cases:

   - The log from `low` to its end after the second reading has no change of the table. Then the difference is real: the
     target has all log from which the source's row results.
   - The log has a change, as always if programs write to the table all the time: between two readings, the row could
     have been changed and changed back. Then several rounds in a row must find the same two rows. Take a row that
     switches between two values at random. In about one of four rounds, both readings of the source show the same row,
     and the target's row is different. In about one of eight rounds, these are also the same two rows as in the round
     before. Eight such rounds in a row are required, so fewer than one of a million such rows count as different.

Rows that change in each round are *unsettled*, and so are rows whose log cannot be waited for. Unsettled rows are
listed and counted, and not treated as equal. Rows whose log waits for a known cause are *waiting*. Rows that are set
aside for an operator are *locked*, in any of these cases. If a change that is made during the comparison is lost, the
next comparison finds it.
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
_SAME_ROUNDS = 8
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 0.2

Found = tuple[DifferenceKind, tuple[str, ...]]
_Stamp = bytes | None


@dataclass(frozen=True, slots=True)
class UnequalKeys:
    """Keys of unequal rows, with a finding about each key."""

    keys: pa.Table
    found: tuple[Found, ...]
    members: tuple[tuple[int, ...], ...]
    """For each key, the numbers of the members that have it."""
    belongs_to: tuple[int, ...]
    """For each key that no member has, the number of the member to which it belongs (`RowMembers`); else `ANYBODY`."""
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
    """The rows that both sides had for a key in the last round, and in how many rounds in a row they were the same."""

    seen: tuple[_Stamp, _Stamp] | None = None
    rounds: int = 0

    def note(self, seen: tuple[_Stamp, _Stamp]) -> int:
        self.rounds = self.rounds + 1 if seen == self.seen else 1
        self.seen = seen
        return self.rounds

    def note_change(self) -> None:
        """Forgets the earlier rounds: the source's row has changed during a round."""
        self.rounds = 0


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
    rounds = _Rounds(source, target, catch_up, matcher, keys, page)
    open_keys, seconds = list(range(len(keys))), _FIRST_PAUSE
    for _ in range(_ROUNDS):
        open_keys = rounds.compare(open_keys)
        if not open_keys or pause(seconds):
            break
        seconds = min(seconds * 2, _LONGEST_PAUSE)
    return rounds.result()


class _Rounds:
    """The findings about some keys in the rounds so far. Each key is identified by its number."""

    def __init__(
        self,
        source: KeyedSource,
        target: KeyedTarget,
        catch_up: CatchUp,
        matcher: Matcher,
        keys: pa.Table,
        page: int,
    ) -> None:
        self._source, self._target, self._catch_up, self._matcher = source, target, catch_up, matcher
        self._table, self._keys, self._page = matcher.table, keys, page
        self._whose = source.row_members(matcher.table)
        self._watches = [_Watch() for _ in range(len(keys))]
        self._final: dict[int, Found] = {}
        """The findings that no later round changes."""
        self._last: dict[int, Found] = {}
        """The findings of the last round, which a later round may change."""
        self._having: dict[int, tuple[int, ...]] = {}
        self._belongs_to: dict[int, int] = {}
        self._waits: dict[str, None] = {}
        self._aside: set[int] = set()
        """The keys whose rows were locked when they were read."""

    def compare(self, numbers: list[int]) -> list[int]:
        """Makes one round for these keys, and returns the keys that are still doubtful."""
        table, catch_up = self._table, self._catch_up
        low = catch_up.settled(table.name)
        before = {
            number: stamp
            for part_numbers, part in self._pages(numbers)
            for number, stamp in zip(part_numbers, _read(self._source, self._matcher, part).stamps, strict=True)
        }
        not_caught_up = catch_up.await_target(table.name, catch_up.place(table.name))
        self._last = {}
        definite: dict[int, int] = {}
        for part_numbers, part in self._pages(numbers):
            definite |= self._compare_page(part_numbers, part, before, not_caught_up)
        self._waits |= {one.waits: None for one in not_caught_up.values() if one.waits}
        is_untouched = bool(definite) and catch_up.untouched(table.name, low, catch_up.place(table.name))
        self._final |= {
            number: self._last[number] for number, same in definite.items() if is_untouched or same >= _SAME_ROUNDS
        }
        still_open = sorted(self._last.keys() - self._final.keys())
        self._last = {number: self._last[number] for number in still_open}
        return still_open

    def _compare_page(
        self,
        numbers: list[int],
        keys: pa.Table,
        before: Mapping[int, _Stamp],
        not_caught_up: Mapping[int, NotCaughtUp],
    ) -> dict[int, int]:
        """Compares the rows of one page of keys with the target's rows, and notes what is found.

        `before` has each key's row on the source at the round's first reading. Returns the unequal keys whose row on
        the source is still the same; for each, in how many rounds in a row neither side has changed.
        """
        matcher, table = self._matcher, self._table
        # A lock may be resolved just after its row was read. So the locked rows are queried before and after the
        # reading.
        self._aside |= {numbers[place] for place in self._target.locked(table, keys)}
        here = matcher.conform(self._target.find(table, keys))
        there = _read(self._source, matcher, keys)
        stamps, member_of = matcher.stamps(here), self._whose.find(here)
        decides_by_key = self._whose.decides_by_key(table)
        definite: dict[int, int] = {}
        for place, (kind, columns, row) in matcher.verdicts(keys, there.rows, here).items():
            number = numbers[place]
            member = member_of[row] if row >= 0 and not there.members[place] else ANYBODY
            self._having[number], self._belongs_to[number] = there.members[place], member
            pending = _pending_kind(there, place, not_caught_up, member if decides_by_key else ANYBODY)
            if pending is not None:
                self._final[number] = pending, columns
                continue
            self._last[number] = kind, columns
            if before[number] == there.stamps[place]:
                seen = there.stamps[place], stamps[row] if row >= 0 else None
                definite[number] = self._watches[number].note(seen)
            else:
                self._watches[number].note_change()
        return definite

    def result(self) -> UnequalKeys:
        """Returns the finding about each unequal key. Keys that are still doubtful are unsettled."""
        final = self._final
        final |= {number: (DifferenceKind.UNSETTLED, columns) for number, (_, columns) in self._last.items()}
        wrong = sorted(final)
        rows = self._keys.take(pa.array(wrong, pa.int64()))
        if wrong:
            self._aside |= {wrong[place] for place in self._target.locked(self._table, rows)}
        final |= {number: (DifferenceKind.LOCKED, final[number][1]) for number in self._aside.intersection(final)}
        return UnequalKeys(
            rows,
            tuple(final[number] for number in wrong),
            tuple(self._having[number] for number in wrong),
            tuple(self._belongs_to[number] for number in wrong),
            tuple(self._waits) if any(kind is DifferenceKind.WAITING for kind, _ in final.values()) else (),
        )

    def _pages(self, numbers: list[int]) -> Iterator[tuple[list[int], pa.Table]]:
        for begin in range(0, len(numbers), self._page):
            part = numbers[begin : begin + self._page]
            yield part, self._keys.take(pa.array(part, pa.int64()))


def _pending_kind(
    there: _SourceRows, place: int, not_caught_up: Mapping[int, NotCaughtUp], member: int
) -> DifferenceKind | None:
    """Returns WAITING or UNSETTLED if some pending changes of a row have not arrived; None if all have arrived.

    A row that no member has may belong to any member, unless its key shows to which member it belongs.
    """
    concerned = there.members[place] or ([member] if member >= 0 else range(there.count))
    states = [not_caught_up[member] for member in concerned if member in not_caught_up]
    if not states:
        return None
    return DifferenceKind.WAITING if all(one.waits for one in states) else DifferenceKind.UNSETTLED


@dataclass(frozen=True, slots=True)
class _SourceRows:
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
