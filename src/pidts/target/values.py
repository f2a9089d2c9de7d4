"""A target in memory: the whole port, transactions and take-overs included, for tests that run in milliseconds.

`ValuesTarget` only names a `Store`; all sessions of one process that name the same store see the same data. A test
may set `Store.hook`, which is called at named points and may raise to break off there:

    connect, begin, lock, hold, write, load, save, commit:before, commit:after, execute:before, execute:after, journal

What is raised at `commit:before` loses the transaction, at `commit:after` only the answer, like a server's.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa

from pidts.model import (
    Checkpoint,
    DdlJournal,
    Halted,
    Lsn,
    Rendered,
    Table,
    TableName,
    Tombstone,
    Transient,
    Where,
)
from pidts.reduce import NetChange, UniqueKey, watched_columns
from pidts.schema import Statement
from pidts.target.meta import claimed_rows, no_checkpoint
from pidts.target.values_ddl import creation, run_step, steps
from pidts.target.values_fill import plain
from pidts.target.values_halts import ValuesHalts
from pidts.target.values_locks import Lock
from pidts.target.values_moves import ValuesMoves
from pidts.target.values_rows import OpenTable, tuples
from pidts.target.values_shadows import ValuesShadows
from pidts.target.values_store import Store, Worker

_stores: dict[str, Store] = {}


@dataclass(frozen=True, slots=True)
class ValuesTarget:
    """`transactional_ddl` chooses which of the two DDL protocols a test goes through.

    `folds` makes it compare text as a `_ci` collation with PAD SPACE does.
    """

    name: str
    transactional_ddl: bool = True
    folds: bool = False

    @property
    def store(self) -> Store:
        """Shared by all targets of this name in the process."""
        return _stores.setdefault(self.name, Store(folds=self.folds))

    def forget(self) -> None:
        """Drop the data."""
        _stores.pop(self.name, None)

    def connect(self) -> ValuesSession:
        """A new session."""
        session = ValuesSession(self.store, transactional_ddl=self.transactional_ddl)
        session.at("connect")
        return session


class ValuesSession:
    """Writes go into an overlay that COMMIT moves into the store."""

    def __init__(self, store: Store, *, transactional_ddl: bool) -> None:
        self._store = store
        self.transactional_ddl = transactional_ddl
        self._open = False
        self._tables: dict[TableName, OpenTable] = {}
        self._buried: dict[tuple[TableName, str], Tombstone] = {}
        self._checkpoints: dict[Worker, Checkpoint] = {}
        self._later: list[Callable[[], None]] = []
        self.halts = ValuesHalts(store.halts, self._at_commit)
        self.shadows = ValuesShadows(store.shadows, self._at_commit)
        self.moves = ValuesMoves(store.moves, self._at_commit)

    def at(self, point: str) -> None:
        """Let the test break off here; a session that breaks is lost, and with it its transaction and its locks."""
        if self._store.hook is not None:
            try:
                self._store.hook(point)
            except BaseException:
                self.close()
                raise

    def begin(self) -> None:
        """One transaction at a time."""
        if self._open:
            raise Halted("target-refused", "a transaction is open already")
        self._open = True
        self.at("begin")

    def commit(self) -> None:
        """All or nothing."""
        self._demand_open()
        self.at("commit:before")
        for name, table in self._tables.items():
            rows = self._store.tables[name].rows
            for key, row in table.changes.items():
                if row is None:
                    rows.pop(key, None)
                else:
                    rows[key] = row
        self._store.checkpoints.update(self._checkpoints)
        self._store.tombstones.update(self._buried)
        for step in self._later:
            step()
        self._store.commits += 1
        self._reset()
        self.at("commit:after")

    def rollback(self) -> None:
        """Forget the overlay and the row locks."""
        self._reset()

    def close(self) -> None:
        """Named locks end with the session, too."""
        self._reset()
        self._store.locks.release(self, lambda _: True)

    def prepare_meta(self) -> None:
        """Nothing to make."""

    def claim(self, task: str, source: str, workers: int, start: Checkpoint) -> list[Checkpoint]:
        """Waits for nobody: what is locked is an error at once."""
        stored = self.checkpoints(task, source)
        for row in stored:
            self._lock(("row", task, source, row.worker))
        with self.ddl_lock(task, source):
            claimed, rewrite = claimed_rows(stored, task, source, workers, start)
            if rewrite:
                for row in stored:
                    del self._store.checkpoints[task, source, row.worker]
            self._store.checkpoints.update({(task, source, row.worker): row for row in claimed})
            for landed in self.moves.landings(task, source) if claimed[0].epoch == 1 else ():
                self.moves.forget(task, source, landed)
        self._reset()
        return claimed

    def checkpoints(self, task: str, source: str) -> list[Checkpoint]:
        """Committed ones."""
        found = [row for (its, of, _), row in self._store.checkpoints.items() if (its, of) == (task, source)]
        return sorted(found, key=lambda row: row.worker)

    def lock_checkpoint(self, task: str, source: str, worker: int) -> Checkpoint:
        """A lock that another session holds is the lock wait timeout of a server."""
        self._demand_open()
        self._lock(("row", task, source, worker))
        self.at("lock")
        if (task, source, worker) not in self._store.checkpoints:
            raise no_checkpoint(task, source, worker)
        return self._store.checkpoints[task, source, worker]

    def hold(self, task: str, source: str) -> list[Checkpoint]:
        """Waits for nobody, either."""
        self._demand_open()
        for row in self.checkpoints(task, source):
            self._store.locks.share(("row", task, source, row.worker), self)
        self.at("hold")
        return self.checkpoints(task, source)

    def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Visible at COMMIT."""
        self._demand_open()
        self._checkpoints[checkpoint.task, checkpoint.source, checkpoint.worker] = checkpoint
        self.at("save")

    def write(self, change: NetChange) -> None:
        """Row by row."""
        self._demand_fit(change.table)
        self._opened(change.table.name).write(change)
        self.at("write")

    def load(self, table: Table, rows: pa.Table) -> bool:
        """All or none."""
        self._demand_fit(table)
        added = self._opened(table.name).add(rows)
        self.at("load")
        return added

    def clear(self, name: TableName) -> None:
        """Visible at COMMIT."""
        self._demand_open()
        self._opened(name).clear()

    def noted(self, task: str, source: str, name: TableName) -> str:
        """Committed."""
        return self._store.notes.get((task, source, name), "")

    def note(self, task: str, source: str, name: TableName, text: str) -> None:
        """Visible at COMMIT."""
        self._demand_open()
        self._later.append(lambda: self._store.notes.update({(task, source, name): text}))

    def structure(self, name: TableName) -> Table | None:
        """As it was created."""
        stored = self._store.tables.get(name)
        return stored.table if stored else None

    def watched(self, table: Table) -> tuple[str, ...]:
        """By the keys of the target's table."""
        stored = self.structure(table.name)
        return watched_columns(table, [UniqueKey(key.columns) for key in stored.keys if key.unique] if stored else ())

    def misfits(self, table: Table) -> list[str] | None:
        """Names and identity only."""
        stored = self.structure(table.name)
        if stored is None:
            return None
        have, want = {column.name for column in stored.columns}, {column.name for column in table.columns}
        found = [f"it lacks column {', '.join(sorted(want - have))}"] if want - have else []
        needy = sorted(c.name for c in stored.columns if c.name not in want and not c.nullable and c.default is None)
        if needy:
            found.append(f"it demands column {', '.join(needy)}, and the source has none of that name")
        if set(stored.identity) != set(table.identity):
            found.append(f"its identity is ({', '.join(stored.identity)})")
        return found

    def fingerprint(self, name: TableName) -> str | None:
        """The structure as JSON."""
        stored = self.structure(name)
        return json.dumps(stored.to_json()) if stored else None

    def column_types(self, table: Table) -> tuple[str, ...]:
        """The source's own."""
        return tuple(str(column.type.kind) for column in table.columns)

    def create_statements(self, table: Table, *, before_copy: bool = False) -> Rendered:
        """In this target's own language, which is JSON."""
        return Rendered((creation(table, before_copy=before_copy),))

    def leave_unfinished(self, name: TableName) -> None:
        """Nobody else makes tables here: keys that are missing were left out."""

    def finish_statements(self, table: Table) -> Rendered:
        """The keys that are missing."""
        found = self.structure(table.name)
        have = {(key.columns, key.unique) for key in found.keys} if found else set()
        missing = found is not None and any((key.columns, key.unique) not in have for key in table.keys)
        return Rendered((json.dumps({"finish": table.to_json()}),) if missing else ())

    def ddl_statements(
        self,
        statement: Statement,
        before: Mapping[TableName, Table | None],
        after: Mapping[TableName, Table | None],
        executed_at: int = 0,
    ) -> Rendered:
        """One statement for each table."""
        del executed_at
        return Rendered(tuple(json.dumps(step) for step in steps(statement, before, after)))

    def execute(self, sql: str) -> None:
        """Inside a transaction where that is an ability of the target, else at once."""
        self.at("execute:before")
        step = json.loads(sql)
        if self.transactional_ddl and self._open:
            self._later.append(lambda: run_step(step, self._store.tables, folds=self._store.folds))
        else:
            if self._open:
                raise Halted("target-refused", "DDL would commit the open transaction")
            run_step(step, self._store.tables, folds=self._store.folds)
        self.at("execute:after")

    @contextmanager
    def ddl_lock(self, task: str, source: str) -> Iterator[None]:
        """Held by name until left or closed."""
        name: Lock = ("ddl", task, source)
        self._lock(name)
        try:
            yield
        finally:
            self._store.locks.release(self, lambda lock: lock == name)

    def save_structures(self, task: str, source: str, lsn: Lsn, structures: Mapping[TableName, Table | None]) -> None:
        """Visible at COMMIT."""
        del lsn
        self._demand_open()
        self._later.append(lambda: self._store.keep_structures(task, source, structures))

    def load_structures(self, task: str, source: str) -> dict[TableName, Table]:
        """Committed ones."""
        return {name: table for (its, of, name), table in self._store.structures.items() if (its, of) == (task, source)}

    def known(self) -> list[tuple[str, str, TableName]]:
        """Committed ones."""
        return list(self._store.structures)

    def read_journal(self, task: str, source: str, lsn: Lsn) -> DdlJournal | None:
        """Committed ones."""
        return self._store.journals.get((task, source, lsn))

    def write_journal(self, journal: DdlJournal) -> None:
        """Visible at COMMIT."""
        self._demand_open()
        place, saved = (journal.task, journal.source, journal.lsn), replace(journal, saved_at=time.time())
        self._later.append(lambda: self._store.journals.update({place: saved}))
        self.at("journal")

    def read_rows(
        self,
        table: Table,
        *,
        keys: pa.Table | None = None,
        after: Sequence[object] | None = None,
        limit: int | None = None,
        lock: bool = False,
        only: Mapping[str, str] | None = None,
    ) -> pa.Table:
        """Committed rows and the transaction's own, in the order of their identities; nothing here needs a lock."""
        del lock
        stored = self._store.tables[table.name]
        rows = self._opened(table.name).rows() if self._open else stored.rows
        names = [column.name for column in stored.table.columns]
        wanted = set(map(stored.folded, tuples(keys.select(list(stored.table.identity))))) if keys is not None else None
        chosen = sorted(key for key in rows if wanted is None or key in wanted)
        if after is not None:
            chosen = [key for key in chosen if key > tuple(after)]
        for name, text in (only or {}).items():
            chosen = [key for key in chosen if rows[key][names.index(name)] == text]
        places = [names.index(column.name) for column in table.columns]
        columns = [
            pa.array([rows[key][place] for key in chosen[:limit]], plain(kind)).view(kind)
            for place, kind in zip(places, table.arrow.types, strict=True)
        ]
        return pa.table(columns, schema=table.arrow)

    def tombstones(self, name: TableName, keys: Sequence[str]) -> list[Tombstone]:
        """Committed ones and the transaction's own."""
        there = {**self._store.tombstones, **self._buried}
        return [there[name, key] for key in keys if (name, key) in there]

    def bury(self, name: TableName, tombstones: Sequence[Tombstone]) -> None:
        """Visible at COMMIT."""
        self._demand_open()
        self._buried.update({(name, tomb.key): tomb for tomb in tombstones})

    def safe_until(self, task: str, source: str) -> Lsn | None:
        """Committed."""
        return self._store.safe_until.get((task, source))

    def save_safe_until(self, task: str, source: str, lsn: Lsn | None) -> None:
        """Visible at COMMIT."""
        self._demand_open()
        self._later.append(lambda: self._store.safe_until.update({(task, source): lsn}))

    def count(self, name: TableName) -> int:
        """Committed rows."""
        return len(self._store.tables[name].rows)

    def _at_commit(self, step: Callable[[], None]) -> None:
        if self._open:
            self._later.append(step)
        else:
            step()

    def _demand_open(self) -> None:
        if not self._open:
            raise Transient("target-lost", "no transaction is open: the session was lost")

    def _demand_fit(self, table: Table) -> None:
        self._demand_open()
        problems = self.misfits(table)
        if problems is None or problems:
            raise Halted(
                "target-shape",
                f"the target's table does not fit: {'; '.join(problems or ['there is no such table'])}",
                where=Where(table=str(table.name)),
            )

    def _opened(self, name: TableName) -> OpenTable:
        if name not in self._tables:
            self._tables[name] = OpenTable(self._store.tables[name])
        return self._tables[name]

    def _lock(self, what: Lock) -> None:
        self._store.locks.take(what, self)

    def _reset(self) -> None:
        self._open = False
        self._tables, self._checkpoints, self._later, self._buried = {}, {}, [], {}
        self.moves.reset()
        self._store.locks.release(self, lambda lock: lock[0] == "row")
