"""Decides whether two zones can begin although each already has rows, with equal or different keys.

With `pidts.both-have-rows`, the tasks of both directions copy their source's rows. `pidts.apply.rows.convergence`
decides about a copied row as about a change: the row with the later version stays, in whatever order rows, changes and
removals arrive. A row that the source lacks stays on the target, since the other task copies the row to the source.

**DELETEs of programs.** Suppose that a task has written a row to a zone, and a program deletes it there. The task out
of this zone has to read this DELETE in the log. Otherwise the row stays in the other zone:

    the task from a to b writes row 1 to b;  a program deletes it in b;  the task from b to a begins      a keeps row 1

So neither task writes a row before both tasks have their places in the logs
(`pidts.task.checks.joining.opposite_task`). From its place on, each task carries all DELETEs, even of rows that came
from the other zone.

**A zone that joins others** has tasks only from and to its seed (an existing zone) until all rows are put together.
Suppose that one task carried the new zone's changes to the seed, and a second task carried them to another zone. These
two tasks would begin at different places in the new zone's log. If the log has a DELETE between these places, only one
of the tasks would carry it. So all other zones get the new zone's rows through the seed's tasks. The seed's log
contains each of these rows only once. So the seed's tasks have to forward the new zone's changes before the new zone's
task writes the first row to the seed.

**Earlier tombstones** (records of deleted rows) may be in one of the zones only. If a tombstone keeps a copied row out,
the task sends a DELETE back, which removes the row in the zone from which it was copied. See
`pidts.apply.rows.convergence`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial

from pidts.apply import TargetSession
from pidts.apply.rows.convergence import why_not
from pidts.model import PrecheckFailed, TableName, Where
from pidts.model.errors import listed
from pidts.plan import CopyMode
from pidts.source import Session, query
from pidts.source.finding import Finding
from pidts.source.structures import quoted
from pidts.task.checks.task_records import (
    WritingTask,
    meta_schemas,
    recorded_forwards,
    writers_of_target,
    writers_on,
)
from pidts.task.checks.zone_topology import forgotten
from pidts.task.config.task_file import TaskConfig, load_directions, load_task
from pidts.task.config.zones_file import Direction, path_of, split_path
from pidts.task.tables.target_fit import LOOK_FIRST, TableFit

_PAGE = "docs/operate/zones.md, 'Zones that both have rows'"


def fits_between_zones(config: TaskConfig, fits: Iterable[TableFit]) -> list[TableFit]:
    """Adapts the results of the target tables' checks to a task between zones. Another task's results are unchanged."""
    if not config.is_between_zones:
        return list(fits)
    if not config.zones.both_have_rows:
        fix = _keep_or_empty(config)
        return [replace(fit, fix=fix) if fit.problem and fit.has_rows else fit for fit in fits]
    return [fit if fit.problem else _merging(config, fit) for fit in fits]


def _keep_or_empty(config: TaskConfig) -> str:
    """Returns what an operator can do about a table with rows in the target's zone."""
    file, own = split_path(config.path)
    directions = load_directions(file) if own else ()
    if own and not any((one.source, one.target) == (config.zones.target, config.zone) for one in directions):
        # No task carries changes from the target's zone to the source's zone. So rows of the target's zone could never
        # reach the source's zone.
        return f"Empty the table in the target's zone. {LOOK_FIRST}"
    keys = [] if config.zones.converges else ["conflict: version", "version-column: COLUMN"]
    keys.append("both-have-rows: true")
    joins = ""
    if len({one.target for one in directions}) > 2:
        joins = f", and joins: {config.zone} for zone {config.zones.target}"
    text = f"write {', '.join(keys)} under the key pidts in the file of each direction{joins} ({_PAGE})"
    return f"To keep the rows of both zones, {text}. Otherwise empty the table in the target's zone. {LOOK_FIRST}"


def _merging(config: TaskConfig, fit: TableFit) -> TableFit:
    if fit.missing:
        fix = (
            "Create it there, with no rows. If it was dropped there, also drop it in the source's zone, or exclude it "
            "in block-allow-list"
        )
        return replace(fit, problem="it does not exist in the target's zone", fix=fix)
    if reason := why_not(fit.target_table, config.version_column):
        what = f"its versions cannot decide which row stays: {reason}"
        return replace(fit, problem=what, fix="Change the table in both zones, or exclude it in block-allow-list")
    return replace(fit, mode=CopyMode.ADD)


def demand_no_others(config: TaskConfig, source: Session, target: TargetSession) -> None:
    """Raises if another task between zones carries changes of these tables, and is not in the same file.

    The task of the opposite direction may be in another file, if it waits for this task. If the opposite task has
    already written rows, this task would begin too late, so this function raises.
    """
    if not config.zones.both_have_rows:
        return
    in_file = {other.name for _, other in _tasks_of_file(config)}
    if config.zones.forwards and not in_file:
        raise PrecheckFailed(
            "zone-not-joined",
            f"zone {config.zones.target} already has rows and would join several zones: this needs one file that "
            "names all zones, and this task has a file of its own",
            where=Where(source=config.source.source_id, file=str(config.path)),
            todo=f"Write one file for all zones. See {_PAGE}",
        )
    ask = partial(query, source)
    schema = config.target.meta_schema
    into_source = writers_on(source) if schema in meta_schemas(ask) else []
    begun = f"SELECT 1 FROM {quoted(schema)}.checkpoint WHERE task = %s AND source = %s AND batch > 0 LIMIT 1"
    others: list[WritingTask] = []
    for one in [*into_source, *writers_of_target(config, target)]:
        if is_opposite(config, one):
            is_late = not one.merges or bool(ask(begun, [one.task, one.source]))
        else:
            is_late = one.task not in in_file
        if is_late and one.zone and any(map(config.allow, one.tables)):
            others.append(one)
    if others:
        raise not_together(config, others)


def others_findings(config: TaskConfig, source: Session, target: TargetSession) -> list[Finding]:
    """Returns the finding of `pidts check` if the first start would raise in `demand_no_others`."""
    try:
        demand_no_others(config, source, target)
    except PrecheckFailed as error:
        return [Finding("circular_replication", ok=False, message=error.what, fix=error.todo, code=error.code)]
    return []


def _tasks_of_file(config: TaskConfig) -> Iterator[tuple[Direction, TaskConfig]]:
    """Yields the other directions of the file that names all zones, with their tasks; none for a file of one task."""
    file, own = split_path(config.path)
    for one in load_directions(file) if own else ():
        if str(one) != own:
            yield one, load_task(path_of(file, one))


def is_opposite(config: TaskConfig, other: WritingTask) -> bool:
    """Whether another task carries changes of this task's target zone, in this task's tables, to this task's source."""
    zones = (other.zone, other.target_zone) == (config.zones.target, config.zone)
    return zones and any(map(config.allow, other.tables))


def forwarding(config: TaskConfig) -> list[TaskConfig]:
    """Returns the file's other tasks that have to forward the changes of the source's zone, even through other zones.

    Each of these tasks must forward the zone's changes from the first change on, since a task reads its source's log
    only once.
    """
    return [other for direction, other in _tasks_of_file(config) if config.zone in direction.forwards]


def not_forwarding(config: TaskConfig, others: Iterable[TaskConfig]) -> list[str]:
    """Returns the tasks in `forwarding` that do not forward the changes of the source's zone yet."""
    return [other.name for other in others if config.zone not in recorded_forwards(other)]


def not_together(config: TaskConfig, writers: Iterable[WritingTask]) -> PrecheckFailed:
    """Returns the error about other tasks that have begun without copying into a zone with rows of its own.

    The error's advice lets the task of the opposite direction begin anew. The advice includes `pidts relay forget`: if
    the relay kept its record of the task, the next start would conclude that the zone was restored from a backup
    (`pidts.task.checks.restored_zone`).
    """
    found = sorted(writers, key=lambda one: one.task)
    opposite = {one.task: forgotten(one) for one in found if is_opposite(config, one)}
    others = {one.task: forgotten(one) for one in found if one.task not in opposite}
    todo = [
        f"Stop task {task}. In its file, write both-have-rows: true, and task-mode: all if the file names no other "
        f"zones. Remove its records on the server that it writes to: {statement}. Then run pidts relay forget FILE, "
        f"where FILE is that task's file, and start both tasks again"
        for task, statement in opposite.items()
    ]
    if others:
        todo.append(
            f"Write one file for all zones, with joins: ZONE for the zone that joins ({_PAGE}). If a task will never "
            f"run again, remove its records on the server that it writes to: {'; '.join(others.values())}"
        )
    return PrecheckFailed(
        "zone-not-joined",
        f"both zones have rows, and other tasks between zones have begun: {', '.join(one.task for one in found)}",
        where=Where(source=config.source.source_id, file=str(config.path)),
        todo=". ".join(todo),
    )


def demand_selected(config: TaskConfig, opposite: WritingTask, tables: Iterable[TableName]) -> None:
    """Raises if the task of the opposite direction does not select all tables of this task.

    The opposite task may select a table but have no record of its structure. If the table was created after the
    position at which that task reads the log, that task will carry the table. If the table was dropped before this
    position, this task finds no table in the target's zone, and halts the table.
    """
    selects = opposite.merges
    missing = sorted(one for one in tables if one not in opposite.tables and not (selects and selects(one)))
    if missing:
        raise PrecheckFailed(
            "zone-not-joined",
            f"both zones have rows of {listed(missing)}, and task {opposite.task} does not carry them back",
            where=Where(source=config.source.source_id, file=str(config.path)),
            todo=f"Exclude these tables in block-allow-list, as in the file of {opposite.task}, and start the task "
            "again",
        )
