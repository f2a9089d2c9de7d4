"""Finds tasks that carry this task's changes back to its source.

An example of the harm: task `ab` carries shop.orders from server A to server B, and task `ba` carries it from B to A. A
program changes a row on A twice. Task `ab` carries the first value to B, and task `ba` carries it back to A, where it
overwrites the second value. Writes on B are lost in the same way.

The records on this task's source show such a task. Every task keeps its checkpoint, its tables and its routes in a meta
schema on the server that it writes to. There it also records the identity of the server that it reads. Suppose that
another task writes to this task's source and reads this task's target. Then the routes of both tasks show the tables
whose changes go in a circle. If this task's account may not read that meta schema, the other task is not found.

A ring of three tasks, A to B to C to A, is also found. Each task also records whose changes other tasks carry to its
source: the task from B to C records on C that it also carries tables of A. The task knows this only if the task from A
to B began first. So the task from B to C reads the records on B again at each start.

A task that was cut over cannot run again, so it closes no circle. But its changes are in the log of the server that it
has written to. An example: task `ab` is cut over. Task `ba` carries the changes of B back to A, and is also cut over.
Then somebody undoes the first cutover. Task `ab` would continue at its switch, and carry the changes of `ba` to B a
second time. In a table without a key, each new row would be on B twice. So task `ab` is refused, unless one of these
conditions is certain:

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

While the source does not answer, this check is impossible. A task that has begun then continues with the log in the
relay, but only if no start and no cutover has claimed the task since the last start that passed the check. The note
`CHECKED` has the epoch of that start's claim. A cutover's claim counts even if an earlier version made it, or if the
cutover's record was deleted by hand. Crash points of the note `CHECKED`:

1. After a claim of a start or of a cutover, or after a refused start: the note has another epoch than the checkpoints,
   so the next start needs the source.
2. After the check has passed, and before the note is written: the next start needs the source, and checks once more.
3. A start without the source writes its epoch into the note in the transaction of its claim.

Two tasks that start for the first time at the same moment do not find each other's records before the start. So each
task checks again after it has recorded its own source. The later one of these checks finds the other task's record.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from pidts.apply import TargetSession
from pidts.model import Checkpoint, Cutover, Lsn, Position, SourceTablesKey, TableName
from pidts.model.records.altered_record import reading_note, texts
from pidts.source import Session, server_info
from pidts.source.finding import Finding, demand
from pidts.task.checks.task_records import (
    CHECKED,
    WritingTask,
    carried_to,
    former_writers_on,
    is_same_server,
    of_other_tasks,
    server_identity,
    writers_on,
)
from pidts.task.checks.zone_topology import failed, forgotten, other_records_findings, pair_findings, topology_findings
from pidts.task.config.task_file import TaskConfig
from pidts.task.tables.copy_start import Patterns, is_selected

RETURNED = TableName("", "returned changes")
"""The key of the note that lists former tasks. These tasks have carried changes from a task's target to its source, and
the target has all of these changes for certain.
"""

_ONE_WAY = "Carry each table in one direction only: exclude these tables from one of the two tasks"

_NAMED = 3
"""A message names at most this number of tables."""


Step = Callable[[TableName], TableName | None]
"""A function that returns the table to which a table's changes are carried; None if they are not carried."""


def circle_findings(
    config: TaskConfig,
    source: Session,
    target: TargetSession,
    tables: Iterable[TableName],
    resync: Patterns = None,
    first: Callable[[], Checkpoint] | None = None,
) -> list[Finding]:
    """Returns a failed finding for each task that carries, or has carried, this task's changes back to its source.

    `tables` are the source's tables, and `resync` selects the tables that are copied again. `first` returns the
    checkpoint of a first start at a place that the task's file gives. Between zones, also returns the findings of
    `zone_topology`.
    """
    there = server_identity(config, target)
    if not there:
        return []

    findings = []
    if is_same_server(server_info(source).identity, there):
        round_trip = going_round(tables, partial(carried_to, config))
        if round_trip:
            what = f"the target is the source itself: changes of {_listed(round_trip)} in a circle"
            fix = "Give these tables another name on the target (routes), or exclude them (block-allow-list)"
            findings.append(failed(what, fix))
    writers = writers_on(source)
    findings += other_records_findings(config, writers)
    if config.is_between_zones:
        findings += topology_findings(config, target, there, writers, frozenset(filter(config.allow, tables)))
    for writer, origin in of_other_tasks(config, writers):
        if not is_same_server(origin.server, there):
            continue

        def there_and_back(name: TableName, tables: Mapping[TableName, TableName] = origin.tables) -> TableName | None:
            return carried_to(config, tables[name]) if name in tables else None

        round_trip = going_round(origin.tables, there_and_back)
        if round_trip and writer.zone and config.is_between_zones:
            findings += pair_findings(config, target, writer)
        elif round_trip:
            by = ", ".join(origin.tasks[:-1])
            what = (
                f"task {writer.task} (source-id {writer.source}) carries changes from this task's target"
                f"{f' (they come there by task {by})' if by else ''} to this source. This task carries them "
                f"back: changes of {_listed(round_trip)} in a circle"
            )
            findings.append(failed(what, f"{_ONE_WAY}, or, {_forget(config, target, writer)}"))
    findings += _returned_findings(config, source, target, there, resync, first)
    return findings


def demand_no_circle(
    config: TaskConfig, source: Session, target: TargetSession, tables: Iterable[TableName], epoch: int
) -> None:
    """Raises if another task carries, or has carried, this task's changes back. Notes that this claim has passed."""
    findings = circle_findings(config, source, target, tables)
    demand(findings, config.ignored_checks)
    if config.target.type == "mysql":
        target.begin()
        note_checked(config, target, epoch, ignored=not all(one.ok for one in findings))
        target.commit()


def note_checked(config: TaskConfig, target: TargetSession, epoch: int, *, ignored: bool = False) -> None:
    """Notes, in the caller's transaction, that the start with this claim has passed the check, or has ignored it."""
    text = f"{epoch} ignored" if ignored else str(epoch)
    target.meta.notes.write(config.name, SourceTablesKey(config.source.source_id), CHECKED, text)


def is_checked(config: TaskConfig, target: TargetSession, stored: Iterable[Checkpoint]) -> bool:
    """Whether the start with the last claim has passed the check, so that the task may continue without its source."""
    if config.target.type != "mysql":
        return True
    noted = target.meta.notes.read(config.name, SourceTablesKey(config.source.source_id), CHECKED)
    return noted == str(max(row.epoch for row in stored))


def _forget(config: TaskConfig, target: TargetSession, writer: WritingTask) -> str:
    """Returns how this task can run if a task that closes a circle will never run again.

    The source's log has the changes of that task. So this task must not continue, or begin, before them.
    """
    statement = f"run there: {forgotten(writer)}"
    if target.meta.checkpoints.read(config.name, config.source.source_id):
        return (
            f"if task {writer.task} will never run again, copy all rows again: {statement}. Then run this task "
            f"with {config.run_command(' --resync')}. Without --resync, this task is refused: it would repeat on the "
            f"target the changes that task {writer.task} has made on this source"
        )
    if config.mode == "incremental" and config.source.start is not None:
        return (
            f"if task {writer.task} will never run again, and the start in this task's file (meta) is after the last "
            f"change that task {writer.task} has made on this source, {statement}"
        )
    return f"if task {writer.task} will never run again, {statement}"


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
        own = writer.origins[0]
        names = sorted(end for name, end in own.tables.items() if carried_to(config, end) == name)
        if names and is_same_server(own.server, there):
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


def _returned_findings(
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
            f"{_listed(way.names)} in a circle"
        )
        copy = f"the source by a new copy of all rows: {config.run_command(' --resync')}"
        if way.cutover is None:
            what = f"{carried}, and has no checkpoint any more. This task has not copied all rows since then. {twice}"
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


def going_round(names: Iterable[TableName], step: Step) -> list[TableName]:
    """Returns, for each table whose changes would go in a circle for ever, one table of this circle."""
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


def _listed(names: list[TableName]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(map(str, names[:_NAMED]))}{more} go"
