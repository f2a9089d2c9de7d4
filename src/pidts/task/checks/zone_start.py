"""Halts a task between zones if its start would contradict its own records or the records on its source."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import partial

from pidts.apply import TargetSession
from pidts.model import Checkpoint, Halted, SourceTablesKey, TableName, Where
from pidts.model.errors import named
from pidts.model.zone import COUNTED_UP_TO, RETURN_RECORD, RETURNING, ZONE_NOTE
from pidts.source import Session, query
from pidts.source.structures import quoted
from pidts.task.checks.task_records import FORWARDS, forwarded_zones, meta_schemas, writers_of_target, writers_on
from pidts.task.config.task_file import TaskConfig

MAY_FIND_ROWS = TableName("", "returns")
"""The key of a note: the first run of a task that fills a zone again may find rows. The first claim removes the note.
"""


def demand_same_zone(config: TaskConfig, target: TargetSession, stored: Iterable[Checkpoint]) -> None:
    """Halts if a task that has begun does not name the same zone as before.

    A task marks its writes with its zone. The marks of its earlier writes name the former zone or none, so the task of
    the opposite direction would carry these writes back. Until the first batch or schema change nothing is written, and
    the zone may be changed.

    The first claim removes the notes of an earlier task. The zone is recorded after this claim and before the first
    batch. So a run that dies before it has recorded the zone has written no rows.
    """
    zone = config.zone if config.is_between_zones else ""
    known = target.meta.notes.read(config.name, SourceTablesKey(config.source.source_id), ZONE_NOTE)
    if known == zone:
        return
    if any(checkpoint.batch for checkpoint in stored) or _has_altered(config, target):
        raise Halted(
            "zone-changed",
            f"the task has begun with {f'the zone {known}' if known else 'no zone'}, and its file names another zone",
            where=Where(source=config.source.source_id, file=str(config.path)),
            todo="Put pidts.zone back as it was. For another zone, begin a task with another name",
        )


def may_find_rows(config: TaskConfig, target: TargetSession) -> bool:
    """Whether `pidts zones return` has allowed the task to begin with a copy although its target has rows."""
    from pidts.target.mysql import MySqlSession

    if not (config.is_between_zones and isinstance(target, MySqlSession)):
        return False
    is_there = config.target.meta_schema in meta_schemas(target.rows)  # a check does not create the meta schema
    known = (
        target.meta.notes.read(config.name, SourceTablesKey(config.source.source_id), MAY_FIND_ROWS) if is_there else ""
    )
    return bool(known) and known == os.environ.get(RETURNING)


def demand_returned(config: TaskConfig, source: Session) -> None:
    """Halts a task that would read a zone whose return was interrupted: programs may have written to the zone."""
    ask = partial(query, source)
    if not config.is_between_zones or config.target.meta_schema not in meta_schemas(ask):
        return
    note = f"SELECT told FROM {quoted(config.target.meta_schema)}.note WHERE task = %s AND table_name = %s"
    if any(text for (text,) in ask(note, [RETURN_RECORD, COUNTED_UP_TO.name])):
        raise Halted(
            "zone-not-returned",
            f"a command has begun to fill zone {config.zone} from another zone, and has not checked whether programs "
            "have written to the zone meanwhile",
            where=Where(source=config.source.source_id, file=str(config.path)),
            todo="Stop the programs that write to the zone, and repeat the command: pidts zones return FILE ZONE",
        )


def demand_still_forwards(
    config: TaskConfig, source: Session | None, target: TargetSession, stored: Iterable[Checkpoint]
) -> None:
    """Halts if a task that has begun no longer forwards a zone's changes, and no other task carries them.

    The zone's later changes would never reach the target. A task that carries them directly has to begin exactly where
    this task stops: see `pidts.task.zones.hand_over`. If no task carries the zone's changes to the source any more, the
    zone has left, and the start is allowed. If the source does not answer, this cannot be checked, and the task
    halts.
    """
    if not config.is_between_zones or not any(checkpoint.batch for checkpoint in stored):
        return
    known = target.meta.notes.read(config.name, SourceTablesKey(config.source.source_id), FORWARDS)
    carried = forwarded_zones(known, config.name, config.source.source_id)
    left = carried - {*config.zones.forwards, config.zones.target}
    own = (
        target.meta.structures.load(config.name, SourceTablesKey(config.source.source_id)).keys()
        if left
        else frozenset()
    )
    for other in writers_of_target(config, target) if left else ():
        if other.tables >= own:
            left -= other.carries
    if left and source is not None and config.target.meta_schema in meta_schemas(partial(query, source)):
        left &= {zone for writer in writers_on(source) for zone in writer.carries}
    if left:
        zones = named("zone", sorted(left))
        raise Halted(
            "zone-way-lost",
            f"the task has forwarded changes of {zones}. Its file no longer asks for that, and no other task carries "
            "them to the target: they would be lost",
            where=Where(source=config.source.source_id, file=str(config.path)),
            todo="Put pidts.forward back. Or hand them over to tasks that carry them directly: pidts zones hand-over "
            "FILE ZONE. If the zone has left, remove the records of the tasks that read it (docs/operate/zones.md)",
        )


def _has_altered(config: TaskConfig, target: TargetSession) -> bool:
    """Whether the task has begun a schema change on the target; False if such a target cannot be a zone."""
    from pidts.target.mysql import MySqlSession

    if not isinstance(target, MySqlSession):
        return False
    journal = "SELECT 1 FROM pidts_meta.ddl_journal WHERE task = %s AND source = %s LIMIT 1"
    return bool(target.rows(journal, (config.name, config.source.source_id)))
