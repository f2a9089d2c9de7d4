"""Notices that the target of a task between zones was restored from a backup, or lost the task's records.

A task without zones may go on from an older checkpoint: the log brings the same again. Between zones that is not
enough. What programs of the restored zone had written since the backup is gone there, other zones have it, and no task
brings it back: it would come from the zone itself. So both are different for good, and no lock says so.

The mark of the task in the relay says how far its target was. It is never ahead of the target's checkpoint.

How far tasks of other zones have read the target's log is no proof: such a record may be of a server that has failed
over, or of a task that never runs again. These tasks stop by themselves where the log went back.
"""

from __future__ import annotations

from collections.abc import Sequence

from pidts.apply import TargetSession
from pidts.model import Checkpoint, Halted, Lsn, Where
from pidts.plan import PlanState
from pidts.relay.folder import Folder
from pidts.relay.task_marks import read_needs
from pidts.task.config.task_file import TaskConfig


def demand_not_restored(config: TaskConfig, target: TargetSession) -> None:
    """Halts where the target is behind what the relay says of it.

    The checkpoints are read behind the mark, so a run that goes on meanwhile is no evidence.
    """
    if not config.is_between_zones:
        return
    marked = _marked(config)
    stored = target.meta.checkpoints.read(config.name, config.source.source_id)
    if marked is not None and not stored:
        raise _restored(config, f"the relay says that the task had the log up to {marked}, and it has no record there")
    if marked is not None and (at := _place(stored)) < marked:
        raise _restored(config, f"the task is at {at} of the log there, and the relay says that it was at {marked}")


def _marked(config: TaskConfig) -> Lsn | None:
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
        todo="If records of the task were removed by hand, with all zones equal: pidts relay forget. If the zone was "
        "restored from a backup, what its programs had written since is in other zones alone: fill it once more from "
        "another one, pidts zones return (docs/operate/zones.md)",
    )
