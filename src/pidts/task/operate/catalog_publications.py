"""Publishes the tables of a warehouse to the catalog of a server, while a task runs, and at its end."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING

import structlog

from pidts.model import PidtsError, Transient
from pidts.task.config.task_file import TaskConfig

if TYPE_CHECKING:
    from pidts.target.iceberg.session import IcebergSession

_LOOK_SECONDS, _AGAIN_SECONDS = 1.0, 10.0

_log = structlog.get_logger(__name__)


class CatalogPublications:
    """Publishes whenever the warehouse has changed, in a separate thread, until it is closed.

    Each part of a run has an object of this class. Each object publishes the whole warehouse, but never two objects at
    the same time.
    """

    def __init__(self, config: TaskConfig, lock: threading.Lock, show_lag: Callable[[float], None]) -> None:
        self._config, self._lock, self._show_lag = config, lock, show_lag
        self._closed = threading.Event()
        self._cause = ""
        """The error that was logged last; empty after a publication without an error."""
        self._is_wanted = config.target.publish_to is not None
        self._thread = threading.Thread(target=self._run, name="publish", daemon=True)
        if config.target.type == "iceberg":
            with closing(self._session()) as session:
                self._register(session)
        if self._is_wanted:
            self._thread.start()

    def close(self) -> None:
        """Ends the thread without waiting for a publication. A publication may be interrupted at any point."""
        self._closed.set()

    def finish(self, stop: threading.Event) -> None:
        """Publishes the final state of a run that ends by itself. Waits for the server until `stop` is set."""
        if not self._is_wanted:
            return
        self.close()
        while self._thread.is_alive() and not stop.is_set():
            self._thread.join(_LOOK_SECONDS)
        while not stop.is_set():
            try:
                with self._lock, closing(self._session()) as session:
                    self._publish(session, whole=False)
                return
            except Transient as error:
                _log.warning("the tables are published later", cause=str(error))
            stop.wait(_LOOK_SECONDS)

    def _run(self) -> None:
        pause = _LOOK_SECONDS
        while not self._closed.wait(pause):
            try:
                with closing(self._session()) as session:
                    self._note_lag(session)
                    self._watch(session)
            except Exception as error:  # noqa: BLE001 - without this thread, readers would see old tables for ever
                if self._cause != str(error):
                    self._cause, is_known = str(error), isinstance(error, PidtsError)
                    _log.warning("the tables are published later", cause=self._cause, exc_info=not is_known)
                pause = _AGAIN_SECONDS

    def _watch(self, session: IcebergSession) -> None:
        """Publishes when the warehouse's catalog has changed. If a table has a problem, tries again after a while."""
        version, whole, again_at = None, True, math.inf
        while not self._closed.wait(_LOOK_SECONDS):
            rows, _ = session.run("PRAGMA data_version", ())
            if (version == rows and time.monotonic() < again_at) or not self._lock.acquire(blocking=False):
                continue
            try:
                is_done = self._publish(session, whole=whole)
            finally:
                self._lock.release()
            self._note_lag(session)
            version, whole, self._cause = rows, False, ""
            again_at = math.inf if is_done else time.monotonic() + _AGAIN_SECONDS

    def _note_lag(self, session: IcebergSession) -> None:
        from pidts.target.iceberg.publication import server_state

        if (server := self._config.target.server_catalog) is not None:
            self._show_lag(server_state(session, server.place).lag_seconds)

    def _session(self) -> IcebergSession:
        from pidts.target.iceberg.session import IcebergSession

        session = self._config.target.server.connect()
        assert isinstance(session, IcebergSession)  # noqa: S101 - that is its type
        return session

    def _register(self, session: IcebergSession) -> None:
        """Records the catalog to which the task publishes. Files that only a former catalog needs may be removed."""
        from pidts.target.iceberg.server_record import ServerRecord  # loads pyiceberg, which other targets do not need

        server = self._config.target.server_catalog
        ServerRecord(session).register("" if server is None else server.place, self._config.name)

    def _publish(self, session: IcebergSession, *, whole: bool) -> bool:
        from pidts.target.iceberg.publication import publish

        server = self._config.target.server_catalog
        return server is None or publish(session, server, whole=whole)
