"""Notices that the target of a task between zones was restored from a backup, or lost the task's records.

A task without zones may continue from an older checkpoint, since it reads the changes after this checkpoint from the
log once more. Between zones this is not enough: the restored zone has lost the changes that its own programs made after
the backup. Other zones have these changes, but no task carries a zone's own changes back to it. So the zones would stay
different, and no lock would show it.

The task records in the relay a position that the target has reached, its *need*. If this position is after the target's
checkpoint, the target was restored. If the checkpoint is gone, the target was restored, or has lost the task's records.

The checkpoint of another task, which reads the target's log, proves nothing. The target may have failed over since
then, or the other task may never run again. If it runs and the log ends before its checkpoint, it stops by itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from pidts.apply import TargetSession
from pidts.model import Checkpoint, Halted, Lsn, Where
from pidts.model.advice import fill_zone
from pidts.plan import PlanState
from pidts.relay.folder import Folder
from pidts.relay.task_needs import read_needs
from pidts.task.config.task_file import TaskConfig


def demand_not_restored(config: TaskConfig, target: TargetSession) -> None:
    """Halts if the target's checkpoint is before the position that the relay has recorded as the task's need.

    The need is read before the checkpoint. If the checkpoint were read first, a run could move both between the two
    reads, and so cause a halt.
    """
    if not config.is_between_zones:
        return
    recorded = _recorded(config)
    stored = target.meta.checkpoints.read(config.name, config.source.source_id)
    if recorded is not None and not stored:
        raise _restored(
            config,
            f"the relay has a record that the task has applied the log up to {recorded}, and "
            "the zone has no record of the task",
        )
    if recorded is not None and (at := _place(stored)) < recorded:
        raise _restored(
            config,
            f"the relay has a record that the task has applied the log up to {recorded}, and "
            f"the task's record in the zone ends at {at}",
        )


def _recorded(config: TaskConfig) -> Lsn | None:
    needs = read_needs(Folder.of(config.relay, config.source.source_id))
    return next((need.lsn for need in needs if need.task == config.name), None)


def _place(stored: Sequence[Checkpoint]) -> Lsn:
    return min(PlanState.from_checkpoint(row.lsn, row.copy).needs for row in stored)


def _restored(config: TaskConfig, what: str) -> Halted:
    zone = config.zones.target or "of the target"
    return Halted(
        "zone-restored",
        f"the relay and the records in zone {zone} do not agree: {what}",
        where=Where(source=config.source.source_id, file=str(config.path)),
        todo="If somebody removed the task's records by hand while all zones were equal, run pidts relay forget TASK. "
        "If the zone was restored from a backup, later changes of its own programs are only in other zones. Then fill "
        f"the zone again from another zone: run {fill_zone(config.zones.target)} (docs/operate/zones.md)",
    )
