"""Does the work of owner moves and resolve commands on the zones' servers: finds records, blocks writes, waits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from pidts.model import ConfigError, PidtsError, PrecheckFailed, RangeOwner, TableName, Where
from pidts.rules import Owners
from pidts.source import connect
from pidts.source.connection import query
from pidts.source.structures import quoted_table
from pidts.task.compare.catch_up import TaskCatchUp
from pidts.task.config.task_file import TaskConfig, load_task
from pidts.task.config.zones_file import Direction, path_of, split_path
from pidts.task.zones.owner_move import Drain, Hold, ZoneRecords
from pidts.task.zones.resolve_in_all import TaskIntoZone

_LOCK_SECONDS = 20
"""The longest wait for open transactions that write to the table."""

Directions = Mapping[Direction, TaskConfig]


def zone_records(directions: Directions) -> list[ZoneRecords]:
    """Returns the meta tables of all zones that can own rows."""
    found: dict[str, list[TaskConfig]] = {}
    for direction, config in directions.items():
        if config.zones.owners:
            found.setdefault(direction.target, []).append(config)
    return [
        ZoneRecords(zone, configs[0].target.server.connect, tuple((one.name, one.source.source_id) for one in configs))
        for zone, configs in found.items()
    ]


def tasks_into(path: Path, directions: Sequence[Direction], say: Callable[[str], None]) -> list[TaskIntoZone]:
    """Returns the tasks of these directions of a file. `path` is the file, or one of its directions."""
    file, _ = split_path(path)
    return [_task_into(one, load_task(path_of(file, one)), say) for one in directions]


def _task_into(direction: Direction, config: TaskConfig, say: Callable[[str], None]) -> TaskIntoZone:
    def await_all(table: TableName) -> None:
        if (why := _await_zone(direction, config, table, threading.Event(), say)) is not None:
            raise PrecheckFailed(
                "zone-behind",
                why,
                where=Where(table=str(table), file=str(config.path)),
                todo="Pending changes would arrive after the row is resolved, so nothing was done. Wait until "
                "pidts status TASK shows syncing, then repeat the command on the machine that has the task's relay",
            )

    connect_target = config.target.server.connect
    return TaskIntoZone(
        direction.source, direction.target, config.name, config.source.source_id, connect_target, await_all
    )


def wanted_range(owners: Owners, text: str, to: str) -> RangeOwner:
    """Returns the range that a user names: a table, or an entry of `pidts.owners`."""
    names, _, where = (part.strip() for part in text.partition(" where "))
    schema, _, table = names.partition(".")
    zone = owners.zone_of(schema, table, where)
    if not zone:
        known = "; ".join(str(one) for one in owners.ranges)
        what = f"{text!r} is not a range of pidts.owners"
        raise ConfigError("unknown-name", what, todo=f"Name one of these, or a table of a schema that has one: {known}")
    return RangeOwner(
        schema=schema,
        table=table,
        where=where,
        zone=zone,
        origin=zone,
        to=to,
        settled=False,
        number=0,
        ranges=owners.text(),
    )


def holder(directions: Directions, wanted: RangeOwner, say: Callable[[str], None]) -> Hold:
    """Returns a function that makes programs' writes to the table wait in a zone, if the zone's server allows that."""
    table = TableName(wanted.schema, wanted.table)
    configs = {direction.source: config for direction, config in directions.items()}

    @contextmanager
    def hold(zone: str) -> Iterator[None]:
        with closing(connect(configs[zone].source.server)) as session:
            try:
                query(session, f"SET SESSION lock_wait_timeout = {_LOCK_SECONDS}")
                query(session, f"LOCK TABLES {quoted_table(table)} READ")
            except PidtsError as error:
                say(f"programs of zone {zone} can still write to {table}, since it cannot be locked: {error.what}")
                say("stop these programs: their writes from now on may be set aside in all other zones")
            else:
                say(f"writes to {table} in zone {zone} wait, until the other zones have caught up")
            yield

    return hold


def drainer(directions: Directions, wanted: RangeOwner, stop: threading.Event, say: Callable[[str], None]) -> Drain:
    """Returns a function that waits until all zones have the log of a zone up to its current end."""
    table = TableName(wanted.schema, wanted.table)
    zones = {zone for direction in directions for zone in (direction.source, direction.target)}

    def drain(zone: str) -> None:
        carrying = {one: config for one, config in directions.items() if zone in (one.source, *one.forwards)}
        # A zone forwards changes only after it has got them. So the ends of all logs are read again.
        for _ in range(len(zones) - 1 if any(zone in one.forwards for one in carrying) else 1):
            for direction, config in carrying.items():
                _await(direction, config, table, stop, say)

    return drain


def _await(
    direction: Direction, config: TaskConfig, table: TableName, stop: threading.Event, say: Callable[[str], None]
) -> None:
    if (why := _await_zone(direction, config, table, stop, say)) is not None:
        raise PrecheckFailed(
            "zone-not-moved",
            why,
            where=Where(table=str(table), file=str(config.path)),
            todo="The range stays with its owner. Look at the task (pidts status TASK), then move the range again. Run "
            "the command where the tasks run: without their relays, it cannot find out whether tables without new "
            "changes have caught up",
        )


def _await_zone(
    direction: Direction, config: TaskConfig, table: TableName, stop: threading.Event, say: Callable[[str], None]
) -> str | None:
    """Waits until the direction's target has all changes of a table that its source's log has now.

    Returns the reason if the target does not get them, otherwise None.
    """
    with closing(config.target.server.connect()) as target, closing(connect(config.source.server)) as source:
        if not target.meta.checkpoints.read(config.name, config.source.source_id):
            start = config.run_command()
            return f"the task from zone {direction.source} to zone {direction.target} has not begun (start it: {start})"
        catch_up = TaskCatchUp(config, source, target, stop=stop, say=say, prefix=f"{direction}: ")
        state = catch_up.await_target(table, catch_up.place())
    if state is None:
        return None
    return state.waits or f"zone {direction.target} does not catch up with zone {direction.source}"
