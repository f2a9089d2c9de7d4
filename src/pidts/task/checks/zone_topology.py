"""Checks that each zone's changes reach the target of a task between zones on exactly one path.

If a file names all zones, `pidts.zones.topology` checks the paths to every zone. A task with a file of its own checks
only the paths to its own target, by the records of the tasks that write to its source and to its target. If a path is
missing, a task of this path may not have begun yet, so the check passes with a note.
"""

from __future__ import annotations

from collections.abc import Iterable

from pidts.apply import TargetSession
from pidts.model import TableName
from pidts.model.errors import named
from pidts.source.finding import Finding
from pidts.source.structures import quoted
from pidts.task.checks.task_records import OWNERS, WritingTask, conflict_rule, is_same_server, writers_of_target
from pidts.task.config.task_file import TaskConfig


def other_records_findings(config: TaskConfig, writers: Iterable[WritingTask]) -> list[Finding]:
    """Returns a finding for each of these tasks that carries a zone's rows and has another meta schema than this task.

    This task recognises rows of other zones by marks in its own meta schema. This task would not see the other task's
    marks, and would forward the rows.
    """
    if not config.is_between_zones:
        return []
    return [
        failed(
            f"task {writer.task} keeps its records in {writer.meta_schema}, and this task in "
            f"{config.target.meta_schema}: this task would forward the changes that the other task carries",
            fix="Give the tasks of all zones the same meta-schema",
        )
        for writer in writers
        if writer.zone and writer.meta_schema.lower() != config.target.meta_schema.lower()
    ]


def topology_findings(
    config: TaskConfig, target: TargetSession, there: str, writers: Iterable[WritingTask], tables: frozenset[TableName]
) -> list[Finding]:
    """Returns findings about zones whose changes do not reach the target on exactly one path."""
    spec, found = config.zones, []
    mine = frozenset({spec.name, *spec.forwards})
    others = [one for one in writers_of_target(config, target) if one.zone and not one.tables.isdisjoint(tables)]
    for other in others:
        remove = f"remove the records of task {other.task} on the target if it will never run again: {forgotten(other)}"
        if both := sorted(other.carries & mine):
            zones = named("zone", both)
            what = f"task {other.task} also carries changes of {zones} to this target: they would arrive twice"
            found.append(failed(what, f"Let one of the two tasks carry them (pidts.forward), or {remove}"))
        if spec.target and other.target_zone not in {"", spec.target}:
            what = f"task {other.task} says that this target is zone {other.target_zone}, not {spec.target}"
            found.append(failed(what, f"Correct pidts.target-zone in one of the two, or {remove}"))
    brought: set[str] = set()
    for writer in writers:
        if not writer.zone or writer.tables.isdisjoint(tables):
            continue
        brought |= writer.carries
        if writer.target_zone not in {"", spec.name}:
            what = f"task {writer.task} says that this source is zone {writer.target_zone}, not {spec.name}"
            found.append(failed(what, "Correct pidts.zone here, or pidts.target-zone there"))
        is_there = is_same_server(writer.origins[0].server, there)
        if is_there and spec.target and writer.zone != spec.target:
            what = f"task {writer.task} says that this target is zone {writer.zone}, not {spec.target}"
            found.append(failed(what, "Correct pidts.target-zone here, or pidts.zone there"))
        if is_there:
            brought.discard(writer.zone)
    found += _rule_findings(config, [*others, *(one for one in writers if one.zone)])
    if absent := sorted({*spec.forwards} - brought):
        what = f"this task is to forward changes of {named('zone', absent)}, but no task carries them to the source yet"
        found.append(_note(what))
    arriving = mine.union({spec.target}, *(other.carries for other in others))
    if missing := sorted(brought - arriving):
        what = f"changes of {named('zone', missing)} reach the source, and no task carries them to the target yet"
        found.append(_note(what))
    two_ways = sorted(zone for zone in brought if any(zone in other.carries for other in others))
    if two_ways and not conflict_rule(config):
        what = (
            f"changes of {named('zone', two_ways)} reach the source and, on another path, the target. A change that "
            f"zone {spec.name} makes to one of these rows may arrive at the target before the row itself. Then the "
            "change or the row is set aside (pidts locks list TASK)"
        )
        found.append(_note(what))
    if spec.forwards and not conflict_rule(config):
        what = (
            f"this task forwards changes of {named('zone', sorted(spec.forwards))}. A row that gets former values "
            "again while several zones write it can differ between zones without a lock. To prevent this, let each "
            "write change a column, such as a time"
        )
        found.append(_note(what))
    if absent := sorted(spec.owners.zones - arriving - brought):
        owning = "this zone owns" if len(absent) == 1 else "these zones own"
        what = f"no task carries changes of {named('zone', absent)} to the target yet, although {owning} rows"
        found.append(_note(what))
    return found


def pair_findings(config: TaskConfig, target: TargetSession, writer: WritingTask) -> list[Finding]:
    """Returns findings that forbid this task to run together with the opposite task `writer`."""
    found = []
    if writer.zone == config.zone:
        what = f"task {writer.task} reads another server that is also named zone {writer.zone}"
        found.append(failed(what, "Give the source of each of the two tasks a zone of its own (pidts.zone)"))
    begun = target.meta.checkpoints.read(config.name, config.source.source_id)
    merges = config.zones.both_have_rows and writer.merges is not None
    if config.mode != "incremental" and not begun and not merges:
        what = f"task {writer.task} already carries changes from this task's target to its source"
        if config.zones.both_have_rows:
            what += ", and has begun without both-have-rows: rows that programs have deleted meanwhile would come back"
            fix = "Remove both-have-rows, and write task-mode: incremental in this task if it has a file of its own"
        else:
            what += ", and this task would copy its rows back"
            fix = "Write task-mode: incremental in the task that begins second"
        found.append(failed(what, fix))
    return found


def _rule_findings(config: TaskConfig, others: Iterable[WritingTask]) -> list[Finding]:
    """Returns findings about tasks that have another rule than this task for rows that several zones write.

    The findings pass: when an operator changes the rule, one of the tasks has to start first with the new rule.
    """
    mine = conflict_rule(config)
    return [
        Finding(
            "circular_replication",
            ok=True,
            message=f"if several zones write a row, {_decides(mine)} in this task, and {_decides(other.conflict)} in "
            f"task {other.task}. The rows stay different until all tasks have the same pidts.conflict, with the same "
            "version column or owners",
        )
        for other in others
        if other.conflict != mine
    ]


def _decides(conflict: str) -> str:
    """Returns the rule of a task in words; `conflict` is the task's note `CONFLICT`."""
    if conflict.startswith(OWNERS):
        return f"its owner decides ({conflict.removeprefix(OWNERS)})"
    return f"versions decide (column {conflict})" if conflict else "rows are locked"


def forgotten(writer: WritingTask) -> str:
    """Returns the statement that removes the records of a task that will never run again."""
    return f"DELETE FROM {quoted(writer.meta_schema)}.checkpoint WHERE task = '{writer.task}'"


def failed(what: str, fix: str) -> Finding:
    """Returns a finding that prevents a start, with its remedy."""
    return Finding("circular_replication", ok=False, message=what, fix=fix)


def _note(what: str) -> Finding:
    return Finding("circular_replication", ok=True, message=what)
