"""Keeps the counters of a PostgreSQL target behind the rows while a task runs, if the task file asks for it.

Rows that come by the log bring their numbers, and a sequence does not follow them: the first INSERT of an application
that does not wait for a cutover would fail. A counter is only moved forward, and moving may be repeated, so nothing has
to be put right after a crash.
"""

from __future__ import annotations

import threading
from contextlib import closing

import structlog

from pidts.model import OfSource, PidtsError
from pidts.target.postgres import PostgresSession
from pidts.target.postgres.counters import move
from pidts.task.config.task_file import TaskConfig

_log = structlog.get_logger(__name__)

_PAUSE_SECONDS = 10.0


class CountersAhead:
    """Moves the counters of one source's tables, in a thread of its own, until it is closed."""

    def __init__(self, config: TaskConfig) -> None:
        self._config = config
        self._closed = threading.Event()
        if config.counters_ahead:
            threading.Thread(target=self._run, name="counters", daemon=True).start()

    def close(self) -> None:
        """Ends it; a server that does not answer is not waited for."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                with closing(self._config.target.server.connect()) as session:
                    assert isinstance(session, PostgresSession)  # noqa: S101 - the task file allows no other
                    while not self._closed.is_set():
                        move_counters(self._config, session, self._closed)
                        self._closed.wait(_PAUSE_SECONDS)
            except PidtsError as error:
                _log.debug("counters are moved later", source=self._config.source.source_id, cause=str(error))
                self._closed.wait(_PAUSE_SECONDS)


def move_counters(config: TaskConfig, session: PostgresSession, stop: threading.Event) -> None:
    """Moves the counters that are behind the rows of the part's tables."""
    stored = session.meta.structures.load(config.name, OfSource(config.source.source_id))
    for name, table in stored.items():
        if stop.is_set():
            return
        if config.allow(name) and any(column.auto_increment for column in table.columns):
            session.schema.forget()
            move(session, config.rules.target_table(table), 1)
