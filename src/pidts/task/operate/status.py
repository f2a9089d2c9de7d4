"""The status of a task, read from the records on its target: its place in each source's log, and its blocked tables.

The status can be read while no task runs, and from any machine. Nothing is changed. On the machine that has the relay,
the status also includes the amount of log that the relay keeps for waiting tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pidts.apply import TargetSession
from pidts.apply.unseen_tables import unseen_tables
from pidts.batch.workers import Workers
from pidts.model import (
    Halted,
    Lsn,
    Member,
    PidtsError,
    Position,
    RecordKey,
    SourceTablesKey,
    TableName,
    Transient,
    Where,
)
from pidts.model.errors import named
from pidts.model.similar_names import similar
from pidts.plan import PlanState
from pidts.replicate import ReceiveProblem, heard_at, not_receiving, silent_since
from pidts.replicate.status import REPLICATOR_SILENT
from pidts.shards.structures import names_of
from pidts.target.hive.change_record import ChangeTable
from pidts.target.hive.record import Publication
from pidts.task.config.current_server import address_of
from pidts.task.config.task_file import TaskConfig
from pidts.task.operate.backlog import HeldTablesOfSource
from pidts.task.operate.cutover_state import CutoverState, cutover_state
from pidts.task.operate.ddl_commands import BlockedChange, DueCopy, TaskCommands, needs_operator
from pidts.task.operate.pause import Pause, stored_pauses
from pidts.task.operate.presence import is_present
from pidts.task.operate.progress import TableProgress
from pidts.task.operate.run_end import CLOCKS_DIFFER, RunEnd, has_recorded_end, last_end
from pidts.task.operate.shard_locks import OpenLock, open_locks
from pidts.task.operate.sole_run import has_run_here, running_process
from pidts.task.operate.source_log import LogEnd, SourceLog, ask_for_ends, source_log
from pidts.task.operate.warehouse import change_tables, demand_warehouse, publications, server_state_of
from pidts.task.tables.merged import Shard

if TYPE_CHECKING:
    from pidts.target.iceberg.server_record import CatalogLag

NOT_RUNNING = "task-not-running"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceStatus:
    """The status of a task with one of its sources."""

    source: str
    server: str
    """`host:port` of the server that is read now, or that will be read at the next start."""
    standbys: tuple[str, ...] = ()
    """The servers that may take over."""
    state: PlanState | None = None
    """The state of the last checkpoint; None if the task has not begun."""
    applied_lsn: Lsn | None = None
    """The place up to which the target has the log, except for waiting tables; None if the task has not begun."""
    gtid: str = ""
    position: Position | None = None
    moved_at: float = 0.0
    """The time of the last checkpoint of this part, in seconds since 1970."""
    silent_since: float = 0.0
    """When a silent replicator on this machine last wrote its status; 0 if it is not silent, or if there is none here.
    """
    is_running: bool = False
    """Whether a run of the task is active on some machine, as the target shows it."""
    lack: ReceiveProblem | None = None
    """The reason why the source's log is not received; None if the log is received, or if this machine does not know.
    """
    pause: Pause | None = None
    """The pause of the run on this machine; None if the run is not paused, or if another machine runs the task."""
    tables: int = 0
    """The number of tables whose rows are being copied or were copied."""
    copying: tuple[TableProgress, ...] = ()
    """The tables whose copy is not done."""
    held: HeldTablesOfSource
    halted: tuple[BlockedChange, ...] = ()
    locked_rows: tuple[LockedTable, ...] = ()
    """The target tables with locked rows."""
    log: SourceLog | None = None
    """The end of the source's log, compared with `applied_lsn`; None if the source was not asked."""
    heard_at: float = 0.0
    """The time at which the replicator on this machine last wrote its status; 0 if it has none here."""
    due_copies: tuple[DueCopy, ...] = ()
    """The tables that have to be copied again after an operator's ddl command."""
    unseen: tuple[TableName, ...] = ()
    """The tables of the log whose changes are left out, since the account does not see them on the source."""


@dataclass(frozen=True, slots=True)
class LockedTable:
    """The number of locked rows of a target table."""

    table: TableName
    rows: int


@dataclass(frozen=True, slots=True)
class KnownTask:
    """A task that has begun on the target."""

    name: str
    sources: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name} (with {named('source', self.sources)})"


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """The status of a task with all its sources."""

    task: str
    sources: tuple[SourceStatus, ...]
    locks: tuple[OpenLock, ...] = ()
    partial_columns: tuple[PartialColumn, ...] = ()
    """Columns that only some shards of a table have."""
    cutover: CutoverState | None = None
    published: Mapping[TableName, Publication] | None = None
    """The tables that the task has published to a Hive metastore; None for targets of other types."""
    change_tables: Mapping[TableName, ChangeTable] = field(default_factory=dict)
    """The change tables that the task has published to a Hive metastore."""
    server_catalog: CatalogLag | None = None
    """The state of the server's catalog to which the tables are published; None if there is none."""
    ended: RunEnd | None = None
    """The end of the last run on this machine; None if the run was killed, or if another run has continued the task."""
    process: int = 0
    """The id of the process that runs the task on this machine; 0 if there is none."""
    has_run_here: bool = False
    """Whether this machine has run the task."""
    was_killed: bool = False
    """Whether the last run on this machine was killed, or the machine went down: no end is recorded."""
    known: tuple[KnownTask, ...] = ()
    """If the task has not begun: tasks on the target that the task file may mean."""

    @property
    def has_begun(self) -> bool:
        """Whether the task has begun with at least one source."""
        return any(source.applied_lsn is not None for source in self.sources)

    @property
    def is_running(self) -> bool:
        """Whether a run of the task is active on some machine. Some targets do not show other machines' runs."""
        return any(source.is_running for source in self.sources)

    @property
    def runs(self) -> bool | None:
        """Whether a run of the task is active, as far as this machine can tell; None if it cannot tell."""
        if self.process or self.is_running:
            return True
        return False if self.has_run_here or self.is_silent else None

    @property
    def heard_at(self) -> float:
        """The time when a replicator on this machine last wrote its status, in seconds since 1970; 0 if never."""
        return max((source.heard_at for source in self.sources), default=0.0)

    @property
    def unreachable(self) -> list[str]:
        """The sources that have not answered this command."""
        logs = [(source.source, source.log) for source in self.sources]
        return [name for name, log in logs if log is not None and isinstance(log.end.error, Transient)]

    @property
    def is_silent(self) -> bool:
        """Whether all begun sources have silent replicators on this machine. Usually the task then does not run."""
        begun = [source for source in self.sources if source.applied_lsn is not None]
        return bool(begun) and all(source.silent_since for source in begun)

    @property
    def is_paused(self) -> bool:
        """Whether the run on this machine is paused with at least one source."""
        return any(source.pause is not None for source in self.sources)

    @property
    def locked_rows(self) -> int:
        """The number of rows that are set aside."""
        return sum(table.rows for source in self.sources for table in source.locked_rows)

    @property
    def is_halted(self) -> bool:
        """Whether a table or the task needs an operator to continue. Shards that wait for other shards do not count."""
        halts = [one.halt for source in self.sources for one in source.halted if one.halt is not None]
        lacks = any(source.lack is not None and source.lack.needs_operator for source in self.sources)
        lacks = lacks or (self.ended is not None and self.ended.needs_operator)
        return lacks or any(map(needs_operator, halts))

    @property
    def needs_operator(self) -> bool:
        """Whether something needs an operator."""
        was_killed = self.cutover is not None and self.cutover.needs_operator
        is_copy_due = any(source.due_copies for source in self.sources)
        return self.is_halted or bool(self.locked_rows) or was_killed or self.has_died or is_copy_due

    @property
    def has_died(self) -> bool:
        """Whether the last run on this machine was killed, and no other run has continued the task since then.

        Some targets do not show the runs of other machines. But such a run moves the checkpoint.
        """
        if not self.was_killed or self.runs is not False or (self.cutover is not None and self.cutover.forbids_runs):
            return False
        moved_at = max((source.moved_at for source in self.sources), default=0.0)
        return not self.heard_at or moved_at <= self.heard_at + CLOCKS_DIFFER

    @property
    def held_bytes(self) -> int | None:
        """The size of the log that relays keep for waiting tables; None if one of the relays cannot be read here."""
        held = [source.held for source in self.sources]
        return sum(one.log_bytes for one in held) if all(one.is_known for one in held) else None

    @property
    def held_lag_seconds(self) -> float | None:
        """The age of the oldest change of a waiting table; None if no change waits, or if the age is not known."""
        lags = [source.held.lag_seconds for source in self.sources]
        return max((lag for lag in lags if lag is not None), default=None)


def task_status(
    parts: Sequence[TaskConfig],
    step: Callable[[str], None] = lambda _: None,
    answer: Callable[[Callable[[], TaskStatus], str], TaskStatus] = lambda ask, _: ask(),
) -> TaskStatus:
    """Connects to the target and to the sources, and returns the task's status.

    `step` receives a text about what is being read. `answer` receives the function that asks the target, and the
    target's name. `answer` calls this function, and may limit its time.
    """
    place = f"the target {parts[0].target.place}"

    def on_target() -> TaskStatus:
        step(f"waiting for {place}")
        with closing(parts[0].target.server.connect()) as target:
            step(f"reading the task's records on {place}")
            return status_on(target, parts)

    found = answer(on_target, place)
    # The sources are asked last. Otherwise a run could meanwhile apply changes after the reported end of the log.
    ends = ask_for_ends(parts)
    pairs = zip(found.sources, parts, strict=True)
    return replace(found, sources=tuple(replace(one, log=_log(part, one, ends, step)) for one, part in pairs))


def _log(
    config: TaskConfig, found: SourceStatus, ends: Mapping[str, Future[LogEnd]], step: Callable[[str], None]
) -> SourceLog | None:
    if found.source not in ends:
        return None
    step(f"asking source {found.source} where its log ends")
    end = ends[found.source].result()
    if found.state is None:
        return SourceLog(end)
    step(f"looking in the relay for changes of source {found.source} that the target lacks")
    return source_log(config, end, found.state, found.position, found.held.tables)


def status_on(target: TargetSession, parts: Sequence[TaskConfig]) -> TaskStatus:
    """Returns the task's status, read on an open session of its target's server."""
    demand_warehouse(target)
    found = load_status(target, parts)
    sources = [part.source.source_id for part in parts]
    epochs = {each: _epoch(target, parts[0].name, each) for each in sources}
    found = _with_run_here(found, parts, max(source.moved_at for source in found.sources), epochs)
    if found.runs is not False:
        return found
    pairs = zip(found.sources, parts, strict=True)
    return replace(found, sources=tuple(replace(one, lack=_without_run(part, one.lack)) for one, part in pairs))


def local_status(parts: Sequence[TaskConfig]) -> TaskStatus:
    """Returns what this machine knows without the target: whether the task runs here, and why it is paused or ended."""
    return _with_run_here(TaskStatus(parts[0].name, _none_begun(parts)), parts, 0.0, {})


def _with_run_here(
    found: TaskStatus, parts: Sequence[TaskConfig], moved_at: float, epochs: Mapping[str, int]
) -> TaskStatus:
    process = running_process(parts[0])
    pauses = stored_pauses(parts[0], process)
    return replace(
        found,
        sources=tuple(replace(one, pause=pauses.get(one.source)) for one in found.sources),
        ended=last_end(parts[0], moved_at, epochs),
        process=process,
        has_run_here=has_run_here(parts[0]),
        was_killed=not process and has_run_here(parts[0]) and not has_recorded_end(parts[0]),
    )


def _without_run(config: TaskConfig, lack: ReceiveProblem | None) -> ReceiveProblem | None:
    """Returns why the log is not received while no run is seen. A silent replicator has then ended with its run."""
    if lack is None or lack.error.code != REPLICATOR_SILENT:
        return lack
    what = "PiDTS sees no run of the task, so the source's log is not received"
    where = Where(source=config.source.source_id)
    return replace(
        lack, error=PidtsError(NOT_RUNNING, what, where=where, todo=f"Start the task: {config.run_command()}")
    )


def _epoch(target: TargetSession, task: str, source: str) -> int:
    return max((row.epoch for row in target.meta.checkpoints.read(task, source)), default=0)


def load_status(target: TargetSession, parts: Sequence[TaskConfig]) -> TaskStatus:
    """Returns the task's status as the target's records show it."""
    name = parts[0].name
    if not any(target.meta.checkpoints.read(name, part.source.source_id) for part in parts):
        return TaskStatus(name, _none_begun(parts), known=meant_tasks(target, parts))
    commands = TaskCommands(parts, target)
    blocked = [one for one in commands.with_backlogs(commands.blocked_changes()) if one.is_blocked]
    known = [(key, table) for _, key, table in target.meta.structures.tables(name)]
    found = [
        replace(
            _source(target, part, held, known, blocked),
            due_copies=tuple(
                one
                for one in commands.due_copies(part.source.source_id)
                if (SourceTablesKey(part.source.source_id), one.table) in known
            ),
        )
        for part, held in zip(parts, commands.held_tables(), strict=True)
    ]
    locks, columns = tuple(open_locks(commands, blocked)), partial_columns(target, parts)
    published = publications(target).of(name) if parts[0].target.type == "hive" else None
    changes = change_tables(target).of(name) if parts[0].target.keeps_changes else {}
    cutover = cutover_state(target, parts[0])
    to_server = server_state_of(target, parts[0])
    return TaskStatus(name, tuple(found), locks, columns, cutover, published, changes, to_server)


def _source(
    target: TargetSession,
    config: TaskConfig,
    held: HeldTablesOfSource,
    known: Sequence[tuple[RecordKey, TableName]],
    blocked: Sequence[BlockedChange],
) -> SourceStatus:
    source = config.source.source_id
    rows = tuple(target.meta.checkpoints.read(config.name, source))
    locked = target.meta.row_locks.recorded(config.name, source)
    if not rows:
        return _not_begun(config, held)
    _, state, claimed = Workers.claimed(rows)
    tables = {
        table for key, table in known if key == SourceTablesKey(source) and config.allow(table)
    } | state.copy.keys()
    return replace(
        _not_begun(config, held),
        state=state,
        applied_lsn=state.lsn,
        gtid=claimed.gtid,
        position=Position.parse(claimed.position) if claimed.position else None,
        moved_at=max(row.saved_at for row in rows),
        silent_since=silent_since(config.relay, source),
        heard_at=heard_at(config.relay, source),
        is_running=is_present(target, config.name, source),
        lack=not_receiving(config.relay, source),
        tables=len(tables) if config.mode != "incremental" else 0,
        copying=tuple(
            TableProgress(name=str(table), copied=one.rows, estimate=one.estimate, phase=one.phase)
            for table, one in sorted(state.copy.items())
            if not one.done
        ),
        halted=tuple(one for one in blocked if one.source == source),
        locked_rows=tuple(LockedTable(*one) for one in sorted(locked.items())),
        unseen=tuple(
            name
            for name in unseen_tables(target, config.name, source)
            if config.allow(name) and (SourceTablesKey(source), name) not in known
        ),
    )


def meant_tasks(target: TargetSession, parts: Sequence[TaskConfig]) -> tuple[KnownTask, ...]:
    """Returns the target's tasks that have a source of this task, or a similar name. Similar names are first.

    Returns none if a record of some task was altered by hand and cannot be read. The status of that task reports this.
    """
    sources_of: dict[str, set[str]] = {}
    with suppress(Halted):
        for task, key, _ in target.meta.structures.tables():
            if isinstance(key, SourceTablesKey):
                sources_of.setdefault(task, set()).add(key.source)
    own = {part.source.source_id for part in parts}
    alike = similar(parts[0].name, sorted(sources_of))
    others = [task for task in sorted(sources_of) if task not in alike and own.intersection(sources_of[task])]
    begun = {
        task: tuple(source for source in sorted(sources_of[task]) if _has_begun(target, task, source))
        for task in (*alike, *others)
    }
    return tuple(
        KnownTask(task, sources) for task, sources in begun.items() if sources and (task in alike or own & {*sources})
    )


def _has_begun(target: TargetSession, task: str, source: str) -> bool:
    try:
        return bool(target.meta.checkpoints.read(task, source))
    except Halted:  # a checkpoint that was altered by hand
        return True


def _none_begun(parts: Sequence[TaskConfig]) -> tuple[SourceStatus, ...]:
    return tuple(_not_begun(part, HeldTablesOfSource(part.source.source_id, {}, 0)) for part in parts)


def _not_begun(config: TaskConfig, held: HeldTablesOfSource) -> SourceStatus:
    source = config.source
    standbys = tuple(map(address_of, source.standbys))
    return SourceStatus(source=source.source_id, server=address_of(source.server), standbys=standbys, held=held)


@dataclass(frozen=True, slots=True)
class PartialColumn:
    """A column of a target table that only some shards have.

    In optimistic mode, the target gets a column when the first shard has it, and drops it when the last shard has
    dropped it. Between these two moments no shard waits, so no shard lock names the shards that lack the column. In
    pessimistic mode, an operator may have let shards continue without the others, or skipped changes of shards.
    """

    target: TableName
    column: str
    having: tuple[Member, ...]
    """The shards that have the column."""
    lacking: tuple[Member, ...]
    """The shards that do not have the column yet, or have dropped it."""

    def to_json(self) -> dict[str, Any]:
        """Returns plain values for JSON."""
        return {
            "target": str(self.target),
            "column": self.column,
            "having": list(map(str, self.having)),
            "lacking": list(map(str, self.lacking)),
        }


def partial_columns(target: TargetSession, parts: Sequence[TaskConfig]) -> tuple[PartialColumn, ...]:
    """Returns the partial columns, sorted by table and column. Each shard has the structure at its checkpoint."""
    if len(parts) == 1 and not parts[0].rules.routes.rules:
        return ()
    groups: dict[TableName, list[tuple[Member, Shard]]] = {}
    for part in parts:
        source = part.source.source_id
        for name, table in sorted(target.meta.structures.load(part.name, SourceTablesKey(source)).items()):
            shard = Shard(table, part.rules, source)
            if part.allow(name) and shard.target_name is not None:
                groups.setdefault(shard.target_name, []).append((Member(source, name), shard))
    found = []
    for target_name, members in sorted(groups.items()):
        own = [(member, names_of(shard.table)) for member, shard in members]
        for column in sorted(frozenset[str]().union(*(names for _, names in own))):
            having = tuple(member for member, names in own if column in names)
            if len(having) < len(own):
                lacking = tuple(member for member, names in own if column not in names)
                found.append(PartialColumn(target_name, column, having, lacking))
    return tuple(found)
