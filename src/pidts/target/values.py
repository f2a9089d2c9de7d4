"""A target in memory: the whole port, transactions and take-overs included, for tests that run in milliseconds.

`ValuesTarget` only names a `Store`; all sessions of one process that name the same store see the same data. A test
may set `Store.hook`, which is called at named points and may raise to break off there:

    connect, begin, lock, write, save, commit:before, commit:after, execute:before, execute:after, journal

What is raised at `commit:before` loses the transaction, at `commit:after` only the answer, like a server's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from pidts.model import Checkpoint, DdlJournal, Halted, Lsn, Rendered, Table, TableName, Transient, Where
from pidts.reduce import NetChange
from pidts.schema import Statement
from pidts.target.meta import claimed_rows, no_checkpoint
from pidts.target.values_ddl import Row, StoredTable, plain, run_step, steps, tuples

Hook = Callable[[str], None]

Lock = tuple[str | int, ...]

_Worker = tuple[str, str, int]


@dataclass(slots=True)
class Store:
    """What a server would keep."""

    tables: dict[TableName, StoredTable] = field(default_factory=dict)
    checkpoints: dict[_Worker, Checkpoint] = field(default_factory=dict)
    structures: dict[tuple[str, str, TableName], Table] = field(default_factory=dict)
    journals: dict[tuple[str, str, Lsn], DdlJournal] = field(default_factory=dict)
    locks: dict[Lock, object] = field(default_factory=dict)
    """What is locked → the session that holds it."""
    hook: Hook | None = None
    commits: int = 0

    def content(self, name: TableName) -> dict[Row, dict[str, Any]]:
        """A table's committed rows, by identity and column name; times are the numbers that Arrow holds."""
        stored = self.tables[name]
        names = [column.name for column in stored.table.columns]
        return {key: dict(zip(names, row, strict=True)) for key, row in stored.rows.items()}


_stores: dict[str, Store] = {}


@dataclass(frozen=True, slots=True)
class ValuesTarget:
    """`transactional_ddl` chooses which of the two DDL protocols a test goes through."""

    name: str
    transactional_ddl: bool = True

    @property
    def store(self) -> Store:
        """Shared by all targets of this name in the process."""
        return _stores.setdefault(self.name, Store())

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
        self._rows: dict[TableName, dict[Row, Row | None]] = {}
        self._checkpoints: dict[_Worker, Checkpoint] = {}
        self._later: list[Callable[[], None]] = []

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
        for name, changes in self._rows.items():
            rows = self._store.tables[name].rows
            for key, row in changes.items():
                if row is None:
                    rows.pop(key, None)
                else:
                    rows[key] = row
        self._store.checkpoints.update(self._checkpoints)
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
        self._release(lambda _: True)

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

    def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Visible at COMMIT."""
        self._demand_open()
        self._checkpoints[checkpoint.task, checkpoint.source, checkpoint.worker] = checkpoint
        self.at("save")

    def write(self, change: NetChange) -> None:
        """Upserts replace by identity; a secondary unique key that two rows share is refused."""
        self._demand_open()
        problems = self.misfits(change.table)
        if problems is None or problems or not change.table.identity:
            raise Halted(
                "target-shape",
                f"the target's table does not fit: {'; '.join(problems or ['there is no such table or no key'])}",
                where=Where(table=str(change.table.name)),
            )
        stored = self._store.tables[change.table.name]
        overlay = self._rows.setdefault(change.table.name, {})
        for key in tuples(change.deletes.select(list(change.table.identity))):
            overlay[key] = None
        names = change.upserts.column_names
        places = [names.index(column.name) if column.name in names else None for column in stored.table.columns]
        keys = tuples(change.upserts.select(list(change.table.identity)))
        for key, row in zip(keys, tuples(change.upserts), strict=True):
            overlay[key] = tuple(None if place is None else row[place] for place in places)
        self._demand_unique(stored)
        self.at("write")

    def structure(self, name: TableName) -> Table | None:
        """As it was created."""
        stored = self._store.tables.get(name)
        return stored.table if stored else None

    def misfits(self, table: Table) -> list[str] | None:
        """Names and identity only."""
        stored = self.structure(table.name)
        if stored is None:
            return None
        have, want = {column.name for column in stored.columns}, {column.name for column in table.columns}
        found = [f"it lacks column {', '.join(sorted(want - have))}"] if want - have else []
        needy = sorted(c.name for c in stored.columns if c.name not in want and not c.nullable and c.default is None)
        if needy:
            found.append(
                f"column {', '.join(needy)} is NOT NULL without a default and the source has none of that name"
            )
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

    def create_statements(self, table: Table) -> Rendered:
        """In this target's own language, which is JSON."""
        return Rendered((json.dumps({"create": table.to_json()}),))

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
            self._later.append(lambda: run_step(step, self._store.tables))
        else:
            if self._open:
                raise Halted("target-refused", "DDL would commit the open transaction")
            run_step(step, self._store.tables)
        self.at("execute:after")

    @contextmanager
    def ddl_lock(self, task: str, source: str) -> Iterator[None]:
        """Held by name until left or closed."""
        name: Lock = ("ddl", task, source)
        self._lock(name)
        try:
            yield
        finally:
            self._release(lambda lock: lock == name)

    def save_structures(self, task: str, source: str, lsn: Lsn, structures: Mapping[TableName, Table | None]) -> None:
        """Visible at COMMIT."""
        del lsn
        self._demand_open()
        self._later.append(lambda: self._keep_structures(task, source, structures))

    def load_structures(self, task: str, source: str) -> dict[TableName, Table]:
        """Committed ones."""
        return {name: table for (its, of, name), table in self._store.structures.items() if (its, of) == (task, source)}

    def read_journal(self, task: str, source: str, lsn: Lsn) -> DdlJournal | None:
        """Committed ones."""
        return self._store.journals.get((task, source, lsn))

    def write_journal(self, journal: DdlJournal) -> None:
        """Visible at COMMIT."""
        self._demand_open()
        self._later.append(lambda: self._store.journals.update({(journal.task, journal.source, journal.lsn): journal}))
        self.at("journal")

    def read_rows(
        self,
        table: Table,
        *,
        keys: pa.Table | None = None,
        after: Sequence[object] | None = None,
        limit: int | None = None,
    ) -> pa.Table:
        """Committed rows, in the order of their identities."""
        stored = self._store.tables[table.name]
        names = [column.name for column in stored.table.columns]
        wanted = set(tuples(keys.select(list(table.identity)))) if keys is not None else None
        chosen = sorted(key for key in stored.rows if wanted is None or key in wanted)
        if after is not None:
            chosen = [key for key in chosen if key > tuple(after)]
        rows = [stored.rows[key] for key in chosen[:limit]]
        places = [names.index(column.name) for column in table.columns]
        columns = [
            pa.array([row[place] for row in rows], plain(kind)).view(kind)
            for place, kind in zip(places, table.arrow.types, strict=True)
        ]
        return pa.table(columns, schema=table.arrow)

    def count(self, name: TableName) -> int:
        """Committed rows."""
        return len(self._store.tables[name].rows)

    def _demand_open(self) -> None:
        if not self._open:
            raise Transient("target-lost", "no transaction is open: the session was lost")

    def _demand_unique(self, stored: StoredTable) -> None:
        keys = stored.table.secondary_unique
        if not keys:
            return
        names = [column.name for column in stored.table.columns]
        rows: dict[Row, Row | None] = {**stored.rows, **self._rows[stored.table.name]}
        for key in keys:
            places = [names.index(name) for name in key.columns]
            seen: set[Row] = set()
            for row in rows.values():
                if row is None:
                    continue
                value = tuple(row[place] for place in places)
                if None not in value and value in seen:
                    raise Halted(
                        "target-refused", f"duplicate {value} in {key.name}", where=Where(table=str(stored.table.name))
                    )
                seen.add(value)

    def _lock(self, what: Lock) -> None:
        holder = self._store.locks.setdefault(what, self)
        if holder is not self:
            raise Transient("target-busy", f"{what} is locked by another session")

    def _release(self, which: Callable[[Lock], bool]) -> None:
        for lock in [lock for lock, holder in self._store.locks.items() if holder is self and which(lock)]:
            del self._store.locks[lock]

    def _reset(self) -> None:
        self._open = False
        self._rows, self._checkpoints, self._later = {}, {}, []
        self._release(lambda lock: lock[0] == "row")

    def _keep_structures(self, task: str, source: str, structures: Mapping[TableName, Table | None]) -> None:
        for name, table in structures.items():
            if table is None:
                self._store.structures.pop((task, source, name), None)
            else:
                self._store.structures[task, source, name] = table
