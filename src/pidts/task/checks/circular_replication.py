"""Finds tasks that bring this task's changes back to where they came from.

The counterexample: task `ab` carries shop.orders from A to B, and task `ba` carries it from B to A. A row that A
changes twice reaches B once, comes back with its first value, and overwrites the second one. Each side loses writes.

The evidence is on this task's source: another task that writes there keeps its checkpoint, its tables and its routes
in its meta schema there, and records the identity of the server that it reads. If that server is this task's target,
the routes of both tasks show which tables go in a circle. An account that may not read that schema does not see it.

A ring of three tasks, A to B to C to A, is seen by what each task has recorded of the tasks before it: B's task records
on C that it carries tables of A, too. It knows that if the task from A had begun before it started; it looks again at
each start.

Two tasks that start for the first time at the same moment do not see each other before they start. So each task checks
again after it has recorded its own source: the later one of the two sees the other.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

from pidts.apply import TargetSession
from pidts.apply.merge.table_owners import RULES
from pidts.model import Checkpoint, Cutover, CutoverStage, Halted, OfSource, PidtsError, TableName, Where
from pidts.model.zone import RETURNING, ZONE_NOTE
from pidts.rules import Rules
from pidts.rules.record import from_text
from pidts.source import Session, query, server_info
from pidts.source.connection import IDENTIFYING, PLACE_OF_MARIADB, ServerInfo
from pidts.source.finding import Finding
from pidts.source.structures import quoted
from pidts.task.config.task_file import TaskConfig

SOURCE_SERVER = TableName("", "source server")
"""The key of the note that holds the identity of a source's server."""

TARGET_ZONE = TableName("", "target zone")
"""The key of the note that names the zone of a task's target, where the task says it."""

FORWARDS = TableName("", "forwards")
"""The key of the note with the other zones whose changes a task carries on."""

CONFLICT = TableName("", "conflict")
"""The key of the note about what decides where several zones write the same row: a column, owners, or empty: locks."""

RETURNS = TableName("", "returns")
"""The key of the notes of `pidts zones return`.

In the records of the task that fills the zone: what its run has to know to find rows there; its first claim removes
it. In those of `RETURN_RECORD`: up to where the zone's log is accounted for, until the zone has returned.
"""

RETURN_RECORD = "pidts zones return"
"""The task of that note: no task has this name."""

ORIGINS = TableName("", "origins")
"""The key of the note that holds the servers whose changes come to a source from other tasks."""

_EVIDENCE = {("checkpoint", "epoch"), ("note", "told"), ("structure", "structure")}
"""Tables of a meta schema, each with a column that only it has."""
_OWNERS = "owners: "
"""The beginning of a note about owners; no column's name has a blank at its end."""
_NAMED = 3
"""A message names at most this many tables."""
_MOST_RECORDED = 10_000
"""A note holds at most this many tables of an origin."""

Ask = Callable[..., Sequence[tuple[Any, ...]]]
"""Runs a query on a server, with its values if it has any, and returns the rows."""

Step = Callable[[TableName], TableName | None]
"""Returns the table to which a task carries the changes of a table; None where it does not carry them."""


@dataclass(frozen=True, slots=True)
class FeedingServer:
    """A server whose changes come to another server by one task or by several, one behind the other."""

    server: str
    """Its identity; empty if an older version has not recorded it."""
    tasks: tuple[str, ...]
    """The tasks in the order in which a change passes them."""
    tables: Mapping[TableName, TableName]
    """The tables of that server, and the tables in which their changes end."""
    zone: str = ""
    """The zone of that server; empty: none."""


@dataclass(frozen=True, slots=True)
class WritingTask:
    """A task that writes to the server that was queried."""

    meta_schema: str
    task: str
    source: str
    origins: tuple[FeedingServer, ...]
    """The server that it reads, and those whose changes come to that server."""
    zone: str = ""
    """The zone of the server that it reads; empty: none."""
    target_zone: str = ""
    """The zone of this server, as the task says; empty: it does not say."""
    forwards: frozenset[str] = frozenset()
    """The other zones whose changes it carries on."""
    conflict: str = ""
    """The column that decides where several zones write the same row; empty: such rows are locked."""

    @property
    def carries(self) -> frozenset[str]:
        """Returns the zones whose changes it brings here."""
        return self.forwards | {self.zone} if self.zone else self.forwards

    @property
    def tables(self) -> frozenset[TableName]:
        """Returns the tables that it carries."""
        return frozenset(self.origins[0].tables)


def record_source(config: TaskConfig, source: Session, target: TargetSession) -> None:
    """Records on the target which server this source is, and whose changes other tasks bring to it."""
    there = _identity(config, target)
    origins = _origins(config, writers_on(source), there) if there else []
    notes, place = target.meta.notes, (config.name, OfSource(config.source.source_id))
    target.begin()
    notes.write(*place, SOURCE_SERVER, server_info(source).identity)
    if config.is_between_zones:
        notes.write(*place, ZONE_NOTE, config.zone)
        notes.write(*place, TARGET_ZONE, config.zones.target)
        notes.write(*place, FORWARDS, json.dumps(config.zones.forwards))
        notes.write(*place, CONFLICT, _conflict(config))
    if origins or notes.read(*place, ORIGINS):
        notes.write(*place, ORIGINS, _as_text(origins))
    target.commit()


def _origins(config: TaskConfig, writers: Iterable[WritingTask], there: str) -> list[FeedingServer]:
    """Returns the origins of this task's changes behind its source: one for each server, the target aside.

    Of what comes from other zones, a task between zones carries on what its task file says.
    """
    found: dict[str, FeedingServer] = {}
    for writer, origin in _of_others(config, writers):
        if not origin.server or _is_same(origin.server, there):
            continue
        if writer.zone and config.is_between_zones and origin.zone not in config.zones.forwards:
            continue
        known = found.get(origin.server) or FeedingServer(origin.server, origin.tasks, {}, origin.zone)
        ends = ((name, _carried(config, at)) for name, at in origin.tables.items())
        carried = {name: end for name, end in ends if end is not None}
        if carried or known.tables:
            found[origin.server] = replace(known, tables={**carried, **known.tables})
    return list(found.values())


def _of_others(config: TaskConfig, writers: Iterable[WritingTask]) -> Iterator[tuple[WritingTask, FeedingServer]]:
    """Yields the origins of the tasks that write to this task's source, those of the task itself aside."""
    for writer in writers:
        if (writer.task, writer.source) != (config.name, config.source.source_id):
            yield from ((writer, origin) for origin in writer.origins)


def _carried(config: TaskConfig, name: TableName) -> TableName | None:
    """Returns the table to which this task carries the changes of a table of its source; None if it does not."""
    return target_name(config.rules, name) if config.allow(name) else None


def _as_text(origins: Iterable[FeedingServer]) -> str:
    return json.dumps(
        [
            {
                "server": origin.server,
                "tasks": origin.tasks,
                "zone": origin.zone,
                "tables": [
                    (name.schema, name.name, end.schema, end.name)
                    for name, end in islice(sorted(origin.tables.items()), _MOST_RECORDED)
                ],
            }
            for origin in origins
        ],
        ensure_ascii=False,
    )


def _from_text(text: str) -> list[FeedingServer]:
    return [
        FeedingServer(
            one["server"],
            tuple(one["tasks"]),
            {TableName(schema, name): TableName(*end) for schema, name, *end in one["tables"]},
            one.get("zone", ""),
        )
        for one in json.loads(text or "[]")
    ]


def circle_findings(
    config: TaskConfig, source: Session, target: TargetSession, tables: Iterable[TableName]
) -> list[Finding]:
    """Returns a failed finding for each task that sends this task's changes back; `tables` are those of the source."""
    there = _identity(config, target)
    if not there:
        return []

    findings = []
    if _is_same(server_info(source).identity, there):
        round_trip = going_round(tables, partial(_carried, config))
        if round_trip:
            what = f"the target is the source itself: changes of {_listed(round_trip)} in a circle"
            fix = "Give these tables another name on the target (routes), or exclude them (block-allow-list)"
            findings.append(_finding(what, fix))
    writers = writers_on(source)
    findings += _other_records(config, writers)
    if config.is_between_zones:
        findings += _way_findings(config, target, there, writers, frozenset(filter(config.allow, tables)))
    for writer, origin in _of_others(config, writers):
        if not _is_same(origin.server, there):
            continue

        def there_and_back(name: TableName, tables: Mapping[TableName, TableName] = origin.tables) -> TableName | None:
            return _carried(config, tables[name]) if name in tables else None

        round_trip = going_round(origin.tables, there_and_back)
        if round_trip and writer.zone and config.is_between_zones:
            findings += _zone_findings(config, target, writer)
        elif round_trip:
            first = ", ".join(origin.tasks[:-1])
            what = (
                f"task {writer.task} (source-id {writer.source}) carries changes from this task's target"
                f"{f', which come by task {first},' if first else ''} to this source, and this task carries them back: "
                f"changes of {_listed(round_trip)} in a circle"
            )
            fix = (
                "Carry each table in one direction only: exclude these tables from one of the two tasks, or, "
                f"if task {writer.task} will never run again: {_forgotten(writer)}; there"
            )
            findings.append(_finding(what, fix))
    return findings


def demand_same_zone(config: TaskConfig, target: TargetSession, stored: Iterable[Checkpoint]) -> None:
    """Halts where a task that has begun names another zone than before.

    What it has written before shows the former zone or none, and the other direction would carry it back. The zone is
    recorded after the first claim, which removes the notes of an earlier task, and before the first batch. A start that
    dies between the two has written no rows. Until the first batch, and the first schema change if that comes before
    it, nothing is written, so the zone may be corrected.
    """
    zone = config.zone if config.is_between_zones else ""
    known = target.meta.notes.read(config.name, OfSource(config.source.source_id), ZONE_NOTE)
    if known == zone:
        return
    if any(checkpoint.batch for checkpoint in stored) or _has_altered(config, target):
        raise Halted(
            "zone-changed",
            f"the task has begun with {f'the zone {known}' if known else 'no zone'}, and its file says otherwise",
            where=Where(source=config.source.source_id, file=str(config.path)),
            todo="Put pidts.zone back as it was. For another zone, begin a task of another name",
        )


def may_find_rows(config: TaskConfig, target: TargetSession) -> bool:
    """Whether the task may begin with a copy though its target has rows: its target is a zone that returns."""
    from pidts.target.mysql import MySqlSession

    if not (config.is_between_zones and isinstance(target, MySqlSession)):
        return False
    is_there = config.target.meta_schema in meta_schemas(target.rows)  # a check makes no meta schema
    known = target.meta.notes.read(config.name, OfSource(config.source.source_id), RETURNS) if is_there else ""
    return bool(known) and known == os.environ.get(RETURNING)


def demand_returned(config: TaskConfig, source: Session) -> None:
    """Halts where a task would begin out of a zone whose return was interrupted: programs may have written there."""
    ask = partial(query, source)
    if not config.is_between_zones or config.target.meta_schema not in meta_schemas(ask):
        return
    note = f"SELECT told FROM {quoted(config.target.meta_schema)}.note WHERE task = %s AND table_name = %s"
    if any(told for (told,) in ask(note, [RETURN_RECORD, RETURNS.name])):
        raise Halted(
            "zone-not-returned",
            f"zone {config.zone} was being filled from another one, and nobody has looked whether programs have "
            "written to it meanwhile",
            where=Where(source=config.source.source_id, file=str(config.path)),
            todo="Stop the programs that write there, and say it once more: pidts zones return",
        )


def demand_same_ways(
    config: TaskConfig, source: Session | None, target: TargetSession, stored: Iterable[Checkpoint]
) -> None:
    """Halts where a task that has begun does not carry on a zone's changes any more, and no other task brings them.

    A zone has left where no task brings its changes to the source any more; without a source, nobody knows.

    What the source gets of them from here on would never come to the target. A task that brings them directly has to
    begin exactly here: see `pidts.task.zones.hand_over`.
    """
    if not config.is_between_zones or not any(checkpoint.batch for checkpoint in stored):
        return
    known = target.meta.notes.read(config.name, OfSource(config.source.source_id), FORWARDS)
    left = {*json.loads(known or "[]")} - {*config.zones.forwards, config.zones.target}
    own = target.meta.structures.load(config.name, OfSource(config.source.source_id)).keys() if left else frozenset()
    for other in _writers_of_target(config, target) if left else ():
        if other.tables >= own:
            left -= other.carries
    if left and source is not None and config.target.meta_schema in meta_schemas(partial(query, source)):
        left &= {zone for writer in writers_on(source) for zone in writer.carries}
    if left:
        zones = _zones(sorted(left))
        raise Halted(
            "zone-way-lost",
            f"the task has carried on changes of {zones}, its file does not say so any more, and no other task brings "
            "them to the target: they would be lost",
            where=Where(source=config.source.source_id, file=str(config.path)),
            todo="Put pidts.forward back. Or hand them over to tasks that bring them directly: pidts zones hand-over. "
            "If the zone has left, remove the records of the tasks that read it (docs/operate/zones.md)",
        )


def _has_altered(config: TaskConfig, target: TargetSession) -> bool:
    """Whether the task has begun a schema change on a target that may be a zone."""
    from pidts.target.mysql import MySqlSession

    if not isinstance(target, MySqlSession):
        return False
    journal = "SELECT 1 FROM pidts_meta.ddl_journal WHERE task = %s AND source = %s LIMIT 1"
    return bool(target.rows(journal, (config.name, config.source.source_id)))


def _other_records(config: TaskConfig, writers: Iterable[WritingTask]) -> list[Finding]:
    """Returns a finding for each task that brings rows of a zone here and leaves its marks in another meta schema.

    This task would carry these rows on, and the marks with them.
    """
    if not config.is_between_zones:
        return []
    return [
        _finding(
            f"task {writer.task} keeps its records in {writer.meta_schema}, and this task in "
            f"{config.target.meta_schema}: what it brings would be carried on",
            fix="Give the tasks of all zones the same meta-schema",
        )
        for writer in writers
        if writer.zone and writer.meta_schema.lower() != config.target.meta_schema.lower()
    ]


def _way_findings(
    config: TaskConfig, target: TargetSession, there: str, writers: Iterable[WritingTask], tables: frozenset[TableName]
) -> list[Finding]:
    """Returns what keeps each zone's changes from reaching the target by one way: see `pidts.zones.topology`.

    Each task proves it for its own target. What one task alone cannot know, since a task that will bring it has not
    begun yet, passes and is told.
    """
    spec, found = config.zones, []
    mine = frozenset({spec.name, *spec.forwards})
    others = [one for one in _writers_of_target(config, target) if one.zone and not one.tables.isdisjoint(tables)]
    for other in others:
        remove = (
            f"remove the records of task {other.task} on the target if it will never run again: {_forgotten(other)}"
        )
        if both := sorted(other.carries & mine):
            what = (
                f"task {other.task} brings the changes of {_zones(both)} to this target, too: they would arrive twice"
            )
            found.append(_finding(what, f"Let one of the two tasks carry them (pidts.forward), or {remove}"))
        if spec.target and other.target_zone not in {"", spec.target}:
            what = f"task {other.task} says that this target is zone {other.target_zone}, not {spec.target}"
            found.append(_finding(what, f"Correct pidts.target-zone in one of the two, or {remove}"))
    brought: set[str] = set()
    for writer in writers:
        if not writer.zone or writer.tables.isdisjoint(tables):
            continue
        brought |= writer.carries
        if writer.target_zone not in {"", spec.name}:
            what = f"task {writer.task} says that this source is zone {writer.target_zone}, not {spec.name}"
            found.append(_finding(what, "Correct pidts.zone here, or pidts.target-zone there"))
        is_there = _is_same(writer.origins[0].server, there)
        if is_there and spec.target and writer.zone != spec.target:
            what = f"task {writer.task} says that this target is zone {writer.zone}, not {spec.target}"
            found.append(_finding(what, "Correct pidts.target-zone here, or pidts.zone there"))
        if is_there:
            brought.discard(writer.zone)
    found += _rule_findings(config, [*others, *(one for one in writers if one.zone)])
    if absent := sorted({*spec.forwards} - brought):
        what = f"no task brings changes of {_zones(absent)} to the source yet, which this task is to carry on"
        found.append(replace(_finding(what, ""), ok=True))
    arriving = mine.union({spec.target}, *(other.carries for other in others))
    if missing := sorted(brought - arriving):
        what = f"changes of {_zones(missing)} come to the source, and no task brings them to the target yet"
        found.append(replace(_finding(what, ""), ok=True))
    two_ways = sorted(zone for zone in brought if any(zone in other.carries for other in others))
    if two_ways and not _conflict(config):
        what = (
            f"changes of {_zones(two_ways)} come to the source and to the target by two ways: what zone {spec.name} "
            "does to their rows may come to the target before the rows, and is set aside then, or the rows are "
            "(pidts locks). Rows that get former values again can differ without a lock: let each write change a "
            "column, such as a time"
        )
        found.append(replace(_finding(what, ""), ok=True))
    if absent := sorted(spec.owners.zones - arriving - brought):
        what = f"no task brings changes of {_zones(absent)} here yet, which own{'s' if len(absent) == 1 else ''} rows"
        found.append(replace(_finding(what, ""), ok=True))
    return found


def _zones(names: Sequence[str]) -> str:
    return f"zone{'s' if len(names) > 1 else ''} {', '.join(names)}"


def _forgotten(writer: WritingTask) -> str:
    return f"DELETE FROM {quoted(writer.meta_schema)}.checkpoint WHERE task = '{writer.task}'"


def _writers_of_target(config: TaskConfig, target: TargetSession) -> list[WritingTask]:
    """Returns the other tasks that keep their records where this task does."""
    from pidts.target.mysql import MySqlSession

    assert isinstance(target, MySqlSession)  # noqa: S101 - that is its type
    place = (config.name, config.source.source_id)
    schema = config.target.meta_schema
    found = _writers_in(target.rows, schema) if schema in meta_schemas(target.rows) else []
    return [writer for writer in found if (writer.task, writer.source) != place]


def _zone_findings(config: TaskConfig, target: TargetSession, writer: WritingTask) -> list[Finding]:
    """Returns what keeps this task and one that brings its target's changes here from running together."""
    found = []
    if writer.zone == config.zone:
        what = f"task {writer.task} reads zone {writer.zone} as well, which is another server"
        found.append(_finding(what, "Give the source of each of the two tasks a zone of its own (pidts.zone)"))
    begun = target.meta.checkpoints.read(config.name, config.source.source_id)
    if config.mode != "incremental" and not begun:
        what = f"task {writer.task} carries this task's target to its source already, and a copy would overwrite rows"
        found.append(_finding(what, "Write task-mode: incremental in the task that begins second"))
    return found


def writers_on(session: Session) -> list[WritingTask]:
    """Returns all tasks that have begun to write to this server, as far as the account may read their records."""
    ask = partial(query, session)
    return [writer for schema in meta_schemas(ask) for writer in _writers_in(ask, schema)]


def meta_schemas(ask: Ask) -> list[str]:
    """Returns the schemas of a server in which tasks keep their records."""
    rows = ask(
        "SELECT table_schema, table_name, column_name FROM information_schema.columns "
        "WHERE table_name IN ('checkpoint', 'note', 'structure') AND column_name IN ('epoch', 'told', 'structure')",
    )
    seen: dict[str, set[tuple[str, str]]] = {}
    for schema, table, column in rows:
        seen.setdefault(str(schema), set()).add((str(table), str(column)))
    return sorted(schema for schema, columns in seen.items() if columns >= _EVIDENCE)


def _writers_in(ask: Ask, schema: str) -> list[WritingTask]:
    place = quoted(schema)
    over = _cut_over(ask, schema)
    begun = [
        (task, source)
        for task, source in ask(f"SELECT DISTINCT task, source FROM {place}.checkpoint ORDER BY 1, 2")
        if task not in over
    ]
    noted = {
        (task, source, TableName("", name)): str(told)
        for task, source, name, told in ask(
            f"SELECT task, source, table_name, told FROM {place}.note WHERE table_schema = ''"
        )
    }
    tables: dict[tuple[object, object], set[TableName]] = {}
    for task, source, table_schema, name in ask(
        f"SELECT DISTINCT task, source, table_schema, table_name FROM {place}.structure"
    ):
        tables.setdefault((task, source), set()).add(TableName(str(table_schema), str(name)))
    found = []
    for task, source in begun:
        text = noted.get((task, source, RULES))
        rules = from_text(text) if text else Rules()
        ends = ((name, target_name(rules, name)) for name in tables.get((task, source), ()))
        zone, target_zone, forwards = (noted.get((task, source, key), "") for key in (ZONE_NOTE, TARGET_ZONE, FORWARDS))
        own = FeedingServer(
            noted.get((task, source, SOURCE_SERVER), ""),
            (str(task),),
            {name: end for name, end in ends if end is not None},
            zone,
        )
        before = _from_text(noted.get((task, source, ORIGINS), ""))
        behind = [replace(origin, tasks=(*origin.tasks, str(task))) for origin in before]
        found.append(
            WritingTask(
                schema,
                str(task),
                str(source),
                (own, *behind),
                zone,
                target_zone,
                frozenset(json.loads(forwards or "[]")),
                noted.get((task, source, CONFLICT), ""),
            )
        )
    return found


def _cut_over(ask: Ask, schema: str) -> set[object]:
    """Returns the tasks that were cut over to this server: they cannot run again, so they bring nothing back."""
    exists = "SELECT 1 FROM information_schema.tables WHERE table_schema = %s AND table_name = 'cutover'"
    if not ask(exists, [schema]):
        return set()
    rows = ask(f"SELECT task, about FROM {quoted(schema)}.cutover")
    return {task for task, about in rows if Cutover.loads(str(about)).stage is CutoverStage.DONE}


def going_round(names: Iterable[TableName], step: Step) -> list[TableName]:
    """Returns the tables that the changes of one of these reach again and again."""
    found: set[TableName] = set()
    for name in names:
        seen: set[TableName] = set()
        at: TableName | None = name
        while at is not None and at not in seen:
            seen.add(at)
            at = step(at)
        if at is not None:
            found.add(at)
    return sorted(found)


def target_name(rules: Rules, name: TableName) -> TableName | None:
    """Returns a table's name on the target; None if the rules are in conflict, which another check reports."""
    try:
        return rules.target_name(name)
    except PidtsError:
        return None


def _identity(config: TaskConfig, target: TargetSession) -> str:
    """Returns the identity of the target's server; empty where no source can be such a server."""
    if config.target.type != "mysql":
        return ""
    from pidts.target.mysql import MySqlSession

    assert isinstance(target, MySqlSession)  # noqa: S101 - that is its type
    return ServerInfo.of(target.global_variables(IDENTIFYING)).identity


def _is_same(one: str, other: str) -> bool:
    """Whether two identities are those of one server. A MariaDB that has only a server id, often 1, proves nothing."""
    is_proof = PLACE_OF_MARIADB in one or " server-id " not in one
    return is_proof and bool(one) and one == other


def _listed(names: list[TableName]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(map(str, names[:_NAMED]))}{more} go"


def _conflict(config: TaskConfig) -> str:
    if config.zones.owners:
        return f"{_OWNERS}{config.zones.owners.text()}"
    return config.version_column if config.zones.converges else ""


def _decides(conflict: str) -> str:
    """Says what decides in a task where zones write the same row, by the task's note."""
    if conflict.startswith(_OWNERS):
        return f"its owner decides ({conflict.removeprefix(_OWNERS)})"
    return f"versions decide (column {conflict})" if conflict else "rows are locked"


def _rule_findings(config: TaskConfig, others: Iterable[WritingTask]) -> list[Finding]:
    """Tells of tasks that follow another rule where several zones write the same row.

    It passes: where the rule is changed, one task is the first to start.
    """
    mine = _conflict(config)
    return [
        Finding(
            "circular_replication",
            ok=True,
            message=f"where zones write the same row, {_decides(mine)} in this task, and {_decides(other.conflict)} in "
            f"task {other.task}: such rows stay different until all tasks have the same pidts.conflict and what "
            "belongs to it",
        )
        for other in others
        if other.conflict != mine
    ]


def _finding(what: str, fix: str) -> Finding:
    return Finding("circular_replication", ok=False, message=what, fix=fix)
