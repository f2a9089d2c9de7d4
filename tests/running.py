"""What tests share that watch a task at work: sessions on servers, and how far the task is."""

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
"""What a target answers before the task has come to create its tables."""
NOT_THERE = (*NO_TABLE, pymysql.err.OperationalError)
"""MySQL says so of a missing schema."""


def connect(server: Server, database: str | None = None) -> Any:
    """A plain driver's connection, autocommit."""
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
    """How far a task is, by its checkpoints on the target; with a source's name, how far it is with that one.

    With the task's name, too, InnoDB locks no other rows.
    """

    def __init__(self, target: Any, source: str = "", task: str = "") -> None:
        self._cursor = target.cursor()
        named = {"task": task, "source": source}
        self._where = " AND ".join(f"{column} = '{name}'" for column, name in named.items() if name) or "TRUE"

    def states(self) -> list[PlanState]:
        """Each worker's."""
        try:
            self._cursor.execute(
                f"SELECT lsn, copy_progress FROM pidts_meta.checkpoint WHERE {self._where} ORDER BY worker"
            )
        except NOT_THERE:
            return []
        return [PlanState.from_checkpoint(Lsn.parse(lsn), copy) for lsn, copy in self._cursor.fetchall()]

    def batches(self) -> int:
        """How many there have been."""
        try:
            self._cursor.execute(f"SELECT SUM(batch) FROM pidts_meta.checkpoint WHERE {self._where}")
        except NOT_THERE:
            return 0
        return int(self._cursor.fetchone()[0] or 0)

    def is_copied(self) -> bool:
        states = self.states()
        return bool(states) and not any(state.copying for state in states)

    def has(self, source: Any) -> Callable[[], bool]:
        """Whether everything that the source's log has now is there, of all tables."""
        end = Lsn.at(log_end(source))
        return lambda: min((state.needs for state in self.states()), default=Lsn(0, 0, 0)) >= end

    @contextlib.contextmanager
    def held_back(self) -> Iterator[None]:
        """Nothing is committed meanwhile; what comes to the log then is as much as a batch takes."""
        self._cursor.execute("BEGIN")
        self._cursor.execute(f"SELECT * FROM pidts_meta.checkpoint WHERE {self._where} FOR UPDATE")
        try:
            yield
        finally:
            self._cursor.execute("ROLLBACK")
