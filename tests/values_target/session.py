"""A target in memory: the whole port, transactions and take-overs included, for tests that run in milliseconds.

`ValuesTarget` only names a `Store`; all sessions of one process that name the same store see the same data. A test
may set `Store.hook`, which is called at named points and may raise to break off there:

    connect, begin, lock, advance, lock_shared, write, load, save, journal,
    commit:before, commit:after, execute:before, execute:after

An error raised at `commit:before` loses the transaction. One raised at `commit:after` loses only the answer, as if the
connection to a server broke after the COMMIT.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
from tests.values_target.connection import ValuesConnection
from tests.values_target.meta import ValuesMeta
from tests.values_target.rows import plain, tuples
from tests.values_target.schema import ValuesSchema, run_step
from tests.values_target.store import Store

from pidts.model import Halted, Table, TableName
from pidts.reduce import NetChange
from pidts.target.fit import gone, unfit

_stores: dict[str, Store] = {}


@dataclass(frozen=True, slots=True)
class ValuesTarget:
    """A target in memory. With `transactional_ddl`, a schema change commits in one transaction with its journal, as on
    PostgreSQL; without it, the journal records each statement before it runs.

    With `folds`, text is compared as with a `_ci` collation with PAD SPACE. With `expects`, the target compares rows
    while it writes them, as PostgreSQL does. With `refuses_known_keys`, it refuses new rows whose key exists, as MySQL
    does.
    """

    name: str
    transactional_ddl: bool = True
    folds: bool = False
    expects: bool = True
    refuses_known_keys: bool = False

    piece_rows: ClassVar[int] = 2_500
    buffers_rows: ClassVar[bool] = False

    @property
    def store(self) -> Store:
        """Returns the store, which all targets of this name in the process share."""
        if (found := _stores.get(self.name)) is None:
            found = Store(folds=self.folds, expects=self.expects, refuses_known_keys=self.refuses_known_keys)
            _stores[self.name] = found
        return found

    def forget(self) -> None:
        """Drops the store of this target's name, with all data."""
        _stores.pop(self.name, None)

    def connect(self) -> ValuesSession:
        """Returns a new session."""
        session = ValuesSession(self.store, transactional_ddl=self.transactional_ddl)
        session.at("connect")
        return session


class ValuesSession(ValuesConnection):
    """A session of `ValuesTarget`."""

    def __init__(self, store: Store, *, transactional_ddl: bool) -> None:
        super().__init__(store)
        self.meta = ValuesMeta(self)
        self.schema = ValuesSchema(store, transactional_ddl=transactional_ddl)

    def write(self, change: NetChange) -> None:
        """Writes the change row by row."""
        self._demand_fit(change.table)
        self.opened(change.table.name).write(change)
        self.at("write")

    def can_expect(self, table: Table) -> bool:
        """Returns whether the target compares rows while it writes them; the table must have the stored structure."""
        stored = self.store.tables.get(table.name)
        return self.store.expects and stored is not None and stored.table.arrow == table.arrow

    def refuses_known_keys(self, table: Table) -> bool:
        """Returns whether the target refuses a new row if it has a row with the same key."""
        return self.store.refuses_known_keys

    def load(self, table: Table, rows: pa.Table) -> bool:
        """Loads all rows or none."""
        self._demand_fit(table)
        added = self.opened(table.name).add(rows)
        self.at("load")
        return added

    def clear(self, name: TableName) -> None:
        """Removes all rows at COMMIT."""
        self.demand_open()
        self.opened(name).clear()

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
        """Returns committed rows and those of the transaction, in the order of their identities; no lock is needed."""
        del lock
        stored = self.store.tables.get(table.name)
        if stored is None:
            raise gone(table.name)
        rows = self.opened(table.name).rows() if self.is_open else stored.rows
        names = [column.name for column in stored.table.columns]
        chosen = sorted(rows)
        if keys is not None:
            wanted = {stored.as_compared(table.identity, key) for key in tuples(keys.select(list(table.identity)))}
            is_by_key = table.identity == stored.table.identity
            chosen = [
                key for key in chosen if (key if is_by_key else stored.values(table.identity, rows[key])) in wanted
            ]
        if after is not None:
            chosen = [key for key in chosen if key > stored.as_compared(table.identity, tuple(after))]
        for name, text in (only or {}).items():
            chosen = [key for key in chosen if rows[key][names.index(name)] == text]
        places = [names.index(column.name) for column in table.columns]
        columns = [
            pa.array([rows[key][place] for key in chosen[:limit]], plain(kind)).view(kind)
            for place, kind in zip(places, table.arrow.types, strict=True)
        ]
        return pa.table(columns, schema=table.arrow)

    def compared(self, table: Table, keys: pa.Table) -> pa.Table:
        """Returns the keys in a form that is equal for all keys that the target treats as equal."""
        stored = self.store.tables[table.name]
        forms = [
            pa.array([stored.compared(stored.table.column(name), one) for one in keys[name].to_pylist()], pa.string())
            if table.column(name).type.is_text
            else keys[name]
            for name in table.identity
        ]
        return pa.table(forms, names=list(table.identity))

    def equal_keys(self, table: Table, keys: pa.Table, others: pa.Table) -> list[int]:
        """Returns the numbers of the keys that the target treats as equal to the other key with the same number."""
        one, other = (self.compared(table, each).to_pylist() for each in (keys, others))
        return [place for place in range(len(one)) if one[place] == other[place]]

    def count(self, name: TableName) -> int:
        """Counts the committed rows."""
        return len(self.store.tables[name].rows)

    def execute(self, sql: str, origin: str = "") -> None:
        """Runs a DDL statement: inside a transaction if the target can do this, else at once."""
        self.store.origin = origin
        self.at("execute:before")
        step = json.loads(sql)
        if self.schema.transactional_ddl and self.is_open:
            self.later.append(lambda: run_step(step, self.store.tables, folds=self.store.folds))
        else:
            if self.is_open:
                raise Halted("target-refused", "DDL would commit the open transaction")
            run_step(step, self.store.tables, folds=self.store.folds)
        self.at("execute:after")

    def _demand_fit(self, table: Table) -> None:
        self.demand_open()
        problems = self.schema.misfits(table)
        if problems is None:
            raise gone(table.name)
        if problems:
            raise unfit(table.name, problems)
