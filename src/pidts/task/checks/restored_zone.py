"""Notices that the target of a task between zones was restored from a backup, or lost the task's records.

A task without zones may go on from an older checkpoint: the log brings the same again. Between zones that is not
enough. What programs of the restored zone had written since the backup is gone there, other zones have it, and no task
brings it back: it would come from the zone itself. So both are different for good, and no lock says so.

Two records are elsewhere:

- The mark of the task in the relay says how far its target was. It is never ahead of the target's checkpoint.
- The source's meta tables say how far a task has read the target's log. A log that ends earlier went back.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from pidts.apply import TargetSession
from pidts.model import Checkpoint, Halted, Lsn, PidtsError, Position, Where
from pidts.plan import PlanState
from pidts.relay.folder import Folder
from pidts.relay.task_marks import read_needs
from pidts.source import Session, query
from pidts.source.structures import quoted
from pidts.task.checks.circular_replication import server_identity, writers_on
from pidts.task.config.task_file import TaskConfig


def demand_not_restored(config: TaskConfig, source: Session | None, target: TargetSession) -> None:
    """Halts where the target is behind what was recorded of it elsewhere; without a source, its records are not asked.

    The checkpoints are read behind the mark, so a run that goes on meanwhile is no evidence.
    """
    if not config.is_between_zones:
        return
    marked = _marked(config)
    stored = target.meta.checkpoints.read(config.name, config.source.source_id)
    if marked is not None and not stored:
        raise _restored(config, f"the relay says that it had the log up to {marked}, and it has no record of the task")
    if marked is not None and (at := _place(stored)) < marked:
        raise _restored(config, f"it is at {at} of the log, and the relay says that it was at {marked}")
    if source is not None and (found := _log_went_back(config, source, target)):
        raise _restored(config, found)


def _marked(config: TaskConfig) -> Lsn | None:
    needs = read_needs(Folder.of(config.relay, config.source.source_id))
    return next((need.lsn for need in needs if need.task == config.name), None)


def _place(stored: Sequence[Checkpoint]) -> Lsn:
    return min(PlanState.from_checkpoint(row.lsn, row.copy).needs for row in stored)


def _log_went_back(config: TaskConfig, source: Session, target: TargetSession) -> str:
    """Returns what a task out of the target has read of its log, where that is more than there is; else nothing."""
    there = server_identity(config, target)
    readers = [one for one in writers_on(source) if one.zone and there and one.origins[0].server == there]
    end = _end_of_log(target) if readers else None
    if end is None:
        return ""
    for one in readers:
        rows = query(
            source,
            f"SELECT log_position FROM {quoted(one.meta_schema)}.checkpoint WHERE task = %s AND source = %s",
            [one.task, one.source],
        )
        for (text,) in rows:
            place = Position.parse(str(text)) if text else end
            if place.base == end.base and (place.log_index, place.offset) > (end.log_index, end.offset):
                return f"task {one.task} has read its log up to {place}, and the log ends at {end}"
    return ""


def _end_of_log(target: TargetSession) -> Position | None:
    """Returns where the target's log ends; None where the account may not ask."""
    from pidts.target.mysql import MySqlSession

    assert isinstance(target, MySqlSession)  # noqa: S101 - the target of a task between zones
    for statement in ("SHOW BINARY LOG STATUS", "SHOW MASTER STATUS"):
        with suppress(PidtsError):
            if rows := target.rows(statement):
                return Position(str(rows[0][0]), int(rows[0][1]))
    return None


def _restored(config: TaskConfig, what: str) -> Halted:
    zone = config.zones.target or "of the target"
    return Halted(
        "zone-restored",
        f"zone {zone} went back, as by a backup that was restored: {what}. What its programs had written since is in "
        "other zones alone",
        where=Where(source=config.source.source_id, file=str(config.path)),
        todo="Fill it once more from another zone: pidts zones return (docs/operate/zones.md). If the task was only "
        "set up anew by hand, with all zones equal: pidts relay forget",
    )
