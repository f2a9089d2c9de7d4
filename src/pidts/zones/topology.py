"""Decides which zones' changes each task between zones passes on, so that each change reaches each zone once.

A task from zone `a` to zone `b` is a *feed*. It carries the changes that were written in `a`, and changes of some other
zones that other tasks have brought to `a`. For each zone, the feeds that carry its changes form a tree with that zone
as the root. The tree has the shortest path to every other zone; among equally short paths, the choice is always the
same. So

- a change reaches a zone once, since a tree has one path to each of its nodes;
- no change comes back, since no path of a tree leads to its root.

It is not enough to leave out the changes of the zone that the task writes to. For example, a star has the hub `h` and
the leaves `x` and `y`, and `x` has got a change of `y` from the hub. A task from `x` to `h` that leaves out only the
changes of `h` would carry this change back to the hub, and on to `y`.

In a full mesh each path consists of one feed, so no changes are passed on.

The tasks that write to one zone can check the trees although each task has the records of its own target only. There
are two conditions for each zone:

1. For every other zone, at most one task carries that zone's changes to this zone.
2. No task carries this zone's own changes back to it.

Suppose that both are true in all zones, and take the feeds that carry the changes of one zone, the root. At most one of
these feeds ends in each zone, and none ends in the root. Some of them may form a cycle, but no feed leads from the root
into the cycle, so no change gets into it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from typing import TypeAlias

Feed: TypeAlias = tuple[str, str]
"""The zone that a task reads, and the zone that it writes to."""
Unreached: TypeAlias = tuple[str, str]
"""A zone, and another zone that its changes do not reach."""


def carried(feeds: Collection[Feed], leaves: Collection[str] = ()) -> dict[Feed, frozenset[str]]:
    """Returns the zones whose changes each feed carries, including the zone that it reads.

    `leaves` are zones in which no programs write, and whose logs no task reads.
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
    """Returns pairs of a zone with writes and another zone that its changes do not reach."""
    ways = carried(feeds, leaves)
    arrives = {(zone, target) for (_, target), origins in ways.items() for zone in origins}
    names = sorted({*zones, *_names(feeds)})
    return [
        (zone, other)
        for zone in names
        for other in names
        if zone != other and zone not in leaves and (zone, other) not in arrives
    ]


def _names(feeds: Iterable[Feed]) -> set[str]:
    return {name for feed in feeds for name in feed}


def _tree(root: str, onwards: Mapping[str, Iterable[str]]) -> list[Feed]:
    """Returns the feeds of the shortest paths from a zone to all other zones that it reaches."""
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
