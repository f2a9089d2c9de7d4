"""A task of several sources in one process, run step by step with servers and a target in memory.

The code is PiDTS's own: planner, stream, threads of schema changes, decisions of the shard group, decoding, rules,
reduce, committer. It lacks Spark, which would only call the same functions elsewhere, and the relay's files: the
source's own log is read in their place. Its threads run one at a time: see `scheduled_threads`.
"""

from __future__ import annotations

import itertools
import random
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.crashes import Crashes, ProcessDied
from tests.target.conformance.samples import create
from tests.values_target import ValuesTarget

from pidts.apply import ApplyRules, Committer, shared_session
from pidts.apply.merge.discriminating_keys import keyed_targets
from pidts.apply.merge.merged_tables import record_shared_tables
from pidts.batch import decoding
from pidts.batch.context import JobContext, watched_by
from pidts.batch.transaction_classifier import TransactionClassifier
from pidts.batch.workers import Workers
from pidts.binlog import Query
from pidts.binlog.decode import Structures
from pidts.ddl import command_reader, ddl_threads, due_change
from pidts.ddl.planner_signals import Signals, kept_of
from pidts.ddl.shards import coordinator, write_barrier
from pidts.model import (
    ChangeBatch,
    Checkpoint,
    EarlyFilterOf,
    Extent,
    Fenced,
    LogEntry,
    Lsn,
    OnDivergence,
    SourceTablesKey,
    Table,
    TableName,
    Transient,
)
from pidts.plan import Limits, PlanState, next_state
from pidts.rules import Rules
from pidts.schema import Dialect
from pidts.source import SourceConfig
from pidts.spark import stream
from pidts.spark.stream import HaltRules, SparkUse, TaskStream

from .scheduled_threads import Fiber, Scheduler, Threading, Time
from .shard_servers import Shards, rules_of
from .shard_source import Row, ShardSource, fill

MEMORY = Path("/dev/shm")
"""A folder in memory, if there is one: creating and removing files took two fifths of the time of these tests."""
_numbers = itertools.count()
_tasks: dict[Path, TaskInMemory] = {}
Places = Callable[[ShardSource, TableName], Lsn]


class MemoryRelay:
    """Replaces a reader of the relay."""

    def __init__(self, relay: Path, source_id: str) -> None:
        self._source = _tasks[relay].shards.sources[source_id]
        self.log_base = self._source.log_base

    def entries(self, after: Lsn, to: Lsn | None = None, *, joined: bool = False) -> Iterator[LogEntry]:
        del joined
        return self._source.entries(after, to)

    def find(self, lsn: Lsn) -> LogEntry | None:
        return next((entry for entry in self._source.entries() if entry.transaction.lsn >= lsn), None)

    def position(self, lsn: Lsn) -> Any:
        return lsn.position(self.log_base)

    def log_file(self, lsn: Lsn) -> None:
        """Returns nothing: the source has no log files."""

    def format(self, segment: int) -> bytes:
        del segment
        return b""

    def read(self, extent: Extent) -> tuple[ShardSource, Extent]:
        return self._source, extent

    def renew(self) -> None:
        """Does nothing: nothing is cached."""

    def close(self) -> None:
        pass


def _decoded(
    read: tuple[ShardSource, Extent],
    *,
    structures: Structures,
    offset: int,
    early_filter_of: EarlyFilterOf,
    **_: Any,
) -> list[ChangeBatch]:
    """Decodes rows, and checks that the task knows the structures with which they were written."""
    source, extent = read
    begin = replace(source.start, log_index=extent.segment, offset=extent.offset)
    found = []
    for batch in source.decode(begin, replace(begin, offset=extent.end)):
        known = structures(batch.table) if callable(structures) else structures.get(batch.table.name)
        if known is not None:
            assert known.columns == batch.table.columns, f"{known} is taken for {batch.table}"
            found.append(replace(batch, table=known))
    kept = [batch if (early := early_filter_of(batch.table)) is None else early.of(batch) for batch in found]
    return [batch for batch in kept if len(batch)]


class _Decoder:
    """Decodes slices in place of `KeptDecoder`."""

    decode_slice = staticmethod(_decoded)


@contextmanager
def driven() -> Iterator[None]:
    """Removes everything that would make two runs with the same seed differ."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (stream, ddl_threads, decoding):
            patch.setattr(module, "RelayReader", MemoryRelay)
        for module in (stream, ddl_threads, command_reader, shared_session, coordinator, write_barrier):
            for name, instead in (("threading", Threading(_scheduler)), ("time", Time(_scheduler))):
                if hasattr(module, name):
                    patch.setattr(module, name, instead)
        patch.setitem(Committer.__init__.__kwdefaults__, "sleep", lambda seconds: _scheduler().wait(seconds))
        patch.setattr(decoding, "decode_slice", _decoded)
        patch.setattr(decoding, "KeptDecoder", _Decoder)
        patch.setattr(decoding, "log_format", lambda _: None)
        patch.setattr(due_change, "ddl_event", lambda _, entry: _query(entry))
        try:
            with capture_logs():  # Writing the log lines takes longer than everything else.
                yield
        finally:
            for task in [*_tasks.values()]:
                task.close()


def _query(entry: LogEntry) -> Query:
    transaction = entry.transaction
    return Query(transaction.ddl_schema, transaction.ddl or "", sql_mode=0)


def _scheduler() -> Scheduler:
    (task,) = _tasks.values()
    return task.scheduler


@dataclass
class Settings:
    """The settings of the task."""

    workers: int = 1
    mode: str = "pessimistic"
    transactional_ddl: bool = True
    limits: Limits = field(default_factory=lambda: Limits(transactions=3, idle_entries=1))
    presumes: bool = False
    """Whether the shard groups get the sources' rules, which give the target tables of a source that has not begun."""
    rules: Rules | None = None
    """The rules of every source, in place of the usual ones."""
    on_divergence: OnDivergence = OnDivergence.OVERWRITE
    version_column: str = ""


class TaskInMemory:
    """Servers, a target, and successive processes, each of which carries the servers' rows to the target."""

    def __init__(self, shards: Shards, settings: Settings, chance: random.Random) -> None:
        self.shards, self.settings, self.chance = shards, settings, chance
        self._folder = tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None)
        self.relay = Path(self._folder.name)
        self.target = ValuesTarget(f"shards {next(_numbers)}", transactional_ddl=settings.transactional_ddl)
        self.rules = {
            name: self._keyed(settings.rules or rules_of(name, keyed=shards.keyed)) for name in shards.sources
        }
        self.down: set[str] = set()
        """Sources whose servers cannot be reached."""
        self._dies = Crashes(())
        self._last = ""
        self._anew: set[str] = set()
        self.looks = False
        """Whether the records that others can read are checked after each transaction."""
        self.interrupts = False
        """Whether other threads continue in the middle of transactions."""
        self.streams: dict[str, TaskStream] = {}
        self.moves = 0
        """The number of steps of progress of all threads."""
        self.deaths = 0
        self.scheduler = Scheduler(chance)
        _tasks[self.relay] = self
        with closing(self.target.connect()) as session:
            for name, source in shards.sources.items():
                session.begin()
                session.meta.structures.save("t", SourceTablesKey(name), source.received, source.structures)
                session.commit()
                for table in source.structures.values():
                    target_table = self.rules[name].target_table(table)
                    if session.schema.structure(target_table.name) is None:
                        create(session, target_table)
            session.begin()
            record_shared_tables(session, "t", next(iter(shards.sources.values())).received, self._together())
            session.commit()
        self.firsts = {
            name: Checkpoint(task="t", source=name, worker=0, lsn=source.received)
            for name, source in shards.sources.items()
        }
        self.target.store.hook = self._at

    def _together(self) -> dict[TableName, Table]:
        """Returns the merged tables that the tables at the beginning become."""
        target_table = [self.rules[one.source.name].target_table(one.table) for one in self.shards.shards]
        names = [table.name for table in target_table]
        return {table.name: table for table in target_table if names.count(table.name) > 1}

    def close(self) -> None:
        """Ends all threads, and removes the target and the folder."""
        self.target.store.hook = None
        self.scheduler.end()
        self.target.forget()
        del _tasks[self.relay]
        self._folder.cleanup()

    def start(self, left: Iterable[Fiber] = ()) -> None:
        """Starts a new process.

        `left`: threads of a process that has not noticed yet that another process has taken over.
        """
        if not left:
            self.scheduler.end()
        self.scheduler = Scheduler(self.chance, left)
        rules = self.rules if self.settings.presumes else None
        self.groups = coordinator.ShardGroups(self.settings.mode, [*self.shards.sources], rules)
        for name in self.shards.sources:
            self.scheduler.spawn(f"part {name}", partial(self._part, name))

    def take_over(self) -> None:
        """Starts another process while this one runs."""
        self.start([*self.scheduler.fibers, *self.scheduler.left])

    def go(self, steps: int) -> None:
        """Takes `steps` steps, each with a thread that is chosen at random. If a process dies, another one follows."""
        for _ in range(steps):
            self._surviving(self.scheduler.step)

    def finish(self) -> None:
        """Runs until no thread makes progress any more."""
        quiet = 0
        for _ in range(5_000):
            before = self._progress()
            self._surviving(self.scheduler.round)
            quiet = quiet + 1 if before == self._progress() else 0
            if quiet == 8:
                return
        raise AssertionError("the task does not come to an end")

    def _surviving(self, work: Any) -> None:
        try:
            work()
        except (ProcessDied, Fenced):  # A thread that will be fenced may have begun just then.
            self.moves += 1
            self.deaths += 1
            self.start()

    def _progress(self) -> tuple[Any, ...]:
        return self.moves, self.target.store.commits, len(self.scheduler.fibers)

    def crash_after(self, points: int | None) -> None:
        """Lets the process die at one of the next points of the target's transactions; None: it does not die."""
        self._dies = Crashes(() if points is None else [points])

    def crash_at(self, point: str) -> None:
        """Lets the process die when it next reaches a point of this name."""
        self._last = point

    def _at(self, point: str) -> None:
        if self.looks and point == "commit:after" and self.settings.workers == 1:
            self.check()
        if point == self._last:
            self._last = ""
            raise ProcessDied(point)
        self._dies(point)
        if self.interrupts and self.chance.random() < 0.05:
            self.scheduler.wait(0)

    def begin_anew(self, source: str) -> None:
        """Ends one source's attempt and begins another one, as after an error of its server."""
        self._anew.add(source)

    def _part(self, source: str) -> None:
        """Runs all attempts of one source."""
        while source in self.down:
            self.scheduler.wait(1)
        process = self.scheduler
        while process is self.scheduler:
            stream = self.streams[source] = self._patiently(source)
            try:
                self._attempt(source, stream)
            finally:
                for committer in stream._committers:
                    committer.close()
            self._anew.discard(source)
            self.moves += 1
            stream.close()

    def _patiently(self, source: str) -> TaskStream:
        while True:
            try:
                return self._stream(source)
            except Transient:  # Another thread has an open transaction.
                self.scheduler.wait(1)

    def _attempt(self, source: str, stream: TaskStream) -> None:
        relay, staging = MemoryRelay(self.relay, source), stream._context.staging
        signals = Signals(staging)
        while source not in self._anew:
            self.scheduler.wait(0)
            failure = stream._failure or stream._ddl.failure
            if failure is not None:
                raise failure
            state = stream.state
            done, halted = signals.done(state.dues), signals.halted(state.dues)
            after = next_state(
                state, relay.entries, {}, self.settings.limits, stream._classifier, None, done, halted, kept_of(staging)
            )
            if after is not None:
                self.moves += 1
                stream._run(None, PlanState.from_json(after.to_json()), 0.0)

    def _stream(self, source: str) -> TaskStream:
        settings, rules = self.settings, self.rules[source]
        with closing(self.target.connect()) as session:
            claimed = tuple(session.meta.checkpoints.claim("t", source, settings.workers, self.firsts[source]))
            structures = session.meta.structures.load("t", SourceTablesKey(source))
            target_table = set(map(rules.target_name, structures))
            assert keyed_targets(session, rules, structures.values()) == rules.keyed & target_table, "the key tells"
            watched = watched_by(session, map(rules.target_table, structures.values()), settings.workers)
            found = session.meta.halts.read("t", source)
        epoch = claimed[0].epoch
        context = JobContext(
            task="t", source=SourceConfig("memory", 1, "u", "p", source_id=source), relay=self.relay,
            staging=self.relay / source / str(epoch), target=self.target, workers=settings.workers, epoch=epoch,
            change_no=0, structures=structures, dialect=Dialect(), charsets={}, rules=rules,
            writing=ApplyRules(
                source=source, filters=rules, beside=len(self.shards.sources) > 1, on_divergence=settings.on_divergence,
                version_column=settings.version_column,
            ),
            watched=watched,
        ).with_different_shards()  # fmt: skip
        return TaskStream(
            context=context, checkpoints=claimed, classifier=TransactionClassifier(rules.allow, Dialect()),
            limits=settings.limits, goal=None,
            spark=SparkUse(session=None, direct_rows=1_000_000, scratch=self.relay),
            on_batch=lambda _: None, halts=HaltRules(earlier=found), shards=self.groups,
        )  # fmt: skip

    def _keyed(self, rules: Rules) -> Rules:
        names = {shard.group.target for shard in self.shards.shards} if self.shards.keyed else ()
        return replace(rules, keyed=frozenset(names))

    def place(self, source: str) -> PlanState:
        """Returns the durable state of a source."""
        rows = [row for row in self.target.store.checkpoints.values() if row.source == source]
        return Workers.claimed(tuple(rows))[1] if rows else PlanState(self.firsts[source].lsn)

    def content(self, name: TableName) -> list[Row]:
        """Returns the rows of a table of the target."""
        return list(self.target.store.content(name).values())

    def merged(self, name: TableName, places: Places) -> list[Row]:
        """Returns the rows that a table of the target must have: for each shard, the rows that it had at the place that
        it has reached.
        """
        stored = self.target.store.tables[name].table
        found: list[Row] = []
        for source in self.shards.sources.values():
            rules = self.rules[source.name]
            for own in source.moments:
                moment = source.at(own, places(source, own))
                destination = rules.routes.destination(own)
                if destination.name != name or moment is None or moment.table is None:
                    continue
                reported = {column.name for column in moment.table.columns}
                new = {c.name: fill(c) for c in stored.columns if c.name not in reported}
                found += [
                    {c.name: row[c.name] if c.name in reported else new[c.name] for c in stored.columns}
                    | dict(destination.extracted)
                    for row in moment.rows
                ]
        for left in self.shards.left:
            source, destination = left.shard.source, self.rules[left.shard.source.name].routes.destination(left.name)
            if destination.name == name and places(source, left.name) >= left.lsn:
                found += [
                    {c.name: row[c.name] if c.name in row else fill(c) for c in stored.columns}
                    | dict(destination.extracted)
                    for row in left.carried()
                ]
        return found

    def check(self) -> None:
        """Checks that every table is the result of merging the changes that were read.

        Renamed columns are not compared. If a column takes a name that another column had for a moment, the target
        keeps the other column's values under this name until the shards with the renamed column write their own.
        """
        renamed = {new for group in self.shards.all_groups for version in group.versions for new in version.renamed}
        states = {name: self.place(name) for name in self.shards.sources}
        for name in self.target.store.tables:
            rows = self.merged(name, lambda source, own: states[source.name].at(own))
            assert in_order(self.content(name), renamed) == in_order(rows, renamed), name

    def check_places(self) -> None:
        """Checks, when nothing is left to do, that each table is at the place where it has to wait for others, or at
        the end of the log.
        """
        places: dict[tuple[str, TableName], Lsn] = {}
        for shard in (*self.shards.shards, *self.shards.loners):
            place = self.place(shard.source.name)
            stands = {name: place.at(name) if shard.is_late else self.shards.stands(shard) for name in shard.names}
            places |= {(shard.source.name, name): lsn for name, lsn in stands.items()}
            version = shard.group.versions[self.shards.reached(shard.group)]
            columns = [column.name for column in self.target.store.tables[shard.group.target].table.columns]
            own = [name for name in columns if not name.startswith("of_")]
            assert own == [column.name for column in version.table.columns]
        for name in self.target.store.tables:
            rows = self.merged(name, lambda source, own: places[source.name, own])
            assert in_order(self.content(name)) == in_order(rows), name

    def check_whole(self) -> None:
        """Checks, when nothing is left to do, that the target has all columns of each shard, and each row with its
        shard's columns.
        """
        for name in self.target.store.tables:
            mine = [shard for shard in self.shards.everyone if shard.group.target == name]
            columns = {column.name for column in self.target.store.tables[name].table.columns}
            own = {column.name for shard in mine for column in shard.table.columns}
            assert {column for column in columns if not column.startswith("of_")} == own
            found = {self._key(row): row for row in self.content(name)}
            rows = self.merged(name, lambda source, own: source.received)
            assert sorted(found, key=repr) == sorted(map(self._key, rows), key=repr)
            for shard in mine:
                destination = self.rules[shard.source.name].routes.destination(shard.name)
                lost = shard.had - {column.name for column in shard.table.columns}
                for row in rows:
                    reported = found[self._key(row)]
                    if (
                        row["id"] in {one["id"] for one in shard.rows}
                        and dict(destination.extracted).items() <= row.items()
                    ):
                        assert {**row, **dict.fromkeys(lost)} == {**reported, **dict.fromkeys(lost)}, (shard, lost)

    @staticmethod
    def _key(row: Row) -> tuple[Any, ...]:
        return row["id"], *(value for name, value in sorted(row.items()) if name.startswith("of_"))

    def check_nobody_waits(self) -> None:
        """Checks that every change is on the target."""
        for name, source in self.shards.sources.items():
            place = self.place(name)
            assert (place.needs, place.held) == (source.received, ()), name


def in_order(rows: Iterable[Row], but: Collection[str] = ()) -> list[Row]:
    return sorted(({name: row[name] for name in sorted(row) if name not in but} for row in rows), key=repr)
