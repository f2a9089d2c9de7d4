"""Finds tasks that carry this task's changes back to its source.

An example of the harm: task `ab` carries shop.orders from server A to server B, and task `ba` carries it from B to A. A
program changes a row on A twice. Task `ab` carries the first value to B, and task `ba` carries it back to A, where it
overwrites the second value. Writes on B are lost in the same way.

The records on this task's source show such a task. Every task keeps its checkpoint, its tables and its routes in a meta
schema on the server that it writes to. There it also records the identity of the server that it reads. Suppose that
another task writes to this task's source and reads this task's target. Then the routes of both tasks show the tables
whose changes go in a circle. If this task's account may not read that meta schema, the other task is not found.

A ring of three tasks, A to B to C to A, is found, too. Each task also records whose changes other tasks carry to its
source: the task from B to C records on C that it also carries tables of A. It knows this if the task from A to B began
first. It looks again at each of its starts.

A task that was cut over cannot run again, so it closes no circle. But its changes are in the log of the server that it
has written to. An example: task `ab` is cut over, task `ba` carries the changes of B back to A, and is cut over, too.
Then somebody undoes the first cutover. Task `ab` would continue at its switch, and carry the changes of `ba` to B a
second time. In a table without a key, each new row would be there twice. So a task is refused if it stands before the
switch of such a task.

Two tasks that start for the first time at the same moment do not find each other's records before the start. So each
task checks again after it has recorded its own source. The later one of these checks finds the other task's record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from pidts.apply import TargetSession
from pidts.model import Lsn, Position, TableName
from pidts.source import Session, server_info
from pidts.source.finding import Finding
from pidts.task.checks.task_records import (
    carried_to,
    former_writers_on,
    is_same_server,
    of_other_tasks,
    server_identity,
    writers_on,
)
from pidts.task.checks.zone_topology import failed, forgotten, other_records_findings, pair_findings, topology_findings
from pidts.task.config.task_file import TaskConfig

_NAMED = 3
"""A message names at most this number of tables."""


Step = Callable[[TableName], TableName | None]
"""A function that returns the table to which a table's changes are carried; None if they are not carried."""


def circle_findings(
    config: TaskConfig, source: Session, target: TargetSession, tables: Iterable[TableName]
) -> list[Finding]:
    """Returns a failed finding for each task that carries this task's changes back to its source.

    `tables` are the source's tables. Between zones, also returns the findings of `zone_topology`.
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
            first = ", ".join(origin.tasks[:-1])
            what = (
                f"task {writer.task} (source-id {writer.source}) carries changes from this task's target"
                f"{f' (they come there by task {first})' if first else ''} to this source. This task carries them "
                f"back: changes of {_listed(round_trip)} in a circle"
            )
            fix = (
                "Carry each table in one direction only: exclude these tables from one of the two tasks, or, "
                f"if task {writer.task} will never run again, run there: {forgotten(writer)}"
            )
            findings.append(failed(what, fix))
    if not config.is_between_zones:
        findings += _returned_findings(config, source, target, there)
    return findings


def _returned_findings(config: TaskConfig, source: Session, target: TargetSession, there: str) -> list[Finding]:
    """Returns a failed finding for each way back that has ended, and whose changes this task has yet to read."""
    found = []
    for writer in former_writers_on(source):
        own = writer.origins[0]
        names = sorted(name for name, end in own.tables.items() if carried_to(config, end) == name)
        if not (names and writer.switched_at and is_same_server(own.server, there)):
            continue
        switch = Lsn.at(Position.parse(writer.switched_at))
        stored = target.meta.checkpoints.read(config.name, config.source.source_id)
        # After a failover of the source, its log cannot be compared with the place of the switch.
        if any(row.lsn.change_no == 0 and row.lsn < switch for row in stored):
            what = (
                f"task {writer.task} has carried changes from this task's target to this source, up to the switch at "
                f"{writer.switched_at}. This task continues before that, and would make these changes on the target a "
                f"second time: changes of {_listed(names)} in a circle"
            )
            fix = (
                "Leave this task as it is. To carry the later changes of the source, run `pidts cutover --reverse` "
                f"with the file of task {writer.task}, and then the task that it writes: it begins at that switch"
            )
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
