"""Reads `pidts.zone` and the keys that belong to it: the zones, the forwarded zones, and the rule for conflicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pidts.model import ConfigError, OnDivergence, Where
from pidts.model.zone import ZONE_NAME
from pidts.rules.ownership import ALL, OwnedRange, Owners
from pidts.task.config.mistakes import mistake
from pidts.task.config.section import Section
from pidts.task.config.zones_file import BOTH_HAVE_ROWS

if TYPE_CHECKING:
    from pidts.task.config.task_file import TaskConfig


@dataclass(frozen=True, slots=True)
class ZoneSpec:
    """The keys about zones in a task file; all are empty if the file has none."""

    name: str
    """The zone of the source."""
    target: str = ""
    """The zone of the target."""
    forwards: tuple[str, ...] = ()
    """The other zones whose changes the task forwards."""
    converges: bool = False
    """Whether the version column decides which change wins if several zones have written the same row."""
    owners: Owners = field(default_factory=Owners)
    """The zones that own rows: only an owner's writes are applied. Empty if every zone may write every row."""
    both_have_rows: bool = False
    """Whether both zones have rows of their own when the tasks begin (`pidts.task.checks.joining.both_have_rows`)."""


def read_zone(ours: Section, *, into_mysql: bool) -> ZoneSpec:
    """Reads the keys about zones. `into_mysql`: the target has a log that tasks can read."""
    name, target = (ours.text(key, "") for key in ("zone", "target-zone"))
    forwards = ours.texts("forward")
    for key, zone in (("zone", name), ("target-zone", target), *(("forward", zone) for zone, _ in forwards)):
        if ours.has(key) and not ZONE_NAME.fullmatch(zone):
            what = f"expected a zone's name of at most 32 lower-case letters, digits and '_', not {zone!r}"
            raise ours.error(key, "bad-value", what)
    for key in ("target-zone", "forward"):
        if not ours.is_empty(key) and not name:
            raise ours.error(key, "bad-value", "the task does not say which zone its source is", "Add pidts.zone.")
    if name and name == target:
        raise ours.error("target-zone", "bad-value", f"source and target are both the zone {name!r}")
    zones = tuple(dict.fromkeys(zone for zone, _ in forwards))
    if zones and not into_mysql:
        what = "a task carries all changes that it finds in the source to this target, whatever zone they come from"
        raise ours.error("forward", "not-supported", what, "Remove it.")
    if zones and not target:
        what = "the task does not say which zone it writes to, and the changes of that zone must not come back to it"
        raise ours.error("forward", "bad-value", what, "Add pidts.target-zone.")
    for zone, is_which in ((name, "source"), (target, "target")):
        if zone in zones:
            what = f"{zone!r} is the zone of the {is_which}, and only changes of other zones can be forwarded"
            raise ours.error("forward", "bad-value", what)
    decides = _conflict(ours, name, target, into_mysql=into_mysql)
    owners = _owners(ours, is_asked=decides == "owner")
    both = ours.flag(BOTH_HAVE_ROWS, default=False)
    if both and decides != "version":
        what = "the rows of two zones can be put together only with pidts.conflict: version"
        todo = "Write conflict: version, or empty the tables of one zone, and remove the key."
        raise ours.error(BOTH_HAVE_ROWS, "not-supported", what, todo)
    return ZoneSpec(name, target, zones, decides == "version", owners, both)


def _conflict(ours: Section, name: str, target: str, *, into_mysql: bool) -> str:
    """Reads `pidts.conflict`: `version` needs both zones and a version column, `owner` both zones and the owners.

    `name` is the source's zone, `target` the target's zone; empty if not given.
    """
    key = "conflict"
    found = ours.choice(key, ("lock", "version", "owner"), "lock")
    if not ours.has(key):
        return found
    if not name:
        raise ours.error(
            key,
            "bad-value",
            "only zones have conflicts, and the task does not say which zone its source is",
            "Add pidts.zone.",
        )
    if found == "lock":
        return found
    has_version = bool(ours.text("version-column", ""))
    if not into_mysql and found == "version" and has_version:
        ours.note(key, "no effect: no task carries changes of this target back, so version-column alone decides")
        return "lock"
    if not into_mysql:
        what = "no program writes to this target, so nothing is in conflict"
        raise ours.error(key, "not-supported", what, "Remove it.")
    if not target:
        gets = "would get back rows that its own changes have removed" if found == "version" else "may own rows"
        what = f"the task does not say which zone it writes to, and that zone {gets}"
        raise ours.error(key, "bad-value", what, "Add pidts.target-zone.")
    if found == "version" and not has_version:
        what = "the task does not say which column has a row's version"
        raise ours.error(key, "bad-value", what, "Add pidts.version-column.")
    if found == "owner" and has_version:
        what = "either the owner of a row decides or the row's version, not both"
        raise ours.error("version-column", "not-supported", what, "Remove it, or write conflict: version.")
    return found


def _owners(ours: Section, *, is_asked: bool) -> Owners:
    """Reads `pidts.owners`: the zones that own rows, and the ranges of these rows.

    If `pidts.conflict` is `owner` (`is_asked`), owners are required; otherwise they are refused.
    """
    key = "owners"
    sections = ours.sections(key)
    if not is_asked:
        if sections:
            what = "rows have owners only where pidts.conflict is owner"
            raise ours.error(key, "bad-value", what, "Write pidts.conflict: owner, or remove it.")
        return Owners()
    if not sections:
        raise ours.error(key, "missing-key", "pidts.conflict is owner, and no zone owns anything")
    owners = Owners(tuple(map(_range, sections)))
    owners.demand_one_owner()
    return owners


def _range(section: Section) -> OwnedRange:
    schema, table, zone = section.literal("schema"), section.literal("table", ALL), section.text("zone")
    where = section.literal("where", "")
    if not ZONE_NAME.fullmatch(zone):
        what = f"expected a zone's name of at most 32 lower-case letters, digits and '_', not {zone!r}"
        raise section.error("zone", "bad-value", what)
    section.finish()
    return OwnedRange(
        schema=schema, table=table, zone=zone, where=where, file=str(section.document.file), line=section.line
    )


def demand_one_writer(config: TaskConfig, command: str) -> None:
    """Raises if programs also write to the target's zone: the target's rows may then be newer than the source's."""
    if config.is_between_zones:
        raise ConfigError(
            "not-supported",
            f"{command} is not for a task between zones: a row that was written in the target's zone would be lost",
            where=Where(file=str(config.path)),
            todo="Look at the rows with pidts verify TASK, and correct the wrong row in its own zone; the task "
            "carries it",
        )


def demand_one_zone(task: Section, instances: Sequence[Section], config: TaskConfig) -> None:
    """Records a mistake for each key that a task between zones cannot have yet."""
    if len(instances) > 1:
        what = "a task between zones must have one source"
        mistake(task.error("mysql-instances", "not-supported", what, "Write a task file for each source."))
    reasons = {
        "shard-mode": (bool(config.shard_mode), "merged tables cannot be carried back"),
        "routes": (bool(config.rules.routes.rules), "a table must have the same name in all zones"),
        "column-mappings": (bool(config.rules.mappings), "a row must have the same values in all zones"),
    }
    for key, (is_asked, why) in reasons.items():
        if is_asked:
            mistake(task.error(key, "not-supported", f"{why} (the task names its zone)", "Remove it."))
    if config.zones.owners and config.on_divergence is not OnDivergence.LOCK:
        what = "a write of a zone that does not own the row is locked (pidts.conflict is owner)"
        mistake(task.section("pidts").error("on-divergence", "not-supported", what, "Remove it."))
    if config.zones.both_have_rows and config.mode != "all":
        what = "the tasks of both directions copy rows, and task-mode is not all"
        mistake(task.section("pidts").error(BOTH_HAVE_ROWS, "bad-value", what, "Write task-mode: all, or remove it."))
    if config.zones.converges or config.zones.owners:
        decides = "version" if config.zones.converges else "owner"
        for key, is_asked in (
            ("filters", bool(config.rules.events.rules)),
            ("expression-filter", bool(config.rules.expressions.rules)),
        ):
            if is_asked:
                what = f"the zones cannot become equal where changes are left out (pidts.conflict is {decides})"
                mistake(task.error(key, "not-supported", what, "Remove it."))
