"""Does the work of a zone's return on the servers: reads and removes records, empties relays, counts changes."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from secrets import token_hex

from pidts.apply.claim import claim_workers
from pidts.batch.workers import resume_point
from pidts.model import (
    Checkpoint,
    ConfigError,
    Lsn,
    PidtsError,
    Position,
    PrecheckFailed,
    SourceTablesKey,
    Table,
    TableName,
    Transient,
    Where,
    epoch_before_first,
)
from pidts.model.errors import plural
from pidts.model.zone import COUNTED_UP_TO, RETURN_RECORD, ZONE_NOTE
from pidts.plan import PlanState
from pidts.relay.folder import Folder
from pidts.relay.lock import empty_relay
from pidts.relay.task_needs import forget_need, read_needs
from pidts.source import connect, read_structures
from pidts.source.position import log_end
from pidts.target.mysql import MySqlSession
from pidts.task.checks.task_records import TARGET_ZONE
from pidts.task.checks.zone_start import MAY_FIND_ROWS
from pidts.task.config.task_file import TaskConfig
from pidts.task.config.zones_file import Direction
from pidts.task.operate.presence import is_present
from pidts.task.operate.sole_run import running_process
from pidts.task.zones.own_changes import own_changes
from pidts.task.zones.zone_return import RecordedTask

Directions = Mapping[Direction, TaskConfig]


@dataclass(slots=True)
class ReturningZone:
    """A zone that is filled again by the only zone that feeds it."""

    zone: str
    directions: Directions
    stop: threading.Event
    say: Callable[[str], None]
    token: str = field(default_factory=lambda: token_hex(16), init=False)
    """The text by which the run of the filling task knows that it may find rows in the zone."""
    _since: Position | None = field(default=None, init=False)
    _until: Position | None = field(default=None, init=False)
    _seed: Direction = field(init=False)

    def __post_init__(self) -> None:
        """Raises if the zone cannot return.

        In the file, exactly one zone has to feed this zone, and this zone has to feed another zone. Versions must not
        decide between zones.
        """
        into = [one for one in self.directions if one.target == self.zone]
        if len(into) != 1:
            what = f"{len(into)} zones feed zone {self.zone} in the file, but it can be filled from exactly one zone"
            todo = f"Write `joins: ZONE` for zone {self.zone}, where ZONE is the zone that fills it"
            raise ConfigError("bad-value", what, todo=todo)
        self._seed = into[0]
        if not any(one.source == self.zone for one in self.directions):
            what = f"zone {self.zone} feeds no other zone in the file, so it cannot have lost anything"
            raise ConfigError("bad-value", what, todo=f"Drop its tables, and write `joins: ZONE` for zone {self.zone}")
        if self.config.zones.converges:
            raise PrecheckFailed(
                "zone-copy",
                "with pidts.conflict: version, rows of the zone that have a higher version would stay, and no other "
                "zone would have them",
                where=Where(file=str(self.config.path)),
                todo=f"Drop the tables of zone {self.zone}, remove the records of its tasks, and let it join",
            )

    @property
    def seed(self) -> Direction:
        """The direction that fills the zone."""
        return self._seed

    @property
    def config(self) -> TaskConfig:
        """The task that fills the zone."""
        return self.directions[self._seed]

    @property
    def _out(self) -> TaskConfig:
        """A task that reads the zone's log."""
        return next(config for one, config in self.directions.items() if one.source == self.zone)

    def recorded(self) -> list[RecordedTask]:
        """Returns the file's tasks into and out of the zone that have begun, even if the file no longer names them.

        Tasks of other files carry other tables, which this command does not fill.
        """
        found = []
        for zone, config in self._servers().items():
            with closing(config.target.server.connect()) as session:
                assert isinstance(session, MySqlSession)  # noqa: S101 - a zone of which a log is read
                session.meta.prepare()
                begun = session.rows("SELECT DISTINCT task, source FROM pidts_meta.checkpoint ORDER BY 1, 2")
                for task, source in begun:
                    read = session.meta.notes.read(str(task), SourceTablesKey(str(source)), ZONE_NOTE)
                    if read and self.zone in {zone, read}:
                        if task == f"{self._name}-{read}-{zone}":
                            found.append(RecordedTask(read, zone, str(task), str(source)))
                        else:
                            self.say(
                                f"task {task} does not belong to this file: to let its tables return, use the "
                                "file of that task"
                            )
        return found

    def running(self, tasks: Sequence[RecordedTask]) -> list[str]:
        """Returns the tasks from and to the zone that run now, on this machine or, as their targets show, on others."""
        own = {one.name: one for way, one in self.directions.items() if self.zone in {way.source, way.target}}
        found = {name for name, config in own.items() if running_process(config)}
        servers = self._servers()
        places = [(one.name, one.source.source_id, one) for one in own.values() if one.is_between_zones]
        places += [(one.task, one.source, servers[one.target_zone]) for one in tasks if one.task not in own]
        for task, source, config in places:
            with closing(config.target.server.connect()) as session:
                if is_present(session, task, source):
                    found.add(task)
        return sorted(found)

    def unsent(self, tasks: Sequence[RecordedTask]) -> Counter[TableName] | None:
        """Returns, for each table, how many of this zone's changes other zones lack; None if they cannot be counted.

        Counts the changes of programs after the checkpoints of the tasks out of the zone. If an earlier run of the
        command has removed these checkpoints, it has recorded a place instead. Rows that other zones have locked
        because of this zone's changes also count: for each table, the largest of these numbers is returned.
        """
        self._since = end = self._end()
        starts = {one.task: self._read_up_to(one) for one in tasks if one.zone == self.zone}
        if len(starts) > 1 and (None in starts.values() or len({str(start) for start in starts.values()}) > 1):
            others = " and ".join(sorted(one.target_zone for one in tasks if one.zone == self.zone))
            self.say(
                f"zones {others} have read different parts of the log of zone {self.zone}. If one of them lacks "
                "changes that another one has, no task brings these changes later: compare these zones afterwards "
                "(pidts verify TASK)"
            )
        recorded = self._recorded_place()
        if recorded is not None or not starts:
            starts["an earlier run of this command"] = recorded
        total = self._locked_elsewhere(tasks)
        for who, start in starts.items():
            if start is None:
                self.say(f"it is not known how far the log of zone {self.zone} was read ({who})")
                return None
            if start.base != end.base or (start.log_index, start.offset) > (end.log_index, end.offset):
                self.say(f"the log of zone {self.zone} does not reach {start}, which was read before ({who})")
                return None
            try:
                changes = own_changes(self._out, start, end, self.stop)
            except Transient:
                raise
            except PidtsError as error:
                self.say(f"the log of zone {self.zone} cannot be read from {start} on: {error.what}")
                return None
            total |= changes
        return total

    def _locked_elsewhere(self, tasks: Sequence[RecordedTask]) -> Counter[TableName]:
        """Returns how many rows other zones have locked because of this zone. The changes in the locks will be lost."""
        found: Counter[TableName] = Counter()
        for one in (one for one in tasks if one.zone == self.zone):
            with closing(self._servers()[one.target_zone].target.server.connect()) as session:
                locked = session.meta.row_locks.recorded(one.task, one.source)
            for table, number in locked.items():
                self.say(
                    f"zone {one.target_zone} has {plural('locked row', number)} of {table} because of changes of zone "
                    f"{self.zone}"
                )
                found[table] += number
        return found

    def _read_up_to(self, task: RecordedTask) -> Position | None:
        with closing(self._servers()[task.target_zone].target.server.connect()) as session:
            return read_up_to(session.meta.checkpoints.read(task.task, task.source))

    def _recorded_place(self) -> Position | None:
        with closing(self.config.target.server.connect()) as session:
            session.meta.prepare()
            text = session.meta.notes.read(RETURN_RECORD, SourceTablesKey(self.zone), COUNTED_UP_TO)
        return Position.parse(text) if text else None

    def forget(self, task: RecordedTask) -> None:
        """Removes the checkpoints of a task on its target."""
        with closing(self._servers()[task.target_zone].target.server.connect()) as session:
            assert isinstance(session, MySqlSession)  # noqa: S101 - a zone of which a log is read
            locked = session.meta.row_locks.recorded(task.task, task.source)
            if locked:
                self.say(f"this also removes {plural('lock', sum(locked.values()))} of task {task.task}")
            session.begin()
            session.rows("DELETE FROM pidts_meta.checkpoint WHERE task = %s AND source = %s", (task.task, task.source))
            session.commit()

    def forget_relays(self, tasks: Sequence[RecordedTask]) -> None:
        """Empties this machine's relays of these tasks, and of each direction of the zone that the file can have.

        A relay records how far a task has come (its need). A run of the command may remove the checkpoint of the task
        that fills the zone, and be killed. If the relay stayed, the need would still have the former place, and the
        task's next start would conclude that the zone was restored from a backup.
        """
        others = sorted({zone for one in self.directions for zone in (one.source, one.target)} - {self.zone})
        ways = {(self.zone, other) for other in others} | {(other, self.zone) for other in others}
        for zone, target in sorted(ways | {(one.zone, one.target_zone) for one in tasks}):
            relay = self._relay_of(zone, target)
            forget_need(relay, zone, f"{self._name}-{zone}-{target}")
            if not read_needs(Folder.of(relay, zone)):
                empty_relay(relay, zone)  # raises if a running task has the lock of its relay

    def _relay_of(self, zone: str, target: str) -> Path:
        """Returns the folder of a task's relay, even for a direction that the file does not name."""
        named = self.config.relay
        return named.with_name(f"{zone}-{target}") if named.name == str(self._seed) else named

    @property
    def _name(self) -> str:
        """The `name` of the task file, with which the names of its tasks begin."""
        return self.config.name.removesuffix(f"-{self._seed}")

    def note_place(self) -> None:
        """Records in the zone the place up to which `unsent` has counted."""
        self._record(str(self._since))

    def _record(self, text: str) -> None:
        with closing(self.config.target.server.connect()) as session:
            session.begin()
            session.meta.notes.write(RETURN_RECORD, SourceTablesKey(self.zone), COUNTED_UP_TO, text)
            session.commit()

    def allow(self) -> None:
        """Records that the run of this command, which gets `token`, may find rows in the zone."""
        config = self.config
        with closing(config.target.server.connect()) as session:
            session.begin()
            session.meta.notes.write(config.name, SourceTablesKey(config.source.source_id), MAY_FIND_ROWS, self.token)
            session.commit()

    def written(self) -> Counter[TableName]:
        """Returns, for each table, how many changes programs have made in the zone after the recorded place."""
        assert self._since is not None, "`note_place` has not recorded a place"  # noqa: S101
        self._until = self._end()
        return own_changes(self._out, self._since, self._until, self.stop)

    def begin_out(self) -> None:
        """Lets the tasks out of the zone begin where `written` has ended, so that later changes are carried.

        The structures are read without locks, since nothing changes them. The log up to this place has no change of a
        program, and the task that fills the zone has ended.
        """
        assert self._until is not None, "`written` has not counted the changes"  # noqa: S101
        for one, config in self.directions.items():
            if one.source == self.zone and config.is_between_zones:
                with closing(connect(config.source.server)) as source:
                    tables = read_structures(source, config.allow)
                self._begin(one, config, tables, self._until)
        self._record("")

    def _begin(self, direction: Direction, config: TaskConfig, tables: Mapping[TableName, Table], at: Position) -> None:
        place = (config.name, SourceTablesKey(config.source.source_id))
        start = Checkpoint(
            task=config.name,
            source=config.source.source_id,
            worker=0,
            lsn=Lsn.at(at, 0),
            position=str(at),
            epoch=epoch_before_first(),
        )
        with closing(config.target.server.connect()) as session:
            session.meta.prepare()
            session.begin()
            known = session.meta.structures.load(*place)
            session.meta.structures.save(*place, start.lsn, {**dict.fromkeys(known), **tables})
            session.meta.shadows.replace(config.name, config.source.source_id, {})
            session.commit()
            claimed = claim_workers(session, config.name, config.source.source_id, config.workers, start)
            session.begin()
            for row in claimed:  # an earlier run of this command may have begun the task at another place
                session.meta.checkpoints.lock(row.task, row.source, row.worker)
                session.meta.checkpoints.save(replace(start, worker=row.worker, epoch=row.epoch))
            session.meta.notes.write(*place, ZONE_NOTE, direction.source)
            session.meta.notes.write(*place, TARGET_ZONE, direction.target)
            session.commit()

    def _end(self) -> Position:
        with closing(connect(self._out.source.server)) as session:
            return log_end(session)

    def _servers(self) -> dict[str, TaskConfig]:
        """Returns, for each zone, a task that writes there; all have the same meta schema."""
        return {one.target: config for one, config in self.directions.items() if config.is_between_zones}


def read_up_to(checkpoints: Sequence[Checkpoint]) -> Position | None:
    """Returns the place of the log up to which a task has applied all changes of all tables; None if it is not known.

    If a table waits or is halted, this is the table's place, which is earlier than that of the other tables. While a
    table is being copied, there is no such place: the log does not have the rows that are still to be copied.
    """
    if any(PlanState.from_checkpoint(row.lsn, row.copy).copying for row in checkpoints):
        return None
    place = resume_point(checkpoints).position if checkpoints else ""
    return Position.parse(place) if place else None
