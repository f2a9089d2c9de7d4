"""Finds the tasks of a hand-over, in the file and in the records on the servers, and connects to the servers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace

from pidts.apply import TargetSession
from pidts.model import ConfigError, Lsn, PrecheckFailed, SourceTablesKey, Where
from pidts.source import connect
from pidts.target.mysql import MySqlSession
from pidts.task.checks.task_records import recorded_forwards
from pidts.task.compare.catch_up import TaskCatchUp
from pidts.task.config.task_file import TaskConfig
from pidts.task.config.zones_file import Direction
from pidts.task.zones.hand_over import HandOver, JoinedZone, TaskNames

Directions = Mapping[Direction, TaskConfig]


def hand_over_of(
    directions: Directions, zone: str, stop: threading.Event, say: Callable[[str], None]
) -> HandOver | None:
    """Returns the hand-over of a zone; None if there is nothing to hand over.

    Changes have to be handed over if a task into the zone forwards them, but by the file other tasks carry them.
    """
    into = {one.source: config for one, config in directions.items() if one.target == zone}
    if not into:
        what = f"{zone!r} is not a zone of this file, or no zone feeds it"
        raise ConfigError(
            "unknown-name", what, todo=f"Name one of {', '.join(sorted({one.target for one in directions}))}"
        )
    seeds = {source: (config, carried) for source, config in into.items() if (carried := recorded_forwards(config))}
    direct = {one.source for one in directions if one.target == zone}
    seeds = {source: found for source, found in seeds.items() if found[1] & direct}
    if not seeds:
        return None
    seed, (config, carried) = min(seeds.items())
    into_seed = {one.source: (one, other) for one, other in directions.items() if one.target == seed}
    for other in sorted(carried & direct):
        way = next(one for one in directions if (one.source, one.target) == (other, zone))
        if other not in into_seed or way.forwards or into_seed[other][0].forwards:
            what = f"changes of zone {other} reach zone {seed} or zone {zone} only through other zones"
            raise PrecheckFailed(
                "zone-not-handed-over", what, todo="Hand over between zones that all feed each other (feeds: mesh)"
            )
    joined = JoinedZone(
        zone,
        _task(config),
        {other: _task(one) for other, (_, one) in into_seed.items() if other in carried & direct},
        {other: _task(into[other]) for other in carried & direct},
    )
    # By the file, the seed's task no longer forwards these zones. By the task's record, it still does.
    before = replace(config, zones=replace(config.zones, forwards=tuple(sorted(carried))))
    seed_target = next(iter(into_seed.values()))[1].target.server
    return HandOver(joined, seed_target.connect, config.target.server.connect, SeedTask(before, stop, say), say)


def _task(config: TaskConfig) -> TaskNames:
    return TaskNames(config.name, config.source.source_id, config.workers)


@dataclass(frozen=True, slots=True)
class SeedTask:
    """The log of the seed, and the seed's task, whose relay is on this machine."""

    config: TaskConfig
    stop: threading.Event
    say: Callable[[str], None]

    def end(self) -> Lsn:
        """Returns the current end of the log."""
        with self._catch_up() as (catch_up, _):
            return catch_up.place()

    def await_carried(self, end: Lsn) -> None:
        """Waits until the target has all tables up to this place."""
        with self._catch_up() as (catch_up, target):
            tables = target.meta.structures.load(self.config.name, SourceTablesKey(self.config.source.source_id))
            for table in sorted(tables):
                if (state := catch_up.await_target(table, end)) is not None:
                    what = state.waits or f"task {self.config.name} does not catch up, or is still copying {table}"
                    raise PrecheckFailed(
                        "zone-not-handed-over",
                        what,
                        where=Where(table=str(table), file=str(self.config.path)),
                        todo="Nothing has changed. Look at the task (pidts status TASK). Then repeat the command on "
                        "the machine that has the task's relay: without the relay, the command cannot find out whether "
                        "tables without new changes have caught up",
                    )

    def has_begun_change(self, session: TargetSession, task: TaskNames, after: Lsn) -> bool:
        """Whether the journal in the seed's meta tables has a schema change of the task after the Lsn `after`."""
        assert isinstance(session, MySqlSession)  # noqa: S101 - a zone that is a seed has a log
        asked = "SELECT 1 FROM pidts_meta.ddl_journal WHERE task = %s AND source = %s AND lsn > %s LIMIT 1"
        return bool(session.rows(asked, (task.task, task.source, str(after))))

    @contextmanager
    def _catch_up(self) -> Iterator[tuple[TaskCatchUp, TargetSession]]:
        config = self.config
        with closing(config.target.server.connect()) as target, closing(connect(config.source.server)) as source:
            yield TaskCatchUp(config, source, target, stop=self.stop, say=self.say), target
