"""Reads the records of tasks on the server that they write to: whose changes each task carries, and by which rules.

Each task records on its target the server that it reads, its zone, and the servers whose changes other tasks carry to
that server. Each of these facts is a *note*: a text with a key, in the task's meta schema. So the notes on one server
show whose changes reach it, even through a chain of tasks. If an account may not read a meta schema, it does not see
the tasks there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

from pidts.apply import TargetSession
from pidts.apply.merge.recorded_tables import RULES, recorded_rules
from pidts.model import Cutover, CutoverStage, Position, SourceTablesKey, TableName
from pidts.model.records.altered_record import reading_note, reading_record, texts
from pidts.model.zone import ZONE_NOTE
from pidts.rules import AllowList, Rules
from pidts.rules.record import allow_list_from_text, allow_list_to_text
from pidts.source import Session, query, server_info
from pidts.source.connection import IDENTIFYING, PLACE_OF_MARIADB, ServerInfo
from pidts.source.structures import quoted
from pidts.task.config.task_file import TaskConfig
from pidts.task.tables.merged import target_name_of

SOURCE_SERVER = TableName("", "source server")
"""The key of the note that holds the identity of a source's server."""


TARGET_ZONE = TableName("", "target zone")
"""The key of the note that names the zone of a task's target, if the task file names it."""


FORWARDS = TableName("", "forwards")
"""The key of the note that names the other zones whose changes a task forwards."""


MERGES = TableName("", "both have rows")
"""The key of the note that holds a task's block-allow-list, once the task copies into a zone with rows of its own."""

_WITHOUT_TABLES = "yes"
"""The note `MERGES` of an earlier version, which recorded no block-allow-list."""


CONFLICT = TableName("", "conflict")
"""The key of the note with the rule for rows that several zones write: the version column or the owners. The note is
empty if such rows are locked.
"""


CHECKED = TableName("", "circles checked")
"""The key of the note that names the last claim of a task whose start has passed the check for circles."""

ORIGINS = TableName("", "origins")
"""The key of the note that lists the servers whose changes other tasks carry to a source."""


_EVIDENCE = {("checkpoint", "epoch"), ("note", "told"), ("structure", "structure")}
"""Tables of a meta schema, each with one of its columns. A schema that has all of them is a meta schema."""


OWNERS = "owners: "
"""The prefix of a CONFLICT note about owners. No column has this name, since no column's name ends with a blank."""


_MOST_RECORDED = 10_000
"""The largest number of tables that a note lists for one origin."""


Ask = Callable[..., Sequence[tuple[Any, ...]]]
"""A function that runs a query, with its values if it has any, and returns the rows."""


@dataclass(frozen=True, slots=True)
class FeedingServer:
    """A server whose changes reach another server by one task, or by a chain of tasks."""

    server: str
    """The server's identity; empty if an older version has not recorded it."""
    tasks: tuple[str, ...]
    """The tasks in the order in which they carry a change."""
    tables: Mapping[TableName, TableName]
    """For each table of `server`, the table at the end of the chain that gets its changes."""
    zone: str
    """The zone of `server`; empty if it has none."""


@dataclass(frozen=True, slots=True)
class WritingTask:
    """A task that writes to the server that was queried."""

    meta_schema: str
    task: str
    source: str
    origins: tuple[FeedingServer, ...]
    """The server that the task reads, and the servers whose changes other tasks carry to it."""
    zone: str
    """The zone of the server that the task reads; empty if it has none."""
    target_zone: str
    """The zone of the queried server, as the task's file names it; empty if the file does not name it."""
    forwards: frozenset[str]
    """The other zones whose changes the task forwards."""
    conflict: str
    """The rule for a row that several zones write, as in the note `CONFLICT`; empty if such rows are locked."""
    cutover: Cutover | None
    """The record of the switch to the queried server, if the task was cut over to it."""
    checked: str
    """The note `CHECKED`, which differs between two lives of a task; empty if no start has passed the check."""
    saved_at: float
    """When a task that was cut over last saved a checkpoint, by the queried server's clock in seconds since 1970. 0: it
    was not cut over, or somebody has deleted its checkpoints.
    """
    merges: AllowList | None
    """The tables that the task selects, if it has begun to copy into a zone with rows of its own; None otherwise. If an
    earlier version of PiDTS has recorded the note, this list selects all tables until the task starts again.
    """

    @property
    def carries(self) -> frozenset[str]:
        """The zones whose changes the task carries to the queried server."""
        return self.forwards | {self.zone} if self.zone else self.forwards

    @property
    def tables(self) -> frozenset[TableName]:
        """The tables that the task carries."""
        return frozenset(self.origins[0].tables)


def record_source(config: TaskConfig, source: Session, target: TargetSession, *, merges: bool = False) -> None:
    """Records on the target the identity of the source, and the servers whose changes other tasks carry to it.

    `merges`: the task has just begun to copy into a zone with rows of its own. The transaction that records this also
    records the task's zone, so the task of the opposite direction never sees one without the other. Later starts record
    the tables that the task then selects.
    """
    there = server_identity(config, target)
    origins = _origins(config, writers_on(source), there) if there else []
    notes, place = target.meta.notes, (config.name, SourceTablesKey(config.source.source_id))
    target.begin()
    notes.write(*place, SOURCE_SERVER, server_info(source).identity)
    if config.is_between_zones:
        notes.write(*place, ZONE_NOTE, config.zone)
        notes.write(*place, TARGET_ZONE, config.zones.target)
        notes.write(*place, FORWARDS, json.dumps(config.zones.forwards))
        notes.write(*place, CONFLICT, conflict_rule(config))
    if merges or notes.read(*place, MERGES):
        notes.write(*place, MERGES, allow_list_to_text(config.allow))
    if origins or notes.read(*place, ORIGINS):
        notes.write(*place, ORIGINS, _as_text(origins))
    target.commit()


def _origins(config: TaskConfig, writers: Iterable[WritingTask], there: str) -> list[FeedingServer]:
    """Returns the servers whose changes other tasks carry to the source, and this task carries on to the target.

    Leaves out the target itself, and the servers of zones that this task does not forward.
    """
    found: dict[str, FeedingServer] = {}
    for writer, origin in of_other_tasks(config, writers):
        if not origin.server or is_same_server(origin.server, there):
            continue
        if writer.zone and config.is_between_zones and origin.zone not in config.zones.forwards:
            continue
        known = found.get(origin.server) or FeedingServer(origin.server, origin.tasks, {}, origin.zone)
        ends = ((name, carried_to(config, at)) for name, at in origin.tables.items())
        carried = {name: end for name, end in ends if end is not None}
        if carried or known.tables:
            found[origin.server] = replace(known, tables={**carried, **known.tables})
    return list(found.values())


def of_other_tasks(config: TaskConfig, writers: Iterable[WritingTask]) -> Iterator[tuple[WritingTask, FeedingServer]]:
    """Yields the other tasks that write to this task's source, each with every origin of its changes."""
    for writer in writers:
        if (writer.task, writer.source) != (config.name, config.source.source_id):
            yield from ((writer, origin) for origin in writer.origins)


def carried_to(config: TaskConfig, name: TableName) -> TableName | None:
    """Returns the table to which this task carries the changes of a source's table; None if it carries none."""
    return target_name_of(config.rules, name) if config.allow(name) else None


def conflict_rule(config: TaskConfig) -> str:
    """Returns the rule for a row that several zones write, as the note `CONFLICT` has it."""
    if config.zones.owners:
        return f"{OWNERS}{config.zones.owners.text()}"
    return config.version_column if config.zones.converges else ""


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


def forwarded_zones(note: str, task: str, source: str) -> frozenset[str]:
    """Returns the zones in a task's note `FORWARDS`; none if the note is empty."""
    with reading_note(task, source, FORWARDS.name):
        return frozenset(texts(note or "[]"))


def recorded_forwards(config: TaskConfig) -> frozenset[str]:
    """Returns the zones whose changes the task forwards, as its target records them; none if it has not begun."""
    with closing(config.target.server.connect()) as target:
        if not target.meta.checkpoints.read(config.name, config.source.source_id):
            return frozenset()
        note = target.meta.notes.read(config.name, SourceTablesKey(config.source.source_id), FORWARDS)
    return forwarded_zones(note, config.name, config.source.source_id)


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


def writers_on(session: Session) -> list[WritingTask]:
    """Returns all tasks that have begun to write to this server, as far as the account may read their records.

    Tasks that were cut over to this server are left out, as they cannot run again.
    """
    ask = partial(query, session)
    return [writer for schema in meta_schemas(ask) for writer in writers_in(ask, schema)]


def former_writers_on(session: Session) -> list[WritingTask]:
    """Returns the tasks that were cut over to this server, or whose checkpoints somebody has deleted.

    Tasks whose records the account may not read are left out.
    """
    ask = partial(query, session)
    return [writer for schema in meta_schemas(ask) for writer in writers_in(ask, schema, over=True)]


def writers_of_target(config: TaskConfig, target: TargetSession) -> list[WritingTask]:
    """Returns the other tasks whose records are in the same meta schema as this task's."""
    from pidts.target.mysql import MySqlSession

    assert isinstance(target, MySqlSession)  # noqa: S101 - that is its type
    place = (config.name, config.source.source_id)
    schema = config.target.meta_schema
    found = writers_in(target.rows, schema) if schema in meta_schemas(target.rows) else []
    return [writer for writer in found if (writer.task, writer.source) != place]


def meta_schemas(ask: Ask) -> list[str]:
    """Returns the schemas of a server that have records of tasks."""
    rows = ask(
        "SELECT table_schema, table_name, column_name FROM information_schema.columns "
        "WHERE table_name IN ('checkpoint', 'note', 'structure') AND column_name IN ('epoch', 'told', 'structure')",
    )
    seen: dict[str, set[tuple[str, str]]] = {}
    for schema, table, column in rows:
        seen.setdefault(str(schema), set()).add((str(table), str(column)))
    return sorted(schema for schema, columns in seen.items() if columns >= _EVIDENCE)


def writers_in(ask: Ask, schema: str, *, over: bool = False) -> list[WritingTask]:
    """Returns the tasks whose records are in this schema: those that run, or with `over` those that cannot go on."""
    place = quoted(schema)
    switches = _switches(ask, schema)
    saved = {
        (task, source): float(moment)
        for task, source, moment in ask(
            f"SELECT task, source, UNIX_TIMESTAMP(MAX(updated_at)) FROM {place}.checkpoint GROUP BY 1, 2"
        )
    }
    noted = {
        (task, source, TableName("", name)): str(note)
        for task, source, name, note in ask(
            f"SELECT task, source, table_name, told FROM {place}.note WHERE table_schema = ''"
        )
    }
    # The changes of a task remain on the server if somebody deletes its checkpoints.
    noted_servers = {(task, source) for task, source, name in noted if name == SOURCE_SERVER}
    ended = {one for one in noted_servers if one[0] in switches or one not in saved}
    begun = sorted(ended if over else (one for one in saved if one[0] not in switches))
    tables: dict[tuple[object, object], set[TableName]] = {}
    for task, source, table_schema, name in ask(
        f"SELECT DISTINCT task, source, table_schema, table_name FROM {place}.structure"
    ):
        tables.setdefault((task, source), set()).add(TableName(str(table_schema), str(name)))
    found = []
    for task, source in begun:
        rules = recorded_rules(noted.get((task, source, RULES), ""), str(task), str(source)) or Rules()
        ends = ((name, target_name_of(rules, name)) for name in tables.get((task, source), ()))
        zone, target_zone, forwards = (noted.get((task, source, key), "") for key in (ZONE_NOTE, TARGET_ZONE, FORWARDS))
        own = FeedingServer(
            noted.get((task, source, SOURCE_SERVER), ""),
            (str(task),),
            {name: end for name, end in ends if end is not None},
            zone,
        )
        with reading_note(task, source, ORIGINS.name):
            before = _from_text(noted.get((task, source, ORIGINS), ""))
        with reading_note(task, source, MERGES.name):
            merges = merged_tables(noted.get((task, source, MERGES), ""))
        earlier = [replace(origin, tasks=(*origin.tasks, str(task))) for origin in before]
        found.append(
            WritingTask(
                schema,
                str(task),
                str(source),
                (own, *earlier),
                zone,
                target_zone,
                forwarded_zones(forwards, str(task), str(source)),
                noted.get((task, source, CONFLICT), ""),
                switches.get(task),
                noted.get((task, source, CHECKED), ""),
                saved.get((task, source), 0.0) if over else 0.0,
                merges,
            )
        )
    return found


def merged_tables(note: str) -> AllowList | None:
    """Returns the block-allow-list in the note `MERGES`; None if the note is empty."""
    if note == _WITHOUT_TABLES:
        return AllowList()
    return allow_list_from_text(note) if note else None


def _switches(ask: Ask, schema: str) -> dict[object, Cutover]:
    """Returns the record of each cutover to this server that is done."""
    exists = "SELECT 1 FROM information_schema.tables WHERE table_schema = %s AND table_name = 'cutover'"
    if not ask(exists, [schema]):
        return {}
    found = {}
    for task, about in ask(f"SELECT task, about FROM {quoted(schema)}.cutover"):
        with reading_record("cutover", column="about", task=task):
            record = Cutover.loads(str(about))
            if record.stage is CutoverStage.DONE:
                if record.position:
                    Position.parse(record.position)  # raises if somebody has changed it
                found[task] = record
    return found


def server_identity(config: TaskConfig, target: TargetSession) -> str:
    """Returns the identity of the target's server; empty if such a server cannot be the source of a task."""
    if config.target.type != "mysql":
        return ""
    from pidts.target.mysql import MySqlSession

    assert isinstance(target, MySqlSession)  # noqa: S101 - that is its type
    return ServerInfo.of(target.global_variables(IDENTIFYING)).identity


def is_same_server(one: str, other: str) -> bool:
    """Whether two identities are those of one server. MariaDB's server id alone proves nothing: it is often 1."""
    is_proof = PLACE_OF_MARIADB in one or " server-id " not in one
    return is_proof and bool(one) and one == other
