"""Finds ended tasks that have carried changes of this task's target to its source: this task might carry them back.

An example: task `ab` is cut over. Task `ba` carries the changes of B back to A, and is also cut over. Then somebody
undoes the first cutover. Task `ab` would continue at its switch, and carry the changes of `ba` to B a second time. In a
table without a key, each new row would be on B twice. So task `ab` is refused, unless one of these conditions is
certain:

- Its checkpoint is at or after the switch of task `ba`. The two positions are compared only if the source had no
  failover, and if both are in log files of the same name.
- Its checkpoint is in a log file that the source created after the last change of task `ba`. An example: the log was
  reset meanwhile (RESET MASTER), so that its positions are smaller now.
- All rows are copied, or were copied, after the switch of task `ba`: at the first start, or by `--resync`. If task `ab`
  begins at the end of the source's log, its target also has the changes of `ba`. Task `ab` records this in a note
  (`RETURNED`). Each start adds to the note the tasks for which one of the first two conditions is true. A later
  failover could make these two conditions uncertain.

If task `ba` was only stopped, and somebody has deleted its checkpoint, its other records show that it has run. Then
only the third condition can be certain. There is one exception: if the file of task `ab` gives the place of its first
start, the user is responsible for choosing a place after the last change of task `ba`.

Crash points of the note `RETURNED`:

1. Before a first start claims the task: the note may be that of an earlier task of this name. No checkpoint is there,
   so nobody reads the note. The transaction of the claim removes it.
2. After the claim, or after the COMMIT that begins the new copies, and before the note is written: the next start may
   refuse the task. Then `--resync` copies the rows once more. No change is made a second time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from pidts.apply import TargetSession
from pidts.model import Checkpoint, Cutover, Lsn, Position, SourceTablesKey, TableName
from pidts.model.errors import listed
from pidts.model.records.altered_record import reading_note, texts
from pidts.source import Session
from pidts.source.finding import Finding
from pidts.task.checks.task_records import (
    WritingTask,
    carried_to,
    former_writers_on,
    is_same_server,
    server_identity,
)
from pidts.task.checks.zone_topology import failed
from pidts.task.config.task_file import TaskConfig
from pidts.task.tables.copy_start import Patterns, is_selected

RETURNED = TableName("", "returned changes")
"""The key of the note that lists former tasks. These tasks have carried changes from a task's target to its source, and
the target has all of these changes for certain.
"""


def returned_findings(
    config: TaskConfig,
    source: Session,
    target: TargetSession,
    there: str,
    resync: Patterns,
    first: Callable[[], Checkpoint] | None,
) -> list[Finding]:
    """Returns a failed finding for each ended task whose changes on the source this task may still carry back."""
    stored = target.meta.checkpoints.read(config.name, config.source.source_id)
    if not stored and first is None:
        return []  # The first start copies all rows, or begins at the end of the log.
    # At a first start, a task that ended without a cutover passes: the user has chosen a place after its last change.
    ways = [way for way in _ways_back(config, source, there) if stored or way.cutover is not None]
    if not ways:
        return []
    rows = stored or ([first()] if first is not None else [])
    known = _returned(config, target) if stored else frozenset()
    found = []
    for way in ways:
        if _is_certain(way, known, rows, partial(is_selected, resync)):
            continue
        task, place = way.writer.task, rows[0].position or rows[0].lsn
        carried = f"task {task} has carried changes from this task's target to this source"
        twice = (
            "So this task might make these changes on the target a second time: changes of "
            f"{listed(way.names)} go in a circle"
        )
        copy = f"the source by a new copy of all rows: {config.run_command(' --resync')}"
        if way.cutover is None:
            what = (
                f"{carried}, and has no checkpoint any more. Nothing shows that this task has copied all rows since "
                f"then. {twice}"
            )
            found.append(failed(what, f"Make the target equal to {copy}"))
            continue
        mine = "this task's checkpoint" if stored else "the start in this task's file"
        what = (
            f"{carried}, up to the switch at {way.cutover.position or 'an unknown position'}. It is not "
            f"certain that {mine} ({place}) is after that switch. {twice}"
        )
        again = (
            f"run `pidts cutover --reverse` with the file of task {task}, and then the task that it writes: that "
            "task begins at the switch"
        )
        if stored:
            fix = (
                f"Leave this task as it is. To carry the later changes of the source, {again}. If the source no "
                f"longer has the log after the switch, or if this task is to continue, make the target equal to {copy}"
            )
        else:
            fix = f"Do not use this start: {again}. Or write task-mode: all into the task file, which copies all rows"
        found.append(failed(what, fix))
    return found


def record_returned(
    config: TaskConfig,
    source: Session,
    target: TargetSession,
    checkpoints: Iterable[Checkpoint],
    is_copied: Callable[[TableName], bool],
    *,
    is_first: bool = False,
) -> None:
    """Records the former tasks whose changes the target has for certain, so that this task may continue.

    `is_copied` returns whether a copy of all rows of a table begins now. It also returns True if the task begins at the
    end of the source's log. `is_first`: the task has begun now.
    """
    there = server_identity(config, target)
    rows = tuple(checkpoints)
    known, place = _returned(config, target), (config.name, SourceTablesKey(config.source.source_id))
    found = {
        _ended(way)
        for way in _ways_back(config, source, there)
        if (is_first and way.cutover is None) or _is_certain(way, known, rows, is_copied)
    }
    if not found <= known:  # a task that is not found now, because the account may not read its records, stays noted
        target.begin()
        target.meta.notes.write(*place, RETURNED, json.dumps(sorted(found | known), ensure_ascii=False))
        target.commit()


def _returned(config: TaskConfig, target: TargetSession) -> set[str]:
    note = target.meta.notes.read(config.name, SourceTablesKey(config.source.source_id), RETURNED)
    with reading_note(config.name, config.source.source_id, RETURNED.name):
        return set(texts(note or "[]"))


@dataclass(frozen=True, slots=True)
class _WayBack:
    """A task that has carried changes of the target to the source, and that has ended."""

    writer: WritingTask
    names: list[TableName]
    """The source's tables with changes that `writer` has carried from the target, and this task would carry back."""

    @property
    def cutover(self) -> Cutover | None:
        """The record of the switch to the source; None if somebody has deleted the task's checkpoint."""
        return self.writer.cutover


def _ended(way: _WayBack) -> str:
    """Returns the name of a task's end. A task that has run again, and ends again, gets another name."""
    end = f"deleted {way.writer.checked}" if way.cutover is None else way.cutover.done_at
    return f"{way.writer.meta_schema}.{way.writer.task} {end}"


def _ways_back(config: TaskConfig, source: Session, there: str) -> Iterator[_WayBack]:
    if config.is_between_zones or not there:
        return
    for writer in former_writers_on(source):
        # Further tasks may have carried changes of the target to the server that the ended task has read.
        carried = (pair for one in writer.origins if is_same_server(one.server, there) for pair in one.tables.items())
        if names := sorted({end for name, end in carried if carried_to(config, end) == name}):
            yield _WayBack(writer, names)


def _is_certain(
    way: _WayBack, known: Collection[str], rows: Iterable[Checkpoint], is_copied: Callable[[TableName], bool]
) -> bool:
    """Whether the target certainly has all changes that a former task has carried to the source.

    `known` are the texts in the note `RETURNED`.
    """
    return (
        _ended(way) in known
        or all(map(is_copied, way.names))
        or (way.cutover is not None and all(_has_changes_of(row, way.writer, way.cutover) for row in rows))
    )


def _has_changes_of(row: Checkpoint, writer: WritingTask, cutover: Cutover) -> bool:
    """Whether a checkpoint is after all changes of a task that was cut over to the source, for certain."""
    if row.altered or not row.position:
        return False
    place = Position.parse(row.position)
    # `saved_at` and `created` are times of the source's clock. `done_at` is a time of the machine that ran the cutover.
    last_change = max(writer.saved_at, cutover.done_at)
    if row.log_file is not None and row.log_file.name == place.file and 0 < last_change < row.log_file.created:
        return True
    if row.lsn.change_no or not cutover.position:
        return False
    switch = Position.parse(cutover.position)
    return place.base == switch.base and Lsn.at(switch) <= row.lsn
