"""All histories of one row in two zones, up to a length: none ends with different rows and no lock.

This is the argument of `pidts.apply.locks.made_already`, with its rules written down once more, on states alone. State 0
is "no row". `test_zones_former_values` runs the code itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

import pytest

Step: TypeAlias = tuple[int, int]
"""The state before a change, and behind it."""
Record: TypeAlias = frozenset[Step]
"""The changes that a zone has found made already."""
Rule: TypeAlias = Callable[[Step, Step], bool]
"""Whether a change is locked behind one that was made already."""
WRITES = 3


class History(NamedTuple):
    """Both zones: their rows, the changes under way to the other one, their records, the writes of their programs."""

    rows: tuple[int, int]
    under_way: tuple[tuple[Step, ...], tuple[Step, ...]]
    records: tuple[Record, Record]
    writes: tuple[int, int]


def rule(made: Step, change: Step) -> bool:
    return made[1] != 0 or change[1] == made[0]


def only_inserts_of_the_deleted_row(made: Step, change: Step) -> bool:
    return made[1] != 0 or (change[0] == 0 and change[1] == made[0])


def only_what_was_there_before(made: Step, change: Step) -> bool:
    return change[1] == made[0]


def nothing(made: Step, change: Step) -> bool:
    del made, change
    return False


def put(pair: tuple, place: int, value: object) -> tuple:  # type: ignore[type-arg]  # pairs of several types
    return (value, pair[1]) if place == 0 else (pair[0], value)


def following(one: History, states: int, locks: Rule) -> Iterator[History]:
    """All steps that may come next, unless a change is locked: then an operator sees it."""
    for zone in (0, 1):
        row, other = one.rows[zone], 1 - zone
        if one.writes[zone] < WRITES:
            for new in set(range(states)) - {row}:
                sent = (*one.under_way[zone], (row, new))
                yield one._replace(
                    rows=put(one.rows, zone, new),
                    under_way=put(one.under_way, zone, sent),
                    writes=put(one.writes, zone, one.writes[zone] + 1),
                )
        if not one.under_way[other]:
            continue
        change, *rest = one.under_way[other]
        record, taken = one.records[zone], put(one.under_way, other, tuple(rest))
        if any(locks(made, change) for made in record):
            continue
        if row == change[0]:
            yield one._replace(rows=put(one.rows, zone, change[1]), under_way=taken)
        elif row == change[1]:
            yield one._replace(under_way=taken, records=put(one.records, zone, record | {change}))


def differing(states: int, first: int, locks: Rule) -> int:
    """Counts how many histories end with different rows and no lock; those that come together count once."""
    begun = History((first, first), ((), ()), (frozenset(), frozenset()), (0, 0))
    seen, rest, found = {begun}, [begun], 0
    while rest:
        one = rest.pop()
        found += one.rows[0] != one.rows[1] and not any(one.under_way)
        new = {other for other in following(one, states, locks) if other not in seen}
        seen |= new
        rest += new
    return found


@pytest.mark.parametrize("first", [0, 1])
def test_no_history_ends_with_different_rows_and_no_lock(first: int) -> None:
    assert differing(3, first, rule) == 0


@pytest.mark.parametrize("wrong", [only_inserts_of_the_deleted_row, only_what_was_there_before, nothing])
def test_simpler_rules_do_not_hold(wrong: Rule) -> None:
    assert differing(3, 1, wrong) > 0
