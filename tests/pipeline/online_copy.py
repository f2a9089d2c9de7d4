"""A task that copies tables while their source changes, with source, log and target in memory.

It does what the driver and Spark's tasks do: batches, schema changes beside them, and chunks that are loaded as soon as
they are read. Between any two of its steps, the source may change. A process that was believed dead may still load, a second
time, the rows that it has read.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
from tests.values_target.session import ValuesSession, ValuesTarget

from pidts.apply import ApplyRules, Committer, DdlRunner, SchemaChange
from pidts.apply.load import LoadRequest, load_chunk, load_whole
from pidts.apply.rows.target_rows import narrowed
from pidts.batch.applying import apply, apply_long
from pidts.batch.blobs import Blob
from pidts.batch.copy.extra_rows import absent_keys
from pidts.batch.copy.rereads import forget_settled, has_recorded_keys, recorded_keys
from pidts.batch.copy.staging import is_absent, marked_absent
from pidts.batch.decoding import absent, copied
from pidts.batch.log_parts import LogPart
from pidts.batch.workers import Commit, Workers
from pidts.model import (
    ChangeBatch,
    Checkpoint,
    Fenced,
    Halted,
    LogEntry,
    Lsn,
    OnDivergence,
    Op,
    SourceTablesKey,
    Table,
    TableName,
    Transient,
)
from pidts.plan import (
    BatchPlan,
    ChunkRequest,
    CopyMode,
    CopyState,
    Limits,
    Phase,
    PlanState,
    Relevance,
    RelevanceKind,
    StagedChunk,
    copied_at,
    next_state,
    plan_between,
    run_of,
)
from pidts.plan.copy.state import MOST_REREADS
from pidts.reduce import TWO_WORKERS, buckets
from pidts.rules import Rules, merged
from pidts.schema import apply as structures_after
from pidts.schema import classify

from .values_source import ValuesSource

Row = dict[str, Any]


class Server(ValuesSource):
    """A source that can also have tables without keys, and whose statements a task can interpret.

    It compares and sorts texts in keys without case.
    """

    @staticmethod
    def order(key: Sequence[Any]) -> tuple[Any, ...]:
        """Returns a key in a form that sorts as the server sorts keys, and is equal for keys that it treats as equal."""
        return tuple(value.casefold() if isinstance(value, str) else value for value in key)

    def select_rows(self, table: Table, where_after: Sequence[Any] | None, limit: int) -> pa.Table:
        found = sorted(self._rows[table.name].items(), key=lambda item: self.order(item[0]))
        rows = [row for key, row in found if where_after is None or self.order(key) > self.order(where_after)]
        return pa.Table.from_pylist([dict(row) for row in rows[:limit]], schema=table.arrow)

    def keys(self, name: TableName) -> list[tuple[Any, ...]]:
        """Returns the keys of all rows in the server's order."""
        identity = self._structures[name].identity
        return sorted((tuple(row[name] for name in identity) for row in self._rows[name].values()), key=self.order)

    def __init__(self, tables: list[Table]) -> None:
        super().__init__(tables)
        self.relevances: dict[Lsn, Relevance] = {}
        self._numbers = itertools.count()

    def _change(self, name: TableName, op: Op, before: Any, after: Any) -> None:
        if self._structures[name].identity:
            super()._change(name, op, before, after)
            return
        rows = self._rows[name]
        if before is not None:
            del rows[next(key for key, row in rows.items() if row == dict(before))]
        if after is not None:
            rows[(next(self._numbers),)] = dict(after)

    def alter(self, name: TableName, actions: str, table: Table, *, rekeyed: bool = False) -> LogEntry:
        entry = self.ddl(f"ALTER TABLE {name} {actions}", {name: table})
        return self._recorded(
            entry, Relevance(RelevanceKind.DDL, frozenset({name}), recopied=(name,) if rekeyed else ())
        )

    def rename(self, old: TableName, new: TableName) -> LogEntry:
        table, rows = self._structures[old].renamed(new), self._rows[old]
        entry = self.ddl(f"RENAME TABLE {old} TO {new}", {old: None, new: table})
        self._rows[new] = rows
        return self._recorded(entry, Relevance(RelevanceKind.DDL, frozenset({old, new}), renamed=((old, new),)))

    def drop(self, name: TableName) -> LogEntry:
        entry = self.ddl(f"DROP TABLE {name}", {name: None})
        return self._recorded(entry, Relevance(RelevanceKind.DDL, frozenset({name}), gone=(name,)))

    def _recorded(self, entry: LogEntry, relevance: Relevance) -> LogEntry:
        self.relevances[entry.transaction.lsn] = relevance
        return entry


class Task:
    """A task and its target; every `run` is a new process."""

    def __init__(
        self,
        server: Server,
        target: ValuesTarget,
        tables: Mapping[TableName, CopyMode],
        *,
        limits: Limits | None = None,
        workers: int = 1,
        chance: random.Random | None = None,
        between: Callable[[], None] = lambda: None,
        is_long: bool = False,
        split: int | None = None,
        defers: bool = False,
        rules: Rules | None = None,
        origins: Sequence[str] = (),
    ) -> None:
        """`is_long`: batches do not fit into memory. `split`: and each transaction is committed in parts of this many rows.

        `defers`: the target creates unique keys when all rows exist.

        `origins`: the zones in which the transactions were made; each transaction has one of them.
        """
        self.origins = origins
        self.rules = rules or Rules()
        self.server, self.target, self.workers = server, target, workers
        self.limits = limits or Limits(chunk_rows=2, most_rows=2, idle_entries=1)
        self.chance = chance or random.Random(0)
        self.between, self.is_long, self.split, self.defers = between, is_long, split, defers
        self.known = set(tables)
        self.joining: dict[TableName, CopyMode] = {}
        self.has_joined = self.slow_ddl = False
        self.loaded = self.waited = self.refused = self.reread = 0
        self.zombies: list[Callable[[], object]] = []
        copy = {name: self._begun(server.structures[name], mode) for name, mode in tables.items()}
        self.first = Checkpoint(
            task="t", source="s", worker=0, lsn=server.received, copy=PlanState(server.received, copy).copy_json()
        )
        for mode in CopyMode:
            those = {name: server.structures[name] for name, its in tables.items() if its is mode}
            self._make(those, before_copy=defers and mode is CopyMode.NEW)
        session = self.target.connect()
        session.begin()
        session.meta.structures.save(
            "t", SourceTablesKey("s"), server.received, {name: server.structures[name] for name in tables}
        )
        session.commit()
        session.close()

    @staticmethod
    def _begun(table: Table, mode: CopyMode, since: Lsn | None = None) -> CopyState:
        return CopyState(mode=mode, since=since, keyless=not table.identity)

    def _make(self, tables: Mapping[TableName, Table], *, before_copy: bool) -> None:
        session = self.target.connect()
        for table in map(self.rules.target_table, tables.values()):
            if session.schema.structure(table.name) is None:
                for statement in session.schema.create_statements(table, before_copy=before_copy).statements:
                    session.execute(statement)
        session.close()

    def run(self) -> PlanState:
        """Runs one process from the claim until there is nothing left to do."""
        session = self.target.connect()
        claimed = tuple(session.meta.checkpoints.claim("t", "s", self.workers, self.first))
        if self.joining:
            claimed = self._join(session, claimed)
        self.structures = session.meta.structures.load("t", SourceTablesKey("s"))
        session.close()
        workers, state, _ = Workers.claimed(claimed)
        self.epoch = claimed[0].epoch
        self.waiting: dict[ChunkRequest, list[pa.Table]] = {}
        staged: dict[ChunkRequest, StagedChunk] = {}
        running: dict[Lsn, Mapping[TableName, Table | None]] = {}
        done: set[Lsn] = set()
        joint = merged(self.rules, self.structures)
        # Only the task writes here, so no row may differ.
        halts = OnDivergence.HALT
        self.writing = ApplyRules(task="t", source="s", filters=self.rules, merged=joint, on_divergence=halts)
        with Committer(self.target, "t", "s", self.epoch, rules=self.writing, sleep=lambda _: None) as committer:
            while True:
                self._go_on()
                for lsn in [lsn for lsn in running if self.chance.random() < 0.5 or not self.slow_ddl]:
                    changed = running.pop(lsn)
                    done.add(lsn)
                    self.structures = {
                        name: table for name, table in {**self.structures, **changed}.items() if table is not None
                    }
                here = {request.table: staged[request] for request in state.open_requests if request in staged}
                end = next_state(state, self.log, here, self.limits, self.relevance, None, done & set(state.dues))
                if end is None:
                    if running:
                        continue
                    return state
                end = PlanState.from_json(end.to_json())
                plan = plan_between(state, end, self.log, self.relevance)
                moved = workers.moved(end)
                self.end = end
                self._write(plan, committer, Commit(workers.checkpoints, moved.checkpoints))
                for due in set(end.dues) - running.keys() - done:
                    running[due] = self._schema_change(due, end)
                self.batch = moved.checkpoints[0].batch
                for request in plan.read:
                    staged[request] = self._read(request)
                state, workers = end, moved

    def _join(self, session: ValuesSession, claimed: tuple[Checkpoint, ...]) -> tuple[Checkpoint, ...]:
        """Records in one commit that the tables are known and have to be copied.

        With two commits, a crash between them would leave tables that are known and never copied.
        """
        tables = {name: self.server.structures[name] for name in self.joining}
        since = self.server.received
        self._make(tables, before_copy=self.defers)
        begun = {name: self._begun(tables[name], mode, since) for name, mode in self.joining.items()}
        joined = []
        session.begin()
        session.meta.structures.save("t", SourceTablesKey("s"), since, tables)
        for row in claimed:
            state = PlanState.from_checkpoint(row.lsn, row.copy).joined(begun)
            joined.append(replace(row, copy=state.copy_json(run_of(row.copy), copied_at=copied_at(row.copy))))
            session.meta.checkpoints.save(joined[-1])
        session.commit()
        self.known |= self.joining.keys()
        self.joining, self.has_joined = {}, True
        return tuple(joined)

    def log(self, at: Lsn, to: Lsn | None = None) -> Iterator[LogEntry]:
        return self.server.entries(at, to)

    def relevance(self, entry: LogEntry) -> Relevance:
        transaction = entry.transaction
        if transaction.ddl is not None:
            relevance = self.server.relevances[transaction.lsn]
            for old, new in relevance.renamed:
                if old in self.known:
                    self.known.add(new)
            tables = (relevance.tables or frozenset()) & self.known
            return replace(relevance, tables=tables) if tables else Relevance(RelevanceKind.NOTHING)
        ours = self.known.intersection(transaction.tables)
        origin = random.Random(str(transaction.lsn)).choice(self.origins) if self.origins else ""
        return (
            Relevance(RelevanceKind.ROWS, frozenset(ours), origin=origin) if ours else Relevance(RelevanceKind.NOTHING)
        )

    def _go_on(self) -> None:
        """Makes the next changes on the source, and sometimes lets a replaced run go on."""
        self.between()
        if self.zombies and self.chance.random() < 0.3:
            hook, self.target.store.hook = self.target.store.hook, None
            try:
                self.chance.choice(self.zombies)()
            except (Fenced, Transient):
                self.refused += 1
            except Halted as error:
                if error.code != "target-shape":
                    raise
            finally:
                self.target.store.hook = hook

    def _schema_change(self, due: Lsn, state: PlanState) -> Mapping[TableName, Table | None]:
        runner = DdlRunner(self.target, "t", "s", self.epoch, sleep=lambda _: None)
        if runner.is_done(due):
            return {}
        text = next(entry.transaction.ddl for entry in self.server.entries() if entry.transaction.lsn == due)
        statement = classify(text, "shop")
        changed = structures_after(statement, self.structures, {})
        before = {name: self.structures.get(name) for name in changed}
        for name in self.server.relevances[due].recopied:
            copy = state.copy.get(name)
            if copy is not None and not copy.done and copy.mode is CopyMode.NEW:
                self._clear(name)
        for table in before.values():
            if table is not None:
                with suppress(
                    Halted
                    # Loaded rows may be later than this place, so two of them may have one unique value. At the end,
                    # the creation of the key is tried again.
                ):
                    self._finish(table)
        renamed = dict(self.server.relevances[due].renamed)
        change = SchemaChange(statement=statement, text=text, before=before, after=changed, structures=changed)
        runner.run(replace(change, renamed=renamed), due)
        return changed

    def _clear(self, name: TableName) -> None:
        session = self.target.connect()
        session.begin()
        session.clear(name)
        session.commit()
        session.close()

    def _finish(self, table: Table) -> None:
        session = self.target.connect()
        for statement in session.schema.finish_statements(self.rules.target_table(table)).statements:
            session.execute(statement)
        session.close()

    def _write(self, plan: BatchPlan, committer: Committer, commit: Commit) -> None:
        log_parts: list[list[list[ChangeBatch]]] = [[] for _ in range(self.workers)]
        for piece in plan.log:
            mine = {name: table for name, table in self.structures.items() if piece.carries(name)}
            until = Lsn(0, piece.extent.segment, piece.extent.end)
            whole = [entry.transaction for entry in self.log(piece.begin, until)]
            for transaction in whole:
                batches = filter(
                    None, map(self.rules.changes, self.server.decode(transaction.begin, transaction.lsn, mine))
                )
                dealt = [self._dealt(batch, plan) for batch in batches]
                for worker, changes in enumerate(log_parts):
                    changes.append([parts[worker] for parts in dealt if parts[worker] is not None])
        blobs = [
            [Blob(worker, Blob.first_order(n), batch) for n, changes in enumerate(mine) for batch in changes]
            for worker, mine in enumerate(log_parts)
        ]
        for request in plan.write:
            table = self.structures[request.table]
            target_table = self.rules.target_table(table)
            for rows in self.waiting[request]:
                batches = (
                    absent(target_table, rows)
                    if is_absent(rows)
                    else copied(target_table, self.rules.rows(table, rows))
                )
                for batch in batches:
                    routed = replace(batch, upstream=self.rules.upstream(table))
                    for worker, part in enumerate(buckets(routed, self.workers)):
                        if part is not None:
                            blobs[worker].append(Blob(worker, Blob.COPIED, part))
        for worker in self.chance.sample(range(self.workers), self.workers):
            if self.is_long and not plan.write:
                inside = None if self.split is None else Lsn(0, 1, 4)
                found = [LogPart(changes, inside) for changes in log_parts[worker]]
                split = None if plan.moves_held else self.split
                apply_long(committer, commit, worker, lambda found=found: found, split, plan.tables)
            else:
                packed = [Blob.unpack(worker, blob.order, blob.pack()) for blob in blobs[worker]]
                apply(committer, commit, worker, packed)

    def _dealt(self, batch: ChangeBatch, plan: BatchPlan) -> list[ChangeBatch | None]:
        read_again = self.writing.can_record(batch, plan.end.unfinished)
        return buckets(batch, self.workers, (), None if read_again else TWO_WORKERS)

    def _read(self, request: ChunkRequest) -> StagedChunk:
        table = self.structures[request.table]
        if request.phase is Phase.FINISH:
            session = self.target.connect()
            forget_settled(session, "t", "s", self.epoch, request)
            is_last = not has_recorded_keys(session, "t", "s", request)
            session.close()
            if is_last:
                self._finish(table)
            return StagedChunk(request, self.first.lsn, 0, None, None, is_last=is_last)
        if request.phase is Phase.REREAD:
            return self._read_again(request, table)
        low = self.server.received
        self._go_on()
        if not self._fits(table):
            return self._stale(request)
        if request.whole:
            return self._read_whole(request, table, low)
        if request.phase is Phase.EXTRAS:
            return self._read_extras(request, table, low)
        return self._read_chunks(request, table, low)

    def _fits(self, table: Table) -> bool:
        theirs = self.server.structures.get(table.name)
        return theirs is not None and set(table.arrow.names) <= set(theirs.arrow.names)

    def _stale(self, request: ChunkRequest) -> StagedChunk:
        high = self.server.received
        return StagedChunk(request, high, 0, None, request.upto, is_last=False, altered=True, low=high)

    def _read_chunks(self, request: ChunkRequest, table: Table, low: Lsn) -> StagedChunk:
        order, keys = self.server.order, self.server.keys(request.table)
        upto = request.upto or (keys[-1] if keys else None)
        mine = [key for key in keys if upto and order(key) <= order(upto)]
        mine = [key for key in mine if request.after is None or order(key) > order(request.after)]
        cuts = mine[request.limit - 1 :: request.limit][: request.parts]
        if not cuts or (len(cuts) < request.parts and upto is not None):
            cuts = [*cuts, upto]
        rows = waiting = 0
        begin, kept = request.after, []
        for cut in cuts:
            self._go_on()
            low_here = self.server.received
            self._go_on()
            if not self._fits(table):
                return self._stale(request)
            found = self.server.select_rows(table, begin, 10**6)
            places = list(zip(*(found[name].to_pylist() for name in table.identity), strict=True))
            found = found.filter(pa.array([cut is not None and order(key) <= order(cut) for key in places], pa.bool_()))
            self._go_on()
            rows, begin = rows + found.num_rows, cut
            if request.mode is not CopyMode.NEW or request.waits or not self._load(low_here, table, found):
                waiting += found.num_rows
                kept.append(found)
        self.loaded, self.waited = self.loaded + rows - waiting, self.waited + waiting
        self.waiting[request] = kept
        self._go_on()
        high = self.server.received
        return StagedChunk(
            request,
            high,
            rows,
            begin,
            upto,
            is_last=begin == upto,
            low=low,
            waiting=waiting,
            largest=rows,
            seconds=0.01,
        )

    def _read_whole(self, request: ChunkRequest, table: Table, low: Lsn) -> StagedChunk:
        """Reads a table in one attempt or two.

        Either attempt may load the rows first, and the other attempt may continue afterwards.
        """
        attempts = [self._whole_attempt(table, low)]
        if self.chance.random() < 0.5 and self._fits(table):
            attempts.append(self._whole_attempt(table, self.server.received))
        self.zombies += attempts
        found = [attempt() for attempt in self.chance.sample(attempts, len(attempts))]
        begin, high, rows = json.loads(self.chance.choice(found))
        return StagedChunk(request, Lsn.parse(high), rows, None, None, is_last=True, low=Lsn.parse(begin))

    def _whole_attempt(self, table: Table, low: Lsn) -> Callable[[], str]:
        """Begins an attempt that has a snapshot, and returns its remaining steps."""
        found = self.server.rows(table.name)
        self._go_on()
        reported = json.dumps([str(low), str(self.server.received), len(found)])
        self._go_on()
        rows, half = pa.Table.from_pylist(found, schema=table.arrow), len(found) // 2
        asked = LoadRequest("t", "s", self.epoch, self.batch, low)

        def attempt() -> str:
            session = self.target.connect()
            try:
                answer = load_whole(session, asked, table, [rows.slice(0, half), rows.slice(half)], lambda: reported)
            finally:
                session.close()
            assert answer is not None, "rows without a key never collide"
            return answer

        return attempt

    def _read_extras(self, request: ChunkRequest, table: Table, low: Lsn) -> StagedChunk:
        session = self.target.connect()
        own = dict(self.rules.routes.destination(table.name).extracted) if request.mode is CopyMode.OWN else {}
        target_table = self.rules.target_table(table)
        names = list(target_table.identity)
        keys = session.read_rows(target_table, after=request.after, limit=request.limit, only=own).select(names)
        asked = [tuple(row.values()) for row in keys.to_pylist()]
        wanted = set(map(self.server.order, asked))
        rows = [{**row, **own} for row in self.server.rows(request.table)]
        there = [{name: row[name] for name in names} for row in rows]
        there = [row for row in there if self.server.order(tuple(row.values())) in wanted]
        self._go_on()
        gone = self._absent(session, target_table, keys, pa.Table.from_pylist(there, schema=keys.schema))
        session.close()
        self.waiting[request] = [marked_absent(gone)]
        is_last = keys.num_rows < request.limit
        last = None if is_last else asked[-1]
        high = self.server.received
        return StagedChunk(request, high, len(asked), last, None, is_last=is_last, low=low, waiting=gone.num_rows)

    def _read_again(self, request: ChunkRequest, table: Table) -> StagedChunk:
        session = self.target.connect()
        forget_settled(session, "t", "s", self.epoch, request)
        keys, last, is_more = recorded_keys(session, "t", "s", table, request)
        wanted = {self.server.order(tuple(row.values())) for row in keys.to_pylist()}
        assert len(keys) <= max(request.limit, MOST_REREADS)
        self.reread += len(wanted)
        self._go_on()
        low = self.server.received
        self._go_on()
        if not self._fits(table):
            session.close()
            return self._stale(request)
        found = self.server.select_rows(table, None, 10**6)
        places = list(zip(*(found[name].to_pylist() for name in table.identity), strict=True))
        rows = found.filter(pa.array([self.server.order(key) in wanted for key in places], pa.bool_()))
        self._go_on()
        gone = keys.slice(0, 0)
        if request.mode is CopyMode.REPAIR:
            gone = self._absent(session, table, keys, rows.select(keys.column_names))
        session.close()
        self.waiting[request] = [rows, marked_absent(gone)] if gone.num_rows else [rows]
        count, high = rows.num_rows + gone.num_rows, self.server.received
        key, upto = (last,) if is_more else None, request.upto
        return StagedChunk(request, high, count, key, upto, is_last=not is_more, low=low, waiting=count, largest=count)

    @staticmethod
    def _absent(session: ValuesSession, table: Table, keys: pa.Table, found: pa.Table) -> pa.Table:
        return absent_keys(session, narrowed(table, ()), keys, found)

    def _load(self, low: Lsn, table: Table, rows: pa.Table) -> bool:
        attempt = partial(self._attempt, LoadRequest("t", "s", self.epoch, self.batch, low), table, rows)
        self.zombies.append(attempt)
        return attempt()

    def _attempt(self, asked: LoadRequest, table: Table, rows: pa.Table) -> bool:
        session = self.target.connect()
        try:
            return load_chunk(session, asked, table, [rows])
        finally:
            session.close()

    def content(self, name: TableName) -> list[Row]:
        return in_any_order(self.target.store.content(name).values())


def in_any_order(rows: Any) -> list[Row]:
    return sorted(map(dict, rows), key=lambda row: repr(sorted(row.items())))
