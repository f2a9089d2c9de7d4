"""One connection to the target in memory. Its transaction writes into an overlay until COMMIT."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.values_target.rows import OpenTable
from tests.values_target.store import Lock, Store, Worker

from pidts.model import Checkpoint, Halted, TableName, Tombstone, Transient


class ValuesConnection:
    """The transaction of a session. The session adds the rows; the records and the schema use the same transaction."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.is_open = False
        """Whether a transaction is open."""
        self.tables: dict[TableName, OpenTable] = {}
        self.buried: dict[tuple[TableName, str], Tombstone] = {}
        self.written_checkpoints: dict[Worker, Checkpoint] = {}
        self.later: list[Callable[[], None]] = []
        """The other steps of COMMIT."""
        self.at_end: list[Callable[[], None]] = []
        """Functions to call when the transaction has ended."""
        self.trips = 0
        """The number of round trips: each named point stands for one."""

    def at(self, point: str) -> None:
        """Lets the test interrupt the session at this point. An interrupted session is lost, with its transaction and
        its locks.
        """
        self.trips += 1
        if self.store.hook is not None:
            try:
                self.store.hook(point)
            except BaseException:
                self.close()
                raise

    def clock(self) -> float:
        """Returns this machine's time."""
        return time.time()

    def begin(self, origin: str = "") -> None:
        """Begins a transaction; there is one at a time."""
        if self.is_open:
            raise Halted("target-refused", "a transaction is already open")
        self.is_open = True
        self.store.origin = origin
        self.at("begin")

    def commit(self) -> None:
        """Commits everything or nothing."""
        self.demand_open()
        self.at("commit:before")
        for name, table in self.tables.items():
            rows = self.store.tables[name].rows
            for key, row in table.changes.items():
                if row is None:
                    rows.pop(key, None)
                else:
                    rows[key] = row
        self.store.checkpoints.update(self.written_checkpoints)
        self.store.tombstones.update(self.buried)
        for step in self.later:
            step()
        self.store.commits += 1
        self.end()
        self.at("commit:after")

    def rollback(self) -> None:
        """Ends the transaction; nothing of it has been written yet."""
        self.end()

    def close(self) -> None:
        """Closes the session; its named locks end with it, too."""
        self.end()
        self.store.locks.release(self, lambda _: True)

    def at_commit(self, step: Callable[[], None]) -> None:
        """Calls the function at COMMIT, or at once if no transaction is open."""
        if self.is_open:
            self.later.append(step)
        else:
            step()

    def demand_open(self) -> None:
        """Raises if the session was lost: then there is no transaction any more."""
        if not self.is_open:
            raise Transient("target-lost", "no transaction is open: the session was lost")

    def opened(self, name: TableName) -> OpenTable:
        """Returns the table's rows with the changes of the transaction."""
        if name not in self.tables:
            self.tables[name] = OpenTable(self.store.tables[name])
        return self.tables[name]

    def lock(self, what: Lock) -> None:
        """Locks an object; raises at once if another session has locked it."""
        self.store.locks.take(what, self)

    def end(self) -> None:
        """Forgets the overlay and releases the row locks."""
        self.is_open = False
        self.tables, self.written_checkpoints, self.later, self.buried = {}, {}, [], {}
        for step in self.at_end:
            step()
        self.store.locks.release(self, lambda lock: lock[0] == "row")
