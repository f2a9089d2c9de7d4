"""Zones in memory to which programs write, with tasks between them that die at any point.

The commits of a target are appended to its own log, as on a server, with the tables of the meta schema that the
transaction changes. So each task reads the writes of the others.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

import pyarrow as pa
import pytest
from tests.crashes import Crashes, ProcessDied
from tests.pipeline.minimal_images import minimal
from tests.pipeline.values_source import Step, ValuesSource
from tests.target.conformance.samples import create
from tests.values_target import ValuesTarget
from tests.values_target.session import ValuesSession

from pidts.apply import ApplyRules, Committer
from pidts.apply.uncopied_keys import unpacked
from pidts.batch.applying import apply
from pidts.batch.blobs import Blob
from pidts.batch.decoding import copied
from pidts.batch.returned import only_removed
from pidts.batch.transaction_classifier import TransactionClassifier
from pidts.batch.workers import Commit, Workers
from pidts.model import (
    ChangeBatch,
    Checkpoint,
    Column,
    ColumnType,
    Key,
    Kind,
    LeftOut,
    LogEntry,
    Lsn,
    OnDivergence,
    Op,
    SourceTablesKey,
    Table,
    TableName,
)
from pidts.model.zone import LEFT_OUT, ZONE_NOTE, mark_table
from pidts.model.zone_notes import NOTES, only_notes
from pidts.plan import (
    ChunkRequest,
    CopyMode,
    CopyState,
    Limits,
    LogSlice,
    Phase,
    PlanState,
    StagedChunk,
    next_state,
    plan_between,
)
from pidts.reduce import NetChange, buckets
from pidts.rules import AllowList
from pidts.schema import Dialect
from pidts.zones import Feed, carried

NAME = TableName("shop", "orders")
INT = ColumnType(Kind.INT)
KEY = (Key("PRIMARY", ("id",), unique=True, primary=True),)
TABLE = Table(NAME, (Column("id", INT, nullable=False), Column("value", INT)), KEY)
META = {
    name: Table(TableName("pidts_meta", name), (Column("id", INT, nullable=False),), KEY)
    for name in ("checkpoint", *map(mark_table, "abcd"))
}
SHOWN = NOTES.renamed(TableName("pidts_meta", LEFT_OUT))
PAIR: list[Feed] = list(itertools.permutations("ab", 2))
SHAPES: dict[str, list[Feed]] = {
    "pair": PAIR,
    "mesh": list(itertools.permutations("abc", 2)),
    "ring": [("a", "b"), ("b", "c"), ("c", "a")],
    "star": [*itertools.product("a", "bcd"), *itertools.product("bcd", "a")],
    "line": [("a", "b"), ("b", "a"), ("b", "c"), ("c", "b")],
}
FEW_WORKERS = [1, 1, 1, 1, 2, 3]
numbers = itertools.count()
Row = dict[str, Any]
Change = tuple[Op, Row | None, Row | None]


@dataclass(frozen=True, slots=True)
class LoggedTarget(ValuesTarget):
    """A target that records what its open transaction has written."""

    written: list[NetChange] = field(default_factory=list)

    def connect(self) -> ValuesSession:
        """Returns a new session."""
        session = LoggedSession(self.store, transactional_ddl=self.transactional_ddl)
        session.written = self.written
        session.at("connect")
        return session


class LoggedSession(ValuesSession):
    """A session of `LoggedTarget`."""

    written: list[NetChange]

    def write(self, change: NetChange) -> None:
        """Writes the change and records it."""
        self.written.append(change)
        super().write(change)


class Log(ValuesSource):
    """A log in which sessions may have chosen `binlog_row_image=MINIMAL`."""

    def __init__(self, tables: Sequence[Table]) -> None:
        super().__init__(tables)
        self.in_part: list[tuple[Lsn, Lsn]] = []
        """Begin and end of each transaction of such a session."""

    def decode(self, after: Lsn, until: Lsn, structures: Mapping[TableName, Table] | None = None) -> list[ChangeBatch]:
        """Returns the changes with the columns that the log has."""
        found = super().decode(after, until, structures)
        if not self.in_part:
            return found
        return [minimal(one, lambda lsn: any(begin < lsn < end for begin, end in self.in_part)) for one in found]

    def slice(self, piece: LogSlice, structures: Mapping[TableName, Table]) -> list[ChangeBatch]:
        """Returns the changes of a slice, one batch for each table, as the decoder does."""
        rows: dict[Table, list[pa.RecordBatch]] = {}
        for part in piece.parts:
            begin, end = (replace(piece.begin, offset=at) for at in (part.offset, part.end + 1))
            for batch in self.decode(begin, end, structures):
                rows.setdefault(batch.table, []).append(batch.rows)
        return [ChangeBatch(table, pa.concat_batches(parts)) for table, parts in rows.items()]


class Zone:
    """A server: its rows, and its log."""

    def __init__(self, name: str, table: Table = TABLE) -> None:
        self.name, self.table = name, table
        self.log = Log([table, *META.values(), SHOWN])
        self.target = LoggedTarget(
            f"zone {name} {next(numbers)}", transactional_ddl=True, expects=False, refuses_known_keys=True
        )
        self.dies = Crashes([])
        self.applied: list[tuple[str, int, int | None]] = []
        """The zone that a task recorded as the origin of each value of each row; None as the value: the row was
        removed.
        """
        self.changed: list[tuple[str, Row | None, Row | None]] = []
        """The zone that a task recorded as the origin of a change, and the row before and after the change."""
        self.meta: list[str] = []
        """The meta tables that the writer's transactions change, except the mark of its zone."""
        self.writer = ""
        """The zone from which a task writes now; empty: a program writes."""
        self.marks = True
        self._next = itertools.count()
        session = self.target.connect()
        create(session, table)
        session.begin()
        session.meta.structures.save("t", SourceTablesKey("s"), self.log.received, {NAME: table})
        session.commit()
        session.close()
        self.target.store.hook = self._hook

    def rows(self) -> dict[int, Row]:
        return {row["id"]: row for row in self.log.rows(NAME)}

    def write(
        self,
        meta: list[str],
        rows: list[Row],
        removed: list[Row],
        moves: Sequence[tuple[Row, Row]] = (),
        *,
        in_part: bool = False,
    ) -> None:
        """Writes as a program of this zone does. With `meta`, writes as a task of no zone, which also changes these
        meta tables.

        `moves` are updates that give a row another key, before and after. `in_part`: the log has MINIMAL images.
        """
        there = self.rows()
        changes: list[Change] = [(Op.UPDATE, old, new) for old, new in moves]
        for old, new in moves:
            del there[old["id"]]
            there[new["id"]] = new
        changes += _changes(there, [row["id"] for row in removed], rows)
        self.meta, self.writer = meta, ""
        self._store(changes)
        self._append(changes, in_part=in_part)

    def _store(self, changes: Sequence[Change]) -> None:
        """Changes the stored rows. A row has values for all columns, and no unique value of another row."""
        stored, names = self.target.store.tables[NAME], self.table.arrow.names
        for _, old, new in changes:
            if old is not None:
                del stored.rows[old["id"],]
            if new is not None:
                stored.rows[new["id"],] = tuple(new[name] for name in names)
        for key in self.table.secondary_unique:
            values = [value for row in stored.rows.values() if None not in (value := stored.values(key.columns, row))]
            assert len(values) == len(set(values)), f"{values} are not unique"

    def _hook(self, point: str) -> None:
        if point == "begin":
            self.target.written.clear()
        if point == "commit:after":
            self._append(self._written())
        self.dies(point)

    def _written(self) -> list[Change]:
        """Returns what the last transaction of a session has changed, statement by statement."""
        if not self.target.written:
            return []
        rows, changes = self.rows(), []
        for change in self.target.written:
            changes += _changes(rows, change.deletes["id"].to_pylist(), change.upserts.to_pylist())
        assert {(key,): tuple(row.values()) for key, row in rows.items()} == self.target.store.tables[NAME].rows
        return changes

    def _append(self, changes: list[Change], *, in_part: bool = False) -> None:
        """Appends a transaction to the log."""
        meta = list(self.meta)
        origin = (self.target.store.origin or self.writer) if self.writer else ""
        if changes and origin and self.marks:
            meta.append(mark_table(origin))
        steps: list[Step] = [(META[name].name, [(Op.INSERT, None, {"id": next(self._next)})]) for name in meta]
        if notes := [shown(*note) for note in self.target.store.left_out]:
            self.target.store.left_out.clear()
            steps += [(SHOWN.name, [(Op.INSERT, None, note) for note in notes])]
            steps += [(SHOWN.name, [(Op.DELETE, note, None) for note in notes])]
        if changes:
            steps.append((NAME, changes))
            if origin:
                last = {(new or old or {})["id"]: new and new["value"] for _, old, new in changes}
                self.changed += [(origin, old, new) for _, old, new in changes]
                self.applied += [(origin, key, value) for key, value in last.items()]
        if steps:
            transaction = self.log.commit(*steps).transaction
            if in_part:
                self.log.in_part.append((transaction.begin, transaction.lsn))


def _changes(there: dict[int, Row], removed: Sequence[int], rows: Sequence[Row]) -> list[Change]:
    """Returns what deleting and writing these rows changes, and changes `there`."""
    changes: list[Change] = [(Op.DELETE, there.pop(key), None) for key in removed if key in there]
    for row in rows:
        old = there.get(row["id"])
        if old != row:
            changes.append((Op.UPDATE if old else Op.INSERT, old, row))
        there[row["id"]] = row
    return changes


def shown(task: str, source: str, table: TableName, note: LeftOut) -> Row:
    """Returns the row by which a note is shown to other zones. It is only in the log, and in no table."""
    key = sha256(note.key.encode()).hexdigest()
    values = (task, source, table.schema, table.name, key, note.removed, note.key, note.time)
    return dict(zip(SHOWN.arrow.names, values, strict=True))


class Direction:
    """A task from one zone to another. Each `step` handles a batch, in a new process after a crash."""

    def __init__(
        self,
        source: Zone,
        target: Zone,
        workers: int,
        limits: Limits,
        forwards: frozenset[str] = frozenset(),
        *,
        leaves_out: bool = True,
        marks: bool = True,
        rules: ApplyRules | None = None,
        returns: bool = True,
        copies: bool = False,
    ) -> None:
        """`copies`: the task copies the source's rows into the target, which has rows of its own."""
        self.source, self.target, self.workers = source, target, workers
        self.name = f"{source.name}{target.name}"
        self.marks, self.rules = marks, rules or ApplyRules(source="s")
        self.limits = replace(limits, one_origin=bool(forwards))
        self.classifier = TransactionClassifier(
            AllowList(do_dbs=("shop",)),
            Dialect(),
            marks_in="pidts_meta" if leaves_out else "",
            forwards=forwards,
            returns_to=target.name if returns and self.rules.converges else "",
            reads_notes=leaves_out and not forwards and self.rules.on_divergence is OnDivergence.LOCK,
        )
        begun = PlanState(source.log.received, {NAME: CopyState(mode=CopyMode.ADD)} if copies else {})
        self.first = Checkpoint(task=self.name, source="s", worker=0, lsn=begun.lsn, copy=begun.copy_json())
        self.staged: dict[ChunkRequest, StagedChunk] = {}
        self.rows_read: dict[ChunkRequest, pa.Table] = {}
        self._ended: set[ChunkRequest] = set()
        self.process: tuple[PlanState, Workers, Committer] | None = None
        self.is_known = False
        """Whether the target has a record of the source's zone."""

    def step(self) -> bool:
        """Handles the next batch. Returns whether there was something to do; True after a crash."""
        self.target.meta, self.target.writer, self.target.marks = ["checkpoint"], self.source.name, self.marks
        try:
            return self._step()
        except ProcessDied:
            self.process = None
            return True

    def begin(self) -> None:
        """Claims the task, which then has a checkpoint."""
        self.process = self._begun()

    def _step(self) -> bool:
        if self.process is None:
            self.process = self._begun()
        state, workers, committer = self.process
        here = {one.table: self._read_to_end(one) for one in state.open_requests if one in self.staged}
        end = next_state(state, self._log, here, self.limits, self.classifier)
        if end is None:
            return False
        plan = plan_between(state, end, self._log, self.classifier)
        moved = workers.moved(end)
        blobs: list[list[Blob]] = [[] for _ in range(self.workers)]
        for piece in plan.log:
            tables = [SHOWN] if piece.has_notes else [self.source.table]
            found = self.source.log.slice(piece, {table.name: table for table in tables})
            taken = only_notes if piece.has_notes else only_removed if piece.is_returned else list
            for batch in taken(found):
                for worker, part in enumerate(buckets(batch, self.workers)):
                    if part is not None:
                        blobs[worker].append(Blob(worker, Blob.first_order(piece.number), part))
        for request in plan.write:
            for batch in copied(self.source.table, self.rows_read[request]):
                for worker, part in enumerate(buckets(batch, self.workers)):
                    if part is not None:
                        blobs[worker].append(Blob(worker, Blob.COPIED, part))
        for worker in range(self.workers):
            apply(committer, Commit(workers.checkpoints, moved.checkpoints, plan.origin), worker, blobs[worker])
        self.process = end, moved, committer
        for request in plan.read:
            self._read(request)
        return True

    def _read(self, request: ChunkRequest) -> None:
        """Reads the rows of a request. The window ends at the next step, so programs may write within it."""
        low = self.source.log.received
        if request.phase is Phase.FINISH:
            self.staged[request] = StagedChunk(request, low, 0, None, None, is_last=True)
            return
        there = [(row["id"],) for row in self.source.rows().values()]
        upto = request.upto or max(there, default=None)
        mine = [key for key in sorted(there) if upto and (request.after or (-1,)) < key <= upto]
        last = mine[request.limit - 1] if len(mine) > request.limit else upto
        rows = [row for row in self.source.log.rows(NAME) if last and (request.after or (-1,)) < (row["id"],) <= last]
        self.rows_read[request] = pa.Table.from_pylist(rows, schema=self.source.table.arrow)
        self.staged[request] = StagedChunk(
            request, low, len(rows), last, upto, is_last=last == upto, low=low, waiting=len(rows), largest=len(rows)
        )

    def _read_to_end(self, request: ChunkRequest) -> StagedChunk:
        """Returns the result of a request; the reading ends now."""
        chunk = self.staged[request]
        if request.phase is not Phase.FINISH and request not in self._ended:
            chunk = self.staged[request] = replace(chunk, high=self.source.log.received)
            self._ended.add(request)
        return chunk

    def _begun(self) -> tuple[PlanState, Workers, Committer]:
        session = self.target.target.connect()
        try:
            claimed = tuple(session.meta.checkpoints.claim(self.name, "s", self.workers, self.first))
            if not self.is_known:
                session.begin()
                session.meta.notes.write(self.name, SourceTablesKey("s"), ZONE_NOTE, self.source.name)
                session.commit()
                self.is_known = True
        finally:
            session.close()
        workers, state, _ = Workers.claimed(claimed)
        self.staged, self.rows_read, self._ended = {}, {}, set()
        return state, workers, self._committer(claimed[0].epoch)

    def _committer(self, epoch: int) -> Committer:
        return Committer(self.target.target, self.name, "s", epoch, rules=self.rules, sleep=lambda _: None)

    def _log(self, at: Lsn, to: Lsn | None = None) -> list[LogEntry]:
        return list(self.source.log.entries(at, to))


def usual_shape(chance: random.Random) -> list[Feed]:
    """Returns a pair in most histories: a history of a pair takes a third of the time of others."""
    return PAIR if chance.random() < 0.75 else chance.choice(list(SHAPES.values()))


def tasks_between(zones: dict[str, Zone], feeds: Sequence[Feed], limits: Limits, workers: int = 1) -> list[Direction]:
    """Returns the tasks of all feeds; each locks rows that differ."""
    tasks = []
    for (name, other), forwards in carried(feeds).items():
        rules = ApplyRules(task=f"{name}{other}", source="s", zone=name, on_divergence=OnDivergence.LOCK)
        tasks.append(Direction(zones[name], zones[other], workers, limits, forwards - {name}, rules=rules))
    for task in tasks:
        task.begin()
    return tasks


def locked(task: Direction) -> dict[int, str]:
    """Returns the keys that a task has locked, each with the reason."""
    with closing(task.target.target.connect()) as session:
        locks = session.meta.row_locks.read(task.name, "s", NAME)
    return {unpacked(one.key)["id"][0].as_py(): one.why for one in locks}


def end_quietly(zones: dict[str, Zone], tasks: Sequence[Direction], chance: random.Random) -> None:
    """Lets the tasks carry everything, without crashes. Afterwards no change may still be carried around.

    In every second history, each task takes all changes that it finds at once, as a task that has lagged does.
    """
    for zone in zones.values():
        zone.dies = Crashes([])
    if chance.random() < 0.5:
        for task in tasks:
            task.limits = replace(task.limits, transactions=10_000)
    settle(tasks, chance)
    ends = [zone.log.received for zone in zones.values()]
    assert not any(task.step() for task in tasks), "idle zones write"
    assert ends == [zone.log.received for zone in zones.values()]


def settle(tasks: Sequence[Direction], chance: random.Random | None = None) -> None:
    for _ in range(600):
        moved = [task.step() for task in (chance.sample(tasks, len(tasks)) if chance else tasks)]
        if not any(moved):
            return
    pytest.fail("the zones do not come to rest")
