"""Decides whether two zones can begin although each has rows of its own, which have the same or different keys.

With `pidts.both-have-rows`, the tasks of both directions copy their source's rows. `pidts.apply.rows.convergence`
decides about a copied row as about a change: the row with the later version stays, in whatever order rows, changes and
removals arrive. No row of the target is removed because the source lacks it, since the other task copies it there.

**DELETEs of programs.** The log of the zone has to show a DELETE to the task out of this zone, or a row that this
task's opposite has brought is gone in one zone only:

    the task from a to b writes row 1 to b;  a program deletes it in b;  the task from b to a begins      a keeps row 1

So neither task writes a row before both have their places in the logs (`pidts.task.checks.joining.opposite_task`). From
its place on, each task carries all DELETEs, also those that return.

**A zone that joins others** has tasks only from and to its seed until all rows are put together. With a task to
another zone, too, the places of its two tasks in its log would be apart, and only one of them would carry a DELETE
between the places. So the seed's tasks have to forward the zone's changes before its task writes a row: the log of the
seed shows a row only once.

**Earlier tombstones** may be in one of the zones only. A row that a tombstone keeps out is answered, and its own zone
removes it, too (`pidts.apply.rows.convergence`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial

from pidts.apply import TargetSession
from pidts.apply.rows.convergence import why_not
from pidts.model import PrecheckFailed, SourceTablesKey, Where
from pidts.plan import CopyMode
from pidts.source import Session, query
from pidts.source.structures import quoted
from pidts.task.checks.task_records import FORWARDS, WritingTask, meta_schemas, writers_of_target, writers_on
from pidts.task.config.task_file import TaskConfig, load_directions, load_task
from pidts.task.config.zones_file import Direction, path_of, split_path
from pidts.task.tables.target_fit import TableFit

_PAGE = "docs/operate/zones.md, 'Zones that both have rows'"
_MERGE = (
    "To keep the rows of both zones, write conflict: version and both-have-rows: true in pidts, for both directions "
    f"({_PAGE}). Otherwise empty the table in the target's zone. TRUNCATE removes all of its rows, even those that the "
    "source does not have: look at them first"
)


def fits_between_zones(config: TaskConfig, fits: Iterable[TableFit]) -> list[TableFit]:
    """Returns the fits of tables that a task copies into a zone. Other tasks get their fits back."""
    if not config.is_between_zones:
        return list(fits)
    if not config.zones.both_have_rows:
        return [replace(fit, fix=_MERGE) if fit.problem and fit.has_rows else fit for fit in fits]
    return [fit if fit.problem else _merging(config, fit) for fit in fits]


def _merging(config: TaskConfig, fit: TableFit) -> TableFit:
    if fit.missing:
        return replace(fit, problem="it does not exist in the target's zone", fix="Create it there, with no rows")
    if reason := why_not(fit.target_table, config.version_column):
        what = f"its versions cannot decide which row stays: {reason}"
        return replace(fit, problem=what, fix="Change the table in both zones, or exclude it in block-allow-list")
    return replace(fit, mode=CopyMode.ADD)


def demand_no_others(config: TaskConfig, source: Session, target: TargetSession) -> None:
    """Raises if another task between zones carries changes of these tables, and is not in the same file.

    The task of the opposite direction has to wait for this task. If it has written rows already, this task would begin
    too late.
    """
    if not config.zones.both_have_rows:
        return
    in_file = {other.name for _, other in _tasks_of_file(config)}
    if config.zones.forwards and not in_file:
        raise PrecheckFailed(
            "zone-not-joined",
            "a zone with rows of its own would join several zones, and each task has a file of its own",
            where=Where(source=config.source.source_id, file=str(config.path)),
            todo=f"Write one file for all zones. See {_PAGE}",
        )
    ask = partial(query, source)
    schema = config.target.meta_schema
    into_source = writers_on(source) if schema in meta_schemas(ask) else []
    begun = f"SELECT 1 FROM {quoted(schema)}.checkpoint WHERE task = %s AND source = %s AND batch > 0 LIMIT 1"
    others = []
    for one in [*into_source, *writers_of_target(config, target)]:
        if is_opposite(config, one):
            is_late = not one.merges or bool(ask(begun, [one.task, one.source]))
        else:
            is_late = one.task not in in_file
        if is_late and one.zone and any(map(config.allow, one.tables)):
            others.append(one.task)
    if others:
        raise not_together(config, sorted({*others}))


def _tasks_of_file(config: TaskConfig) -> Iterator[tuple[Direction, TaskConfig]]:
    """Yields the other directions of the file that names all zones, with their tasks; none for a file of one task."""
    file, own = split_path(config.path)
    for one in load_directions(file) if own else ():
        if str(one) != own:
            yield one, load_task(path_of(file, one))


def is_opposite(config: TaskConfig, other: WritingTask) -> bool:
    """Whether another task carries changes of this task's target zone, in this task's tables, to its source."""
    zones = (other.zone, other.target_zone) == (config.zones.target, config.zone)
    return zones and any(map(config.allow, other.tables))


def forwarding(config: TaskConfig) -> list[TaskConfig]:
    """Returns the file's other tasks that have to forward the changes of the source's zone, at any distance from it.

    A task that has not begun to forward them leaves them out for good, since it reads its source's log only once.
    """
    return [other for direction, other in _tasks_of_file(config) if config.zone in direction.forwards]


def not_forwarding(config: TaskConfig) -> list[str]:
    """Returns the tasks that do not forward the changes of the source's zone yet."""
    found = []
    for other in forwarding(config):
        with closing(other.target.server.connect()) as session:
            begun = session.meta.checkpoints.read(other.name, other.source.source_id)
            place = (other.name, SourceTablesKey(other.source.source_id))
            if not begun or config.zone not in json.loads(session.meta.notes.read(*place, FORWARDS) or "[]"):
                found.append(other.name)
    return found


def not_together(config: TaskConfig, names: Iterable[str]) -> PrecheckFailed:
    """Returns the error about other tasks that have begun without copying into a zone with rows of its own."""
    return PrecheckFailed(
        "zone-not-joined",
        f"both zones have rows, and other tasks between zones have begun: {', '.join(names)}",
        where=Where(source=config.source.source_id, file=str(config.path)),
        todo="Write one file for all zones, with joins: ZONE for the zone that joins. If a task will never run again, "
        f"remove its records. See {_PAGE}",
    )
