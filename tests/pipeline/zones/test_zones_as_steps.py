"""All histories of one row in two or three zones, up to a length: none ends with different rows and no lock.

This checks the argument of `pidts.apply.locks.already_applied` and `pidts.apply.locks.zone_notes`. The rules are written
once more here, with states alone. State 0 is "no row". `test_zones_former_values` runs the code itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

import pytest

Step: TypeAlias = tuple[int, int]
"""The states before and after a change."""
Record: TypeAlias = frozenset[tuple[Step, int]]
"""The changes that a zone has found made already, and the zones from which they came."""
Rule: TypeAlias = Callable[[Step, Step], bool]
"""Whether a change is locked after a change that was made already."""
WRITES = {2: 6, 3: 4}
"""The number of writes of all programs together, by the number of zones."""


class History(NamedTuple):
    """All zones: their rows, the changes on their way between zones, their records, the writes of their programs."""

    rows: tuple[int, ...]
    under_way: tuple[tuple[tuple[Step, ...], ...], ...]
    records: tuple[Record, ...]
    writes: int


def rule(made: Step, change: Step) -> bool:
    return made[1] != 0 or change[1] == made[0]


def only_inserts_of_the_deleted_row(made: Step, change: Step) -> bool:
    return made[1] != 0 or (change[0] == 0 and change[1] == made[0])


def only_what_was_there_before(made: Step, change: Step) -> bool:
    return change[1] == made[0]


def nothing(made: Step, change: Step) -> bool:
    del made, change
    return False


def put(values: tuple, place: int, value: object) -> tuple:  # type: ignore[type-arg]  # tuples of several types
    return (*values[:place], value, *values[place + 1 :])


def following(one: History, states: int, locks: Rule, own: Rule) -> Iterator[History]:
    """Returns all possible next steps; none if a change is locked somewhere, since an operator sees the lock.

    A zone records a change from another zone that it has found made already. After such a record, `locks` says which
    changes from other zones are locked in this zone. `own` says which changes by this zone's programs are locked in the
    other zones.
    """
    zones = range(len(one.rows))
    for zone in zones:
        row, record = one.rows[zone], one.records[zone]
        for new in set(range(states)) - {row} if one.writes < WRITES[len(zones)] else ():
            if not any(own(made, (row, new)) for made, _ in record):
                sent = tuple(() if other == zone else (*one.under_way[zone][other], (row, new)) for other in zones)
                rows, under_way = put(one.rows, zone, new), put(one.under_way, zone, sent)
                yield one._replace(rows=rows, under_way=under_way, writes=one.writes + 1)
        for other in zones:
            if not one.under_way[other][zone]:
                continue
            change, *rest = one.under_way[other][zone]
            taken = put(one.under_way, other, put(one.under_way[other], zone, tuple(rest)))
            # The INSERT of another task after a DELETE that found no row is locked, too: `early_removals`.
            if any(locks(made, change) or (made[1] == change[0] == 0 and via != other) for made, via in record):
                continue
            if row == change[0]:
                yield one._replace(rows=put(one.rows, zone, change[1]), under_way=taken)
            elif row == change[1]:
                yield one._replace(under_way=taken, records=put(one.records, zone, record | {(change, other)}))


def differing(states: int, first: int, locks: Rule, own: Rule = nothing, zones: int = 2) -> int:
    """Counts the histories that end with different rows and no lock. Histories with equal states count once."""
    begun = History((first,) * zones, (((),) * zones,) * zones, (frozenset(),) * zones, 0)
    seen, rest, found = {begun}, [begun], 0
    while rest:
        one = rest.pop()
        found += len({*one.rows}) > 1 and not any(any(sent) for sent in one.under_way)
        new = {other for other in following(one, states, locks, own) if other not in seen}
        seen |= new
        rest += new
    return found


@pytest.mark.parametrize("first", [0, 1])
def test_no_history_ends_with_different_rows_and_no_lock(first: int) -> None:
    assert differing(3, first, rule) == 0


@pytest.mark.parametrize("wrong", [only_inserts_of_the_deleted_row, only_what_was_there_before, nothing])
def test_simpler_rules_do_not_hold(wrong: Rule) -> None:
    assert differing(3, 1, wrong) > 0


@pytest.mark.parametrize("first", [0, 1])
def test_no_history_of_three_zones_does(first: int) -> None:
    assert differing(3, first, rule, rule, 3) == 0


def test_own_changes_have_to_be_locked() -> None:
    assert differing(3, 1, rule, nothing, 3) > 0
