"""Decides which zones' changes each task between zones carries on, so that each change reaches each zone once.

A task from zone `a` to zone `b` is a *feed*. It carries what was written in `a`, and of what other tasks have brought
to `a`, the changes of some zones. For each zone, the feeds that carry its changes form a tree with that zone as the
root: the shortest ways to all other zones, and of equally short ones always the same. Then

- a change reaches a zone once, since a tree has one way to each of its nodes;
- no change comes back, since no way of a tree leads to its root.

"Everything but what comes from the zone that the task writes to" is not enough. The counterexample is a star: hub `h`
with leaves `x` and `y`. `x` has got a change of `y` from the hub; a task that leaves out only what is of `h` itself
would carry it back to the hub, and from there to `y`.

In a full mesh each way is one feed long, so nothing is carried on.

One zone's tasks can prove the trees where they know only their own target: if of all tasks that write to a zone at most
one carries the changes of each zone, and none carries the changes of the zone itself, then the feeds that carry one
zone's changes have at most one end in each zone and none in the root. A circle of such feeds cannot be entered from the
root, so no change is in it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from typing import TypeAlias

Feed: TypeAlias = tuple[str, str]
"""The zone that a task reads, and the zone that it writes to."""
Unreached: TypeAlias = tuple[str, str]
"""A zone, and another one that its changes do not reach."""


def carried(feeds: Collection[Feed], leaves: Collection[str] = ()) -> dict[Feed, frozenset[str]]:
    """Returns the zones whose changes each feed carries, the zone that it reads among them.

    `leaves` are not written to by programs, and have no log that a task reads.
    """
    onwards: dict[str, list[str]] = {}
    for source, target in sorted(feeds):
        onwards.setdefault(source, []).append(target)
    found: dict[Feed, set[str]] = {feed: set() for feed in feeds}
    for root in _names(feeds) - set(leaves):
        for feed in _tree(root, onwards):
            found[feed].add(root)
    return {feed: frozenset(zones) for feed, zones in found.items()}


def unreached(feeds: Collection[Feed], zones: Iterable[str] = (), leaves: Collection[str] = ()) -> list[Unreached]:
    """Returns what does not arrive: each zone that is written to, with each other zone that its changes miss."""
    ways = carried(feeds, leaves)
    arrives = {(zone, target) for (_, target), origins in ways.items() for zone in origins}
    names = sorted({*zones, *_names(feeds)})
    return [
        (zone, other)
        for zone in names
        for other in names
        if zone != other and zone not in leaves and (zone, other) not in arrives
    ]


def check_carried(ways: Mapping[Feed, Collection[str]]) -> list[str]:
    """Returns what is wrong with feeds that carry these zones' changes: what would arrive twice, or come back."""
    wrong = []
    first: dict[tuple[str, str], str] = {}
    for (source, target), zones in sorted(ways.items()):
        for zone in sorted(zones):
            if zone == target:
                wrong.append(f"the changes of zone {zone} would come back to it from zone {source}")
            elif (other := first.setdefault((zone, target), source)) != source:
                wrong.append(f"the changes of zone {zone} would reach zone {target} twice, from {other} and {source}")
    return wrong


def _names(feeds: Iterable[Feed]) -> set[str]:
    return {name for feed in feeds for name in feed}


def _tree(root: str, onwards: Mapping[str, Iterable[str]]) -> list[Feed]:
    """Returns the feeds of the shortest ways from a zone to all others that it reaches."""
    feeds: list[Feed] = []
    reached, left = {root}, deque([root])
    while left:
        source = left.popleft()
        for target in onwards.get(source, ()):
            if target not in reached:
                reached.add(target)
                left.append(target)
                feeds.append((source, target))
    return feeds
