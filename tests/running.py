"""Helpers for tests that watch a running task: connections to servers, and the progress of the task."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pymysql

from pidts.model import Lsn
from pidts.plan import PlanState
from pidts.sandbox import Server
from pidts.source.position import log_end

PIDTS = [sys.executable, "-m", "pidts"]
NO_TABLE = (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName, pymysql.err.ProgrammingError)
"""The errors of a target on which the task has not created its tables yet."""
NOT_THERE = (*NO_TABLE, pymysql.err.OperationalError)
"""The errors in `NO_TABLE`, and MySQL's error for a missing schema."""


def connect(server: Server, database: str | None = None) -> Any:
    """Opens a connection with the plain driver, in autocommit mode."""
    if server.kind == "postgres":
        return psycopg.connect(
            host=server.host,
            port=server.port,
            user=server.user,
            password=server.password,
            dbname=database or "postgres",
            autocommit=True,
        )
    return pymysql.connect(
        host=server.host,
        port=server.port,
        user=server.user,
        password=server.password,
        charset="utf8mb4",
        autocommit=True,
        ssl_disabled=True,
    )


class Progress:
    """The progress of a task, by its checkpoints on the target; with a source's name, only for this source.

    If the task's name is given, too, InnoDB locks no other rows.
    """

    def __init__(self, target: Any, source: str = "", task: str = "") -> None:
        self._cursor = target.cursor()
        named = {"task": task, "source": source}
        self._where = " AND ".join(f"{column} = '{name}'" for column, name in named.items() if name) or "TRUE"

    def states(self) -> list[PlanState]:
        """Returns the state of each worker."""
        try:
            self._cursor.execute(
                f"SELECT lsn, copy_progress FROM pidts_meta.checkpoint WHERE {self._where} ORDER BY worker"
            )
        except NOT_THERE:
            return []
        return [PlanState.from_checkpoint(Lsn.parse(lsn), copy) for lsn, copy in self._cursor.fetchall()]

    def batches(self) -> int:
        """Returns the number of batches so far."""
        try:
            self._cursor.execute(f"SELECT SUM(batch) FROM pidts_meta.checkpoint WHERE {self._where}")
        except NOT_THERE:
            return 0
        return int(self._cursor.fetchone()[0] or 0)

    def is_copied(self) -> bool:
        states = self.states()
        return bool(states) and not any(state.copying for state in states)

    def has(self, source: Any) -> Callable[[], bool]:
        """Returns a condition: whether the target has everything that the source's log has now, for all tables."""
        end = Lsn.at(log_end(source))
        return lambda: min((state.needs for state in self.states()), default=Lsn(0, 0, 0)) >= end

    @contextlib.contextmanager
    def held_back(self) -> Iterator[None]:
        """Prevents commits as long as the block lasts. The log that comes meanwhile is as large as a batch may be."""
        self._cursor.execute("BEGIN")
        self._cursor.execute(f"SELECT * FROM pidts_meta.checkpoint WHERE {self._where} FOR UPDATE")
        try:
            yield
        finally:
            self._cursor.execute("ROLLBACK")
