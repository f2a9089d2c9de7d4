"""Writes a heartbeat row to the source at intervals, if the task file asks for it.

This machine's clock gives the time at which a heartbeat is committed, with the precision of a round trip. So each
heartbeat measures the lag of receiving, even if no program writes to the source, and even if the source's events have
times in whole seconds.

On the source, the heartbeat's table is in a schema with the name of the meta schema. No task replicates this schema.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic
from typing import Final

import structlog

from pidts.model import PidtsError, TableName
from pidts.model.errors import Transient
from pidts.source import Session, query
from pidts.source.structures import quoted, quoted_table

HEARTBEAT_TABLE: Final = "heartbeat"
_LOCK_SECONDS: Final = 5
"""The longest wait of a heartbeat for a lock: without a limit, the server would wait even after the client has gone."""
_AGAIN_SECONDS: Final = 60.0
"""If the source has refused a heartbeat, the next heartbeat is tried after this many seconds."""
_logger: structlog.stdlib.BoundLogger = structlog.get_logger("pidts.replicate")


@dataclass(frozen=True, slots=True)
class HeartbeatConfig:
    """The interval of heartbeats, and their table's schema."""

    seconds: float
    schema: str
    task: str


class Heartbeat:
    """Writes the heartbeats of one task. If the source refuses them, its log is received without heartbeats."""

    def __init__(self, config: HeartbeatConfig, source_id: str) -> None:
        self._config = config
        self._table = TableName(config.schema, HEARTBEAT_TABLE)
        self._log = _logger.bind(source=source_id)
        self._limited: Session | None = None
        """The connection on which the limit for lock waits has been set."""
        self._is_there = False
        self._not_before = 0.0
        self._refused = ""

    @property
    def seconds(self) -> float:
        """The time between two heartbeats."""
        return self._config.seconds

    def write(self, session: Session) -> bool:
        """Commits a heartbeat; returns whether the source has accepted it. Raises if the connection is lost."""
        if monotonic() < self._not_before:
            return False
        try:
            if session is not self._limited:
                wait = f"lock_wait_timeout = {_LOCK_SECONDS}, innodb_lock_wait_timeout = {_LOCK_SECONDS}"
                query(session, f"SET SESSION {wait}")
                self._limited = session
            if not self._is_there:
                self._prepare(session)
            query(
                session,
                f"INSERT INTO {quoted_table(self._table)} (task, at) VALUES (%s, UTC_TIMESTAMP(6)) "
                "ON DUPLICATE KEY UPDATE at = UTC_TIMESTAMP(6)",
                [self._config.task],
            )
        except Transient:
            raise
        except PidtsError as error:
            self._is_there, self._not_before = False, monotonic() + _AGAIN_SECONDS
            if error.what != self._refused:
                self._log.warning("the source refuses the heartbeat", code=error.code, what=error.what, todo=error.todo)
            self._refused = error.what
            return False
        self._refused = ""
        return True

    def _prepare(self, session: Session) -> None:
        """Creates the table if it is missing. An account that may not create tables can use an existing table."""
        where = [self._table.schema, self._table.name]
        found = query(
            session, "SELECT 1 FROM information_schema.tables WHERE table_schema = %s AND table_name = %s", where
        )
        if not found:
            query(session, f"CREATE DATABASE IF NOT EXISTS {quoted(self._table.schema)}")
            query(
                session,
                f"CREATE TABLE IF NOT EXISTS {quoted_table(self._table)} "
                "(task VARCHAR(191) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PRIMARY KEY, at DATETIME(6) NOT NULL) "
                "ENGINE = InnoDB",
            )
        self._is_there = True
