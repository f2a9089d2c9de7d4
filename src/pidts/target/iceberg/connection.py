"""One connection to the catalog of a warehouse: an SQLite database in the warehouse's directory.

The catalog's tables and PiDTS's own records are in the same database. So one COMMIT makes new metadata files of several
tables current, together with the checkpoint.

SQLite has one writer at a time. A transaction locks the database with its first statement that writes. Until then, each
statement sees everything that was committed before the statement began. A checkpoint's lock is the lock of a file next
to the database (`flock`). Processes can share such a lock, and the operating system releases it when its process ends.
A transaction takes the checkpoint's lock first, and the database's lock later.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from pidts.durable_folder import make_folder
from pidts.model import Halted, Transient

LOCK_SECONDS = 30.0
"""The longest time, in seconds, to wait for a lock."""

CATALOG = "catalog.db"
LOCKS = ".pidts"
_PAUSE = 0.02
_CLOCK = "strftime('%Y-%m-%d %H:%M:%f', 'now')"
_FIRST = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|CREATE|DROP)\b", re.IGNORECASE)
_EXISTS = re.compile(r"information_schema\.tables WHERE table_schema = 'pidts_meta' AND table_name = '(\w+)'")
_NAMED = re.compile(r"\bpidts_meta\.(\w+)")
_UPSERT = re.compile(r"ON DUPLICATE KEY UPDATE (.*)\Z", re.DOTALL)
_VALUES = re.compile(r"VALUES\((\w+)\)")
_REFUSED = (errno.EACCES, errno.EPERM, errno.ENOTDIR)
_BUSY = ("locked", "busy")
_FULL = ("full", "disk i/o", "unable to open", "readonly")


class CatalogConnection:
    """A connection to a warehouse's catalog, its transaction and its locks. `IcebergSession` adds rows and schema."""

    def __init__(self, warehouse: str, catalog: str, meta_schema: str, files: str = "") -> None:
        self.warehouse, self.catalog, self.meta_schema = warehouse, catalog, meta_schema
        self.files = files or f"file://{warehouse}"
        """The address of the folder that gets the folders of new tables."""
        self.trips = 0
        """The number of statements so far, in place of round trips, which a local database does not have."""
        self._is_open = False
        self._locks: dict[str, int] = {}
        """The descriptors of the files that are locked until the transaction ends, keyed by a digest of the lock."""
        self._shown: list[int] = []
        """The descriptors of the files that are locked until the session ends."""
        self._is_made = False
        self._driver = _connected(":memory:")
        """An empty database that is never written to, used if there is no warehouse."""
        self.has_warehouse()

    def has_warehouse(self) -> bool:
        """Whether the directory has a catalog; another session may create the catalog at any time."""
        if not self._is_made:
            with mapped():
                is_there = (Path(self.warehouse) / CATALOG).exists()
            if is_there:
                self._use_database()
        return self._is_made

    def make_warehouse(self) -> None:
        """Creates the directory with an empty catalog if there is no catalog."""
        if not self.has_warehouse():
            self._use_database()

    def _use_database(self) -> None:
        path = Path(self.warehouse)
        with mapped():
            make_folder(path / LOCKS)
            self._driver.close()
            self._driver = _connected(str(path / CATALOG))
            self._is_made = True
            self._driver.execute("PRAGMA journal_mode = WAL")
            self._driver.execute("PRAGMA synchronous = FULL")

    def demand_warehouse(self) -> None:
        """Raises if the warehouse does not exist: the path may be wrong, or the disk not mounted."""
        if not self.has_warehouse():
            raise Halted(
                "no-warehouse",
                f"there is no warehouse at {self.warehouse}: the folder has no {CATALOG}",
                todo="If the task has run before, correct the path or mount the disk. If the task is new, start it: "
                "pidts run TASK",
            )

    def clock(self) -> float:
        """Returns the time by this machine's clock, since there is no server."""
        return time.time()

    def begin(self, origin: str = "") -> None:  # noqa: ARG002 - no task reads a warehouse
        """Opens a transaction; the first statement that writes locks the database."""
        if self._is_open:
            raise Halted(
                "target-refused", "a transaction is already open", todo="This is a fault of pidts: please report it"
            )
        self.demand_warehouse()
        self._is_open = True

    def commit(self) -> None:
        """Commits the transaction."""
        self.demand_open()
        if self._driver.in_transaction:
            with mapped():
                self._driver.execute("COMMIT")
        self._end()

    def rollback(self) -> None:
        """Undoes the transaction; works on a closed session, too."""
        try:
            if self._driver.in_transaction:
                self._driver.execute("ROLLBACK")
        except sqlite3.Error:
            self.close()
        self._end()

    def close(self) -> None:
        """Rolls back the transaction, closes the connection, and releases the locks."""
        try:
            self._driver.close()
        except sqlite3.Error:
            return
        finally:
            self._end()
            while self._shown:
                _release(self._shown.pop())

    @property
    def owns_database(self) -> bool:
        """Whether the transaction has locked the database."""
        return self._driver.in_transaction

    def demand_open(self) -> None:
        """Raises if no transaction is open."""
        if not self._is_open:
            raise Transient("target-lost", "no transaction is open")

    def own_database(self) -> None:
        """Locks the database until this transaction ends: no other session can write."""
        if self._is_open and not self._driver.in_transaction:
            with mapped():
                self._driver.execute("BEGIN IMMEDIATE")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commits at the end of the block, or rolls back.

        A block inside an open transaction is part of that transaction.
        """
        if self._is_open:
            yield
            return
        self.begin()
        try:
            yield
        except BaseException:
            self.rollback()
            raise
        self.commit()

    def run(self, sql: str, values: Sequence[Any]) -> tuple[list[tuple[Any, ...]], int]:
        """Executes a statement in the SQL of the records; returns the rows and the number of rows matched."""
        found = _FIRST.match(sql)
        if (found is not None and found[1].upper() != "SELECT") or sql.endswith("FOR UPDATE"):
            self.own_database()
        self.trips += 1
        self.has_warehouse()
        with mapped():
            cursor = self._driver.execute(_in_sqlite(sql, self.meta_schema), tuple(values))
            return cursor.fetchall(), cursor.rowcount

    @contextmanager
    def locked(self, *name: object, everywhere: bool = False) -> Iterator[int]:
        """Holds a named lock until the block is left; yields its descriptor.

        If this process dies in the block, a process that has inherited the descriptor keeps the lock. Each meta schema
        has its own lock of this name; with `everywhere`, all meta schemas have the same lock.
        """
        descriptor = self._open_lock(name, everywhere=everywhere)
        try:
            _take(descriptor, fcntl.LOCK_EX, name)
            yield descriptor
        finally:
            _release(descriptor)

    def lock(self, *name: object, shared: bool = False) -> None:
        """Takes a named lock until the transaction ends; with `shared`, other sessions can share it."""
        self.demand_open()
        key = _digest(name)
        if key not in self._locks:
            self._locks[key] = self._open_lock(name)
        _take(self._locks[key], fcntl.LOCK_SH if shared else fcntl.LOCK_EX, name)

    def show(self, *name: object) -> None:
        """Takes a named lock until the session ends, unless another session holds it; `is_shown` tests for the lock."""
        descriptor = self._open_lock(name)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
        else:
            self._shown.append(descriptor)

    def is_shown(self, *name: object) -> bool:
        """Whether another session holds a named lock."""
        if not self.has_warehouse():
            return False
        descriptor = self._open_lock(name)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return True
        _release(descriptor)
        return False

    def _open_lock(self, name: Sequence[object], *, everywhere: bool = False) -> int:
        self.demand_warehouse()
        path = Path(self.warehouse) / LOCKS / f"{_digest(('' if everywhere else self.meta_schema, *name))}.lock"
        with mapped():
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _end(self) -> None:
        self._is_open = False
        while self._locks:
            _release(self._locks.popitem()[1])


def _connected(path: str) -> sqlite3.Connection:
    return sqlite3.connect(
        path,
        timeout=LOCK_SECONDS,
        isolation_level=None,
        check_same_thread=False,
        detect_types=sqlite3.PARSE_DECLTYPES,
    )


@contextmanager
def mapped() -> Iterator[None]:
    """Converts errors of SQLite and of the file system to PiDTS's own errors."""
    try:
        yield
    except sqlite3.ProgrammingError as error:
        raise Transient("target-lost", f"the catalog's connection is closed: {error}") from error
    except sqlite3.Error as error:
        said = str(error).lower()
        if isinstance(error, sqlite3.OperationalError) and any(word in said for word in (*_BUSY, *_FULL)):
            raise Transient("target-busy", f"the catalog answers: {error}") from error
        todo = "Remove the cause that the catalog names"
        raise Halted("target-refused", f"the catalog answers: {error}", todo=todo) from error
    except OSError as error:
        if error.errno in _REFUSED:
            raise Halted(
                "target-refused",
                f"the warehouse cannot be used: {error}",
                todo="Let the account read and write the files of the warehouse",
            ) from error
        raise Transient("target-busy", f"the warehouse cannot be written to: {error}") from error


@lru_cache(maxsize=2048)
def _in_sqlite(sql: str, meta_schema: str) -> str:
    """Translates a record's SQL, which is written for servers, to the SQL of SQLite."""
    sql = _EXISTS.sub(lambda found: f"sqlite_master WHERE name = '{meta_schema}_{found[1]}'", sql)
    sql = _NAMED.sub(lambda found: f'"{meta_schema}_{found[1]}"', sql)
    if found := _UPSERT.search(sql):
        sql = sql[: found.start()] + "ON CONFLICT DO UPDATE SET " + _VALUES.sub(r"excluded.\1", found[1])
    return sql.replace("CURRENT_TIMESTAMP(6)", _CLOCK).removesuffix("FOR UPDATE").replace("%s", "?")


def _digest(name: Sequence[object]) -> str:
    return hashlib.sha256("\0".join(map(str, name)).encode()).hexdigest()[:32]


def _take(descriptor: int, kind: int, name: Sequence[object]) -> None:
    until = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                what = f"another session holds the lock of {' '.join(map(str, name))}"
                raise Transient("target-busy", what) from None
            time.sleep(_PAUSE)
        else:
            return


def _release(descriptor: int) -> None:
    """Unlocks the file before closing it: otherwise a forked process, which has the descriptor, would keep the lock."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def _moment(text: bytes) -> datetime:
    return datetime.fromisoformat(text.decode()).replace(tzinfo=UTC)


sqlite3.register_converter("pidts_moment", _moment)
