"""Reads `pidts.zones`: one file for several zones, with their servers and feeds.

Each feed is a *direction*: an ordinary task with one source. Every command that takes a task file also takes
`shop.yaml@a-b`, the task from zone a to zone b. Keys outside `pidts.zones` apply to all directions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, permutations
from pathlib import Path

from pidts.model import ConfigError, Where
from pidts.model.similar_names import suggestion
from pidts.model.zone import ZONE_NAME
from pidts.task.config.section import Document, Section
from pidts.task.config.yaml_lines import Item
from pidts.zones import Feed, carried, unreached

BOTH_HAVE_ROWS = "both-have-rows"
"""The key that says that both zones have rows of their own when their tasks begin."""
_AT = "@"
_SHAPES = ("mesh", "ring", "star")
_OF_TARGET = ("type", "database")
"""Keys of a zone that only tasks into this zone use."""
_OF_ZONE = ("read-only", "joins")
"""Keys of a zone that no task uses."""
NOT_HERE = ("mysql-instances", "target-database")
"""Keys of a task file that a file of several zones does not have."""
NOT_IN_RULES = ("source-id", "from")
"""Keys of an instance that each direction gets from its zones."""


@dataclass(frozen=True, slots=True)
class Direction:
    """A task from one zone to another, of a file of several zones."""

    source: str
    target: str
    forwards: tuple[str, ...]
    """The other zones whose changes the direction forwards."""
    copies: bool
    """Whether the direction copies existing rows. One zone has all rows at the beginning, and all copies come from it.
    """
    both_have_rows: bool = False
    """Whether both zones have rows of their own when the direction begins. Each copies its rows to the other zone."""

    def __str__(self) -> str:
        return f"{self.source}-{self.target}"


def split_path(path: Path) -> tuple[Path, str]:
    """Returns the file of zones and the direction that a path names; the direction is empty if it names none."""
    name, at, direction = path.name.rpartition(_AT)
    if not at or path.exists():
        return path, ""
    return path.with_name(name), direction


def path_of(file: Path, direction: Direction) -> Path:
    """Returns the path by which commands name one direction of a file of zones: `shop.yaml@a-b`."""
    return file.with_name(f"{file.name}{_AT}{direction}")


def has_zones(root: Item) -> bool:
    """Whether the file has several directions."""
    ours = _mapping(root).get("pidts")
    return ours is not None and "zones" in _mapping(ours)


def read_directions(task: Section) -> tuple[Direction, ...]:
    """Returns all directions. Directions that copy rows come first, in the order in which the rows flow."""
    zones = task.section("pidts").section("zones")
    servers = zones.section("servers")
    names = servers.names
    for name in names:
        if not ZONE_NAME.fullmatch(name):
            what = f"expected a zone's name of at most 32 lower-case letters, digits and '_', not {name!r}"
            raise servers.error(name, "bad-value", what)
    if len(names) < 2:
        raise zones.error("servers", "missing-key", "expected two zones or more, each with its server")
    without_log = {name for name in names if servers.section(name).text("type", "mysql") != "mysql"}
    leaves = without_log.union(name for name in names if servers.section(name).flag("read-only", default=False))
    zones.section("rules")
    feeds = _feeds(zones, names, without_log)
    seeds = _seeds(servers, feeds)
    feeds = [feed for feed in feeds if feed[1] not in seeds or feed[0] == seeds[feed[1]]]
    unites = task.section("pidts").flag(BOTH_HAVE_ROWS, default=False)
    if unites:
        feeds = _united(task.section("pidts"), names, leaves, seeds, feeds)
    zones.finish()
    if lost := unreached(feeds, names, leaves):
        what = "; ".join(f"changes of zone {zone} do not reach zone {other}" for zone, other in lost[:3])
        more = f"; and {len(lost) - 3} more" if len(lost) > 3 else ""
        todo = "Add feeds, or write read-only: true for a zone whose tables no program changes."
        raise zones.error("feeds", "zone-unreached", f"{what}{more}", todo)
    owned = task.section("pidts").sections("owners")
    for one in owned:
        if (zone := one.text("zone")) not in names:
            raise one.error("zone", "unknown-name", f"{zone!r} is not a zone of this file", suggestion(zone, names))
    for leaf in sorted(without_log):
        feeders = [source for source, target in feeds if target == leaf]
        if len(feeders) > 1:
            what = f"zone {leaf} is fed by {', '.join(feeders)}, and each of them would carry all changes to it"
            raise zones.error("feeds", "bad-value", what, "Let one zone feed it.")
    first = names[0]
    while first in seeds:
        first = seeds[first]
    found = _ordered(feeds, first, without_log)
    both = {*(seeds or names)} if unites else set()
    return tuple(
        replace(one, copies=True, both_have_rows=True) if both & {one.source, one.target} else one for one in found
    )


def _united(
    ours: Section, names: Sequence[str], leaves: set[str], seeds: Mapping[str, str], feeds: Sequence[Feed]
) -> list[Feed]:
    """Returns the feeds of a file with `both-have-rows`, under which the rows of two zones are put together.

    The two zones are the file's only ones, or the zone that joins and its seed. The zone that joins feeds only its
    seed, so its changes reach all other zones through the seed.
    """
    if len(seeds) > 1 or (len(names) > 2 and not seeds):
        what = "one zone at a time can join with rows of its own"
        raise ours.error(BOTH_HAVE_ROWS, "not-supported", what, "Write joins: ZONE for this zone, or remove the key.")
    one, other = next(iter(seeds.items()), (names[0], names[-1]))
    if {one, other} & leaves or not {(one, other), (other, one)} <= {*feeds}:
        what = f"zones {one} and {other} do not feed each other, so they cannot both have rows of their own"
        raise ours.error(BOTH_HAVE_ROWS, "not-supported", what, "Let them feed each other, or remove the key.")
    return [feed for feed in feeds if feed[0] not in seeds or feed[1] == seeds[feed[0]]]


def _seeds(servers: Section, feeds: Sequence[Feed]) -> dict[str, str]:
    """Returns the zones that join, each with its seed. Only the seed feeds a zone that joins."""
    seeds: dict[str, str] = {}
    for name in servers.names:
        server = servers.section(name)
        if not server.has("joins"):
            continue
        seed = server.text("joins")
        if (seed, name) not in feeds:
            what = f"zone {seed!r} does not feed zone {name}"
            raise server.error("joins", "bad-value", what, "Name a zone that feeds it by pidts.zones.feeds.")
        seeds[name] = seed
        if servers.section(seed).has("joins"):
            what = f"zone {seed} also joins, so it does not have all rows"
            raise server.error("joins", "bad-value", what, "Let one zone join after the other.")
    return seeds


def _ordered(feeds: Sequence[Feed], first: str, without_log: set[str]) -> tuple[Direction, ...]:
    """Returns a direction for each feed. Directions that copy rows come first, in the order in which the rows flow.

    `first` is the zone that has all rows at the beginning.
    """
    ways = carried(feeds, without_log)
    reached = [first]
    for zone in reached:
        reached += [target for source, target in feeds if source == zone and first in ways[source, target]]
    found = [
        Direction(
            source,
            target,
            () if target in without_log else tuple(sorted(ways[source, target] - {source})),
            copies=first in ways[source, target],
        )
        for source, target in feeds
    ]
    return tuple(sorted(found, key=lambda one: (not one.copies, reached.index(one.source))))


def _feeds(zones: Section, names: Sequence[str], without_log: set[str]) -> list[Feed]:
    """Reads the feeds: `mesh`, `ring` or `star`, or for each zone the zones that it feeds."""
    if not zones.is_mapping("feeds"):
        shape = zones.choice("feeds", _SHAPES, "mesh")
        if without_log:
            what = f"zone {min(without_log)} is not a MySQL or MariaDB server, so it feeds no other zone"
            raise zones.error("feeds", "bad-value", what, "For each zone, name the zones that it feeds: {a: [b]}.")
        if shape == "mesh":
            return list(permutations(names, 2))
        if shape == "ring":
            return [*pairwise(names), (names[-1], names[0])]
        hub, leaves = names[0], names[1:]
        return [*((hub, leaf) for leaf in leaves), *((leaf, hub) for leaf in leaves)]
    given = zones.section("feeds")
    feeds: list[Feed] = []
    for source in given.names:
        for target, line in given.texts(source):
            for name in (source, target):
                if name not in names:
                    what = f"{name!r} is not a zone of this file"
                    raise zones.document.error(line, "unknown-name", what, suggestion(name, names))
            if source == target:
                raise zones.document.error(line, "bad-value", f"zone {source} cannot feed itself")
            if source in without_log:
                what = f"zone {source} is not a MySQL or MariaDB server, so it feeds no other zone"
                raise zones.document.error(line, "bad-value", what)
            if (source, target) not in feeds:
                feeds.append((source, target))
    return feeds


def as_task(root: Item, document: Document, name: str) -> Item:
    """Returns the task file of one direction."""
    task = Section(root, document)
    for key in NOT_HERE:
        if task.has(key):
            what = "pidts.zones already names the servers of all zones"
            raise task.error(key, "not-supported", what, "Remove it.")
    for key in ("zone", "target-zone", "forward"):
        if task.section("pidts").has(key):
            raise task.section("pidts").error(
                key, "not-supported", "pidts.zones decides this for all directions", "Remove it."
            )
    directions = read_directions(task)
    found = {str(one): one for one in directions}
    if name not in found:
        listed = ", ".join(f"{document.file.name}{_AT}{one}" for one in found)
        if not name:
            what = f"the file has {len(found)} directions, and this command is for one"
            raise ConfigError(
                "several-directions", what, where=Where(file=str(document.file)), todo=f"Name it: {listed}"
            )
        what = f"the file has no direction {name!r}"
        raise ConfigError("unknown-name", what, where=Where(file=str(document.file)), todo=f"There are: {listed}")
    one = found[name]
    top = _mapping(root)
    ours = _mapping(top["pidts"])
    zones = _mapping(ours["zones"])
    servers = _mapping(zones["servers"])
    line = zones["servers"].line

    def text(value: str) -> Item:
        return Item(value, line, value)

    source, target = (_mapping(servers[zone]) for zone in (one.source, one.target))
    rules = _mapping(zones["rules"]) if "rules" in zones else {}
    mode = task.text("task-mode", "all")
    own: dict[str, Item] = {"zone": text(one.source), "target-zone": text(one.target)}
    if one.forwards:
        own["forward"] = Item([text(zone) for zone in one.forwards], line)
    if "relay" in ours:
        own["relay"] = text(f"{task.section('pidts').text('relay')}/{one}")
    # No program writes to a zone without a log, so there are no conflicts.
    left_out = {"zones"} if "type" not in target or target["type"].value == "mysql" else {"zones", "conflict", "owners"}
    if not one.both_have_rows:
        left_out.add(BOTH_HAVE_ROWS)
    task_name = task.text("name")
    return replace(
        root,
        value={
            **{key: item for key, item in top.items() if key not in {"pidts", "name", "task-mode"}},
            "name": text(f"{task_name}-{one}"),
            "task-mode": text(mode if one.copies else "incremental"),
            "target-database": replace(
                servers[one.target], value={key: item for key, item in target.items() if key not in _OF_ZONE}
            ),
            "mysql-instances": Item(
                [
                    Item(
                        {
                            **rules,
                            "source-id": text(one.source),
                            "from": replace(
                                servers[one.source],
                                value={
                                    key: item for key, item in source.items() if key not in {*_OF_TARGET, *_OF_ZONE}
                                },
                            ),
                        },
                        line,
                    )
                ],
                line,
            ),
            "pidts": replace(
                top["pidts"], value={**{key: item for key, item in ours.items() if key not in left_out}, **own}
            ),
        },
    )


def _mapping(item: Item) -> Mapping[str, Item]:
    return item.value if isinstance(item.value, dict) else {}
