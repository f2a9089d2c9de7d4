"""Lets the tasks of two zones that both have rows begin together (`pidts.task.checks.joining.both_have_rows`).

A task into a seed also waits until all tasks that have to forward changes of its source's zone are forwarding them.
Each of these tasks records after its claim that it forwards the zone. Then no earlier run of the task, which does not
forward the zone, can commit anything.

Crash points:

1. Between the claim and the note: from the claim on, the checkpoint has the copy's progress. The note says that the
   task merges. One transaction writes the note and the task's zone. So a run that dies earlier leaves neither of them,
   and the next run writes both.
2. After the note: no row is written to a user's table before the opposite task has its checkpoint and its note. The
   checkpoint and the note stay, so a later run does not wait for them.

A task cannot stop forwarding a zone's changes (`zone-way-lost`), except by a hand-over. So the conditions for which
this task has waited stay true.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import closing

import structlog

from pidts.apply import TargetSession
from pidts.model import Checkpoint, SourceTablesKey
from pidts.model.errors import named
from pidts.model.zone import ZONE_NOTE
from pidts.plan import CopyMode, PlanState
from pidts.source import connect
from pidts.task.checks.joining.both_have_rows import (
    demand_selected,
    forwarding,
    is_opposite,
    not_forwarding,
    not_together,
)
from pidts.task.checks.task_records import MERGES, writers_on
from pidts.task.config.task_file import TaskConfig

_log = structlog.get_logger(__name__)

_LOOK_SECONDS = 1.0


def begins_merging(config: TaskConfig, target: TargetSession, claimed: Iterable[Checkpoint]) -> bool:
    """Whether this is the task's first start, and its copy adds rows to those of the target's zone."""
    if not (config.is_between_zones and config.zones.converges):
        return False
    known = target.meta.notes.read(config.name, SourceTablesKey(config.source.source_id), ZONE_NOTE)
    return not known and any(
        one.mode is CopyMode.ADD
        for row in claimed
        for one in PlanState.from_checkpoint(row.lsn, row.copy).copy.values()
    )


def await_opposite(
    config: TaskConfig,
    target: TargetSession,
    claimed: Iterable[Checkpoint],
    stop: threading.Event,
    show_step: Callable[[str], None],
) -> bool:
    """If both zones have rows, waits until the task of the opposite direction has its place in the log.

    Returns False if `stop` was set meanwhile, otherwise True. `show_step` receives a text about the wait.
    """
    if not (config.is_between_zones and config.zones.converges):
        return True
    merges = target.meta.notes.read(config.name, SourceTablesKey(config.source.source_id), MERGES)
    if not merges or not any(PlanState.from_checkpoint(row.lsn, row.copy).copying for row in claimed):
        return True
    own = target.meta.structures.load(config.name, SourceTablesKey(config.source.source_id)).keys()
    others, has_warned = forwarding(config), False
    while True:
        with closing(connect(config.source.server)) as source:
            found = [one for one in writers_on(source) if is_opposite(config, one)]
        if late := [one for one in found if not one.merges]:
            raise not_together(config, late)
        for one in found:
            demand_selected(config, one, own)
        waits_for = not_forwarding(config, others)
        if found and not waits_for:
            return True
        opposite = f"the task from zone {config.zones.target} to zone {config.zone} begins"
        forwards = f"{named('task', waits_for, 'forwards', 'forward')} changes of zone {config.zone}"
        conditions = [*([] if found else [opposite]), *([forwards] if waits_for else [])]
        show_step(f"step 2 of 3: no row is written before {' and '.join(conditions)}")
        if not has_warned:
            _log.warning(
                "waits for other tasks, which have to begin before rows are written",
                zone=config.zone,
                target_zone=config.zones.target,
                opposite="has begun" if found else "has not begun",
                not_forwarding=waits_for,
            )
            has_warned = True
        if stop.wait(_LOOK_SECONDS):
            return False
