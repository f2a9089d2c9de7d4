"""Publishes the tables of a warehouse every `pidts.hive.refresh`, while a task runs, and at its end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing

import structlog

from pidts.apply import TargetSession
from pidts.model import PidtsError, Transient
from pidts.task.config.task_file import TaskConfig
from pidts.task.operate.warehouse import publications

_LOOK_SECONDS, _AGAIN_SECONDS = 2.0, 30.0

_log = structlog.get_logger(__name__)


class Publications:
    """Publishes in a thread of its own until it is closed."""

    def __init__(self, config: TaskConfig, parts: Callable[[], Sequence[TaskConfig]]) -> None:
        self._config, self._parts = config, parts
        self._closed = threading.Event()
        self._last = 0.0
        """When the last publication of this thread began."""
        self._is_late = False
        """Whether the last publication has failed."""
        self._thread = threading.Thread(target=self._run, name="publish", daemon=True)
        if self._is_wanted:
            self._thread.start()

    @property
    def _is_wanted(self) -> bool:
        """One part of the task publishes the tables of all of them."""
        config = self._config
        return config.target.type == "hive" and config.source.source_id == self._parts()[0].source.source_id

    def close(self) -> None:
        """Ends it; a publication under way is not waited for, and may break off at any point."""
        self._closed.set()

    def finish(self, stop: threading.Event) -> None:
        """Publishes what a run has reached that ends by itself; waits for the metastore, or until it has to stop."""
        if not self._is_wanted:
            return None
        self.close()
        self._thread.join()
        while True:
            try:
                with closing(self._config.target.server.connect()) as session:
                    return _publish(self._parts(), session)
            except Transient as error:
                _log.warning("the tables are published later", cause=str(error))
            if stop.wait(_LOOK_SECONDS):
                return None

    def _run(self) -> None:
        pause = _LOOK_SECONDS
        while not self._closed.wait(pause):
            pause = _LOOK_SECONDS
            try:
                with closing(self._config.target.server.connect()) as session:
                    if self._is_due(session):
                        _publish(self._parts(), session)
            except Exception as error:  # noqa: BLE001 - whatever it is, readers would see an old state for ever
                pause, self._is_late = _AGAIN_SECONDS, True
                is_known = isinstance(error, PidtsError)
                _log.warning("the tables are published later", cause=str(error), exc_info=not is_known)

    def _is_due(self, session: TargetSession) -> bool:
        """Whether the last publication is long ago, of whichever part of the task, or run."""
        known = publications(session).of(self._config.name).values()
        now, last = time.time(), max((one.read_at for one in known), default=0.0)
        pause = self._config.hive_refresh if known else 0.0  # the first one follows the first copied table
        if not self._is_late and (0 <= now - last < pause or 0 <= now - self._last < pause):
            return False
        self._last, self._is_late = now, False
        return True


def _publish(parts: Sequence[TaskConfig], session: TargetSession) -> None:
    from pidts.target.hive.session import HiveSession  # with pyiceberg, which other targets do without
    from pidts.task.operate.publication import publish

    assert isinstance(session, HiveSession)  # noqa: S101 - that is its type
    publish(parts, session)
