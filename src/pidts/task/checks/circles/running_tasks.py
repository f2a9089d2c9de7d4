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
has written to: `pidts.task.checks.circles.ended_tasks`.

Two tasks that start for the first time at the same moment do not find each other's records before the start. So each
task checks again after it has recorded its own source. The later one of these checks finds the other task's record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from pidts.apply import TargetSession
from pidts.model import Checkpoint, TableName
from pidts.model.errors import listed
from pidts.source import Session, server_info
from pidts.source.finding import Finding, demand
from pidts.task.checks.circles.ended_tasks import returned_findings
from pidts.task.checks.circles.passed_check import note_checked
from pidts.task.checks.task_records import (
    WritingTask,
    carried_to,
    is_same_server,
    of_other_tasks,
    server_identity,
    writers_on,
)
from pidts.task.checks.zone_topology import failed, forgotten, other_records_findings, pair_findings, topology_findings
from pidts.task.config.current_server import address_of
from pidts.task.config.task_file import TaskConfig
from pidts.task.tables.copy_start import Patterns

_ONE_WAY = "Carry each table in one direction only: exclude these tables from one of the two tasks"

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
            what = f"the target is the source itself: changes of {listed(round_trip)} go in a circle"
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
                f"back: changes of {listed(round_trip)} go in a circle"
            )
            findings.append(failed(what, f"{_ONE_WAY}, or, {_forget(config, target, writer)}"))
    findings += returned_findings(config, source, target, there, resync, first)
    return findings


def demand_no_circle(
    config: TaskConfig, source: Session, target: TargetSession, tables: Iterable[TableName], epoch: int
) -> None:
    """Raises if another task carries, or has carried, this task's changes back. Notes whether this claim has passed."""
    findings = circle_findings(config, source, target, tables)
    if config.target.type == "mysql":
        target.begin()
        note_checked(config, target, epoch, passed=all(one.ok for one in findings))
        target.commit()
    demand(findings, config.ignored_checks)


def _forget(config: TaskConfig, target: TargetSession, writer: WritingTask) -> str:
    """Returns how this task can run if a task that closes a circle will never run again.

    The source's log has the changes of that task. So this task must not continue, or begin, before them.
    """
    place = f"this task's source ({address_of(config.source.server)})"
    statement = f"remove its records on {place}, which it writes to. Run there: {forgotten(writer)}"
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
