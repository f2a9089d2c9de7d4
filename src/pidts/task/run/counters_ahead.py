"""Keeps the sequences of a PostgreSQL target above the rows' AUTO_INCREMENT values (`pidts.counters-ahead`).

Rows from the log come with their AUTO_INCREMENT values, and a sequence does not follow these values. So if an
application wrote to the target without a cutover, its first INSERT would fail, with a number that a row already has. To
prevent this, a thread sets the sequences while the task runs. A sequence may be set at any time,
and only increases (except for the moment that `target/postgres/cutover/counters.py` describes). So nothing has to be
repaired after a crash.
"""

from __future__ import annotations

import threading
from contextlib import closing

import structlog

from pidts.batch.workers import Workers
from pidts.model import PidtsError, SourceTablesKey, TableName, Transient
from pidts.target.postgres import PostgresSession
from pidts.target.postgres.cutover.counters import move
from pidts.task.config.task_file import TaskConfig

_log = structlog.get_logger(__name__)

_PAUSE_SECONDS = 10.0


class CountersAhead:
    """Sets the sequences of one source's tables, in a separate thread, until it is closed."""

    def __init__(self, config: TaskConfig) -> None:
        self._config = config
        self._closed = threading.Event()
        if config.counters_ahead:
            threading.Thread(target=self._run, name="counters", daemon=True).start()

    def close(self) -> None:
        """Ends the thread without waiting for a server that does not answer."""
        self._closed.set()

    def _run(self) -> None:
        failed: set[TableName] = set()
        while not self._closed.is_set():
            try:
                with closing(self._config.target.server.connect()) as session:
                    assert isinstance(session, PostgresSession)  # noqa: S101 - the task file allows no other
                    while not self._closed.is_set():
                        move_counters(self._config, session, self._closed, failed)
                        self._closed.wait(_PAUSE_SECONDS)
            except PidtsError as error:
                _log.debug("counters are set later", source=self._config.source.source_id, cause=str(error))
                self._closed.wait(_PAUSE_SECONDS)


def move_counters(config: TaskConfig, session: PostgresSession, stop: threading.Event, failed: set[TableName]) -> None:
    """Raises the sequences that are below the rows' AUTO_INCREMENT values, and creates missing ones.

    Tables whose copy is not done are left out. A table whose sequence cannot be set is added to `failed`, so that a
    warning about it is logged only once.
    """
    source = config.source.source_id
    rows = tuple(session.meta.checkpoints.read(config.name, source))
    if not rows:
        return
    _, state, _ = Workers.claimed(rows)
    stored = session.meta.structures.load(config.name, SourceTablesKey(source))
    for name, table in stored.items():
        if stop.is_set():
            return
        counts = any(column.auto_increment for column in table.columns)
        if not counts or name in state.unfinished or not config.allow(name):
            continue
        try:
            session.schema.forget()
            move(session, config.rules.target_table(table), 1)
        except PidtsError as error:
            session.rollback()
            if session.driver.closed:
                raise
            say = _log.debug if isinstance(error, Transient) or name in failed else _log.warning
            say("a counter stays below the numbers in the rows", source=source, table=str(name), cause=str(error))
            failed |= set() if isinstance(error, Transient) else {name}
