"""Refuses a direction that would begin after programs have already written to its source."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

from pidts.model import PrecheckFailed, Where
from pidts.model.zone import mark_table
from pidts.target.mysql import MySqlSession
from pidts.task.config.task_file import TaskConfig
from pidts.task.config.zones_file import Direction


def demand_joined(directions: Mapping[Direction, TaskConfig]) -> None:
    """Raises if a direction that copies no rows would begin after programs have already written to its source.

    The direction would begin at the end of the source's log. The direction's target would lack the earlier changes,
    which other zones have.
    """
    for direction, config in directions.items():
        others = [(one, other) for one, other in directions.items() if one.source == direction.source]
        if direction.copies or len(others) < 2 or not config.is_between_zones or _has_begun(config):
            continue
        for one, other in others:
            if one.target == direction.target or not other.is_between_zones:
                continue
            if _has_begun(other) and _has_mark(other, direction.source):
                raise PrecheckFailed(
                    "zone-not-joined",
                    f"programs write to zone {direction.source}, and the task from there to zone {direction.target} "
                    "has not begun: rows that programs have already written would be missing in zone "
                    f"{direction.target}",
                    where=Where(file=str(config.path)),
                    todo=f"Let zone {direction.target} join: write `joins: ZONE` for it, as docs/operate/zones.md says "
                    f"under 'A zone that joins'. If it has joined, run: pidts zones hand-over FILE {direction.target}",
                )


def _has_begun(config: TaskConfig) -> bool:
    with closing(config.target.server.connect()) as session:
        return bool(session.meta.checkpoints.read(config.name, config.source.source_id))


def _has_mark(config: TaskConfig, zone: str) -> bool:
    """Whether a task has ever carried a change of the zone to this task's target."""
    with closing(config.target.server.connect()) as session:
        assert isinstance(session, MySqlSession)  # noqa: S101 - a zone whose changes are marked has a log
        name, schema = mark_table(zone), config.target.meta_schema
        there = "SELECT 1 FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"
        return bool(session.rows(there, (schema, name))) and bool(
            session.rows(f"SELECT 1 FROM pidts_meta.{name} LIMIT 1", ())
        )
